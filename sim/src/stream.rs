//! The stream of entries on its way to the observer, in batches.

use stealtime_scheduler::dispatcher::Output;
use stealtime_scheduler::input::Input;
use stealtime_scheduler::time::Nanos;
use stealtime_workloads::run::{Entry, Observer};

/// Entries that are handed over at once: enough that the call costs nothing, few enough to stay in
/// the processor's caches.
const BATCH: usize = 2_048;

pub(crate) struct Stream<'run> {
    observer: &'run mut dyn Observer,
    entries: Vec<Entry>,
    /// Events handed over or about to be.
    pub(crate) events: u64,
    /// Inputs, which is calls of the dispatcher.
    pub(crate) inputs: u64,
}

impl<'run> Stream<'run> {
    pub(crate) fn new(observer: &'run mut dyn Observer) -> Self {
        Self {
            observer,
            entries: Vec::with_capacity(BATCH + 64),
            events: 0,
            inputs: 0,
        }
    }

    /// Adds an input and what came of it.
    pub(crate) fn add(&mut self, now: Nanos, input: Input, out: &Output) {
        self.inputs += 1;
        self.events += out.events.len() as u64;
        self.entries.push(Entry::Input(now, input));
        self.entries
            .extend(out.effects.iter().map(|e| Entry::Effect(*e)));
        self.entries
            .extend(out.events.iter().map(|e| Entry::Event(*e)));
        if self.entries.len() >= BATCH {
            self.flush(now);
        }
    }

    /// Hands over what has gathered, and says how far the run is.
    pub(crate) fn flush(&mut self, now: Nanos) {
        if !self.entries.is_empty() {
            self.observer.entries(&self.entries);
            self.entries.clear();
        }
        self.observer.progress(now);
    }
}
