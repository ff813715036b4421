//! Running the cases of a reproduction in turn.

use super::measured::{Run, Trace};
use super::model::{Case, Place, Reproduction};
use super::outcome::{CaseOutcome, Outcome, RowOutcome};
use crate::args::{BackendChoice, Conditions};
use crate::cores::{self, CoreList};
use crate::execute::{self, Remarks};
use crate::failure::{Blame, Failure};
use crate::interrupt;
use crate::planning::Setting;
use anyhow::anyhow;
use stealtime_scheduler::spec::PolicySpec;
use stealtime_scheduler::time::Nanos;
use stealtime_workloads::scenario::{DEFAULT_SEED, Scenario, embedded_text};

/// A parameter with another value than the documented one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    /// Where its value stands.
    pub(super) place: Place,
    /// The documented value.
    pub(super) documented: &'static str,
    /// The value instead.
    pub(super) value: &'static str,
}

/// Under which conditions a reproduction runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Orders<'a> {
    /// What was asked for at the command line, with the backend decided.
    pub(super) conditions: &'a Conditions,
    /// How many rounds.
    pub(super) repeat: u32,
    /// Whether to tell what goes on.
    pub(super) remarks: Remarks,
    /// A parameter that is varied.
    pub(super) change: Option<Change>,
    /// Whether it is set up as on KVM here whatever the backend: with less to do, and on no more cores than there
    /// are.
    pub(super) as_on_kvm: bool,
}

/// How outcomes of the simulator are called where it was set up as KVM was.
pub(super) const SIM_AS_KVM: &str = "sim as kvm";

/// Whether some case is set up otherwise on KVM here than it is in the simulator: another scenario, or other cores.
///
/// # Errors
/// If a case cannot be set up.
pub(super) fn differs_on_kvm(
    reproduction: &'static Reproduction,
    conditions: &Conditions,
) -> Result<bool, Failure> {
    for case in reproduction.cases {
        let asked = |as_on_kvm| {
            let asked = case.asked(conditions.backend, as_on_kvm);
            let scenario = Scenario::load(asked).bad_input()?;
            let cores = cores(&scenario, conditions, as_on_kvm)?;
            let count = cores.map_or(usize::from(scenario.cores), |cores| cores.0.len());
            Ok::<_, Failure>((asked, count))
        };
        if asked(false)? != asked(true)? {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Case {
    /// The scenario that runs on a backend, with its parameters.
    fn asked(&self, backend: BackendChoice, as_on_kvm: bool) -> &'static str {
        let on_kvm = as_on_kvm || matches!(backend, BackendChoice::Kvm | BackendChoice::Auto);
        self.on_kvm.filter(|_| on_kvm).unwrap_or(self.scenario)
    }
}

/// The cores that a scenario runs on, if not as many as it asks for.
///
/// # Errors
/// If the system does not say which there are.
fn cores(
    scenario: &Scenario,
    conditions: &Conditions,
    as_on_kvm: bool,
) -> Result<Option<CoreList>, Failure> {
    let simulated = conditions.backend == BackendChoice::Sim;
    if conditions.cores.is_some() || (simulated && !as_on_kvm) {
        return Ok(conditions.cores.clone());
    }
    // What asks for more cores than there are runs on those that there are.
    let there = cores::allowed().machine()?;
    Ok((there.0.len() < usize::from(scenario.cores)).then_some(there))
}

/// Runs all rounds. None if the user ended it early.
///
/// # Errors
/// If a run did not take place.
pub(super) fn run(
    reproduction: &'static Reproduction,
    orders: Orders<'_>,
) -> Result<Option<Outcome>, Failure> {
    let mut outcome = Outcome {
        backend: "",
        cases: Vec::new(),
        rows: Vec::new(),
    };
    outcome
        .rows
        .extend(reproduction.rows.iter().map(|row| RowOutcome {
            row,
            of: Vec::new(),
            against: Vec::new(),
        }));
    let mut settings = Vec::new();
    for case in reproduction.cases {
        settings.push(prepare(case, orders)?);
    }
    for round in 1..=orders.repeat {
        for row in &mut outcome.rows {
            row.of.push(None);
            row.against.push(None);
        }
        for (case, (setting, policy, seed)) in reproduction.cases.iter().zip(&settings) {
            let mut plan = setting.plan(Some(policy))?;
            // Every round has lengths of its own, the same for all cases.
            plan.seed = seed + u64::from(round - 1);
            let name = reproduction.name;
            let label = format!("{name}: {} {round}/{}", case.name, orders.repeat);
            let mut trace = Trace::default();
            let ran = execute::observed(setting, &plan, &label, orders.remarks, &mut trace)?;
            if interrupt::pressed() {
                return Ok(None);
            }
            outcome.backend = match (orders.as_on_kvm, setting.backend.name()) {
                (true, "sim") => SIM_AS_KVM,
                (_, name) => name,
            };
            let run = Run::new(&plan, &ran.report, &trace);
            outcome.take(reproduction, case, &run);
        }
    }
    Ok(Some(outcome))
}

impl Outcome {
    /// Takes the figures of a run of the newest round.
    fn take(&mut self, reproduction: &'static Reproduction, case: &'static Case, run: &Run<'_>) {
        for outcome in &mut self.rows {
            let row = outcome.row;
            if row.of == case.name {
                outcome.of.pop();
                outcome.of.push((row.figure)(run));
            }
            if row.against == Some(case.name) {
                outcome.against.pop();
                outcome.against.push((row.figure)(run));
            }
        }
        let explained = reproduction.explained.as_ref();
        let measures = explained.map_or(&[][..], |explained| explained.measures);
        let figures = measures.iter().map(|measure| (measure.figure)(run));
        let mut cases = self.cases.iter_mut();
        if let Some(known) = cases.find(|known| known.case.name == case.name) {
            known.taken.push(run.report.interference());
            for (rounds, figure) in known.measures.iter_mut().zip(figures) {
                rounds.push(figure);
            }
        } else {
            let histogram = reproduction.histogram.as_ref();
            let queues = explained.filter(|explained| explained.queues);
            let measures = figures.map(|figure| vec![figure]).collect();
            self.cases.push(CaseOutcome {
                case,
                plan: run.plan.clone(),
                diagnosis: run.report.diagnosis.text.clone(),
                notes: run.report.quality.notes.clone(),
                taken: vec![run.report.interference()],
                histogram: histogram.map(|shown| (shown.of)(run)),
                measures,
                queues: queues.map(|_| run.traffic().over_time()),
            });
        }
    }
}

/// The setting, the policy and the first round's seed of a case.
fn prepare(case: &'static Case, orders: Orders<'_>) -> Result<(Setting, PolicySpec, u64), Failure> {
    let asked = case.asked(orders.conditions.backend, orders.as_on_kvm);
    let name = asked.split(':').next().unwrap_or(asked);
    let mut text = embedded_text(name)
        .ok_or_else(|| anyhow!("there is no scenario `{name}`"))
        .bad_input()?
        .to_owned();
    let mut policy: PolicySpec = case.policy.parse().bad_input()?;
    match orders.change.map(|change| (change.place, change)) {
        Some((Place::Scenario(template), change)) => {
            let old = template.replace("{}", change.documented);
            text = text.replace(&old, &template.replace("{}", change.value));
        }
        Some((Place::Policy(option), change)) => {
            let options = &mut policy.policy.options;
            options.retain(|(known, _)| known != option);
            options.push((option.to_owned(), change.value.to_owned()));
        }
        None => {}
    }
    let scenario = Scenario::parse_as(asked, &text).bad_input()?;
    let mut conditions = orders.conditions.clone();
    conditions.cores = cores(&scenario, &conditions, orders.as_on_kvm)?;
    let base = conditions.duration.unwrap_or(scenario.duration);
    conditions.duration = Some(Nanos(base.get() * case.halves / 2));
    let seed = conditions.seed.unwrap_or(DEFAULT_SEED);
    Ok((Setting::of(scenario, &conditions)?, policy, seed))
}

#[cfg(test)]
mod tests {
    use super::super::findings;
    use super::*;

    fn simulated() -> Conditions {
        Conditions {
            backend: BackendChoice::Sim,
            ..Conditions::default()
        }
    }

    #[test]
    fn kvm_differs_where_it_has_less_to_do_or_fewer_cores() {
        let there = cores::allowed().expect("some").0.len();
        let wanted = |case: &Case| usize::from(Scenario::load(case.scenario).expect("known").cores);
        let asked = Conditions {
            cores: Some(CoreList(vec![0])),
            ..simulated()
        };
        for finding in findings::ALL {
            let less = finding.cases.iter().any(|case| case.on_kvm.is_some());
            let fewer = finding.cases.iter().any(|case| wanted(case) > there);
            let differs = |on: Conditions| differs_on_kvm(finding, &on).expect("set up");
            assert_eq!(differs(simulated()), less || fewer, "{}", finding.name);
            assert_eq!(
                differs(asked.clone()),
                less,
                "{}: cores were named",
                finding.name
            );
        }
    }

    /// What is asked before a run is no run: it tells users nothing, of a policy that is replaced say.
    #[test]
    fn whether_kvm_differs_is_asked_without_a_look_at_policies() {
        const NONE: Case = Case::new("x", "starvation", "nosuch");
        static FINDING: Reproduction = Reproduction {
            name: "x",
            title: "",
            place: "",
            history: "",
            mechanism: "",
            model: "",
            left_out: "",
            cases: &[
                NONE,
                Case {
                    on_kvm: Some("sleeper"),
                    ..NONE
                },
            ],
            rows: &[],
            histogram: None,
            explained: None,
            knobs: &[],
        };
        assert!(differs_on_kvm(&FINDING, &simulated()).expect("no policy is looked at"));
    }
}
