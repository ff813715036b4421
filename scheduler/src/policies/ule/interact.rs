//! The interactivity score: how much a thread sleeps against how much it runs.
//!
//! Times are in ticks of 1 ms, times 2^10. With run time r and sleep time z, in whole numbers:
//!
//! ```text
//! r ≥ z, with the shortcut (and a threshold of at most 50):  50
//! r > z:  50 + (50 − z / max(1, r / 50))
//! z > r:  r / max(1, z / 50)
//! r = z:  50, or 0 if both are 0
//! ```
//!
//! The history is bounded: when r + z ≥ 5 s, the larger becomes 5 s and the other 1 unit if the sum exceeds
//! 10 s; both are halved if it exceeds 6 s; else both become four fifths.
//!
//! Source: FreeBSD `sched_ule.c`.

/// Ticks in a second: hz = 1000.
pub(super) const HZ: u64 = 1_000;
/// Binary digits after the point of times.
pub(super) const SHIFT: u32 = 10;
/// The bound of the history: 5 s.
const MOST: u64 = (5 * HZ) << SHIFT;
/// The middle of the scale.
const HALF: u64 = 50;

/// The rules of the score.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    /// A lower score is interactive.
    pub(super) threshold: u64,
    /// Whether who runs as much as it sleeps has 50 at once.
    pub(super) shortcut: bool,
}

impl Scale {
    /// The score before nice.
    pub(super) fn score(self, run: u64, sleep: u64) -> u64 {
        if self.shortcut && self.threshold <= HALF && run >= sleep {
            return HALF;
        }
        match run.cmp(&sleep) {
            std::cmp::Ordering::Greater => HALF + (HALF - sleep / (run / HALF).max(1)),
            std::cmp::Ordering::Less => run / (sleep / HALF).max(1),
            std::cmp::Ordering::Equal if run > 0 => HALF,
            std::cmp::Ordering::Equal => 0,
        }
    }
}

/// What a thread did lately.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct History {
    pub(super) run: u64,
    pub(super) sleep: u64,
}

impl History {
    pub(super) fn ran(&mut self, time: u64) {
        self.run += time;
        self.bound();
    }

    pub(super) fn slept(&mut self, time: u64) {
        self.sleep += time;
        self.bound();
    }

    fn bound(&mut self) {
        let sum = self.run + self.sleep;
        if sum < MOST {
            return;
        }
        if sum > 2 * MOST {
            let runs_more = self.run > self.sleep;
            (self.run, self.sleep) = if runs_more { (MOST, 1) } else { (1, MOST) };
        } else if sum > MOST / 5 * 6 {
            self.run /= 2;
            self.sleep /= 2;
        } else {
            self.run = self.run / 5 * 4;
            self.sleep = self.sleep / 5 * 4;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODERN: Scale = Scale {
        threshold: 30,
        shortcut: true,
    };

    #[test]
    fn the_score_is_low_for_who_sleeps_more_than_five_thirds_of_what_it_runs() {
        let cases = [
            ((0, 1_000), 0),
            ((1_000, 4_000), 12),
            ((1_000, 2_000), 25),
            ((1_000, 1_700), 29),
            ((1_000, 1_600), 31),
            ((1_000, 1_000), 50),
            ((4_000, 1_000), 50),
            ((0, 0), 50),
        ];
        for ((run, sleep), score) in cases {
            assert_eq!(MODERN.score(run, sleep), score, "{run}, {sleep}");
        }
    }

    #[test]
    fn without_the_shortcut_who_runs_more_is_told_apart() {
        let plain = Scale {
            shortcut: false,
            ..MODERN
        };
        assert_eq!(plain.score(4_000, 1_000), 88);
        assert_eq!(plain.score(1_000, 1_000), 50);
        assert_eq!(plain.score(0, 0), 0);
        // The shortcut counts for nothing above the middle.
        let wide = Scale {
            threshold: 60,
            ..MODERN
        };
        assert_eq!(wide.score(4_000, 1_000), 88);
    }

    fn bounded(run_ms: u64, sleep_ms: u64) -> (f64, f64) {
        let mut history = History {
            run: run_ms << SHIFT,
            sleep: sleep_ms << SHIFT,
        };
        history.bound();
        let seconds = |time: u64| time as f64 / (HZ << SHIFT) as f64;
        (seconds(history.run), seconds(history.sleep))
    }

    #[test]
    fn the_history_is_bounded_at_5_s() {
        let near = |got: (f64, f64), run: f64, sleep: f64| {
            assert!(
                (got.0 - run).abs() < 1e-4 && (got.1 - sleep).abs() < 1e-4,
                "{got:?}"
            );
        };
        near(bounded(1_000, 3_000), 1.0, 3.0);
        near(bounded(2_000, 3_500), 1.6, 2.8);
        near(bounded(3_000, 4_000), 1.5, 2.0);
        near(bounded(1_000, 12_000), 0.0, 5.0);
    }
}
