//! The time-stamp counter's rate, and how a guest's counter relates to CLOCK_MONOTONIC.

use crate::host::monotonic_ns;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

/// How long the rate is measured.
const BASE: Duration = Duration::from_millis(50);

/// Readings at each end of the measurement, of which the tightest counts.
const READINGS: usize = 32;

/// A moment in both clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Moment {
    /// A time-stamp counter, in ticks.
    pub(super) tsc: u64,
    /// CLOCK_MONOTONIC at the same moment, in nanoseconds.
    pub(super) monotonic_ns: u64,
    /// The moment is known to this, in nanoseconds: half the bracket around it.
    pub(super) uncertainty_ns: u64,
}

impl Moment {
    /// A reading of a counter between two of CLOCK_MONOTONIC.
    pub(super) const fn bracketed(before: u64, tsc: u64, after: u64) -> Self {
        let half = after.saturating_sub(before) / 2;
        Self {
            tsc,
            monotonic_ns: before + half,
            uncertainty_ns: half,
        }
    }

    /// The one that is better known.
    pub(super) const fn tighter(self, other: Self) -> Self {
        if other.uncertainty_ns < self.uncertainty_ns {
            other
        } else {
            self
        }
    }
}

/// The host's counter and clock at this moment.
pub(super) fn here() -> Moment {
    let read = || {
        let before = monotonic_ns();
        let tsc = counter();
        Moment::bracketed(before, tsc, monotonic_ns())
    };
    (1..READINGS).fold(read(), |best, _| best.tighter(read()))
}

/// The host's counter now.
#[expect(unsafe_code, reason = "the time-stamp counter has no safe form")]
pub(super) fn counter() -> u64 {
    // SAFETY: reads a counter, which every x86-64 processor has.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The rate of the host's time-stamp counter in Hz, measured once against CLOCK_MONOTONIC. The
/// first call takes 50 ms.
pub(super) fn rate_hz() -> u64 {
    static RATE: OnceLock<u64> = OnceLock::new();
    *RATE.get_or_init(|| {
        let begin = here();
        thread::sleep(BASE);
        rate_between(begin, here())
    })
}

fn rate_between(begin: Moment, end: Moment) -> u64 {
    let ticks = u128::from(end.tsc.saturating_sub(begin.tsc));
    let ns = u128::from(end.monotonic_ns.saturating_sub(begin.monotonic_ns)).max(1);
    u64::try_from(ticks * 1_000_000_000 / ns)
        .unwrap_or(u64::MAX)
        .max(1)
}

/// Length of a tick in 2^-32 ns.
pub(super) fn ns_per_tick(rate_hz: u64) -> u64 {
    let scaled = (1_000_000_000_u128 << 32) / u128::from(rate_hz.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// Ticks in a length of time.
pub(super) fn ticks_in(ns: u64, rate_hz: u64) -> u64 {
    let ticks = u128::from(ns) * u128::from(rate_hz) / 1_000_000_000;
    u64::try_from(ticks).unwrap_or(u64::MAX)
}

/// Nanoseconds in a number of ticks.
pub(super) fn ns_in(ticks: u64, rate_hz: u64) -> u64 {
    let ns = u128::from(ticks) * 1_000_000_000 / u128::from(rate_hz.max(1));
    u64::try_from(ns).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_ticks_by_time_and_lengths_convert_both_ways() {
        let moment = |tsc, monotonic_ns| Moment {
            tsc,
            monotonic_ns,
            uncertainty_ns: 0,
        };
        let rate = rate_between(moment(5, 1_000), moment(5 + 115_000_000, 50_001_000));
        assert_eq!(rate, 2_300_000_000);
        assert_eq!(ticks_in(1_000_000, rate), 2_300_000);
        assert_eq!(ns_in(2_300_000, rate), 1_000_000);
        let hour = 3_600 * rate;
        let by_page = (u128::from(hour) * u128::from(ns_per_tick(rate))) >> 32;
        assert!(by_page.abs_diff(3_600_000_000_000) < 2_000, "{by_page}");
    }

    #[test]
    fn of_two_readings_the_one_with_the_tighter_bracket_counts() {
        let wide = Moment::bracketed(1_000, 7, 5_000);
        let tight = Moment::bracketed(2_000, 9, 2_100);
        assert_eq!(wide.tighter(tight), tight);
        assert_eq!(tight.tighter(wide), tight);
        assert_eq!((tight.monotonic_ns, tight.uncertainty_ns), (2_050, 50));
    }
}
