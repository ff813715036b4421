//! What a vCPU has done: time in guest code, and time halted.

use crate::time::Nanos;

/// The progress of a vCPU.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Progress {
    made: Nanos,
    /// It makes progress since then.
    since: Option<Nanos>,
}

impl Progress {
    /// It makes progress from now on.
    pub(super) fn begins(&mut self, now: Nanos) {
        self.since.get_or_insert(now);
    }

    /// It makes none from now on.
    pub(super) fn ends(&mut self, now: Nanos) {
        self.made = self.at(now);
        self.since = None;
    }

    /// Whether it makes progress.
    pub(super) fn goes_on(&self) -> bool {
        self.since.is_some()
    }

    /// What there is of it, of one that makes none.
    pub(super) const fn made(&self) -> Nanos {
        self.made
    }

    /// What there is of it by now.
    pub(super) fn at(&self, now: Nanos) -> Nanos {
        self.made + self.since.map_or(Nanos::ZERO, |since| now.since(since))
    }

    /// It counts as that much at least.
    pub(super) fn lift(&mut self, least: Nanos) {
        self.made = self.made.max(least);
    }
}
