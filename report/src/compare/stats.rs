//! The median of a few figures, and an interval that it lies in.
//!
//! The interval is made of order statistics: of `n` figures sorted, the `k`th from below to the `k`th
//! from above holds the true median with probability `1 − 2 P(B < k)`, where `B` is binomial with `n`
//! trials of one half, whatever the distribution (David and Nagaraja, *Order Statistics*). The
//! narrowest interval with at least 95 % is taken. Fewer than 6 figures cannot give 95 %: then it is
//! the whole range, and `confidence` says how little that is (5 figures: 93.8 %, 3: 75 %, 1: none).

use serde::{Deserialize, Serialize};

/// The confidence aimed at.
pub const CONFIDENCE: f64 = 0.95;

/// From so many figures on that confidence is reached.
pub const ENOUGH: u64 = 6;

/// A median with an interval.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Estimate {
    /// How many figures it is made of.
    pub count: u64,
    /// Their median.
    pub median: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// The probability that the interval holds the true median (0 to 1).
    pub confidence: f64,
}

/// Sorted, without what is no number.
fn sorted(figures: &[f64]) -> Vec<f64> {
    let mut figures: Vec<f64> = figures.iter().copied().filter(|f| f.is_finite()).collect();
    figures.sort_by(f64::total_cmp);
    figures
}

fn middle(sorted: &[f64]) -> Option<f64> {
    let n = sorted.len();
    match n {
        0 => None,
        n if n % 2 == 1 => Some(sorted[n / 2]),
        n => Some(f64::midpoint(sorted[n / 2 - 1], sorted[n / 2])),
    }
}

/// The median; of an even number of figures the mean of the middle two.
pub(crate) fn median(figures: &[f64]) -> Option<f64> {
    middle(&sorted(figures))
}

/// A figure of whole things, back as an integer.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float becomes an integer by saturation, and figures are not negative"
)]
pub(crate) fn whole(figure: f64) -> u64 {
    figure.round() as u64
}

/// `1 − 2 P(B < k)` for `B` binomial with `n` trials of one half.
fn coverage(n: usize, k: usize) -> f64 {
    let mut term = 0.5_f64.powi(i32::try_from(n).unwrap_or(i32::MAX));
    let mut below = 0.0;
    for i in 0..k {
        below += term;
        term *= (n - i) as f64 / (i + 1) as f64;
    }
    (1.0 - 2.0 * below).max(0.0)
}

impl Estimate {
    /// The estimate from figures; none if there are none.
    #[must_use]
    pub fn of(figures: &[f64]) -> Option<Self> {
        let sorted = sorted(figures);
        let n = sorted.len();
        let median = middle(&sorted)?;
        let narrowest = (1..=n / 2).rev().find(|k| coverage(n, *k) >= CONFIDENCE);
        let k = narrowest.unwrap_or(1);
        Some(Self {
            count: n as u64,
            median,
            low: sorted[k - 1],
            high: sorted[n - k],
            confidence: coverage(n, k),
        })
    }

    /// Whether the intervals have nothing in common.
    #[must_use]
    pub fn apart(&self, other: &Self) -> bool {
        self.high < other.low || other.high < self.low
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop_assert, proptest};

    fn numbers(n: u32) -> Vec<f64> {
        (1..=n).map(f64::from).collect()
    }

    #[test]
    fn the_interval_is_that_of_the_tables() {
        // Sign-test tables: n = 6: 1st to 6th (96.9 %), n = 10: 2nd to 9th (97.9 %), n = 20: 6th to
        // 15th (95.9 %).
        for (n, low, high, confidence) in [
            (6, 1.0, 6.0, 0.968_75),
            (10, 2.0, 9.0, 0.978_5),
            (20, 6.0, 15.0, 0.958_6),
        ] {
            let estimate = Estimate::of(&numbers(n)).expect("some");
            assert_eq!((estimate.low, estimate.high), (low, high), "{n}");
            assert!(
                (estimate.confidence - confidence).abs() < 1e-4,
                "{estimate:?}"
            );
        }
    }

    #[test]
    fn few_figures_give_their_range_and_say_how_little_that_is() {
        for (n, confidence) in [(1, 0.0), (2, 0.5), (3, 0.75), (5, 0.9375)] {
            let estimate = Estimate::of(&numbers(n)).expect("some");
            assert_eq!((estimate.low, estimate.high), (1.0, f64::from(n)));
            assert!(
                (estimate.confidence - confidence).abs() < 1e-12,
                "{estimate:?}"
            );
        }
        assert_eq!(Estimate::of(&[]), None);
        assert_eq!(Estimate::of(&[f64::NAN]), None);
    }

    #[test]
    fn the_median_does_not_depend_on_the_order() {
        let median = |figures: &[f64]| Estimate::of(figures).map(|e| e.median);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
    }

    proptest! {
        #[test]
        fn the_median_lies_in_its_interval(figures in proptest::collection::vec(-1e9_f64..1e9, 1..60)) {
            let estimate = Estimate::of(&figures).expect("some");
            prop_assert!(estimate.low <= estimate.median && estimate.median <= estimate.high);
            prop_assert!((0.0..=1.0).contains(&estimate.confidence));
            prop_assert!(estimate.count < ENOUGH || estimate.confidence >= CONFIDENCE);
        }
    }
}
