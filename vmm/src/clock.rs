//! Timers: one queue for all that the dispatcher arms, one thread that reports what is due.
//!
//! A timer is in the queue at most once: arming it again moves it, cancelling takes it out. Ties are
//! reported in the order of [`Timer`]. The thread sleeps until the earliest and is woken only if an
//! earlier one is armed; a timer taken out from under it costs one needless wake-up.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;
use stealtime_scheduler::input::Timer;
use stealtime_scheduler::time::Nanos;

/// Whether the timer thread sleeps too long now.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Armed {
    /// It wakes in time.
    InTime,
    /// It must be woken ([`TimerQueue::wake`]), once the engine's lock is released.
    Earlier,
}

/// What the timer thread is to do.
#[derive(Debug)]
pub enum Due {
    /// Report the timers that it was given.
    Timers,
    /// End.
    Stop,
}

#[derive(Debug)]
struct Queue {
    order: BTreeSet<(Nanos, Timer)>,
    armed: HashMap<Timer, Nanos>,
    /// The thread sleeps until then; zero while it is awake, for it will look before it sleeps.
    sleeps_until: Nanos,
    stop: bool,
}

/// Timers by their instants.
#[derive(Debug)]
pub struct TimerQueue {
    queue: Mutex<Queue>,
    thread: OnceLock<Thread>,
}

impl Default for TimerQueue {
    fn default() -> Self {
        Self {
            queue: Mutex::new(Queue {
                order: BTreeSet::new(),
                armed: HashMap::new(),
                sleeps_until: Nanos::ZERO,
                stop: false,
            }),
            thread: OnceLock::new(),
        }
    }
}

impl TimerQueue {
    /// Nothing in here can be left half-done by a panic.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Arms a timer, or moves it.
    pub fn arm(&self, timer: Timer, at: Nanos) -> Armed {
        let mut queue = self.lock();
        if let Some(before) = queue.armed.insert(timer, at) {
            queue.order.remove(&(before, timer));
        }
        queue.order.insert((at, timer));
        if at < queue.sleeps_until {
            Armed::Earlier
        } else {
            Armed::InTime
        }
    }

    /// Takes a timer out.
    pub fn cancel(&self, timer: Timer) {
        let mut queue = self.lock();
        if let Some(at) = queue.armed.remove(&timer) {
            queue.order.remove(&(at, timer));
        }
    }

    /// Wakes the timer thread.
    pub fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Ends the timer thread.
    pub fn stop(&self) {
        self.lock().stop = true;
        self.wake();
    }

    /// Names the calling thread as the one that waits.
    pub fn attach(&self) {
        let _ = self.thread.set(thread::current());
    }

    /// Waits until something is due, and puts it into `due`, the earliest first.
    pub fn wait(&self, now: impl Fn() -> Nanos, due: &mut Vec<Timer>) -> Due {
        due.clear();
        loop {
            let until = {
                let mut queue = self.lock();
                queue.sleeps_until = Nanos::ZERO;
                if queue.stop {
                    return Due::Stop;
                }
                queue.take_due(now(), due);
                if !due.is_empty() {
                    return Due::Timers;
                }
                let first = queue.order.first().map_or(Nanos::MAX, |(at, _)| *at);
                queue.sleeps_until = first;
                first
            };
            // A wake-up between the lock's release and here is remembered by `park`.
            match until {
                Nanos::MAX => thread::park(),
                until => thread::park_timeout(Duration::from_nanos(until.since(now()).get())),
            }
        }
    }
}

impl Queue {
    fn take_due(&mut self, now: Nanos, due: &mut Vec<Timer>) {
        while let Some((at, timer)) = self.order.first().copied()
            && at <= now
        {
            self.order.pop_first();
            self.armed.remove(&timer);
            due.push(timer);
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use stealtime_scheduler::ids::{CoreId, VcpuId};

    const SLICE: Timer = Timer::Slice(CoreId(0));
    const WAKE: Timer = Timer::Wake(VcpuId(7));

    fn due_at(queue: &TimerQueue, now: u64) -> Vec<Timer> {
        let mut due = Vec::new();
        queue.lock().take_due(Nanos(now), &mut due);
        due
    }

    #[test]
    fn timers_come_due_in_order_once_and_not_before_their_time() {
        let queue = TimerQueue::default();
        let _ = queue.arm(Timer::Tick, Nanos(30));
        let _ = queue.arm(SLICE, Nanos(10));
        let _ = queue.arm(WAKE, Nanos(20));
        assert_eq!(due_at(&queue, 9), []);
        assert_eq!(due_at(&queue, 25), [SLICE, WAKE]);
        assert_eq!(due_at(&queue, 30), [Timer::Tick]);
        assert_eq!(due_at(&queue, u64::MAX), []);
    }

    #[test]
    fn arming_again_moves_and_cancelling_takes_out() {
        let queue = TimerQueue::default();
        let _ = queue.arm(SLICE, Nanos(10));
        let _ = queue.arm(SLICE, Nanos(50));
        let _ = queue.arm(WAKE, Nanos(10));
        queue.cancel(WAKE);
        queue.cancel(Timer::Period);
        assert_eq!(due_at(&queue, 49), []);
        assert_eq!(due_at(&queue, 50), [SLICE]);
    }

    #[test]
    fn only_an_earlier_timer_wakes_a_sleeping_thread() {
        let queue = TimerQueue::default();
        assert_eq!(queue.arm(SLICE, Nanos(10)), Armed::InTime, "awake");
        queue.lock().sleeps_until = Nanos(10);
        assert_eq!(queue.arm(WAKE, Nanos(11)), Armed::InTime);
        assert_eq!(queue.arm(Timer::Tick, Nanos(9)), Armed::Earlier);
    }

    #[test]
    fn a_waiting_thread_is_told_what_is_due_and_that_it_is_over() {
        let queue = TimerQueue::default();
        let clock = crate::host::RunClock::starting_at(crate::host::monotonic_ns());
        let told = thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                queue.attach();
                let (mut told, mut due) = (Vec::new(), Vec::new());
                while let Due::Timers = queue.wait(|| clock.now(), &mut due) {
                    told.append(&mut due);
                    queue.stop();
                }
                told
            });
            if let Armed::Earlier = queue.arm(WAKE, clock.now() + Nanos::from_millis(2)) {
                queue.wake();
            }
            waiter.join().unwrap()
        });
        assert_eq!(told, [WAKE]);
    }
}
