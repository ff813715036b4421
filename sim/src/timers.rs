//! The timer thread, as far as it takes time from the run's first core.
//!
//! On a machine that has no core beside those of the run, the thread that serves the timers runs on one of them.
//! As the KVM driver's (`vmm/src/clock.rs`) it sleeps until the earliest timer, is woken if an
//! earlier one is armed, and wakes for nothing if that one was taken out meanwhile. While the host takes that core
//! from the run no timer is served.

use crate::machine::Machine;
use crate::queue::Slot;
use crate::vcpu::Place;
use std::collections::{BTreeSet, HashMap};
use stealtime_scheduler::ids::CoreId;
use stealtime_scheduler::input::{Input, Timer};
use stealtime_scheduler::time::Nanos;

/// The core that the timer thread shares.
const SHARED: CoreId = CoreId(0);

#[derive(Debug)]
pub(crate) struct TimerThread {
    order: BTreeSet<(Nanos, Timer)>,
    armed: HashMap<Timer, Nanos>,
    /// It sleeps until then; zero while it is awake, for it will look before it sleeps.
    sleeps_until: Nanos,
    /// Time that it takes before whoever has the core goes on.
    owed: Nanos,
}

impl Default for TimerThread {
    fn default() -> Self {
        Self {
            order: BTreeSet::new(),
            armed: HashMap::new(),
            sleeps_until: Nanos::MAX,
            owed: Nanos::ZERO,
        }
    }
}

impl TimerThread {
    /// Whether it has to be woken for this timer.
    fn arm(&mut self, timer: Timer, at: Nanos) -> bool {
        self.cancel(timer);
        self.armed.insert(timer, at);
        self.order.insert((at, timer));
        at < self.sleeps_until
    }

    fn cancel(&mut self, timer: Timer) {
        if let Some(at) = self.armed.remove(&timer) {
            self.order.remove(&(at, timer));
        }
    }

    /// It looks what comes next, and sleeps until then. The answer is when it wakes.
    fn sleep(&mut self) -> Nanos {
        let first = self.order.first().map_or(Nanos::MAX, |(at, _)| *at);
        self.sleeps_until = first;
        first
    }

    /// Whether the timer that it sleeps for was taken out.
    fn sleeps_for_nothing(&self) -> bool {
        let first = self.order.first().map_or(Nanos::MAX, |(at, _)| *at);
        self.sleeps_until < first
    }
}

impl Machine<'_> {
    /// Whether the timer thread has no core of its own.
    fn shares(&self) -> bool {
        self.costs.timer_work > Nanos::ZERO || self.costs.timer_wake > Nanos::ZERO
    }

    /// A timer is due.
    pub(crate) fn timer_due(&mut self, timer: Timer) {
        if !self.shares() {
            return self.tell(Input::TimerDue { timer }, None);
        }
        if self.waits_for_core(Slot::Timer(timer)) {
            return;
        }
        self.timer_thread.cancel(timer);
        self.timer_thread.sleeps_until = Nanos::ZERO;
        self.take_core(self.costs.timer_work);
        self.tell(Input::TimerDue { timer }, None);
        self.timer_thread_sleeps();
    }

    /// Whether the host has the core. Then the slot is due when it gives it back.
    fn waits_for_core(&mut self, slot: Slot) -> bool {
        let taken = self.interference.left(SHARED, self.now);
        if taken > Nanos::ZERO {
            self.queue.set(slot, self.now + taken);
        }
        taken > Nanos::ZERO
    }

    /// The timer thread woke for a timer that was taken out.
    pub(crate) fn woke_for_nothing(&mut self) {
        if self.waits_for_core(Slot::TimerThread) {
            return;
        }
        self.take_core(self.costs.timer_wake);
        self.timer_thread_sleeps();
    }

    fn timer_thread_sleeps(&mut self) {
        self.timer_thread.sleep();
        self.queue.cancel(Slot::TimerThread);
    }

    /// The dispatcher has armed a timer.
    pub(crate) fn timer_armed(&mut self, timer: Timer, at: Nanos) {
        if !self.shares() {
            return;
        }
        if self.timer_thread.arm(timer, at) {
            self.take_core(self.costs.timer_wake);
            self.timer_thread_sleeps();
        } else {
            self.expect_nothing();
        }
    }

    /// The dispatcher has taken a timer out.
    pub(crate) fn timer_cancelled(&mut self, timer: Timer) {
        if self.shares() {
            self.timer_thread.cancel(timer);
            self.expect_nothing();
        }
    }

    /// If the timer thread sleeps for a timer that is not armed any more, it wakes all the same.
    fn expect_nothing(&mut self) {
        let until = self.timer_thread.sleeps_until;
        if until > Nanos::ZERO && self.timer_thread.sleeps_for_nothing() {
            let at = (until + self.costs.timer).max(self.now);
            self.queue.set(Slot::TimerThread, at);
        } else {
            self.queue.cancel(Slot::TimerThread);
        }
    }

    /// The timer thread has the core for a while. Whoever has it goes on later.
    fn take_core(&mut self, cost: Nanos) {
        let work = self.drawn(cost);
        let Some(vcpu) = self.dispatcher.on_core(SHARED) else {
            return;
        };
        let now = self.now;
        let place = self.vcpu(vcpu).place;
        if place == Place::Guest || self.queue.is_set(Slot::Step(vcpu)) {
            self.vcpu(vcpu).held_up(now, work);
            self.queue.delay(Slot::Step(vcpu), work);
        } else {
            // It is just about to go on, or its grant is being carried out.
            self.timer_thread.owed += work;
        }
    }

    /// What the timer thread takes of this core before whoever has it goes on.
    pub(crate) fn owed_to_timers(&mut self, core: Option<CoreId>) -> Nanos {
        if core == Some(SHARED) {
            std::mem::take(&mut self.timer_thread.owed)
        } else {
            Nanos::ZERO
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stealtime_scheduler::ids::VcpuId;

    const SLICE: Timer = Timer::Slice(SHARED);
    const WAKE: Timer = Timer::Wake(VcpuId(3));

    #[test]
    fn only_an_earlier_timer_wakes_it_and_nothing_does_while_it_is_awake() {
        let mut thread = TimerThread::default();
        assert!(thread.arm(SLICE, Nanos(10)), "it slept without end");
        assert_eq!(thread.sleep(), Nanos(10));
        assert!(!thread.arm(WAKE, Nanos(11)));
        assert!(thread.arm(WAKE, Nanos(9)));
        thread.sleeps_until = Nanos::ZERO;
        assert!(!thread.arm(WAKE, Nanos(1)));
    }

    #[test]
    fn it_sleeps_for_nothing_when_its_timer_was_taken_out_or_moved() {
        let mut thread = TimerThread::default();
        let _ = thread.arm(SLICE, Nanos(10));
        thread.sleep();
        assert!(!thread.sleeps_for_nothing());
        let _ = thread.arm(SLICE, Nanos(20));
        assert!(thread.sleeps_for_nothing());
        assert_eq!(thread.sleep(), Nanos(20));
        thread.cancel(SLICE);
        assert!(thread.sleeps_for_nothing());
        assert_eq!(thread.sleep(), Nanos::MAX);
    }
}
