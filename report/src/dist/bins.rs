//! The steps of a histogram over lengths of time: 1, 2 and 5 of each power of ten. Counts are exact.

use serde::Serialize;

/// So many samples are at least `from_ns` and less than `to_ns` long.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Bin {
    /// The lower bound, included.
    pub from_ns: u64,
    /// The upper bound, excluded.
    pub to_ns: u64,
    /// How many.
    pub count: u64,
}

/// Steps from 0 to the greatest number: one below 1, three for each power of ten, one beyond.
const STEPS: usize = 1 + 3 * 19 + 1;

/// A count for every step.
#[derive(Debug)]
pub(super) struct Bins([u64; STEPS]);

/// Where a step begins.
fn begin(step: usize) -> u64 {
    let Some(above) = step.checked_sub(1) else {
        return 0;
    };
    let power = u32::try_from(above / 3).unwrap_or(u32::MAX);
    [1, 2, 5][above % 3] * 10_u64.saturating_pow(power)
}

fn end(step: usize) -> u64 {
    if step + 1 < STEPS {
        begin(step + 1)
    } else {
        u64::MAX
    }
}

/// The step that a length is in.
fn step(length: u64) -> usize {
    let Some(power) = length.checked_ilog10() else {
        return 0;
    };
    let above = match length / 10_u64.pow(power) {
        1 => 0,
        2..5 => 1,
        _ => 2,
    };
    (1 + 3 * power as usize + above).min(STEPS - 1)
}

impl Bins {
    pub(super) const fn new() -> Self {
        Self([0; STEPS])
    }

    pub(super) fn record(&mut self, length: u64) {
        self.0[step(length)] += 1;
    }

    /// All steps from the shortest to the longest length that there is, empty ones in between
    /// included.
    pub(super) fn list(&self) -> Vec<Bin> {
        let filled = |count: &u64| *count > 0;
        let (Some(first), Some(last)) = (
            self.0.iter().position(filled),
            self.0.iter().rposition(filled),
        ) else {
            return Vec::new();
        };
        let bin = |step: usize| Bin {
            from_ns: begin(step),
            to_ns: end(step),
            count: self.0[step],
        };
        (first..=last).map(bin).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_meet_without_a_gap_from_nothing_to_everything() {
        for place in 0..STEPS {
            assert_eq!(step(begin(place)), place);
            assert_eq!(step(end(place) - 1), place);
            assert!(end(place) > begin(place));
        }
        assert_eq!((begin(0), end(STEPS - 1)), (0, u64::MAX));
        assert_eq!(step(u64::MAX), STEPS - 1);
        let of = |length| (begin(step(length)), end(step(length)));
        assert_eq!(of(9_999_999), (5_000_000, 10_000_000));
        assert_eq!(of(10_000_000), (10_000_000, 20_000_000));
    }

    #[test]
    fn steps_in_which_there_is_nothing_are_there() {
        let mut bins = Bins::new();
        for length in [1_500, 1_600, 40_000] {
            bins.record(length);
        }
        let list = bins.list();
        let found: Vec<_> = list.iter().map(|bin| (bin.from_ns, bin.count)).collect();
        assert_eq!(
            found,
            [(1_000, 2), (2_000, 0), (5_000, 0), (10_000, 0), (20_000, 1)]
        );
        assert!(Bins::new().list().is_empty());
    }
}
