//! Gaps: how a guest notices that it did not run.
//!
//! The guest reads its clock between short stretches of work whose length it knows. A stretch that
//! took longer than expected by more than [`THRESHOLD_NS`] has a gap in it, as long as the excess.
//!
//! The threshold lies above what an interrupt of the host takes from a guest that it does not
//! deschedule: an exit and an entry, some microseconds on VT-x and AMD-V, and 50 to 130 us where KVM
//! works through page tables alone, hundreds of times a second. It lies below the shortest stay of
//! another vCPU between two switches. What is shorter is not counted as a gap; it is the price of the
//! platform and no scheduler's decision, and shows as work that was not done.

/// Length of a stretch of work between two readings of the clock, in nanoseconds.
pub const CHUNK_NS: u64 = 4_000;

/// Excess above which a stretch has a gap in it, in nanoseconds.
pub const THRESHOLD_NS: u64 = 150_000;

/// Finds gaps.
#[derive(Clone, Copy, Debug)]
pub struct Detector {
    last: u64,
}

/// A stretch of time that has passed, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stretch {
    /// What of it the guest ran.
    pub ran: u64,
    /// The gap in it, if there is one.
    pub gap: Option<u64>,
}

impl Detector {
    /// Starts at this time.
    #[must_use]
    pub const fn new(now: u64) -> Self {
        Self { last: now }
    }

    /// Leaves out what has passed: the guest gave up its core, or called the host.
    pub const fn restart(&mut self, now: u64) {
        self.last = now;
    }

    /// Looks at the stretch from the last reading to `now`, expected to be so long.
    pub const fn tick(&mut self, now: u64, expected: u64) -> Stretch {
        let passed = now.saturating_sub(self.last);
        self.last = now;
        let excess = passed.saturating_sub(expected);
        if excess > THRESHOLD_NS {
            Stretch {
                ran: passed - excess,
                gap: Some(excess),
            }
        } else {
            Stretch {
                ran: passed,
                gap: None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_of_its_expected_length_has_no_gap_even_at_half_the_speed() {
        let mut detector = Detector::new(1_000);
        assert_eq!(detector.tick(5_000, CHUNK_NS).gap, None);
        let slow = detector.tick(5_000 + 2 * CHUNK_NS, CHUNK_NS);
        assert_eq!((slow.ran, slow.gap), (8_000, None));
    }

    #[test]
    fn a_gap_is_the_excess_over_the_expected_length() {
        let mut detector = Detector::new(0);
        let stretch = detector.tick(10_004_000, CHUNK_NS);
        assert_eq!((stretch.ran, stretch.gap), (4_000, Some(10_000_000)));
        assert_eq!(detector.tick(10_008_000, CHUNK_NS).gap, None);
    }

    #[test]
    fn time_given_up_on_purpose_is_no_gap() {
        let mut detector = Detector::new(0);
        detector.restart(5_000_000);
        assert_eq!(detector.tick(5_004_000, CHUNK_NS).gap, None);
    }
}
