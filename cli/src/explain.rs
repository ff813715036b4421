//! `stealtime explain`: why the worst waits of a run were so long.

use crate::args::{Conditions, ExplainArgs, Form};
use crate::execute::{self, Remarks};
use crate::failure::{Blame, Failure, Outcome, Status};
use crate::interrupt;
use crate::planning::Setting;
use crate::show;
use anyhow::{Context, anyhow};
use std::path::Path;
use stealtime_report::explain::{self, Source};
use stealtime_report::names::Names;
use stealtime_report::run_dir::{self, Recording};
use tempfile::TempDir;

/// Explains a kept run, or runs a scenario and explains that.
///
/// # Errors
/// If there is no such run or scenario, the run did not take place, or it has not what was asked for.
pub fn explain(arguments: &ExplainArgs) -> Outcome {
    let directory = Path::new(&arguments.what);
    if directory.is_dir() {
        if arguments.policy.is_some() || arguments.conditions != Conditions::default() {
            let error = anyhow!(
                "`{}` is a run that is over: policy and conditions cannot be given any more",
                arguments.what
            );
            return Err(error).bad_input();
        }
        let recording = run_dir::load(directory).bad_input()?;
        tell(arguments, &recording)?;
        return Ok(Status::Done);
    }
    let setting = Setting::new(&arguments.what, &arguments.conditions)?;
    let plan = setting.plan(arguments.policy.as_ref())?;
    // A pattern that means nobody is told before the run, not after it.
    Names::new(&plan)
        .select(arguments.vcpu.as_deref())
        .bad_input()?;
    let remarks = Remarks::new(arguments.quiet);
    let label = format!("{} under {}", plan.scenario, plan.policy);
    let temporary = TempDir::new()
        .context("the run needs room for its stream")
        .machine()?;
    let kept = temporary.path();
    let ran = execute::run(&setting, &plan, &label, remarks, Some(kept))?;
    interrupt::whole(|unfinished| *unfinished = Some(kept.to_owned()));
    ran.kept.transpose()?;
    let recording = run_dir::load(kept).not_kept()?;
    tell(arguments, &recording)?;
    Ok(crate::run::status(&ran.report))
}

fn tell(arguments: &ExplainArgs, recording: &Recording) -> Result<(), Failure> {
    let run = &recording.run;
    let vcpus = Names::new(&run.plan)
        .select(arguments.vcpu.as_deref())
        .bad_input()?;
    let worst = usize::from(arguments.worst);
    let source: &dyn Source = recording;
    let told =
        explain::explain(&run.plan, &run.report.backend, source, &vcpus, worst).bad_input()?;
    let text = match arguments.format {
        Form::Text => told.to_text(),
        Form::Json => told.to_json(),
    };
    show::print(&text).not_kept()
}
