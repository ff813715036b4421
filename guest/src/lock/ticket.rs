//! Ticket: first come, first served.
//!
//! Each comer draws a ticket and waits until it is served. The owner serves the next one on release,
//! whether that one runs or not: a waiter that is preempted at its turn stops all behind it.

use super::{Lock, Waiter};
use core::sync::atomic::Ordering;

/// Takes the lock.
pub fn acquire(lock: &Lock, waiter: &mut impl Waiter) {
    waiter.taking();
    let ticket = lock.word.fetch_add(1, Ordering::Relaxed);
    // Acquire, here and below: what the last owner wrote is seen by this one.
    if lock.serving.load(Ordering::Acquire) == ticket {
        return;
    }
    waiter.waiting(Some(ticket));
    while lock.serving.load(Ordering::Acquire) != ticket {
        waiter.spin();
    }
    waiter.taking();
}

/// Releases it.
pub fn release(lock: &Lock) {
    // Only the owner writes this word.
    let next = lock.serving.load(Ordering::Relaxed).wrapping_add(1);
    lock.serving.store(next, Ordering::Release);
}
