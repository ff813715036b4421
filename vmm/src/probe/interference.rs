//! What the host takes of the cores: gaps in the time of threads that only read the clock.
//!
//! One thread on each core, all at once for two seconds, with no more rights than the threads of vCPUs have. What they
//! do not get, a run on these cores would not get either, whether another process had it, the kernel, or the
//! hypervisor below. Gaps of less than 64 µs do not count: clock ticks and interrupts, which are in every cost that is
//! measured in the course of a run.

use super::costs::MeasureError;
use super::rights::cores;
use super::threads::pin;
use crate::host::monotonic_ns;
use std::sync::Barrier;
use std::{io, thread};

/// How long the threads look.
const LENGTH_NS: u64 = 2_000_000_000;
/// The shortest gap that counts, where the first octave begins.
const SHORTEST_NS: u64 = 64_000;

/// Gaps of one octave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gaps {
    /// Their mean length in nanoseconds.
    pub length_ns: u64,
    /// How often one comes on each core: once in so many nanoseconds on average.
    pub every_ns: u64,
}

/// What the host takes of each core, by octaves of length from 64 µs on, the shortest first. Octaves without a gap are
/// left out. Takes two seconds.
///
/// # Errors
/// If the host does not let a thread be bound to a core of this process.
pub fn interference() -> Result<Vec<Gaps>, MeasureError> {
    let cores = cores();
    let start = Barrier::new(cores.len());
    let seen: io::Result<Vec<(Vec<u64>, u64)>> = thread::scope(|scope| {
        let watch = |core| {
            let start = &start;
            scope.spawn(move || look(core, start))
        };
        let watchers: Vec<_> = cores.iter().copied().map(watch).collect();
        let ended = watchers.into_iter().map(|watcher| match watcher.join() {
            Ok(seen) => seen,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        ended.collect()
    });
    let (gaps, looked): (Vec<_>, Vec<_>) = seen?.into_iter().unzip();
    Ok(by_octave(&gaps.concat(), looked.iter().sum()))
}

/// The gaps that a thread on this core sees, and how long it looked: longer than it meant to if it was gone at the end.
fn look(core: u16, start: &Barrier) -> io::Result<(Vec<u64>, u64)> {
    // Room enough that no memory is asked for while it looks.
    let mut gaps = Vec::with_capacity(65_536);
    let pinned = pin(core);
    // The others wait for all, so also for one that may not.
    start.wait();
    pinned?;
    let begin = monotonic_ns();
    let mut last = begin;
    while last < begin + LENGTH_NS {
        let now = monotonic_ns();
        if now - last >= SHORTEST_NS {
            gaps.push(now - last);
        }
        last = now;
    }
    Ok((gaps, last - begin))
}

/// Gaps seen within so much time of all cores together.
fn by_octave(gaps: &[u64], core_ns: u64) -> Vec<Gaps> {
    let mut found = Vec::new();
    for wanted in 0..u64::BITS {
        let of_it = |gap: &&u64| (**gap / SHORTEST_NS).checked_ilog2() == Some(wanted);
        let octave: Vec<u64> = gaps.iter().filter(of_it).copied().collect();
        let count = octave.len() as u64;
        let total: u64 = octave.iter().sum();
        let found_here = total.checked_div(count).zip(core_ns.checked_div(count));
        found.extend(found_here.map(|(length_ns, every_ns)| Gaps {
            length_ns,
            every_ns,
        }));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_go_by_octaves_from_the_shortest_that_counts() {
        let gaps = [300_000, 63_999, 64_000, 127_999, 128_000, 400_000];
        // A second each of two cores.
        let found = by_octave(&gaps, 2_000_000_000);
        let expected = [
            (95_999, 1_000_000_000),
            (128_000, 2_000_000_000),
            (350_000, 1_000_000_000),
        ];
        let expected = expected.map(|(length_ns, every_ns)| Gaps {
            length_ns,
            every_ns,
        });
        assert_eq!(found, expected);
    }

    #[test]
    fn nothing_taken_is_an_empty_list() {
        assert_eq!(by_octave(&[], 1_000_000_000), []);
        assert_eq!(by_octave(&[10], 1_000_000_000), []);
    }

    #[test]
    fn what_octaves_say_together_is_what_was_taken() {
        let gaps: Vec<u64> = (1..200).map(|n| 64_000 + n * n * 977).collect();
        let core_ns = 4_000_000_000;
        let taken = gaps.iter().sum::<u64>() as f64 / core_ns as f64;
        let found = by_octave(&gaps, core_ns);
        let part: f64 = found
            .iter()
            .map(|gaps| gaps.length_ns as f64 / gaps.every_ns as f64)
            .sum();
        assert!((part / taken - 1.0).abs() < 1e-4, "{part} of {taken}");
    }
}
