//! Costs of the host alone: threads and clocks.

use super::costs::{MeasureError, cost};
use super::sample::{Budget, Cost};
use crate::host::monotonic_ns;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::{self, Thread};

/// Puts the calling thread on a core.
pub(super) fn pin(core: u16) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(usize::from(core));
    sched_setaffinity(None, &set).map_err(io::Error::from)
}

/// From `unpark` of a thread until it runs, there and back: half of each round trip.
pub(super) fn hand_over(from: u16, to: u16) -> Result<Cost, MeasureError> {
    const STOP: u64 = u64::MAX;
    pin(from)?;
    let turn = AtomicU64::new(0);
    let (send, receive) = mpsc::channel::<io::Result<Thread>>();
    let here = thread::current();
    let samples = thread::scope(|scope| {
        scope.spawn(|| {
            if send.send(pin(to).map(|()| thread::current())).is_err() {
                return;
            }
            let mut seen = 0;
            loop {
                let now = turn.load(Ordering::Acquire);
                if now == STOP {
                    return;
                }
                if now == seen {
                    thread::park();
                    continue;
                }
                seen = now + 1;
                turn.store(seen, Ordering::Release);
                here.unpark();
            }
        });
        let Ok(there) = receive.recv() else {
            return Ok(Vec::new());
        };
        let there = there?;
        let mut next = 1;
        let samples = Budget::new(4_000, 150).collect(|| {
            let begin = monotonic_ns();
            turn.store(next, Ordering::Release);
            there.unpark();
            while turn.load(Ordering::Acquire) == next {
                thread::park();
            }
            next += 2;
            Ok::<_, io::Error>((monotonic_ns() - begin) / 2)
        });
        turn.store(STOP, Ordering::Release);
        there.unpark();
        samples
    })?;
    cost(samples, "hand-over between threads")
}

/// One reading of the clock, from the time that a hundred take.
pub(super) fn clock_reading() -> Result<Cost, MeasureError> {
    const READINGS: u64 = 100;
    let samples = Budget::new(2_000, 50).collect(|| {
        let begin = monotonic_ns();
        for _ in 1..READINGS {
            std::hint::black_box(monotonic_ns());
        }
        Ok::<_, MeasureError>((monotonic_ns() - begin) / READINGS)
    })?;
    cost(samples, "reading the clock")
}
