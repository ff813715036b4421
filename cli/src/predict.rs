//! `stealtime lab predict`: what the simulator, with costs measured in the lab, says of runs that the lab then
//! makes.
//!
//! Both are free of noise, so a difference is something that the simulator leaves out.

use crate::args::{BackendChoice, Conditions, LabArgs, PredictArgs};
use crate::execute::{self, Remarks};
use crate::failure::{Blame, Failure, Outcome, Status};
use crate::interrupt;
use crate::lab::Choice;
use crate::planning::Setting;
use crate::show;
use anyhow::{Context, anyhow};
use std::fmt::{self, Write};
use stealtime_report::{Collector, Report};
use stealtime_scheduler::spec::PolicySpec;
use stealtime_scheduler::time::Nanos;
use stealtime_sim::SimBackend;
use stealtime_sim::cost::CostModel;
use stealtime_workloads::run::{Backend, Plan};

/// What is predicted if nothing is asked for: scenarios of one core that are in full swing at once.
///
/// Three are under `cfs`, which preempts for whoever wakes. Under their own policy many wake-ups wait for the end of a
/// slice; the median of a few dozen such waits goes by how slices and sleeps happen to meet, and another
/// build of the program moves it by more than the simulator is off.
const USUAL: [(&str, &str); 6] = [
    ("weights", "eevdf:slice=3ms"),
    ("nice", "cfs"),
    ("periodic", "cfs"),
    ("ping", "eevdf"),
    ("sleeper", "cfs"),
    ("yield", "rr"),
];

/// How far a share may be off, of a core.
const SHARE: f64 = 0.005;
/// How far a median may be off, of what was measured.
const MEDIAN: f64 = 0.10;
/// Fewer wake-ups than these have no median worth comparing.
const FEWEST: u64 = 30;

/// How long is measured, and before that not: what an exact run does in about a quarter of a minute.
const DURATION: Nanos = Nanos::from_secs(1);
const WARMUP: Nanos = Nanos::from_millis(100);

/// Runs every scenario in both, and compares.
///
/// # Errors
/// If there is no lab, or a run did not take place.
pub fn predict(arguments: &PredictArgs) -> Outcome {
    let remarks = Remarks::new(arguments.quiet);
    let settings = settings(arguments)?;
    let costs = match &arguments.costs {
        Some(file) => CostModel::load(file).bad_input()?,
        None => {
            remarks.tell("measuring costs in the lab");
            Choice::exact().costs(remarks)?
        }
    };
    let mut table = String::from(HEAD);
    let (mut rows, mut off) = (0, 0);
    for (setting, plan) in &settings {
        remarks.tell(&format!("{} under {}", plan.scenario, plan.policy));
        let lab = execute::run(setting, plan, &plan.scenario, remarks, None)?.report;
        if lab.interrupted {
            return Ok(Status::Interrupted);
        }
        for row in compare(&lab, &simulate(plan, &costs)?) {
            rows += 1;
            off += usize::from(!row.good());
            let _ = writeln!(table, "{row}");
        }
    }
    show::print(&table).not_kept()?;
    if off > 0 {
        eprintln!(
            "check failed: {off} of {rows} predictions are off by more than {:.1} points of a share or \
             {:.0} % of a median",
            SHARE * 100.0,
            MEDIAN * 100.0
        );
        return Ok(Status::CheckFailed);
    }
    Ok(Status::Done)
}

fn settings(arguments: &PredictArgs) -> Result<Vec<(Setting, Plan)>, Failure> {
    let usual = |name: &str| USUAL.iter().find(|(scenario, _)| *scenario == name);
    let mut wanted: Vec<(&str, Option<PolicySpec>)> = Vec::new();
    let names = arguments.scenarios.iter().map(String::as_str);
    let all = USUAL.iter().map(|(scenario, _)| *scenario);
    let names: Vec<&str> = if arguments.scenarios.is_empty() {
        all.collect()
    } else {
        names.collect()
    };
    for name in names {
        let policy = match (&arguments.policy, usual(name)) {
            (Some(policy), _) => Some(policy.clone()),
            (None, Some((_, policy))) => Some(crate::args::policy(policy).map_err(bad)?),
            (None, None) => None,
        };
        wanted.push((name, policy));
    }
    let conditions = Conditions {
        backend: BackendChoice::Lab,
        lab: LabArgs {
            exact: true,
            lab_cores: None,
        },
        duration: Some(DURATION),
        warmup: Some(WARMUP),
        ..Conditions::default()
    };
    let settings = wanted.into_iter().map(|(name, policy)| {
        let setting = Setting::new(name, &conditions)?;
        let plan = setting.plan(policy.as_ref())?;
        Ok((setting, plan))
    });
    settings.collect()
}

fn bad(message: String) -> Failure {
    Failure::new(Status::BadInput, anyhow!(message))
}

fn simulate(plan: &Plan, costs: &CostModel) -> Result<Report, Failure> {
    let mut sim = SimBackend::new(costs.clone());
    let mut collector = Collector::new(plan);
    let outcome = sim
        .run(plan, interrupt::flag(), &mut collector)
        .context("the run did not take place")
        .machine()?;
    Ok(Report::build(plan, sim.name(), collector, &outcome))
}

/// A vCPU, measured and predicted.
#[derive(Clone, PartialEq, Debug)]
struct Row {
    scenario: String,
    policy: String,
    vcpu: String,
    share: Pair,
    /// None if it woke too seldom.
    wakeup_ns: Option<Pair>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Pair {
    lab: f64,
    sim: f64,
}

fn compare(lab: &Report, sim: &Report) -> Vec<Row> {
    let vcpus = lab.vcpus.iter().zip(&sim.vcpus);
    let rows = vcpus.map(|(measured, predicted)| {
        let (a, b) = (&measured.wakeup_ns, &predicted.wakeup_ns);
        Row {
            scenario: lab.scenario.clone(),
            policy: lab.policy.clone(),
            vcpu: format!("{}/{}", measured.vm, measured.vcpu),
            share: Pair {
                lab: measured.share,
                sim: predicted.share,
            },
            wakeup_ns: (a.count.min(b.count) >= FEWEST).then_some(Pair {
                lab: a.p50 as f64,
                sim: b.p50 as f64,
            }),
        }
    });
    rows.collect()
}

impl Row {
    fn good(&self) -> bool {
        let median = self
            .wakeup_ns
            .is_none_or(|median| median.ratio().abs() <= MEDIAN);
        self.share.difference().abs() <= SHARE && median
    }
}

impl Pair {
    fn difference(self) -> f64 {
        self.sim - self.lab
    }

    fn ratio(self) -> f64 {
        self.sim / self.lab - 1.0
    }
}

const HEAD: &str = "\
| scenario, policy | vCPU | share, lab | sim | difference | median wake-up, lab | sim | difference |
|---|---|---:|---:|---:|---:|---:|---:|
";

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "| {}, `{}` | {} | {:.2} % | {:.2} % | {:+.2} |",
            self.scenario,
            self.policy,
            self.vcpu,
            self.share.lab * 100.0,
            self.share.sim * 100.0,
            self.share.difference() * 100.0
        )?;
        match self.wakeup_ns {
            None => write!(f, " - | - | - |"),
            Some(median) => write!(
                f,
                " {:.1} us | {:.1} us | {:+.1} % |",
                median.lab / 1e3,
                median.sim / 1e3,
                median.ratio() * 100.0
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(share: (f64, f64), wakeup_ns: Option<(f64, f64)>) -> Row {
        let pair = |(lab, sim)| Pair { lab, sim };
        Row {
            scenario: "s".into(),
            policy: "p".into(),
            vcpu: "a/b".into(),
            share: pair(share),
            wakeup_ns: wakeup_ns.map(pair),
        }
    }

    #[test]
    fn a_prediction_holds_if_share_and_median_do() {
        assert!(row((0.500, 0.504), None).good());
        assert!(!row((0.500, 0.506), None).good());
        assert!(row((0.5, 0.5), Some((1_000.0, 909.0))).good());
        assert!(!row((0.5, 0.5), Some((1_000.0, 1_110.0))).good());
    }

    #[test]
    fn a_row_has_as_many_cells_as_the_head() {
        let cells = |line: &str| line.matches('|').count();
        let head = HEAD.lines().next().expect("a line");
        for row in [row((0.1, 0.2), None), row((0.1, 0.2), Some((1.0, 2.0)))] {
            assert_eq!(cells(&row.to_string()), cells(head), "{row}");
        }
    }

    #[test]
    fn the_usual_scenarios_can_be_run_under_their_policies_on_one_core() {
        let arguments = PredictArgs::default();
        for (setting, plan) in settings(&arguments).expect("all known") {
            assert_eq!(plan.cores, [0], "{setting:?}");
        }
    }
}
