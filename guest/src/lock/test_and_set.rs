//! Test-and-set: whoever comes first takes it.
//!
//! Waiters read until the word is free and only then try to swap it, so that they do not take the
//! cache line from each other while the lock is held.

use super::{Lock, Waiter};
use core::sync::atomic::Ordering;

/// Takes the lock.
pub fn acquire(lock: &Lock, waiter: &mut impl Waiter) {
    loop {
        waiter.taking();
        // Acquire: what the last owner wrote is seen by this one.
        if lock.word.swap(1, Ordering::Acquire) == 0 {
            return;
        }
        waiter.waiting(None);
        while lock.word.load(Ordering::Relaxed) != 0 {
            waiter.spin();
        }
    }
}

/// Releases it.
pub fn release(lock: &Lock) {
    lock.word.store(0, Ordering::Release);
}
