//! The longest time that each vCPU was kept out of its guest by the hypervisor.
//!
//! A vCPU that exits and does not enter again is a stalled CPU to its guest, although it waits for no
//! core and no policy can help it. Instants and lengths in nanoseconds.

use stealtime_scheduler::event::Waits;

/// A stay in the hypervisor, blocked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stall {
    /// When it began.
    pub(crate) from: u64,
    /// When it ended, or the last instant of the run.
    pub(crate) to: u64,
    /// It ended before the run did.
    pub(crate) ended: bool,
    /// What it waited for.
    pub(crate) on: Waits,
}

impl Stall {
    pub(crate) const fn length(&self) -> u64 {
        self.to.saturating_sub(self.from)
    }
}

/// The stall that goes on and the longest so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Stalls {
    current: Option<(u64, Waits)>,
    longest: Option<Stall>,
}

impl Stalls {
    /// One begins.
    pub(crate) const fn begin(&mut self, at: u64, on: Waits) {
        self.current = Some((at, on));
    }

    /// The one that goes on ends, if there is one. One that began before the measurement counts from
    /// its start.
    pub(crate) fn end(&mut self, at: u64, measured_from: u64, ended: bool) {
        let Some((since, on)) = self.current.take() else {
            return;
        };
        let stall = Stall {
            from: since.max(measured_from),
            to: at,
            ended,
            on,
        };
        if self
            .longest
            .is_none_or(|longest| stall.length() > longest.length())
        {
            self.longest = Some(stall);
        }
    }

    /// Only what goes on counts from now on.
    pub(crate) const fn restart(&mut self) {
        self.longest = None;
    }

    pub(crate) const fn longest(&self) -> Option<Stall> {
        self.longest
    }
}
