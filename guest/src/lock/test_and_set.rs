//! Test-and-set: whoever comes first takes it.
//!
//! Waiters read until the word is free and only then try to swap it, so that they do not take the
//! cache line from each other while the lock is held.

use super::{Context, Spin, Step};
use core::sync::atomic::Ordering;

/// Tries to take the lock.
pub(super) fn take(cx: &mut Context<'_>, number: u16) -> Step {
    let word = &cx.lock(number).word;
    if word.load(Ordering::Relaxed) != 0 {
        cx.waits(number);
        return Step::Spin(Spin::default());
    }
    cx.taking();
    // Acquire: what the last owner wrote is seen by this one.
    if word.swap(1, Ordering::Acquire) != 0 {
        cx.missed(number);
        return Step::Spin(Spin::default());
    }
    cx.took(number);
    Step::Done
}

/// Releases it.
pub(super) fn release(cx: &mut Context<'_>, number: u16) -> Step {
    let lock = cx.lock(number);
    lock.owner.store(0, Ordering::Relaxed);
    lock.word.store(0, Ordering::Release);
    cx.released(number);
    Step::Done
}
