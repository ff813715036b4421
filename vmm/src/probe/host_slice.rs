//! How long the host lets a busy thread have a core that another busy one waits for.
//!
//! That is what a slice of its own scheduler comes to. It acts on the end of one at its clock ticks, so a stay may
//! be longer than the slice that it goes by.

use super::costs::{MeasureError, cost};
use super::rights::cores;
use super::sample::Cost;
use super::threads::pin;
use crate::host::monotonic_ns;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU8, Ordering};
use std::{io, thread};

/// How long both run.
const LENGTH_NS: u64 = 400_000_000;

/// The stays of two threads that do nothing but run, on the last core of this process. Takes less than half a second.
///
/// # Errors
/// If the host does not let a thread be bound to a core, or never takes it from one for the other.
pub fn host_slice() -> Result<Cost, MeasureError> {
    let core = cores().last().copied().unwrap_or(0);
    let (start, there) = (Barrier::new(2), AtomicU8::new(u8::MAX));
    let switches: io::Result<Vec<Vec<u64>>> = thread::scope(|scope| {
        let run = |me| {
            let (start, there) = (&start, &there);
            scope.spawn(move || arrivals(core, me, start, there))
        };
        let threads = [run(0), run(1)];
        let ended = threads.into_iter().map(|thread| match thread.join() {
            Ok(arrivals) => arrivals,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        ended.collect()
    });
    cost(
        stays(switches?.concat()),
        "switches of the host between threads",
    )
}

/// When this thread found itself on the core after the other one.
fn arrivals(core: u16, me: u8, start: &Barrier, there: &AtomicU8) -> io::Result<Vec<u64>> {
    let mut arrivals = Vec::with_capacity(4_096);
    let pinned = pin(core);
    // The other one waits for both, so also for one that may not.
    start.wait();
    pinned?;
    let mut now = monotonic_ns();
    let end = now + LENGTH_NS;
    while now < end {
        // One of them at a time is on the core, and nothing is read by way of this.
        if there.swap(me, Ordering::Relaxed) != me {
            arrivals.push(now);
        }
        now = monotonic_ns();
    }
    Ok(arrivals)
}

/// From each arrival to the next. The first stay began before its thread was looked at.
fn stays(mut arrivals: Vec<u64>) -> Vec<u64> {
    arrivals.sort_unstable();
    let pairs = arrivals.windows(2).skip(1);
    pairs.map(|pair| pair[1] - pair[0]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_last_from_one_arrival_to_the_next_whoever_it_is() {
        assert_eq!(stays(vec![100, 900, 1_700, 500, 1_300]), [400, 400, 400]);
        assert_eq!(stays(vec![100, 500]), [0; 0]);
        assert_eq!(stays(Vec::new()), [0; 0]);
    }
}
