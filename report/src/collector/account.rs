//! The books of one vCPU: where its time went, how long it waited, what was done to it.
//!
//! All times in nanoseconds. At every instant a vCPU is in exactly one [`State`], so that the times
//! in the states sum to the time measured.

use super::stall::Stalls;
use super::standing::{Deferral, Episodes, Priority};
use super::timeline::Wait;
use crate::latency::Latency;
use stealtime_scheduler::event::PreemptReason;
use stealtime_scheduler::ids::HostLockId;
use stealtime_scheduler::input::ExitReason;

/// Where a vCPU's time goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Guest code on a core.
    Run,
    /// On a core, the hypervisor working on its behalf.
    Hypervisor,
    /// It could run and waits for a core, or for its thread to enter the core that it was granted.
    Ready,
    /// It could run, but the policy holds it back for the sake of its siblings.
    Costopped,
    /// It waits for the hypervisor (a host lock, a device, a page) or sleeps for a lock of its guest.
    Blocked,
    /// It has nothing to do, or takes no part: halted, asleep, not admitted, retired.
    Idle,
}

impl State {
    pub(crate) const fn on_core(self) -> bool {
        matches!(self, Self::Run | Self::Hypervisor)
    }

    pub(crate) const fn runnable(self) -> bool {
        matches!(
            self,
            Self::Run | Self::Hypervisor | Self::Ready | Self::Costopped
        )
    }
}

/// Time in each state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) run: u64,
    pub(crate) hypervisor: u64,
    pub(crate) ready: u64,
    pub(crate) costopped: u64,
    pub(crate) blocked: u64,
    pub(crate) idle: u64,
}

impl Times {
    fn of(&mut self, state: State) -> &mut u64 {
        match state {
            State::Run => &mut self.run,
            State::Hypervisor => &mut self.hypervisor,
            State::Ready => &mut self.ready,
            State::Costopped => &mut self.costopped,
            State::Blocked => &mut self.blocked,
            State::Idle => &mut self.idle,
        }
    }
}

/// How a wait for a core began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begin {
    /// The vCPU was admitted, or gave up its core of its own accord.
    Willing,
    /// It woke.
    Woken,
    /// It was taken off its core: its guest sees a gap in its own time.
    Preempted,
}

/// A wait that goes on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiting {
    pub(crate) since: u64,
    pub(crate) why: Begin,
    /// When the core was granted, if it was.
    pub(crate) granted: Option<u64>,
}

/// Figures that start anew with the measurement.
#[derive(Debug, Clone)]
pub(crate) struct Figures {
    pub(crate) times: Times,
    /// Part of the time on a core at kernel priority.
    pub(crate) kernel_priority: u64,
    /// Part of the time ready or co-stopped: waits that began with a preemption and ended with running.
    pub(crate) preempted: u64,
    /// The same of a wait that did not end with running.
    pub(crate) preempted_to_the_end: u64,
    pub(crate) wakeup: Latency,
    pub(crate) run_delay: Latency,
    /// The longest wait: length, beginning, and whether it went on at the end.
    pub(crate) longest: (u64, u64, bool),
    pub(crate) preemptions: [u64; PREEMPT_REASONS.len()],
    pub(crate) preemptions_in_lock: u64,
    pub(crate) migrations: u64,
    pub(crate) yields: u64,
    pub(crate) kicks: u64,
    pub(crate) user_returns: u64,
    pub(crate) exits: [u64; ExitReason::ALL.len()],
    pub(crate) host_delay: u64,
}

/// The books of one vCPU.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) state: State,
    /// Up to when the times are kept.
    pub(crate) at: u64,
    pub(crate) core: usize,
    pub(crate) waiting: Option<Waiting>,
    pub(crate) at_kernel_priority: bool,
    /// It is held back from when it waits next, or already is.
    costopped: bool,
    /// Guest locks held, by the guest's last word.
    pub(crate) guest_locks: u16,
    /// Host locks held, the last taken last.
    pub(crate) host_locks: Vec<HostLockId>,
    pub(crate) kicked: Option<u64>,
    /// Time between grant and entry that the next host delay reported will contain.
    pub(crate) entering: u64,
    pub(crate) stalls: Stalls,
    pub(crate) priorities: Episodes<Priority>,
    pub(crate) deferrals: Episodes<Deferral>,
    pub(crate) figures: Figures,
}

/// All reasons of preemption, in the order of their numbers, with their names in reports.
pub(crate) const PREEMPT_REASONS: [(PreemptReason, &str); 7] = [
    (PreemptReason::SliceEnd, "slice-end"),
    (PreemptReason::Wakeup, "wakeup"),
    (PreemptReason::Tick, "tick"),
    (PreemptReason::Period, "period"),
    (PreemptReason::PriorityDrop, "priority-drop"),
    (PreemptReason::LockWait, "lock-wait"),
    (PreemptReason::LoanOver, "loan-over"),
];

impl Figures {
    fn new(vcpus: usize) -> Self {
        Self {
            times: Times::default(),
            kernel_priority: 0,
            preempted: 0,
            preempted_to_the_end: 0,
            wakeup: Latency::new(vcpus),
            run_delay: Latency::new(vcpus),
            longest: (0, 0, false),
            preemptions: [0; PREEMPT_REASONS.len()],
            preemptions_in_lock: 0,
            migrations: 0,
            yields: 0,
            kicks: 0,
            user_returns: 0,
            exits: [0; ExitReason::ALL.len()],
            host_delay: 0,
        }
    }
}

impl Account {
    pub(crate) fn new(vcpus: usize) -> Self {
        Self {
            state: State::Idle,
            at: 0,
            core: 0,
            waiting: None,
            at_kernel_priority: false,
            costopped: false,
            guest_locks: 0,
            host_locks: Vec::new(),
            kicked: None,
            entering: 0,
            stalls: Stalls::default(),
            priorities: Episodes::default(),
            deferrals: Episodes::default(),
            figures: Figures::new(vcpus),
        }
    }

    /// Books the time up to `at` on the present state.
    pub(crate) fn advance(&mut self, at: u64) {
        let passed = at.saturating_sub(self.at);
        self.at = self.at.max(at);
        *self.figures.times.of(self.state) += passed;
        if self.at_kernel_priority && self.state.on_core() {
            self.figures.kernel_priority += passed;
        }
    }

    /// The state in which it waits for a core.
    pub(crate) const fn waits_in(&self) -> State {
        if self.costopped {
            State::Costopped
        } else {
            State::Ready
        }
    }

    /// It is held back, or no longer so. What it did up to now is booked already.
    pub(crate) fn hold_back(&mut self, costopped: bool) {
        let waits = self.state == self.waits_in();
        self.costopped = costopped;
        if waits {
            self.state = self.waits_in();
        }
    }

    /// Starts the figures anew. What goes on goes on.
    pub(crate) fn restart(&mut self, at: u64, vcpus: usize) {
        self.advance(at);
        self.stalls.restart();
        self.kicked = self.kicked.map(|asked| asked.max(at));
        self.figures = Figures::new(vcpus);
    }

    /// Ends the wait that goes on, if there is one. A wait that began before the measurement counts
    /// from its start.
    pub(crate) fn end_wait(
        &mut self,
        vcpu: usize,
        at: u64,
        measured_from: u64,
        entered: bool,
    ) -> Option<Wait> {
        let waiting = self.waiting.take()?;
        let wait = Wait {
            vcpu,
            from: waiting.since.max(measured_from),
            to: at,
            ended: entered,
            granted_for: waiting
                .granted
                .map_or(0, |granted| at.saturating_sub(granted.max(measured_from))),
        };
        let length = at.saturating_sub(wait.from);
        if entered {
            self.figures.run_delay.record(length, wait.from);
            match waiting.why {
                Begin::Woken => self.figures.wakeup.record(length, wait.from),
                Begin::Preempted => self.figures.preempted += length,
                Begin::Willing => {}
            }
            self.entering += wait.granted_for;
        } else if waiting.why == Begin::Preempted {
            self.figures.preempted_to_the_end = length;
        }
        self.note_longest(length, wait.from, entered);
        Some(wait)
    }

    pub(crate) fn note_longest(&mut self, length: u64, from: u64, ended: bool) {
        if length > self.figures.longest.0 {
            self.figures.longest = (length, from, !ended);
        }
    }

    /// The host's scheduler kept its thread waiting for `delay` while it seemed to run: that time is
    /// moved from running to ready. What was booked as ready already, between grant and entry, is
    /// not moved twice. Answers how much was moved.
    pub(crate) fn move_to_ready(&mut self, delay: u64) -> u64 {
        let delay = delay.saturating_sub(std::mem::take(&mut self.entering));
        let moved = delay.min(self.figures.times.run);
        self.figures.times.run -= moved;
        self.figures.times.ready += moved;
        self.figures.preempted += moved;
        moved
    }
}
