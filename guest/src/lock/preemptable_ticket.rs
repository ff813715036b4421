//! A ticket lock that a preempted waiter does not stop (Ouyang and Lange, VEE 2013).
//!
//! 1. A comer draws a ticket and waits for its turn, but not for ever: its patience is a unit of time for
//!    each ticket before its own, counted in its own running time, and begins anew when the turn moves on.
//! 2. When its turn has come, or has passed, or its patience is at an end (somebody before it is presumed
//!    to have no core), it contends for a second word, by test-and-set.
//!
//! The second word gives mutual exclusion; the tickets give the order as long as nobody loses patience.
//! A release frees the word and moves the turn on, whoever it was.

use super::{Context, Spin, Step};
use core::sync::atomic::Ordering;

/// How far a comer is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Take {
    /// It has no ticket.
    Draw,
    /// It waits for its turn.
    Wait {
        /// Its ticket.
        ticket: u32,
        /// Whose turn it was when it last looked.
        turn: u32,
        /// How long it had spun when the turn last moved on, in nanoseconds.
        since: u64,
    },
    /// It contends.
    Contend,
}

impl Take {
    pub(super) fn step(&mut self, cx: &mut Context<'_>, number: u16) -> Step {
        let lock = cx.lock(number);
        let now = lock.serving.load(Ordering::Relaxed);
        match *self {
            Self::Draw => {
                let ticket = lock.word.fetch_add(1, Ordering::Relaxed);
                *self = Self::Wait {
                    ticket,
                    turn: now,
                    since: cx.spun,
                };
                self.step(cx, number)
            }
            Self::Wait {
                ticket,
                turn,
                since,
            } => {
                let since = if now == turn { since } else { cx.spun };
                let before = ticket.wrapping_sub(now);
                // More than half of all tickets before its own: its turn has passed.
                let before = if before > u32::MAX / 2 { 0 } else { before };
                let unit = lock.size.load(Ordering::Relaxed);
                let until = since + u64::from(unit) * u64::from(before);
                *self = if cx.spun >= until {
                    Self::Contend
                } else {
                    Self::Wait {
                        ticket,
                        turn: now,
                        since,
                    }
                };
                if *self == Self::Contend {
                    return contend(cx, number);
                }
                cx.waits(number);
                Step::Spin(Spin {
                    until: Some(until),
                    while_runs: None,
                })
            }
            Self::Contend => contend(cx, number),
        }
    }
}

fn contend(cx: &mut Context<'_>, number: u16) -> Step {
    let taken = &cx.lock(number).taken;
    if taken.load(Ordering::Relaxed) == 0 {
        cx.taking();
        // Acquire: what the last owner wrote is seen by this one.
        if taken.swap(1, Ordering::Acquire) == 0 {
            cx.took(number);
            return Step::Done;
        }
        cx.missed(number);
    }
    cx.waits(number);
    Step::Spin(Spin::default())
}

/// Releases it.
pub(super) fn release(cx: &mut Context<'_>, number: u16) -> Step {
    let lock = cx.lock(number);
    lock.owner.store(0, Ordering::Relaxed);
    lock.taken.store(0, Ordering::Release);
    lock.serving.fetch_add(1, Ordering::Relaxed);
    cx.released(number);
    Step::Done
}
