//! A channel: so many messages at most, guarded by a mutex of its own, as a Linux pipe is.
//!
//! Who sends takes the mutex, puts its message in if there is room, and wakes one that sleeps for a
//! message when the mutex is released; if there is no room it sleeps for some, without the mutex.
//! Who receives does the same the other way round. Messages have no content: a channel counts them, and
//! copying one takes a time, with the mutex held.
//!
//! A sleeper is taken off by whoever calls it, under the mutex, so that each message and each room calls
//! one. It may still find another to have been quicker; then it sleeps again, as the last.

use super::mutex;
use super::sleepers::{self, For};
use super::{Context, Step};
use core::sync::atomic::Ordering;

/// Which way a message goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// Into the channel.
    Send,
    /// Out of it.
    Receive,
}

/// How far a sender or receiver is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// It takes the mutex.
    Lock(mutex::Take),
    /// It has it.
    Inside,
    /// It releases it; the message has passed, and this one is to be woken.
    Unlock(mutex::Release, Option<u32>),
    /// It releases it, to sleep.
    Give(mutex::Release),
    /// It was woken.
    Woken,
    /// Nothing is left to do.
    Done,
}

/// A message on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Transfer {
    way: Way,
    phase: Phase,
}

impl Transfer {
    pub(super) const fn new(way: Way) -> Self {
        let phase = Phase::Lock(mutex::Take::Come);
        Self { way, phase }
    }

    pub(super) fn step(&mut self, cx: &mut Context<'_>, channel: u16) -> Step {
        let guard = channel + 1;
        let phase = &mut self.phase;
        match phase {
            Phase::Lock(take) => {
                let step = take.step(cx, guard);
                then(step, phase, Phase::Inside)
            }
            Phase::Inside => {
                *phase = inside(cx, channel, self.way);
                let copy_ns = cx.lock(channel).copy_ns.load(Ordering::Relaxed);
                match phase {
                    Phase::Unlock(..) if copy_ns > 0 => Step::Work(u64::from(copy_ns)),
                    _ => Step::Again,
                }
            }
            Phase::Unlock(release, None) => release.step(cx, guard),
            Phase::Unlock(release, Some(other)) => match release.step(cx, guard) {
                Step::Done => {
                    let other = *other;
                    *phase = Phase::Done;
                    Step::Wake(other, channel)
                }
                step => step,
            },
            Phase::Give(release) => match release.step(cx, guard) {
                Step::Done => {
                    cx.waits(channel);
                    *phase = Phase::Woken;
                    Step::Sleep(channel)
                }
                step => step,
            },
            Phase::Woken => {
                let _ = sleepers::leave(cx);
                *phase = Phase::Lock(mutex::Take::Come);
                Step::Again
            }
            Phase::Done => Step::Done,
        }
    }
}

fn then(step: Step, phase: &mut Phase, next: Phase) -> Step {
    if step == Step::Done {
        *phase = next;
        return Step::Again;
    }
    step
}

/// With the mutex: the message passes, or the vCPU goes to the end of those that sleep.
fn inside(cx: &Context<'_>, channel: u16, way: Way) -> Phase {
    let lock = cx.lock(channel);
    let (count, size) = (
        lock.count.load(Ordering::Relaxed),
        lock.size.load(Ordering::Relaxed),
    );
    let after = match way {
        Way::Send => (count < size).then_some(count + 1),
        Way::Receive => count.checked_sub(1),
    };
    let (mine, others) = match way {
        Way::Send => (For::Room(channel), For::Message(channel)),
        Way::Receive => (For::Message(channel), For::Room(channel)),
    };
    match after {
        Some(after) => {
            lock.count.store(after, Ordering::Relaxed);
            Phase::Unlock(mutex::Release::Unlock, sleepers::call(cx, others))
        }
        None => {
            sleepers::enlist(cx, mine);
            Phase::Give(mutex::Release::Unlock)
        }
    }
}
