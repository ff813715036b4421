//! `stealtime dist`: how long it took from one kind of event to another.

use crate::args::{DistArgs, Form};
use crate::failure::{Blame, Outcome, Status};
use crate::show;
use stealtime_report::dist::{Collector, Question};
use stealtime_report::names::Names;
use stealtime_report::run_dir;
use stealtime_workloads::run::Entry;

/// Prints the distribution asked for.
///
/// # Errors
/// If there is no run in the directory, or it has not what was asked for.
pub fn dist(arguments: &DistArgs) -> Outcome {
    let recording = run_dir::load(&arguments.dir).bad_input()?;
    let names = Names::new(&recording.run.plan);
    let asked = [&arguments.from, &arguments.to];
    for selector in asked.into_iter().chain(&arguments.unless) {
        selector.check(&names).bad_input()?;
    }
    let question = Question {
        from: arguments.from.clone(),
        to: arguments.to.clone(),
        unless: arguments.unless.clone(),
        vcpus: names.select(arguments.vcpu.as_deref()).bad_input()?,
        warmup: arguments.warmup,
    };
    let mut collector = Collector::new(&question, &names);
    for entry in recording.entries().bad_input()? {
        if let Entry::Event(event) = entry.bad_input()? {
            collector.event(&event);
        }
    }
    let dist = collector.finish();
    let text = match arguments.format {
        Form::Text => dist.to_text(),
        Form::Json => dist.to_json(),
    };
    show::print(&text).not_kept()?;
    Ok(Status::Done)
}
