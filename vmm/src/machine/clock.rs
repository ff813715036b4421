//! The guest's clock against the host's.
//!
//! Two ways to learn what the guest's time-stamp counter reads at a moment of CLOCK_MONOTONIC:
//! * the guest reads it, between two readings of the host's clock: always true, but the way into the
//!   guest and back is the bracket, tens of microseconds where exits are dear;
//! * KVM is asked for the vCPU's counter: a shorter bracket, and possible at any time, but what KVM
//!   says is trusted only if it agrees with what the guest read.
//!
//! The rate is the host's, measured ([`super::tsc::rate_hz`]).

use super::tsc::{Moment, counter, here, ns_in, ns_per_tick, rate_hz, ticks_in};
use super::{GuestCpu, MachineError};
use crate::host::monotonic_ns;
use kvm_bindings::{Msrs, kvm_msr_entry};
use std::sync::atomic::Ordering;
use stealtime_guest::call::Command;
use stealtime_scheduler::time::Nanos;

/// Readings of each way, of which the tightest counts.
const READINGS: usize = 16;

/// Number of the register that holds the time-stamp counter.
const TSC_REGISTER: u32 = 0x10;

/// How well a guest's clock is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Clock {
    /// A moment in both clocks.
    moment: Moment,
    /// Whether KVM tells the vCPU's counter rightly.
    kvm_tells: bool,
    /// How far its counter is ahead of the host's, in ticks, modulo 2^64.
    ahead: u64,
}

impl Clock {
    /// How long ago the guest's counter read this, in nanoseconds; 0 if it is yet to. By the host's counter, so that
    /// the error is [`GuestCpu::clock_uncertainty_ns`] however long the run has gone on.
    pub(super) fn ns_since(&self, tsc: u64) -> u64 {
        let ticks = counter().wrapping_add(self.ahead).wrapping_sub(tsc);
        u64::try_from(ticks.cast_signed()).map_or(0, |ticks| ns_in(ticks, rate_hz()))
    }
}

/// How far the guest's counter is ahead of the host's, from a moment of each.
fn ahead(guest: Moment, host: Moment, rate: u64) -> u64 {
    let apart = ticks_in(guest.monotonic_ns.abs_diff(host.monotonic_ns), rate);
    let host_then = if guest.monotonic_ns >= host.monotonic_ns {
        host.tsc.wrapping_add(apart)
    } else {
        host.tsc.wrapping_sub(apart)
    };
    guest.tsc.wrapping_sub(host_then)
}

impl GuestCpu {
    /// Compares the clocks. The guest must wait for commands.
    pub(super) fn compare_clocks(&mut self) -> Result<(), MachineError> {
        let first = self.guest_reads_clock()?;
        let mut guest = first;
        let mut last = first;
        for _ in 1..READINGS {
            last = self.guest_reads_clock()?;
            guest = guest.tighter(last);
        }
        check_rate(first, last, rate_hz())?;
        let told = (0..READINGS)
            .filter_map(|_| self.kvm_reads_clock())
            .reduce(Moment::tighter)
            .filter(|told| agree(guest, *told, rate_hz()));
        let moment = told.map_or(guest, |told| guest.tighter(told));
        self.clock = Some(Clock {
            moment,
            kvm_tells: told.is_some(),
            ahead: ahead(moment, here(), rate_hz()),
        });
        Ok(())
    }

    /// Sets the start of the run, in nanoseconds of CLOCK_MONOTONIC: the guest's clock reads the time
    /// since then. After [`Self::boot`], before the first entry.
    pub fn set_clock_epoch(&mut self, monotonic_ns: u64) {
        let rate = rate_hz();
        if let Some(Clock { moment, .. }) = self.clock {
            let ticks = ticks_in(moment.monotonic_ns.abs_diff(monotonic_ns), rate);
            let tsc = if monotonic_ns >= moment.monotonic_ns {
                moment.tsc.saturating_add(ticks)
            } else {
                moment.tsc.saturating_sub(ticks)
            };
            let page = self.page.get();
            page.tsc_epoch.store(tsc, Ordering::Relaxed);
            page.ns_per_tick.store(ns_per_tick(rate), Ordering::Relaxed);
        }
    }

    /// How exactly the guest's clock is known, in nanoseconds: half the tightest bracket.
    #[must_use]
    pub fn clock_uncertainty_ns(&self) -> u64 {
        self.clock
            .map_or(u64::MAX, |clock| clock.moment.uncertainty_ns)
    }

    /// How far the guest's clock is ahead of `now`, as the vCPU's counter tells it; none if KVM does
    /// not tell the counter rightly.
    pub(super) fn clock_offset(&self, now: Nanos) -> Option<i64> {
        if !self.clock?.kvm_tells {
            return None;
        }
        let called = monotonic_ns();
        // Of a few, because this thread may be interrupted in between.
        let moment = (0..4)
            .filter_map(|_| self.kvm_reads_clock())
            .reduce(Moment::tighter)?;
        let host = now + Nanos(moment.monotonic_ns.saturating_sub(called));
        let guest = self.page.get().clock(moment.tsc);
        Some(guest.wrapping_sub(host.get()).cast_signed())
    }

    fn guest_reads_clock(&mut self) -> Result<Moment, MachineError> {
        let before = monotonic_ns();
        let tsc = self.command(Command::ReadClock)?;
        Ok(Moment::bracketed(before, tsc, monotonic_ns()))
    }

    fn kvm_reads_clock(&self) -> Option<Moment> {
        let mut registers = Msrs::from_entries(&[kvm_msr_entry {
            index: TSC_REGISTER,
            ..kvm_msr_entry::default()
        }])
        .ok()?;
        let before = monotonic_ns();
        let read = self.vcpu.get_msrs(&mut registers).ok()?;
        let after = monotonic_ns();
        let value = registers.as_slice().get(..read)?.first()?.data;
        Some(Moment::bracketed(before, value, after))
    }
}

/// Whether two moments of the same clock can both be true.
fn agree(one: Moment, other: Moment, rate: u64) -> bool {
    let ticks = one.tsc.abs_diff(other.tsc);
    let apart = one.monotonic_ns.abs_diff(other.monotonic_ns);
    let same_order = (one.tsc <= other.tsc) == (one.monotonic_ns <= other.monotonic_ns);
    let counted = ns_in(ticks, rate);
    let difference = if same_order {
        counted.abs_diff(apart)
    } else {
        counted.saturating_add(apart)
    };
    difference <= one.uncertainty_ns + other.uncertainty_ns
}

/// Fails if the guest's counter cannot have the host's rate: another rate would need more than what
/// is measured here to be put right.
fn check_rate(first: Moment, last: Moment, rate: u64) -> Result<(), MachineError> {
    let apart = last.monotonic_ns.saturating_sub(first.monotonic_ns);
    let counted = ns_in(last.tsc.saturating_sub(first.tsc), rate);
    // One per cent for what the uncertainties leave out.
    let tolerated = first.uncertainty_ns + last.uncertainty_ns + apart / 100;
    if last.tsc <= first.tsc {
        Err(MachineError::Clock {
            why: "its time-stamp counter does not advance",
        })
    } else if counted.abs_diff(apart) > tolerated {
        Err(MachineError::Clock {
            why: "its time-stamp counter has another rate than the host's",
        })
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GHZ: u64 = 1_000_000_000;

    fn moment(tsc: u64, monotonic_ns: u64, uncertainty_ns: u64) -> Moment {
        Moment {
            tsc,
            monotonic_ns,
            uncertainty_ns,
        }
    }

    #[test]
    fn moments_agree_within_what_is_known_of_them_and_not_beyond() {
        let guest = moment(1_000_000, 500, 40);
        assert!(agree(guest, moment(1_000_900, 1_430, 5), GHZ));
        assert!(!agree(guest, moment(1_000_900, 1_460, 5), GHZ));
        assert!(!agree(guest, moment(5_000, 1_400, 5), GHZ));
        assert!(agree(guest, moment(999_990, 510, 5), GHZ), "order unknown");
    }

    #[test]
    fn a_counter_is_ahead_by_what_it_reads_more_at_one_moment() {
        // At 2 GHz, 100 ns apart.
        let (earlier, later) = (moment(5_000, 900, 1), moment(7_200, 1_000, 1));
        assert_eq!(ahead(later, earlier, 2 * GHZ), 2_000);
        assert_eq!(ahead(earlier, later, 2 * GHZ), 0_u64.wrapping_sub(2_000));
    }

    #[test]
    fn a_counter_that_stands_or_has_another_rate_is_refused() {
        let first = moment(1_000, 1_000, 10);
        assert!(check_rate(first, moment(1_000_000, 1_000_500, 10), GHZ).is_ok());
        assert!(check_rate(first, moment(1_000, 1_000_000, 10), GHZ).is_err());
        assert!(check_rate(first, moment(2_000_000, 1_000_000, 10), GHZ).is_err());
    }
}
