//! Processor usage and the priority that follows from it.
//!
//! W = 8 on one core, 8 · cores on several. In whole numbers throughout:
//!
//! ```text
//! limit     = W · (40 − 4) + W − 1
//! tick      : estcpu = min(limit, estcpu + 1)
//! priority  = clamp(PUSER + ⌊estcpu / W⌋ + nice + 20), PUSER the first of the timeshare band
//! second    : estcpu = ⌊2ℓ · estcpu / (2ℓ + 1)⌋, ℓ the load average, in units of 1/2048
//! load      : ℓ = (ℓ · 1884 + n · 2048 · (2048 − 1884)) / 2048 every five seconds,
//!             n threads running or ready; 1884 / 2048 ≈ exp(−5/60)
//! ```
//!
//! Source: FreeBSD `sched_4bsd.c`; the load average is that of `kern_synch.c`, from general knowledge.

use crate::policies::freebsd::bands::Band;

/// One, for the load average.
pub(super) const SCALE: u64 = 2_048;
/// exp(−5/60) in that unit.
const KEEP: u64 = 1_884;

/// The inverse weight of a tick.
pub(super) fn weight(cores: u16) -> u64 {
    8 * u64::from(cores.max(1))
}

/// What usage cannot exceed.
pub(super) const fn limit(weight: u64) -> u64 {
    36 * weight + weight - 1
}

/// The priority for user mode.
pub(super) fn user_priority(band: Band, estcpu: u64, weight: u64, nice: i64) -> u8 {
    let used = i64::try_from(estcpu / weight).unwrap_or(i64::MAX);
    let priority = i64::from(band.first) + used + nice + 20;
    let (first, last) = (i64::from(band.first), i64::from(band.last));
    u8::try_from(priority.clamp(first, last)).unwrap_or(band.last)
}

/// One second passes under the given load average.
pub(super) const fn decay(estcpu: u64, load: u64) -> u64 {
    let factor = 2 * load;
    factor * estcpu / (factor + SCALE)
}

/// So many seconds pass. (The original sets 0 beyond five times the load factor; as the factor is
/// scaled, that is never reached.)
pub(super) fn decays(estcpu: u64, load: u64, seconds: u64) -> u64 {
    let mut left = estcpu;
    for _ in 0..seconds {
        if left == 0 {
            break;
        }
        left = decay(left, load);
    }
    left
}

/// Five seconds pass with so many threads running or ready.
pub(super) const fn load(average: u64, threads: u64) -> u64 {
    (average * KEEP + threads * SCALE * (SCALE - KEEP)) / SCALE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::freebsd::bands::Bands;

    const W: u64 = 8;
    const ONE: u64 = SCALE;

    fn priority(estcpu: u64, nice: i64) -> u8 {
        user_priority(Bands::of("14").timeshare, estcpu, W, nice)
    }

    #[test]
    fn priority_is_base_plus_an_eighth_of_usage_plus_nice() {
        let plain = [0, 8, 80, 295].map(|estcpu| priority(estcpu, 0));
        assert_eq!(plain, [140, 141, 150, 176]);
        assert_eq!(priority(0, -20), 120);
        assert_eq!(priority(295, 20), 196);
    }

    #[test]
    fn usage_is_limited_to_295_on_one_core_and_591_on_two() {
        assert_eq!(limit(weight(1)), 295);
        assert_eq!(limit(weight(2)), 591);
    }

    /// Usage before and after the decay of each second.
    fn seconds(ticks: u64, load: u64, count: usize) -> Vec<(u64, u64)> {
        let mut estcpu = 0;
        let second = |_| {
            let before = (estcpu + ticks).min(limit(W));
            estcpu = decay(before, load);
            (before, estcpu)
        };
        (0..count).map(second).collect()
    }

    #[test]
    fn a_lone_hog_saturates_and_its_priority_swings_between_164_and_176() {
        let got = seconds(127, ONE, 6);
        let expected = [
            (127, 84),
            (211, 140),
            (267, 178),
            (295, 196),
            (295, 196),
            (295, 196),
        ];
        assert_eq!(got, expected);
        assert_eq!((priority(196, 0), priority(295, 0)), (164, 176));
    }

    #[test]
    fn two_hogs_share_the_ticks_and_both_come_near_the_limit() {
        let got = seconds(63, 2 * ONE, 40);
        let expected = [(63, 50), (113, 90), (153, 122), (185, 148), (211, 168)];
        assert_eq!(got[..5], expected);
        let (before, _) = got[39];
        assert!((285..=295).contains(&before), "{before}");
    }

    #[test]
    fn sleep_forgives_by_the_load() {
        let after = |load, seconds: u64| decays(295, load, seconds - 1);
        assert_eq!((after(ONE, 5), priority(57, 0)), (57, 147));
        assert_eq!((after(2 * ONE, 5), priority(120, 0)), (120, 155));
        assert_eq!((after(ONE, 8), priority(16, 0)), (16, 142));
        // Five times the load factor of 2 is 10 seconds, and is no limit: the loop goes on.
        assert_eq!(
            decays(295, 20 * ONE, 11),
            decay(decays(295, 20 * ONE, 10), 20 * ONE)
        );
        assert!(decays(295, 20 * ONE, 11) > 0);
    }

    #[test]
    fn the_load_average_comes_near_the_number_of_threads_within_minutes() {
        let after = |steps| (0..steps).fold(0, |average, _| load(average, 3));
        let minute = after(12) as f64 / SCALE as f64;
        assert!(
            (minute - 3.0 * (1.0 - (-1.0_f64).exp())).abs() < 0.02,
            "{minute}"
        );
        let long = after(120) as f64 / SCALE as f64;
        assert!((2.99..=3.0).contains(&long), "{long}");
    }
}
