//! A run from its start to its report, with the bar, the remarks and the kept copy.

use crate::failure::{Blame, Failure};
use crate::interrupt;
use crate::planning::Setting;
use crate::show::{Bar, WithBar};
use std::path::{Path, PathBuf};
use stealtime_report::run_dir::{RunWriter, WriteError};
use stealtime_report::{Collector, Report};
use stealtime_workloads::run::{Entry, Observer, Plan};

/// Whether there is a bar, and whether remarks are made.
#[derive(Clone, Copy, Debug)]
pub struct Remarks {
    quiet: bool,
}

impl Remarks {
    /// As asked for with `--quiet`.
    #[must_use]
    pub const fn new(quiet: bool) -> Self {
        Self { quiet }
    }

    /// Whether there are none.
    #[must_use]
    pub const fn quiet(self) -> bool {
        self.quiet
    }

    /// A line on standard error.
    pub fn tell(self, line: &str) {
        if !self.quiet {
            eprintln!("{line}");
        }
    }
}

/// What came of a run.
#[derive(Debug)]
pub struct Ran {
    /// Its report.
    pub report: Report,
    /// Where it is kept, if it was to be.
    pub kept: Option<Result<PathBuf, Failure>>,
}

/// The figures, and the kept copy if there is to be one.
struct Listeners<'a> {
    collector: Collector,
    writer: Option<RunWriter>,
    also: Option<&'a mut dyn Observer>,
}

impl Observer for Listeners<'_> {
    fn entries(&mut self, entries: &[Entry]) {
        self.collector.entries(entries);
        if let Some(writer) = &mut self.writer {
            writer.entries(entries);
        }
        if let Some(also) = &mut self.also {
            also.entries(entries);
        }
    }
}

/// Runs a plan, and keeps the whole run in a directory if one is given.
///
/// # Errors
/// If the directory cannot be made, or the run did not take place. A run that could not be kept in the
/// end is no error here: what it measured is not lost.
pub fn run(
    setting: &Setting,
    plan: &Plan,
    label: &str,
    remarks: Remarks,
    directory: Option<&Path>,
) -> Result<Ran, Failure> {
    listened(setting, plan, label, remarks, directory, None)
}

/// The same without a kept copy, while somebody else listens to the stream.
///
/// # Errors
/// If the run did not take place.
pub fn observed(
    setting: &Setting,
    plan: &Plan,
    label: &str,
    remarks: Remarks,
    also: &mut dyn Observer,
) -> Result<Ran, Failure> {
    listened(setting, plan, label, remarks, None, Some(also))
}

fn listened(
    setting: &Setting,
    plan: &Plan,
    label: &str,
    remarks: Remarks,
    directory: Option<&Path>,
    also: Option<&mut dyn Observer>,
) -> Result<Ran, Failure> {
    let writer = interrupt::whole(|unfinished| {
        let writer = directory.map(RunWriter::create).transpose()?;
        *unfinished = writer.as_ref().map(|new| new.unfinished().to_owned());
        Ok::<_, WriteError>(writer)
    });
    let writer = writer.bad_input()?;
    let mut listeners = Listeners {
        collector: Collector::new(plan),
        writer,
        also,
    };
    let disturbed = setting.disturb(plan)?;
    let outcome = {
        let mut observer = WithBar {
            inner: &mut listeners,
            bar: Bar::new(label, plan.warmup + plan.duration, remarks.quiet),
        };
        setting
            .backend
            .run(plan, remarks, interrupt::flag(), &mut observer)?
    };
    drop(disturbed);
    let Listeners {
        collector, writer, ..
    } = listeners;
    let report = Report::build(plan, setting.backend.name(), collector, &outcome);
    let finish = |writer: RunWriter| {
        interrupt::whole(|unfinished| {
            *unfinished = None;
            writer.finish(plan, &report)
        })
    };
    let kept = writer.map(|writer| finish(writer).not_kept());
    Ok(Ran { report, kept })
}
