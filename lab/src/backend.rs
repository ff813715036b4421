//! The lab as a backend: a plan goes in, runs on the emulated machine's KVM, and its stream comes back.
//!
//! Everything else (scenarios, policies, reports) stays on the host and does not know where the plan ran.
//! Inside, the same program is started with [`INSIDE`] and carries the plan out on its own KVM backend.

use crate::channel::Stage;
use crate::channel::inside::Channel;
use crate::wire::{OutcomeOnWire, PlanOnWire, read_entries, write_entries};
use crate::{Command, Done, Lab, LabError, RESULTS_FOLDER, Sight, WORKING_FOLDER};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use stealtime_scheduler::record::BadRecord;
use stealtime_scheduler::time::Nanos;
use stealtime_workloads::run::{Backend, Entry, Observer, Outcome, Plan};

/// The command line by which the program carries a plan out inside.
pub const INSIDE: &str = "in-lab";

const PLAN: &str = "plan.json";
const OUTCOME: &str = "outcome.json";
const STREAM: &str = "stream";

/// How many entries are handed on at once.
const BATCH: usize = 4096;

/// Runs plans in a lab, a boot each, so that no run depends on what ran before.
pub struct LabBackend<'a> {
    lab: &'a Lab,
    on_stage: Box<dyn FnMut(Stage) + 'a>,
}

/// A plan that was not carried out in the lab.
#[derive(Debug, thiserror::Error)]
pub enum LabRunError {
    /// The lab gave no results.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// The program inside refused or failed.
    #[error("the run failed inside the lab with exit status {status}: {message}")]
    Failed {
        /// Its exit status.
        status: i32,
        /// What it said.
        message: String,
    },
    /// What came back makes no sense.
    #[error("the lab's `{file}` is missing or damaged")]
    Damaged {
        /// Which file.
        file: &'static str,
    },
    /// The stream holds a record that means nothing.
    #[error("the lab's stream is damaged: {0}")]
    Stream(#[from] BadRecord),
    /// The plan could not be written down.
    #[error("the plan cannot be written down: {0}")]
    Plan(#[source] serde_json::Error),
}

impl std::fmt::Debug for LabBackend<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LabBackend")
            .field("lab", self.lab)
            .finish_non_exhaustive()
    }
}

impl<'a> LabBackend<'a> {
    /// Runs in this lab; `on_stage` hears when a stage is reached.
    pub fn new(lab: &'a Lab, on_stage: impl FnMut(Stage) + 'a) -> Self {
        Self {
            lab,
            on_stage: Box::new(on_stage),
        }
    }

    fn command(&self, plan: &Plan) -> Result<Command, LabRunError> {
        let bytes = serde_json::to_vec(&PlanOnWire::from(plan)).map_err(LabRunError::Plan)?;
        Ok(Command {
            arguments: vec![INSIDE.to_owned()],
            files: vec![(PLAN.to_owned(), bytes)],
            limit: limit(plan.warmup + plan.duration, self.lab.machine().exact),
        })
    }

    /// What the reader should know of the machine.
    fn notes(&self, done: &Done) -> Vec<String> {
        let (setup, machine) = (self.lab.setup(), self.lab.machine());
        let cores = match machine.cores {
            1 => "1 emulated core".to_owned(),
            cores => format!("{cores} emulated cores"),
        };
        let mut notes = vec![format!(
            "lab: kvm_amd of Linux {} on {cores} of QEMU {}",
            setup.kernel_version, setup.qemu.version
        )];
        if machine.exact {
            notes.push(
                "exact: one emulated nanosecond an instruction; the same plan gives the same figures"
                    .to_owned(),
            );
        }
        notes.extend(done.failed_boots.iter().map(|failure| {
            format!(
                "the lab booted at the second try; the first: {}",
                failure.replace('\n', " | ")
            )
        }));
        notes
    }
}

/// Real time that a run of this length may take. Exact runs count up to ten times slower than time passes, and
/// the host may be busy.
fn limit(length: Nanos, exact: bool) -> Duration {
    let factor = if exact { 60 } else { 4 };
    Duration::from_nanos(length.get().saturating_mul(factor)) + Duration::from_secs(120)
}

impl Backend for LabBackend<'_> {
    type Error = LabRunError;

    fn name(&self) -> &'static str {
        "lab"
    }

    fn run(
        &mut self,
        plan: &Plan,
        stop: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<Outcome, LabRunError> {
        let command = self.command(plan)?;
        let mut stage = None;
        let mut watch = |sight: Sight| {
            if stage != Some(sight.stage) {
                stage = Some(sight.stage);
                (self.on_stage)(sight.stage);
            }
            if sight.stage >= Stage::Running {
                observer.progress(Nanos(sight.elapsed_ns));
            }
        };
        let mut done = self.lab.run(&command, stop, &mut watch)?;
        if done.status != 0 {
            let message = String::from_utf8_lossy(&done.stderr).trim().to_owned();
            return Err(LabRunError::Failed {
                status: done.status,
                message,
            });
        }
        let stream = done
            .files
            .remove(STREAM)
            .ok_or(LabRunError::Damaged { file: STREAM })?;
        let outcome: OutcomeOnWire = done
            .files
            .remove(OUTCOME)
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .ok_or(LabRunError::Damaged { file: OUTCOME })?;
        let mut outcome = outcome
            .into_outcome()
            .ok_or(LabRunError::Damaged { file: OUTCOME })?;
        for batch in read_entries(&stream)?.chunks(BATCH) {
            observer.entries(batch);
        }
        outcome.quality.notes.extend(self.notes(&done));
        Ok(outcome)
    }
}

/// A plan that could not be carried out inside.
#[derive(Debug, thiserror::Error)]
pub enum InsideError<E: std::error::Error + 'static> {
    /// This is not a lab.
    #[error("this command is for the inside of a lab: {0}")]
    NotInside(#[source] io::Error),
    /// The plan makes no sense.
    #[error("the plan cannot be read: {0}")]
    Plan(#[source] serde_json::Error),
    /// The run did not take place.
    #[error(transparent)]
    Run(E),
    /// The results cannot be kept.
    #[error("the results cannot be written: {0}")]
    Write(#[source] io::Error),
}

/// Carries out, inside, the plan that was sent. To be called for the command line [`INSIDE`].
///
/// # Errors
/// If there is no plan, or it could not be run.
pub fn carry_out_inside<B: Backend>(
    backend: &mut B,
    stop: &AtomicBool,
) -> Result<(), InsideError<B::Error>> {
    let bytes = fs::read(Path::new(WORKING_FOLDER).join(PLAN)).map_err(InsideError::NotInside)?;
    let channel = Channel::open().map_err(InsideError::NotInside)?;
    let plan: PlanOnWire = serde_json::from_slice(&bytes).map_err(InsideError::Plan)?;
    let mut tape = Tape {
        channel,
        stream: Vec::new(),
    };
    let outcome = backend
        .run(&Plan::from(plan), stop, &mut tape)
        .map_err(InsideError::Run)?;
    let outcome = serde_json::to_vec(&OutcomeOnWire::from(outcome)).map_err(InsideError::Plan)?;
    let results = Path::new(RESULTS_FOLDER);
    fs::write(results.join(OUTCOME), outcome).map_err(InsideError::Write)?;
    fs::write(results.join(STREAM), tape.stream).map_err(InsideError::Write)
}

/// Keeps the stream, and tells the host how far the run is.
struct Tape {
    channel: Channel,
    stream: Vec<u8>,
}

impl Observer for Tape {
    fn entries(&mut self, entries: &[Entry]) {
        write_entries(entries, &mut self.stream);
    }

    fn progress(&mut self, elapsed: Nanos) {
        self.channel.set_elapsed_ns(elapsed.get());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exact_run_may_take_longer() {
        let second = Nanos::from_millis(1000);
        assert!(limit(second, true) > limit(second, false));
    }
}
