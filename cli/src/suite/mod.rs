//! `stealtime suite`: sets of scenarios under sets of policies, against what each scenario expects.
//!
//! A scenario says in its file what must hold and for whom (docs/scenarios.md). Here every scenario of
//! the set runs under every policy that it expects something of, and under the variants of policies
//! that it names; the outcome is a matrix, and the expectations that did not hold in words.

mod jobs;
mod print;

use crate::args::{Conditions, SuiteArgs, SuiteFormat};
use crate::backend::{self, Kind};
use crate::execute::Remarks;
use crate::failure::{Blame, Failure, Outcome, Status};
use crate::{interrupt, show};
use anyhow::anyhow;
use serde_json::json;
use std::time::Instant;
use stealtime_report::expect::{Checked, Verdict};
use stealtime_scheduler::registry::{POLICIES, ScheduledBy};
use stealtime_scheduler::spec::{NamedOptions, PolicySpec};
use stealtime_workloads::scenario::expect::SUITES;
use stealtime_workloads::scenario::{Scenario, embedded};

/// What came of a scenario under a policy.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Cell {
    pub(crate) scenario: String,
    pub(crate) policy: String,
    /// It is a variant that the scenario names, beside the policies that were asked for.
    pub(crate) variant: bool,
    pub(crate) verdict: Verdict,
    /// Why it was refused or is not applicable.
    pub(crate) reason: Option<String>,
    /// All expectations looked at, all repeats.
    pub(crate) checks: Vec<Checked>,
}

/// What came of a suite.
#[derive(Debug)]
pub(crate) struct Results {
    pub(crate) suite: String,
    pub(crate) backend: &'static str,
    pub(crate) scenarios: Vec<String>,
    pub(crate) policies: Vec<String>,
    pub(crate) cells: Vec<Cell>,
}

/// Runs a suite and shows what held.
///
/// # Errors
/// If there is no such suite, or the backend cannot be used.
pub fn suite(arguments: &SuiteArgs) -> Outcome {
    let began = Instant::now();
    let remarks = Remarks::new(arguments.quiet);
    let scenarios = chosen(&arguments.name)?;
    let conditions = Conditions {
        backend: arguments.backend,
        ..Conditions::default()
    };
    let wanted = scenarios.iter().map(|one| usize::from(one.cores)).max();
    let backend = backend::decide(&conditions, wanted.unwrap_or(1))?;
    let policies = if arguments.policies.is_empty() {
        fitting(backend)
    } else {
        arguments.policies.clone()
    };
    let jobs = jobs::list(&scenarios, &policies, arguments.policies.is_empty());
    let cells = jobs::run(&jobs, backend, arguments.repeat, remarks)?;
    let results = Results {
        suite: arguments.name.clone(),
        backend: backend.name(),
        scenarios: scenarios.iter().map(|one| one.name.clone()).collect(),
        policies: policies.iter().map(ToString::to_string).collect(),
        cells,
    };
    let text = match arguments.format {
        SuiteFormat::Text => print::text(&results),
        SuiteFormat::Json => json_text(&results),
    };
    show::print(&text).not_kept()?;
    let runs = jobs.len() * usize::try_from(arguments.repeat).unwrap_or(1);
    let seconds = began.elapsed().as_secs_f64();
    remarks.tell(&format!(
        "{runs} runs on {} took {seconds:.1} s",
        backend.name()
    ));
    if interrupt::pressed() {
        return Ok(Status::Interrupted);
    }
    let failed = results
        .cells
        .iter()
        .any(|cell| cell.verdict == Verdict::Fail);
    Ok(if failed {
        Status::CheckFailed
    } else {
        Status::Done
    })
}

/// The scenarios of a suite, or the one that is named.
fn chosen(name: &str) -> Result<Vec<Scenario>, Failure> {
    let in_suite = |one: &Scenario| match name {
        "all" => !one.suites.is_empty(),
        _ => one.suites.iter().any(|suite| suite == name),
    };
    if name == "all" || SUITES.contains(&name) {
        let all = embedded().iter().map(|one| Scenario::load(one.name));
        let all = all.collect::<Result<Vec<_>, _>>().bad_input()?;
        return Ok(all.into_iter().filter(in_suite).collect());
    }
    let scenario = Scenario::load(name).map_err(|error| {
        let suites = SUITES.join(", ");
        let error = anyhow!("{error}; the suites are {suites} and all");
        Failure::new(Status::BadInput, error)
    })?;
    if scenario.expectations.is_empty() {
        let error = anyhow!(
            "scenario {} expects nothing: it has no [[expect]]",
            scenario.name
        );
        return Err(Failure::new(Status::BadInput, error));
    }
    Ok(vec![scenario])
}

/// All policies; in virtual time there is no host to schedule.
fn fitting(backend: Kind) -> Vec<PolicySpec> {
    let fits = POLICIES
        .iter()
        .filter(|info| backend != Kind::Sim || info.scheduled_by == ScheduledBy::Policy);
    fits.map(|info| PolicySpec {
        policy: NamedOptions {
            name: info.name.to_owned(),
            options: Vec::new(),
        },
        layers: Vec::new(),
    })
    .collect()
}

/// The outcome as JSON; the same for the same runs.
fn json_text(results: &Results) -> String {
    let cell = |cell: &Cell| {
        json!({
            "scenario": cell.scenario,
            "policy": cell.policy,
            "verdict": cell.verdict,
            "reason": cell.reason,
            "checks": cell.checks,
        })
    };
    let document = json!({
        "format_version": 1,
        "suite": results.suite,
        "backend": results.backend,
        "scenarios": results.scenarios,
        "policies": results.policies,
        "results": results.cells.iter().map(cell).collect::<Vec<_>>(),
    });
    format!("{document:#}\n")
}
