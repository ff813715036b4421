//! Lengths of time, all of them, and the figures of their distribution.

use std::collections::BTreeMap;

/// Lengths in nanoseconds, sorted.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Distribution(Vec<u64>);

/// The lengths of each bin, by the bin's place.
pub(super) type Bins = BTreeMap<u64, u64>;

impl Distribution {
    /// Of these lengths, in whatever order.
    pub(super) fn new(mut lengths: Vec<u64>) -> Self {
        lengths.sort_unstable();
        Self(lengths)
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// The shortest.
    pub(super) fn min(&self) -> Option<f64> {
        self.0.first().map(|length| *length as f64)
    }

    /// The longest.
    pub(super) fn max(&self) -> Option<f64> {
        self.0.last().map(|length| *length as f64)
    }

    /// All together.
    pub(super) fn total(&self) -> f64 {
        self.0.iter().map(|length| *length as f64).sum()
    }

    /// The mean.
    pub(super) fn mean(&self) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.total() / self.0.len() as f64)
    }

    /// The standard deviation, `sqrt(Σ (x − mean)² / n)`, as `ping` prints it.
    pub(super) fn deviation(&self) -> Option<f64> {
        let mean = self.mean()?;
        let squares = self.0.iter().map(|length| (*length as f64 - mean).powi(2));
        Some((squares.sum::<f64>() / self.0.len() as f64).sqrt())
    }

    /// The least length that so many per cent do not exceed (1 to 100).
    pub(super) fn percentile(&self, per_cent: usize) -> Option<f64> {
        let rank = (self.0.len() * per_cent).div_ceil(100).max(1);
        self.0.get(rank - 1).map(|length| *length as f64)
    }

    /// The part that is longer than this.
    pub(super) fn above(&self, length: u64) -> Option<f64> {
        let above = self.0.iter().filter(|one| **one > length).count();
        (!self.0.is_empty()).then(|| above as f64 / self.0.len() as f64)
    }

    /// Of those longer than half a `period`, the part that lies within a quarter of it around a whole
    /// multiple. Lengths that have nothing to do with the period come to a half.
    pub(super) fn at_multiples(&self, period: u64) -> Option<f64> {
        let long = self.0.iter().filter(|length| **length > period / 2);
        let (mut all, mut near) = (0_u64, 0_u64);
        for length in long {
            let past = length % period;
            all += 1;
            near += u64::from(past.min(period - past) <= period / 4);
        }
        (all > 0).then(|| near as f64 / all as f64)
    }

    /// How many lie around each whole multiple of `width`.
    pub(super) fn bins(&self, width: u64) -> Bins {
        let mut bins = Bins::new();
        for length in &self.0 {
            *bins.entry((length + width / 2) / width).or_default() += 1;
        }
        bins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_those_that_ping_prints() {
        let two = Distribution::new(vec![4, 2, 4, 4, 5, 5, 7, 9]);
        assert_eq!((two.min(), two.mean()), (Some(2.0), Some(5.0)));
        assert_eq!((two.max(), two.deviation()), (Some(9.0), Some(2.0)));
        assert_eq!(
            [1, 50, 75, 100].map(|p| two.percentile(p)),
            [2.0, 4.0, 5.0, 9.0].map(Some)
        );
        assert_eq!((two.total(), two.above(5)), (40.0, Some(0.25)));
        let none = Distribution::default();
        assert_eq!(
            (none.min(), none.mean(), none.percentile(50)),
            (None, None, None)
        );
    }

    #[test]
    fn a_tail_at_whole_ticks_is_told_from_one_anywhere() {
        let at_ticks = Distribution::new(vec![100, 90, 105, 210, 3, 4, 5]);
        assert_eq!(at_ticks.at_multiples(100), Some(1.0));
        let anywhere = Distribution::new((100..1_100).collect());
        let part = anywhere.at_multiples(100).expect("many are long");
        assert!((part - 0.5).abs() < 0.02, "{part}");
        assert_eq!(Distribution::new(vec![3, 4]).at_multiples(100), None);
    }

    #[test]
    fn bins_lie_around_whole_multiples() {
        let bins = Distribution::new(vec![0, 4, 5, 14, 15, 30]).bins(10);
        assert_eq!(bins, Bins::from([(0, 2), (1, 2), (2, 1), (3, 1)]));
    }
}
