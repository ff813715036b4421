//! How long the host lets a busy thread have a core that another busy one waits for.
//!
//! That is what a slice of its own scheduler comes to. It acts on the end of one at its clock ticks, so a stay may
//! be longer than the slice that it goes by.

use super::costs::MeasureError;
use super::rights::cores;
use super::sample::Cost;
use super::threads::pin;
use crate::host::monotonic_ns;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{io, thread};

/// How long both run.
const LENGTH_NS: u64 = 400_000_000;

/// The stays of two threads that do nothing but run, on the last core of this process; none if the host did not switch
/// between them. Takes less than half a second.
///
/// # Errors
/// If the host does not let a thread be bound to a core.
pub fn host_slice() -> Result<Option<Cost>, MeasureError> {
    let core = cores().last().copied().unwrap_or(0);
    let (start, there) = (Barrier::new(2), AtomicUsize::new(usize::MAX));
    let run = |me| {
        start.wait();
        arrivals(me, &there)
    };
    let switches: io::Result<Vec<u64>> = thread::scope(|scope| {
        let run = &run;
        let first = thread::Builder::new().spawn_scoped(scope, move || {
            pin(core)?;
            // On the same core: a thread begins with the place of the one that started it.
            let second = thread::Builder::new().spawn_scoped(scope, move || run(1))?;
            let mine = run(0);
            Ok([mine, ended(second)].concat())
        })?;
        ended(first)
    });
    Ok(Cost::of(stays(switches?)))
}

fn ended<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    match thread.join() {
        Ok(found) => found,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// When this thread found itself on the core after the other one.
fn arrivals(me: usize, there: &AtomicUsize) -> Vec<u64> {
    let mut arrivals = Vec::with_capacity(4_096);
    let mut now = monotonic_ns();
    let end = now + LENGTH_NS;
    while now < end {
        // One of them at a time is on the core, and nothing is read by way of this.
        if there.swap(me, Ordering::Relaxed) != me {
            arrivals.push(now);
        }
        now = monotonic_ns();
    }
    arrivals
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
