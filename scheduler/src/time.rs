//! Time as a parameter.
//!
//! [`Nanos`] is both an instant (nanoseconds since the start of the run) and a length of time. No
//! code in this crate reads a clock: every instant comes in with an input.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::str::FromStr;

/// Nanoseconds: an instant since the start of the run, or a length of time.
///
/// Subtraction saturates at zero: the distance to an instant that has passed is zero.
#[derive(
    Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// No time at all; as an instant, the start of the run.
    pub const ZERO: Self = Self(0);
    /// Later than every instant of a run.
    pub const MAX: Self = Self(u64::MAX);

    /// `n` microseconds.
    #[must_use]
    pub const fn from_micros(n: u64) -> Self {
        Self(n * 1_000)
    }

    /// `n` milliseconds.
    #[must_use]
    pub const fn from_millis(n: u64) -> Self {
        Self(n * 1_000_000)
    }

    /// `n` seconds.
    #[must_use]
    pub const fn from_secs(n: u64) -> Self {
        Self(n * 1_000_000_000)
    }

    /// The count of nanoseconds.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Seconds, for printing and ratios.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The time from `earlier` to `self`; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Nanos {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self.since(other)
    }
}

impl SubAssign for Nanos {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl Sum for Nanos {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::ZERO, Add::add)
    }
}

/// Prints with the largest unit that keeps the figure at least 1, three significant digits.
impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.0 as f64;
        let (value, unit) = match self.0 {
            0 => return f.pad("0"),
            1..1_000 => return f.pad(&format!("{} ns", self.0)),
            1_000..1_000_000 => (n / 1e3, "us"),
            1_000_000..1_000_000_000 => (n / 1e6, "ms"),
            _ => (n / 1e9, "s"),
        };
        let digits = if value < 10.0 {
            2
        } else if value < 100.0 {
            1
        } else {
            0
        };
        f.pad(&format!("{value:.digits$} {unit}"))
    }
}

/// A text that is no length of time.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{text}` is not a length of time: expected a number and a unit, such as 500us, 1.5ms, 10s or 2m (units: ns, us, ms, s, m)"
)]
pub struct ParseNanosError {
    /// The text.
    pub text: String,
}

/// Reads `500us`, `1.5ms`, `10s`, `2m`, `250ns`; a bare `0` needs no unit.
impl FromStr for Nanos {
    type Err = ParseNanosError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseNanosError {
            text: text.to_owned(),
        };
        let trimmed = text.trim();
        if trimmed == "0" {
            return Ok(Self::ZERO);
        }
        let digits = trimmed
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or_else(error)?;
        let (number, unit) = trimmed.split_at(digits);
        let scale: u64 = match unit.trim() {
            "ns" => 1,
            "us" | "µs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" | "min" => 60_000_000_000,
            _ => return Err(error()),
        };
        // Whole and fraction apart, in integers: no rounding of what was written.
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let whole: u64 = whole.parse().map_err(|_| error())?;
        if fraction.len() > 9 || (number.contains('.') && fraction.is_empty()) {
            return Err(error());
        }
        let mut nanos = whole.checked_mul(scale).ok_or_else(error)?;
        let mut place = scale;
        for digit in fraction.bytes() {
            if !digit.is_ascii_digit() {
                return Err(error());
            }
            place /= 10;
            nanos = nanos
                .checked_add(place * u64::from(digit - b'0'))
                .ok_or_else(error)?;
        }
        Ok(Self(nanos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_with_its_unit_or_refused() {
        let read = |text: &str| text.parse::<Nanos>();
        assert_eq!(read("500us"), Ok(Nanos::from_micros(500)));
        assert_eq!(read("1.5ms"), Ok(Nanos::from_micros(1_500)));
        assert_eq!(read("10 s"), Ok(Nanos::from_secs(10)));
        assert_eq!(read("2m"), Ok(Nanos::from_secs(120)));
        assert_eq!(read("0"), Ok(Nanos::ZERO));
        for wrong in [
            "",
            "5",
            "ms",
            "1.ms",
            "5 parsecs",
            "-1ms",
            "1.2.3s",
            "99999999999999m",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_time_is_printed_in_its_largest_fitting_unit() {
        let shown = |n| Nanos(n).to_string();
        assert_eq!(shown(0), "0");
        assert_eq!(shown(999), "999 ns");
        assert_eq!(shown(1_500), "1.50 us");
        assert_eq!(shown(65_432_100), "65.4 ms");
        assert_eq!(shown(4_930_000_000), "4.93 s");
        assert_eq!(shown(110_000_000), "110 ms");
    }

    #[test]
    fn the_distance_to_a_passed_instant_is_zero() {
        assert_eq!(Nanos(5) - Nanos(7), Nanos::ZERO);
    }
}
