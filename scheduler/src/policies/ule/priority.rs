//! From score, usage and nice to a priority.
//!
//! The timeshare band of N priorities is split: I = (N − 40) / 2 for the interactive at the good end, the
//! other B = N − I for batch. In batch, 20 at each end are kept for nice; between them lie R = B − 40.
//!
//! ```text
//! interactive: first + ⌊I · score / threshold⌋
//! batch:       first of R + min(⌊ticks / k⌋, R − 1) + nice, k = ⌈T / R⌉,
//!              T the length of the usage window, at least one second, in ticks
//! ```
//!
//! | bands | interactive | batch | R |
//! |---|---|---|---|
//! | 9 to 14 | 120–151 | 152–223 | 172–203 |
//! | 15 | 88–135 | 136–223 | 156–203 |
//!
//! The usage window aims at 10 s and reaches 11 at most; then its older part is scaled away.
//!
//! Source: FreeBSD `sched_ule.c`.

use super::interact::{HZ, SHIFT};
use crate::policies::freebsd::bands::Band;

/// Priorities kept for nice at each end.
const NICE: i64 = 20;
/// The window's aim and its most, in ticks.
const AIM: u64 = 10 * HZ;
const MOST: u64 = 11 * HZ;

/// The timeshare band, split.
#[derive(Clone, Copy, Debug)]
pub(super) struct Split {
    pub(super) interactive: Band,
    pub(super) batch: Band,
}

impl Split {
    pub(super) const fn of(timeshare: Band) -> Self {
        let size = timeshare.last - timeshare.first + 1;
        let first_batch = timeshare.first + (size - 40) / 2;
        Self {
            interactive: Band {
                first: timeshare.first,
                last: first_batch - 1,
            },
            batch: Band {
                first: first_batch,
                last: timeshare.last,
            },
        }
    }

    /// For a score below the threshold.
    pub(super) fn interactive(&self, score: u64, threshold: u64) -> u8 {
        let Band { first, last } = self.interactive;
        let size = u64::from(last - first) + 1;
        u8::try_from(u64::from(first) + size * score / threshold.max(1)).unwrap_or(last)
    }

    /// For so many ticks used in a window of `length` ticks.
    pub(super) fn batch(&self, used: u64, length: u64, nice: i64) -> u8 {
        let Band { first, last } = self.batch;
        let range = u64::from(last - first) + 1 - 40;
        let step = length.max(HZ).div_ceil(range);
        let place = (used / step).min(range - 1);
        let priority = i64::from(first) + NICE + i64::try_from(place).unwrap_or(0) + nice;
        let priority = priority.clamp(i64::from(first), i64::from(last));
        u8::try_from(priority).unwrap_or(last)
    }
}

/// Ticks used within a window of the past.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Usage {
    /// Times 2^10.
    ticks: u64,
    first: u64,
    last: u64,
}

/// What a thread did since its usage was last brought up to date.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Did {
    Run,
    Wait,
}

impl Usage {
    /// Brings it up to the given tick.
    pub(super) fn update(&mut self, now: u64, did: Did) {
        if now.saturating_sub(self.last) >= AIM {
            self.ticks = 0;
            self.first = now - AIM;
        } else if now.saturating_sub(self.first) >= MOST {
            let from = now - AIM;
            self.ticks = self.ticks / (self.last - self.first) * self.last.saturating_sub(from);
            self.first = from;
        }
        if did == Did::Run {
            self.ticks += now.saturating_sub(self.last) << SHIFT;
        }
        self.last = now;
    }

    /// Ticks used.
    pub(super) const fn used(&self) -> u64 {
        self.ticks >> SHIFT
    }

    /// Length of the window in ticks.
    pub(super) const fn length(&self) -> u64 {
        self.last - self.first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::freebsd::bands::Bands;

    fn split(release: &str) -> Split {
        Split::of(Bands::of(release).timeshare)
    }

    #[test]
    fn the_interactive_lie_before_batch_by_their_score() {
        let of = |release| [0, 12, 25, 29].map(|score| split(release).interactive(score, 30));
        assert_eq!(of("14"), [120, 132, 146, 150]);
        assert_eq!(of("15"), [88, 107, 128, 134]);
    }

    #[test]
    fn batch_priority_follows_usage_in_the_window_and_nice() {
        let of = |release, nice| {
            [10_000, 5_000, 2_500, 0].map(|used| split(release).batch(used, 10_000, nice))
        };
        assert_eq!(of("14", 0), [203, 187, 179, 172]);
        assert_eq!(of("14", 10), [213, 197, 189, 182]);
        assert_eq!(of("15", 0), [203, 179, 167, 156]);
    }

    #[test]
    fn a_thread_that_always_runs_has_used_its_whole_window() {
        let mut usage = Usage::default();
        for now in (0..60_000).step_by(8) {
            usage.update(now, Did::Run);
            assert!(usage.length() < 11_000);
        }
        let share = usage.used() as f64 / usage.length() as f64;
        assert!(share > 0.98, "{share}");
    }

    #[test]
    fn who_waited_for_10_s_has_used_nothing() {
        let mut usage = Usage::default();
        usage.update(5_000, Did::Run);
        assert_eq!(usage.used(), 5_000);
        usage.update(14_999, Did::Wait);
        assert!(usage.used() > 0);
        usage.update(24_999, Did::Wait);
        assert_eq!((usage.used(), usage.length()), (0, 10_000));
    }
}
