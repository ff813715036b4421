//! What the host takes of the cores: gaps in the time of threads that only read the clock.
//!
//! One thread on each core, all at once for ten seconds, with no more rights than the threads of vCPUs have. What they
//! do not get, a run on these cores would not get either, whether another process had it, the kernel, or the
//! hypervisor below. Gaps of less than 65 µs do not count: clock ticks and interrupts, which are in every cost that is
//! measured in the course of a run.
//!
//! Of what comes rarely its rate is known badly: of five gaps the true one may be a third or 2.3 times as much (95 %).
//! Fewer than that say nothing of a kind of their own.

use super::costs::MeasureError;
use super::rights::cores;
use super::together::together;
use crate::host::monotonic_ns;

/// How long the threads look.
const LENGTH_NS: u64 = 10_000_000_000;
/// The shortest gap that counts.
const SHORTEST_NS: u64 = 65_536;
/// With fewer gaps an octave is not told by itself.
const FEW: usize = 5;

/// Gaps of about one length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gaps {
    /// Their mean length in nanoseconds.
    pub length_ns: u64,
    /// How often one comes on each core: once in so many nanoseconds on average.
    pub every_ns: u64,
}

/// What the host takes of each core, by octaves of length from 65 µs on, the shortest first. Octaves with fewer than
/// five gaps are told together with the next longer one; the last group may have fewer. Takes ten seconds.
///
/// # Errors
/// If the host does not let a thread be bound to a core of this process.
pub fn interference() -> Result<Vec<Gaps>, MeasureError> {
    let seen = together(&cores(), |_| look())?;
    let (gaps, looked): (Vec<_>, Vec<_>) = seen.into_iter().unzip();
    Ok(by_octave(gaps.concat(), looked.iter().sum()))
}

/// The gaps that this thread sees, and how long it looked: longer than it meant to if it was gone at the end.
fn look() -> (Vec<u64>, u64) {
    // Room enough that no memory is asked for while it looks.
    let mut gaps = Vec::with_capacity(262_144);
    let begin = monotonic_ns();
    let mut last = begin;
    while last < begin + LENGTH_NS {
        let now = monotonic_ns();
        if now - last >= SHORTEST_NS {
            gaps.push(now - last);
        }
        last = now;
    }
    (gaps, last - begin)
}

/// Gaps seen within so much time of all cores together.
fn by_octave(mut gaps: Vec<u64>, core_ns: u64) -> Vec<Gaps> {
    gaps.retain(|gap| *gap >= SHORTEST_NS);
    gaps.sort_unstable();
    let same_octave = |one: &u64, other: &u64| one.ilog2() == other.ilog2();
    let mut groups: Vec<&[u64]> = Vec::new();
    let mut rest = gaps.as_slice();
    // Where the group that is being filled ends.
    let mut filled = 0;
    for octave in gaps.chunk_by(same_octave) {
        filled += octave.len();
        if filled >= FEW {
            let (group, later) = rest.split_at(filled);
            groups.push(group);
            (rest, filled) = (later, 0);
        }
    }
    groups.extend((!rest.is_empty()).then_some(rest));
    let told = groups.into_iter().map(|group| Gaps {
        length_ns: group.iter().sum::<u64>() / group.len() as u64,
        every_ns: core_ns / group.len() as u64,
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_go_by_octaves_from_the_shortest_that_counts() {
        let gaps = [
            [65_535; 7],
            [65_536; 7],
            [131_071; 7],
            [131_072; 7],
            [200_000; 7],
        ]
        .concat();
        // A second each of two cores.
        let found = by_octave(gaps, 2_000_000_000);
        let expected = [(98_303, 142_857_142), (165_536, 142_857_142)];
        assert_eq!(found, expected.map(told));
    }

    #[test]
    fn few_gaps_are_told_together_with_longer_ones_and_none_is_left_out() {
        let few = vec![70_000, 70_000, 140_000, 140_000, 140_000, 9_000_000];
        assert_eq!(
            by_octave(few, 6_000_000),
            [told((112_000, 1_200_000)), told((9_000_000, 6_000_000))]
        );
        assert_eq!(by_octave(vec![70_000], 5_000), [told((70_000, 5_000))]);
    }

    fn told((length_ns, every_ns): (u64, u64)) -> Gaps {
        Gaps {
            length_ns,
            every_ns,
        }
    }

    #[test]
    fn nothing_taken_is_an_empty_list() {
        assert_eq!(by_octave(Vec::new(), 1_000_000_000), []);
        assert_eq!(by_octave(vec![10], 1_000_000_000), []);
    }

    #[test]
    fn what_octaves_say_together_is_what_was_taken() {
        let gaps: Vec<u64> = (1..200).map(|n| 66_000 + n * n * 977).collect();
        let core_ns = 4_000_000_000;
        let taken = gaps.iter().sum::<u64>() as f64 / core_ns as f64;
        let found = by_octave(gaps, core_ns);
        let part: f64 = found
            .iter()
            .map(|gaps| gaps.length_ns as f64 / gaps.every_ns as f64)
            .sum();
        assert!((part / taken - 1.0).abs() < 1e-4, "{part} of {taken}");
    }
}
