//! What the host takes of the cores: gaps in the time of guests that only compute.
//!
//! One vCPU on each core, all at once for ten seconds. What they do not get, a run on all of these cores would not get
//! either, whether another process had it, the kernel's own interrupts, the hypervisor below, or the thread that conducts
//! the run. It is looked for from within a guest, because there an interrupt of the host costs an exit and an entry
//! besides.
//!
//! The guest times stretches of work that all have one length; what one took more than half of them do is a gap. What
//! is shorter than 16 µs does not count: it cannot be told from work that goes slower, as beside a busy sibling.
//!
//! Of what comes rarely its rate is known badly: of five gaps the true one may be a third or 2.3 times as much (95 %).
//! Fewer than that say nothing of a kind of their own.

use super::costs::MeasureError;
use super::plan::plan;
use super::rights::cores;
use crate::backend::KvmBackend;
use std::sync::atomic::AtomicBool;
use stealtime_guest::hist::middle;
use stealtime_guest::op::{Length, Step};
use stealtime_scheduler::time::Nanos;
use stealtime_workloads::run::{Backend, Entry, Observer};

/// How long the guests look.
const LENGTH: Nanos = Nanos::from_secs(10);
/// The work that is timed, in nanoseconds.
const STRETCH_NS: u64 = 10_000;
/// The shortest gap that counts.
const SHORTEST_NS: u64 = 16_384;
/// With fewer gaps an octave is not told by itself.
const FEW: u64 = 5;

/// Gaps of about one length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gaps {
    /// Their mean length in nanoseconds.
    pub length_ns: u64,
    /// How often one comes on each core: once in so many nanoseconds on average.
    pub every_ns: u64,
    /// Whether this is what the host tells the threads that it took: their run delay grows by it. Known is only how
    /// much that is in all; it is taken to be the longest. Of its own interrupts, and of what a hypervisor below
    /// takes, it tells nothing.
    pub told: bool,
}

/// What the host does to its cores.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interference {
    /// By octaves of length, the shortest first.
    pub gaps: Vec<Gaps>,
    /// How much of each core the host said that it took, in millionths.
    pub told_ppm: u64,
}

/// What the host takes of each core, by octaves of length from 16 µs on, the shortest first. Octaves with fewer than
/// five gaps are told together with the next longer one; the last group may have fewer. Takes ten seconds.
///
/// # Errors
/// If KVM or the host does not do its part.
pub fn interference() -> Result<Interference, MeasureError> {
    let cores = cores();
    let work = [
        Step::Repeat(0),
        Step::RequestBegin,
        Step::Run(Length::Fixed(STRETCH_NS)),
        Step::RequestEnd,
        Step::EndRepeat,
    ];
    let programs = vec![&work[..]; cores.len()];
    let plan = plan(("null", &[]), &cores, LENGTH, &programs);
    let seen = KvmBackend.run(&plan, &AtomicBool::new(false), &mut Deaf)?;
    let core_ns = LENGTH.get() * cores.len() as u64;
    let told_ns = seen.quality.host_interference_ns;
    let found = seen
        .guests
        .iter()
        .flat_map(|guest| gaps(&guest.request_hist));
    let mut found: Vec<_> = found.collect();
    found.sort_unstable();
    let counted = seen.guests.iter().flat_map(|guest| &guest.request_hist);
    let stretches: u64 = counted.map(|count| u64::from(*count)).sum();
    if !seen.failures.is_empty() || stretches * STRETCH_NS * 10 < core_ns {
        return Err(MeasureError::NoSamples {
            what: "what the host takes",
        });
    }
    Ok(Interference {
        gaps: by_octave(&found, core_ns, told_ns),
        told_ppm: told_ns * 1_000 / (core_ns / 1_000),
    })
}

/// Nothing of the run but its outcome is of interest.
struct Deaf;

impl Observer for Deaf {
    fn entries(&mut self, _entries: &[Entry]) {}
}

/// The gaps in a guest's stretches, which would else last as long as half of them do: their lengths, ascending, and
/// how many.
fn gaps(stretches: &[u32]) -> Vec<(u64, u64)> {
    let counted = stretches.iter().map(|count| u64::from(*count));
    let all: u64 = counted.clone().sum();
    let mut so_far = 0;
    let undisturbed = counted.clone().position(|count| {
        so_far += count;
        so_far * 2 > all
    });
    let usual = middle(undisturbed.unwrap_or(0));
    let counted = counted.enumerate().filter(|(_, count)| *count > 0);
    counted
        .map(|(bucket, count)| (middle(bucket).saturating_sub(usual), count))
        .filter(|(length, _)| *length >= SHORTEST_NS)
        .collect()
}

/// Gaps seen within so much time of all cores together, of which the host told so much.
fn by_octave(gaps: &[(u64, u64)], core_ns: u64, told_ns: u64) -> Vec<Gaps> {
    let same_octave = |one: &(u64, u64), other: &(u64, u64)| one.0.ilog2() == other.0.ilog2();
    // Total length and count of each.
    let mut groups: Vec<(u64, u64)> = Vec::new();
    let mut few = (0, 0);
    for octave in gaps.chunk_by(same_octave) {
        for (length, count) in octave {
            few = (few.0 + length * count, few.1 + count);
        }
        if few.1 >= FEW {
            groups.push(std::mem::take(&mut few));
        }
    }
    groups.extend((few.1 > 0).then_some(few));
    // Other threads have a core for longer than interrupts do: of what was told the longest come first.
    let mut left = told_ns;
    let mut told: Vec<Gaps> = Vec::new();
    for (total, count) in groups.into_iter().rev() {
        let fits = left >= total.div_ceil(2);
        if fits {
            left = left.saturating_sub(total);
        }
        told.push(Gaps {
            length_ns: total / count,
            every_ns: core_ns / count,
            told: fits,
        });
    }
    told.reverse();
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use stealtime_guest::hist::{BUCKETS, bucket};

    /// Length, every, and whether it was told.
    fn octaves(gaps: &[(u64, u64)], core_ns: u64, told_ns: u64) -> Vec<(u64, u64, bool)> {
        let found = by_octave(gaps, core_ns, told_ns).into_iter();
        found
            .map(|gaps| (gaps.length_ns, gaps.every_ns, gaps.told))
            .collect()
    }

    #[test]
    fn a_gap_is_what_a_stretch_lasted_longer_than_half_of_them() {
        let mut counts = vec![0; BUCKETS];
        for (length, count) in [
            (9_000, 30),
            (10_500, 60),
            (24_000, 5),
            (40_000, 7),
            (2_000_000, 2),
        ] {
            counts[bucket(length)] += count;
        }
        let found = gaps(&counts);
        assert_eq!(found.len(), 2, "{found:?}");
        for ((length, count), expected) in found.into_iter().zip([(29_500, 7), (1_989_500, 2)]) {
            assert_eq!(count, expected.1);
            assert!(length.abs_diff(expected.0) < expected.0 / 16, "{length}");
        }
        assert_eq!(gaps(&vec![0; BUCKETS]), []);
    }

    #[test]
    fn few_gaps_are_told_together_with_longer_ones_and_none_is_left_out() {
        let few = [(9_000, 2), (20_000, 1), (30_000, 2), (3_000_000, 1)];
        assert_eq!(
            octaves(&few, 6_000_000, 0),
            [(19_600, 1_200_000, false), (3_000_000, 6_000_000, false)]
        );
        assert_eq!(octaves(&[(9_000, 1)], 5_000, 0), [(9_000, 5_000, false)]);
        assert_eq!(octaves(&[], 1_000_000_000, 0), []);
    }

    #[test]
    fn of_what_the_host_told_the_longest_come_first() {
        let gaps = [(20_000, 1_000), (100_000, 10), (4_000_000, 5)];
        let told = |ns| -> Vec<bool> {
            let found = by_octave(&gaps, 1 << 40, ns).into_iter();
            found.map(|gaps| gaps.told).collect()
        };
        assert_eq!(told(0), [false, false, false]);
        assert_eq!(told(900_000), [false, true, false]);
        assert_eq!(told(9_000_000), [false, true, false]);
        assert_eq!(told(19_000_000), [false, false, true]);
        assert_eq!(told(21_100_000), [false, true, true]);
        assert_eq!(told(40_000_000), [true, true, true]);
    }

    #[test]
    fn what_octaves_say_together_is_what_was_taken() {
        let gaps: Vec<(u64, u64)> = (1..200).map(|n| (9_000 + n * n * 977, n % 7 + 1)).collect();
        let core_ns = 4_000_000_000;
        let taken = gaps
            .iter()
            .map(|(length, count)| length * count)
            .sum::<u64>() as f64;
        let found = by_octave(&gaps, core_ns, 0);
        let part: f64 = found
            .iter()
            .map(|gaps| gaps.length_ns as f64 / gaps.every_ns as f64)
            .sum();
        let taken = taken / core_ns as f64;
        assert!((part / taken - 1.0).abs() < 1e-4, "{part} of {taken}");
    }
}
