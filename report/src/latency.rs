//! A distribution of lengths of time, and when the longest happened.
//!
//! Percentiles come from an HdrHistogram: a value is known to 1 in 1,000 (1 in 100 in runs of more
//! than `PRECISE_UP_TO` vCPUs, to bound memory). Count, maximum and its instant are exact. All in
//! nanoseconds.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Up to so many vCPUs a histogram keeps three significant digits, above it two.
pub(crate) const PRECISE_UP_TO: usize = 128;

/// Counts lengths of time. Takes no memory to speak of before the first.
#[derive(Debug, Clone)]
pub(crate) struct Latency {
    digits: u8,
    counts: Option<Histogram<u32>>,
    count: u64,
    max: u64,
    max_at: u64,
}

/// What is reported of a distribution; in nanoseconds. All figures are 0 if `count` is 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatencyReport {
    /// How many there were.
    pub count: u64,
    /// Half of them were at most this long.
    pub p50: u64,
    /// 90 % of them were at most this long.
    pub p90: u64,
    /// 99 % of them were at most this long.
    pub p99: u64,
    /// 99.9 % of them were at most this long.
    pub p999: u64,
    /// The longest.
    pub max: u64,
    /// When the longest began, since the start of the run.
    pub max_at_ns: u64,
}

impl Latency {
    /// An empty one, for a run of so many vCPUs.
    pub(crate) const fn new(vcpus: usize) -> Self {
        Self {
            digits: if vcpus <= PRECISE_UP_TO { 3 } else { 2 },
            counts: None,
            count: 0,
            max: 0,
            max_at: 0,
        }
    }

    /// Counts one that began at `began`.
    pub(crate) fn record(&mut self, length: u64, began: u64) {
        if self.count == 0 || length > self.max {
            (self.max, self.max_at) = (length, began);
        }
        self.count += 1;
        if self.counts.is_none() {
            self.counts = Histogram::new(self.digits).ok();
        }
        if let Some(counts) = &mut self.counts {
            // It grows with what it is given; only lengths beyond its reach are clamped.
            if counts.record(length).is_err() {
                counts.saturating_record(length);
            }
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        *self = Self {
            digits: self.digits,
            ..Self::new(0)
        };
    }

    /// The figures.
    pub(crate) fn report(&self) -> LatencyReport {
        let quantile = |q| {
            let value = self.counts.as_ref().map(|c| c.value_at_quantile(q));
            value.unwrap_or(0).min(self.max)
        };
        LatencyReport {
            count: self.count,
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: self.max,
            max_at_ns: self.max_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_known_to_one_in_a_thousand_and_the_longest_exactly() {
        let mut latency = Latency::new(4);
        for n in 1..=1_000_u64 {
            latency.record(n * 1_000, n);
        }
        let report = latency.report();
        assert_eq!(
            (report.count, report.max, report.max_at_ns),
            (1_000, 1_000_000, 1_000)
        );
        for (value, expected) in [
            (report.p50, 500_000),
            (report.p90, 900_000),
            (report.p99, 990_000),
            (report.p999, 999_000),
        ] {
            assert!(value.abs_diff(expected) <= expected / 1_000, "{report:?}");
        }
    }

    #[test]
    fn lengths_of_zero_and_beyond_all_reason_are_counted() {
        let mut latency = Latency::new(1_000);
        assert_eq!(latency.report(), LatencyReport::default());
        latency.record(0, 7);
        assert_eq!((latency.report().count, latency.report().max_at_ns), (1, 7));
        latency.record(u64::MAX, 8);
        assert_eq!(latency.report().max, u64::MAX);
        assert_eq!(latency.report().count, 2);
    }
}
