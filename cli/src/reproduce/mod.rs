//! `stealtime reproduce`: a published finding, with the fault and with the fix.
//!
//! A finding is a scenario, the ways to run it, and a criterion for each way. The ways run in turn,
//! as often as asked; the verdict is computed from the reports.

mod criterion;
mod kpri_fss;
mod print;

use crate::args::{self, ReproduceArgs};
use crate::execute::{self, Remarks};
use crate::failure::{Blame, Outcome, Status};
use crate::interrupt;
use crate::planning::Setting;
use crate::show;
use anyhow::Result;
use criterion::{Row, Verdict};
use stealtime_report::Report;
use stealtime_scheduler::spec::PolicySpec;
use stealtime_workloads::run::Plan;

/// One way to run a finding's scenario.
#[derive(Debug)]
struct Way {
    name: &'static str,
    policy: &'static str,
}

/// What is known of a published finding.
#[derive(Debug)]
struct Finding {
    name: &'static str,
    title: &'static str,
    /// Where and when it was seen.
    place: &'static str,
    /// What happened.
    story: &'static str,
    scenario: &'static str,
    ways: &'static [Way],
    /// The line of a way, from the reports of its runs.
    judge: fn(&Way, &Plan, &[Report]) -> Result<Row>,
}

/// All that came of it.
#[derive(Debug)]
struct Reproduction<'a> {
    finding: &'a Finding,
    backend: &'static str,
    /// The plan of the first way; the others differ in the policy only.
    plan: Plan,
    rows: Vec<Row>,
    /// What the report of the first run of each way says.
    diagnoses: Vec<(&'static str, String)>,
}

impl Reproduction<'_> {
    fn verdict(&self) -> Verdict {
        let met = |row: &Row| row.verdict() == Verdict::Met;
        if self.rows.iter().all(met) {
            Verdict::Met
        } else {
            Verdict::NotMet
        }
    }
}

/// Runs a finding and judges it.
///
/// # Errors
/// If a run did not take place, or the outcome could not be printed.
pub fn reproduce(arguments: &ReproduceArgs) -> Outcome {
    let finding = match arguments.name {
        args::Finding::KpriFss => &kpri_fss::FINDING,
    };
    let setting = Setting::new(finding.scenario, &arguments.conditions)?;
    let mut ways = Vec::new();
    for way in finding.ways {
        let policy: PolicySpec = way.policy.parse().bad_input()?;
        ways.push((way, setting.plan(Some(&policy))?, Vec::new()));
    }
    let remarks = Remarks::new(arguments.quiet);
    for round in 1..=arguments.repeat {
        for (way, plan, reports) in &mut ways {
            let label = format!("{} {round}/{}", way.name, arguments.repeat);
            let ran = execute::run(&setting, plan, &label, remarks, None)?;
            reports.push(ran.report);
            if interrupt::pressed() {
                eprintln!("ended early: too little was measured for a verdict");
                return Ok(Status::Interrupted);
            }
        }
    }
    let (mut rows, mut diagnoses) = (Vec::new(), Vec::new());
    for (way, plan, reports) in &ways {
        rows.push((finding.judge)(way, plan, reports).bad_input()?);
        let first = reports.first().map(|report| report.diagnosis.text.clone());
        diagnoses.extend(first.map(|text| (way.name, text)));
    }
    let Some((_, plan, _)) = ways.into_iter().next() else {
        return Ok(Status::Done);
    };
    let outcome = Reproduction {
        finding,
        backend: setting.backend.name(),
        plan,
        rows,
        diagnoses,
    };
    show::print(&print::render(&outcome, arguments.format)).not_kept()?;
    Ok(match outcome.verdict() {
        Verdict::Met => Status::Done,
        Verdict::NotMet => Status::CheckFailed,
    })
}
