//! A mutex: waiters spin while it is likely to be free soon, and sleep otherwise.
//!
//! The rules are those of Linux's `mutex.c`:
//! 1. Uncontended, it is taken and released by one compare-and-swap.
//! 2. A comer spins if the owner has a core. It first joins the queue of spinners ([`osq`]), and only the
//!    first of that looks at the mutex. It stops when the owner has no core; one further back stops when
//!    the one before it has none.
//! 3. Who does not spin sleeps, first come, first woken. The first sleeper may also spin, beside the queue.
//! 4. A release wakes the first sleeper and leaves the mutex free: spinners and newcomers may be quicker.
//! 5. If the first sleeper was woken and found the mutex taken, it asks for a hand-over: the next release
//!    gives it the mutex, and nobody else can take it in between.
//!
//! If mutexes are handed on (by kind, or because the host wants it), nobody spins and every release hands
//! over if anybody sleeps: to the vCPU that lends the releaser its turn, if it sleeps for this mutex, else
//! to the first. Lenders whose turns happen to fall into sections could pass the first over for ever;
//! after [`PASSED_OVER`] times it gets the mutex, whoever lends. So one with `n` sleepers before it has the
//! mutex after at most `(n + 1) * (PASSED_OVER + 1)` hand-overs.
//!
//! The word is the owner (number and 1, shifted) with two flags: somebody sleeps; a hand-over is asked for.
//! Flags are only set while there is an owner, by the compare-and-swap that finds it, so that the owner's
//! release is sure to see them.

use super::osq::{self, Join, Queued};
use super::sleepers::{self, For};
use super::{Context, Kind, Memory, Spin, Step};
use core::sync::atomic::Ordering;

/// How often the first of those that sleep for a mutex is passed over for one that lends its turn. Linux's
/// proxy execution knows no such bound.
pub const PASSED_OVER: u32 = 8;

/// Somebody sleeps.
const SLEEPERS: u32 = 1;
/// The first sleeper is to have it next.
const HAND_OVER: u32 = 2;
const FLAGS: u32 = SLEEPERS | HAND_OVER;
const SHIFT: u32 = 2;

/// How far a comer is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Take {
    /// It has done nothing.
    Come,
    /// It joins the queue of spinners.
    Join(Join),
    /// It is the first of that queue, and spins.
    First,
    /// It leaves that queue, and has the mutex.
    LeaveTaken,
    /// It leaves that queue, to sleep.
    LeaveToSleep,
    /// It goes to the end of the sleepers.
    Enlist,
    /// It is among the sleepers and looks before it sleeps; whether it was woken already.
    Look(Woken),
    /// It is the first sleeper, and spins.
    FirstSleeper,
}

/// Whether a sleeper was woken before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Woken {
    Not,
    Yes,
}

impl Take {
    pub(super) fn step(&mut self, cx: &mut Context<'_>, number: u16) -> Step {
        match *self {
            Self::Come => {
                let Err(owner) = take(cx, number, 0) else {
                    return Step::Done;
                };
                cx.waits(number);
                *self = if may_spin(cx, number, owner) {
                    Self::Join(Join::Come)
                } else {
                    Self::Enlist
                };
                Step::Again
            }
            Self::Join(mut join) => {
                let queued = join.step(cx, number);
                *self = match queued {
                    Queued::First => Self::First,
                    Queued::Left => Self::Enlist,
                    Queued::Waits(_) => Self::Join(join),
                };
                match queued {
                    Queued::Waits(Some(before)) => spin_while_runs(before),
                    _ => Step::Again,
                }
            }
            Self::First => self.first(cx, number),
            Self::LeaveTaken | Self::LeaveToSleep => {
                let left = osq::leave(cx, number, 0) == Queued::Left;
                if left && *self == Self::LeaveTaken {
                    return Step::Done;
                }
                if left {
                    *self = Self::Enlist;
                }
                Step::Again
            }
            Self::Enlist => {
                sleepers::enlist(cx, For::Lock(number));
                *self = Self::Look(Woken::Not);
                Step::Again
            }
            Self::Look(woken) => self.look(cx, number, woken),
            Self::FirstSleeper => match take(cx, number, FLAGS) {
                Ok(()) => wakes_up(cx),
                Err(owner) if cx.runs(owner) => spin_while_runs(owner),
                Err(_) => {
                    *self = Self::Look(Woken::Yes);
                    Step::Again
                }
            },
        }
    }

    fn first(&mut self, cx: &mut Context<'_>, number: u16) -> Step {
        *self = match take(cx, number, 0) {
            Ok(()) => Self::LeaveTaken,
            Err(owner) if cx.runs(owner) => return spin_while_runs(owner),
            Err(_) => Self::LeaveToSleep,
        };
        Step::Again
    }

    /// A sleeper asks for a hand-over if it was woken in vain and is the first.
    fn look(&mut self, cx: &mut Context<'_>, number: u16, woken: Woken) -> Step {
        sleepers::looks(cx);
        let first =
            woken == Woken::Yes && sleepers::first(cx.memory, For::Lock(number)) == Some(cx.me);
        let flags = if first { FLAGS } else { SLEEPERS };
        let Err(owner) = take(cx, number, flags) else {
            return wakes_up(cx);
        };
        if first && may_spin(cx, number, owner) {
            *self = Self::FirstSleeper;
            return spin_while_runs(owner);
        }
        *self = Self::Look(Woken::Yes);
        Step::Sleep(number)
    }
}

const fn spin_while_runs(vcpu: u32) -> Step {
    Step::Spin(Spin {
        until: None,
        while_runs: Some(vcpu),
    })
}

fn wakes_up(cx: &Context<'_>) -> Step {
    let _ = sleepers::leave(cx);
    Step::Done
}

fn hands_on(cx: &Context<'_>, number: u16) -> bool {
    cx.hand_off || cx.lock(number).kind() == Some(Kind::MutexHandOff)
}

fn may_spin(cx: &Context<'_>, number: u16, owner: u32) -> bool {
    !hands_on(cx, number) && cx.runs(owner)
}

/// Takes the mutex if it is free or was handed to this vCPU; if another owns it, sees to it that these
/// flags are set, and says who.
fn take(cx: &mut Context<'_>, number: u16, flags: u32) -> Result<(), u32> {
    let lock = cx.lock(number);
    let mut announced = false;
    loop {
        // Acquire, here and below: what the last owner wrote is seen by this one.
        let word = lock.word.load(Ordering::SeqCst);
        let new = match word >> SHIFT {
            0 => cx.mark() << SHIFT | word & SLEEPERS,
            owner if owner == cx.mark() => word,
            _ => word | flags,
        };
        let taken = new >> SHIFT == cx.mark();
        match (announced, taken) {
            (false, true) => cx.taking(),
            (true, false) => cx.missed(number),
            _ => {}
        }
        announced = taken;
        let swapped = new == word
            || lock
                .word
                .compare_exchange(word, new, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok();
        match (swapped, taken) {
            (true, true) => {
                cx.took(number);
                // Others may spin while the owner runs: this is a new one.
                cx.touched = Some(number);
                return Ok(());
            }
            (true, false) => return Err((word >> SHIFT) - 1),
            (false, _) => {}
        }
    }
}

/// Who is woken for a mutex that was left free: the first sleeper. Nobody if it is not free, or nobody sleeps.
pub(super) fn called(memory: Memory<'_>, number: u16) -> Option<u32> {
    let lock = memory.locks.get(usize::from(number))?;
    let left_free = lock.word.load(Ordering::SeqCst) == SLEEPERS;
    left_free
        .then(|| sleepers::first(memory, For::Lock(number)))
        .flatten()
}

/// How far a releaser is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Release {
    /// It has done nothing.
    Unlock,
    /// It has released the mutex, and somebody slept.
    WakeFirst,
    /// Nothing is left to do.
    Done,
}

impl Release {
    pub(super) fn step(&mut self, cx: &mut Context<'_>, number: u16) -> Step {
        match self {
            Self::Unlock => self.unlock(cx, number),
            Self::WakeFirst => {
                *self = Self::Done;
                match sleepers::first(cx.memory, For::Lock(number)) {
                    Some(first) => wake(cx, first, number),
                    None => {
                        // The flag is stale. If the mutex was taken meanwhile, it stays.
                        let word = &cx.lock(number).word;
                        let _ =
                            word.compare_exchange(SLEEPERS, 0, Ordering::SeqCst, Ordering::Relaxed);
                        Step::Done
                    }
                }
            }
            Self::Done => Step::Done,
        }
    }

    fn unlock(&mut self, cx: &mut Context<'_>, number: u16) -> Step {
        let lock = cx.lock(number);
        let word = lock.word.load(Ordering::SeqCst);
        let hands_on = word & HAND_OVER != 0 || hands_on(cx, number) && word & SLEEPERS != 0;
        let heir = if hands_on { heir(cx, number) } else { None };
        let next = heir.map(|heir| heir.vcpu);
        let new = match next {
            Some(next) => (next + 1) << SHIFT | SLEEPERS,
            None => word & SLEEPERS,
        };
        // Before the mutex is released: after that both words are another's to write.
        let owner = next.map_or(0, |next| next + 1);
        lock.owner.store(owner, Ordering::Release);
        if let Some(first) = heir.and_then(|heir| heir.instead_of) {
            cx.sibling(first)
                .passed_over
                .fetch_add(1, Ordering::Relaxed);
        }
        let swapped = lock
            .word
            .compare_exchange(word, new, Ordering::SeqCst, Ordering::Relaxed);
        if swapped.is_err() {
            // A flag was set in between. Who is passed over is counted twice then, and has it sooner.
            return Step::Again;
        }
        cx.released(number);
        *self = Self::Done;
        match next {
            Some(next) => wake(cx, next, number),
            None if new == 0 => Step::Done,
            None => {
                *self = Self::WakeFirst;
                Step::Again
            }
        }
    }
}

/// Who is to have a mutex that is handed on.
#[derive(Clone, Copy)]
struct Heir {
    vcpu: u32,
    /// The first sleeper, if it is passed over.
    instead_of: Option<u32>,
}

fn heir(cx: &Context<'_>, number: u16) -> Option<Heir> {
    let sleeps = For::Lock(number);
    let first = sleepers::first(cx.memory, sleeps)?;
    let lender = cx.node().donor.load(Ordering::Acquire).checked_sub(1);
    let lender = lender.filter(|lender| *lender != first && sleepers::sleeps(cx, *lender, sleeps));
    let passes = cx.sibling(first).passed_over.load(Ordering::Relaxed);
    Some(match lender {
        Some(vcpu) if passes < PASSED_OVER => Heir {
            vcpu,
            instead_of: Some(first),
        },
        _ => Heir {
            vcpu: first,
            instead_of: None,
        },
    })
}

fn wake(cx: &Context<'_>, vcpu: u32, number: u16) -> Step {
    if sleepers::must_wake(cx, vcpu) {
        Step::Wake(vcpu, number)
    } else {
        Step::Done
    }
}
