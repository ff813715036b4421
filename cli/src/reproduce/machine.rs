//! On what machine and when figures were taken, so that they can be read by others.

use serde_json::{Value, json};
use std::fs;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

/// The machine at the beginning of a reproduction.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Machine {
    /// The day, as `2026-11-30`, in UTC.
    date: String,
    /// Cores that this process may use.
    cores: usize,
    /// How the processor helps KVM.
    kvm: &'static str,
    /// Runnable threads, mean of the last minute, before the first run; none if it is not told.
    load: Option<f64>,
}

impl Machine {
    /// As it is now.
    pub(super) fn of_now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let flags = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let has = |flag: &str| flags.split_ascii_whitespace().any(|word| word == flag);
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        Self {
            date: date(since.map_or(0, |since| since.as_secs() / 86_400)),
            cores: thread::available_parallelism().map_or(1, usize::from),
            kvm: match (has("vmx"), has("svm")) {
                (true, _) => "VT-x",
                (_, true) => "AMD-V",
                _ => "page tables, without VT-x or AMD-V",
            },
            load: load.split(' ').next().and_then(|load| load.parse().ok()),
        }
    }

    /// For machines.
    pub(super) fn json(&self) -> Value {
        json!({
            "date": self.date,
            "cores": self.cores,
            "kvm": self.kvm,
            "load_before": self.load,
        })
    }
}

/// The date so many days after 1970-01-01, in the Gregorian calendar. Years are counted from March, so
/// that a leap day is a year's last (Richards, *Mapping Time*).
fn date(days: u64) -> String {
    // From 0000-03-01.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let march = (5 * day + 2) / 153;
    let day = day - (153 * march + 2) / 5 + 1;
    let month = if march < 10 { march + 3 } else { march - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (days, expected) in [
            (0, "1970-01-01"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (11_017, "2000-03-01"),
            (19_722, "2023-12-31"),
            (19_723, "2024-01-01"),
        ] {
            assert_eq!(date(days), expected);
        }
    }
}
