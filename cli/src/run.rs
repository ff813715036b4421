//! `stealtime run`: one scenario, one report.

use crate::args::RunArgs;
use crate::execute::{self, Remarks};
use crate::failure::{Blame, Outcome, Status};
use crate::planning::Setting;
use crate::render;
use crate::show;
use stealtime_report::Report;

/// Runs and reports.
///
/// # Errors
/// If the run did not take place, or its report could not be kept or printed.
pub fn run(arguments: &RunArgs) -> Outcome {
    let remarks = Remarks::new(arguments.quiet);
    let setting = Setting::new(&arguments.scenario, &arguments.conditions)?;
    let plan = setting.plan(arguments.policy.as_ref())?;
    let label = format!("{} under {}", plan.scenario, plan.policy);
    let directory = arguments.output.as_deref();
    let ran = execute::run(&setting, &plan, &label, remarks, directory)?;
    show::print(&render::report(&ran.report, arguments.format)).not_kept()?;
    if let Some(kept) = ran.kept {
        remarks.tell(&format!("the run is kept in {}", kept?.display()));
    }
    Ok(status(&ran.report))
}

/// What a report says of its own run.
#[must_use]
pub fn status(report: &Report) -> Status {
    if report.interrupted {
        return Status::Interrupted;
    }
    if report.violations.count > 0 {
        eprintln!("check failed: the policy broke a rule (see the report)");
        return Status::CheckFailed;
    }
    if report.run.lost_events > 0 {
        eprintln!("check failed: {} events were lost", report.run.lost_events);
        return Status::CheckFailed;
    }
    Status::Done
}
