//! A barrier: so many have to come before any goes on.
//!
//! The last to come moves it on and wakes those that sleep. The others spin for a while, because the rest
//! may be near, and then sleep.

use super::sleepers::{self, For};
use super::{Context, Lock, Spin, Step};
use core::sync::atomic::Ordering;

/// How long one that comes early spins before it sleeps, in nanoseconds of its own running time: about
/// what a sleep and a wake-up cost.
const PATIENCE_NS: u64 = 20_000;

/// In the word: how many have come, below; the round, above.
const COME: u32 = 0xffff;
const SHIFT: u32 = 16;

/// How far a comer is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Meet {
    /// It has done nothing.
    Come,
    /// It spins until the barrier has moved on from here.
    Spin(u32),
    /// It is among the sleepers and looks before it sleeps.
    Look(u32),
    /// It was the last and wakes the others.
    Wake,
}

impl Meet {
    pub(super) fn step(&mut self, cx: &mut Context<'_>, number: u16) -> Step {
        let lock = cx.lock(number);
        let passed = |from: u32| lock.word.load(Ordering::SeqCst) >> SHIFT != from;
        match *self {
            Self::Come => {
                let (round, last) = come(lock);
                cx.waits(number);
                *self = if last { Self::Wake } else { Self::Spin(round) };
                if last {
                    cx.touched = Some(number);
                }
                Step::Again
            }
            Self::Spin(from) if passed(from) => {
                let _ = sleepers::leave(cx);
                cx.waits_no_more();
                Step::Done
            }
            Self::Spin(_) if cx.spun < PATIENCE_NS => Step::Spin(Spin {
                until: Some(PATIENCE_NS),
                while_runs: None,
            }),
            Self::Spin(from) => {
                sleepers::enlist(cx, For::Lock(number));
                *self = Self::Look(from);
                Step::Again
            }
            Self::Look(from) => {
                *self = Self::Spin(from);
                if passed(from) {
                    return Step::Again;
                }
                Step::Sleep(number)
            }
            Self::Wake => {
                cx.waits_no_more();
                match sleepers::call(cx, For::Lock(number)) {
                    Some(sleeper) => Step::Wake(sleeper, number),
                    None => Step::Done,
                }
            }
        }
    }
}

/// Counts one more. The answer is its round, and whether it is the last of it.
fn come(lock: &Lock) -> (u32, bool) {
    let parties = lock.size.load(Ordering::Relaxed);
    loop {
        let word = lock.word.load(Ordering::SeqCst);
        let (round, come) = (word >> SHIFT, (word & COME) + 1);
        let last = come >= parties;
        let new = if last {
            round.wrapping_add(1) << SHIFT
        } else {
            word + 1
        };
        // SeqCst, both ways: what each did before comes before what any does after; and of a sleeper's
        // last look and this, one sees the other.
        let come = lock
            .word
            .compare_exchange(word, new, Ordering::SeqCst, Ordering::Relaxed);
        if come.is_ok() {
            return (round, last);
        }
    }
}
