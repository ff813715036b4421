//! `stealtime trace`: the events of a kept run, written while they are read.

use crate::args::{TraceArgs, TraceFormat};
use crate::failure::{Blame, Failure, Outcome, Status};
use crate::show;
use anyhow::anyhow;
use stealtime_report::names::Names;
use stealtime_report::run_dir;
use stealtime_report::trace::{self, Chrome, Filter, JsonLines, Text, TraceError};
use stealtime_scheduler::time::Nanos;

/// Prints the events asked for.
///
/// # Errors
/// If there is no run in the directory, it has not what was asked for, or standard output cannot be
/// written.
pub fn trace(arguments: &TraceArgs) -> Outcome {
    let recording = run_dir::load(&arguments.dir).bad_input()?;
    let names = Names::new(&recording.run.plan);
    let filter = filter(arguments, &names)?;
    let entries = recording.entries().bad_input()?;
    let out = show::stream().not_kept()?;
    let written = match arguments.format {
        TraceFormat::Text => trace::trace(entries, &filter, &mut Text::new(names, out)),
        TraceFormat::Json => trace::trace(entries, &filter, &mut JsonLines::new(names, out)),
        TraceFormat::Perfetto => {
            let mut form = Chrome::new(names, filter.clone(), out);
            trace::trace(entries, &filter, &mut form)
        }
    };
    match written {
        Err(TraceError::Write(error)) if show::unread(&error) => Ok(Status::Done),
        Err(error @ TraceError::Write(_)) => Err(error).not_kept(),
        Err(TraceError::Load(error)) => Err(error).bad_input(),
        Ok(written) => {
            if let (0, Some((first, last))) = (written.items, written.looked_at) {
                eprintln!(
                    "note: nothing that was asked for happened; the run was looked at from {:.3} s to {:.3} s",
                    first.as_secs_f64(),
                    last.as_secs_f64()
                );
            }
            Ok(Status::Done)
        }
    }
}

fn filter(arguments: &TraceArgs, names: &Names) -> Result<Filter, Failure> {
    let vcpus = arguments.vcpu.as_deref();
    let vcpus = vcpus.map(|pattern| names.select(Some(pattern)));
    let core = arguments.cpu.map(|number| names.find_core(number));
    let from = arguments.from.unwrap_or(Nanos::ZERO);
    let to = arguments.to.unwrap_or(Nanos::MAX);
    if to < from {
        return Err(anyhow!("`--to {to}` is before `--from {from}`")).bad_input();
    }
    Ok(Filter {
        mask: arguments.mask,
        vcpus: vcpus.transpose().bad_input()?,
        core: core.transpose().bad_input()?,
        from,
        to,
    })
}
