//! Samples of a cost, and what is said of them.

use crate::host::monotonic_ns;

/// What something costs, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cost {
    /// How often it was measured.
    pub samples: usize,
    /// Half of the samples are no larger.
    pub median_ns: u64,
    /// 90 of 100 are no larger.
    pub p90_ns: u64,
    /// 99 of 100 are no larger.
    pub p99_ns: u64,
}

impl Cost {
    /// Of these samples; none if there are none.
    #[must_use]
    pub(super) fn of(mut samples: Vec<u64>) -> Option<Self> {
        samples.sort_unstable();
        // The nearest rank: the smallest sample that so many of 100 are no larger than.
        let rank = |percent: usize| samples.get((samples.len() * percent).div_ceil(100) - 1);
        if samples.is_empty() {
            return None;
        }
        Some(Self {
            samples: samples.len(),
            median_ns: *rank(50)?,
            p90_ns: *rank(90)?,
            p99_ns: *rank(99)?,
        })
    }
}

/// When to stop sampling: at so many samples, or after so much time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    most: usize,
    until_ns: u64,
}

impl Budget {
    /// At most so many samples in about so many milliseconds, from now.
    pub(super) fn new(most: usize, milliseconds: u64) -> Self {
        Self {
            most,
            until_ns: monotonic_ns() + milliseconds * 1_000_000,
        }
    }

    /// Whether another sample is wanted when there are so many.
    pub(super) fn wants(&self, have: usize) -> bool {
        have < self.most && monotonic_ns() < self.until_ns
    }

    /// Samples until there are enough or the first error.
    pub(super) fn collect<E>(
        &self,
        mut sample: impl FnMut() -> Result<u64, E>,
    ) -> Result<Vec<u64>, E> {
        let mut samples = Vec::new();
        while self.wants(samples.len()) {
            samples.push(sample()?);
        }
        Ok(samples)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_and_p99_are_samples_by_nearest_rank() {
        let cost = Cost::of((1..=200).rev().collect()).expect("samples");
        assert_eq!((cost.samples, cost.median_ns, cost.p99_ns), (200, 100, 198));
        let one = Cost::of(vec![7]).expect("a sample");
        assert_eq!((one.median_ns, one.p99_ns), (7, 7));
        assert_eq!(Cost::of(Vec::new()), None);
    }

    #[test]
    fn sampling_ends_at_the_count_or_when_the_time_is_over() {
        let count = Budget::new(5, 10_000).collect(|| Ok::<_, ()>(1));
        assert_eq!(count.map(|all| all.len()), Ok(5));
        let time = Budget::new(usize::MAX, 5).collect(|| Ok::<_, ()>(1));
        assert!(time.is_ok_and(|all| !all.is_empty()));
    }
}
