//! The guest's clock: the time-stamp counter.

use core::arch::x86_64::_rdtsc;
use stealtime_guest::page::Page;

/// The time-stamp counter, in ticks.
pub(super) fn ticks() -> u64 {
    // SAFETY: reads a counter; CR4.TSD is clear.
    unsafe { _rdtsc() }
}

/// Nanoseconds since the start of the run.
pub(super) fn now(page: &Page) -> u64 {
    page.clock(ticks())
}
