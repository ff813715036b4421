//! Numbers of reasons and switches, back into their enums.

use crate::event::{Charged, Owns, PreemptReason, Until};
use crate::input::{ExitReason, HostMode, KernelPriority, Mark, RetireReason};

pub(super) fn exit_reason(code: u8) -> Option<ExitReason> {
    ExitReason::ALL.get(usize::from(code)).copied()
}

pub(super) const fn retire_reason(code: u8) -> Option<RetireReason> {
    Some(match code {
        0 => RetireReason::Finished,
        1 => RetireReason::Fault,
        2 => RetireReason::RunOver,
        _ => return None,
    })
}

pub(super) const fn preempt_reason(code: u8) -> Option<PreemptReason> {
    Some(match code {
        0 => PreemptReason::SliceEnd,
        1 => PreemptReason::Wakeup,
        2 => PreemptReason::Tick,
        3 => PreemptReason::Period,
        4 => PreemptReason::PriorityDrop,
        5 => PreemptReason::LockWait,
        6 => PreemptReason::LoanOver,
        _ => return None,
    })
}

pub(super) const fn mark(code: u8) -> Option<Mark> {
    Some(match code {
        0 => Mark::MeasureStart,
        1 => Mark::MeasureEnd,
        _ => return None,
    })
}

pub(super) const fn priority_code(priority: KernelPriority) -> u8 {
    match priority {
        KernelPriority::NotAsked => 0,
        KernelPriority::Asked => 1,
    }
}

pub(super) const fn priority(code: u8) -> Option<KernelPriority> {
    Some(match code {
        0 => KernelPriority::NotAsked,
        1 => KernelPriority::Asked,
        _ => return None,
    })
}

pub(super) const fn host_mode(code: u8) -> Option<HostMode> {
    Some(match code {
        0 => HostMode::Mutex,
        1 => HostMode::Read,
        2 => HostMode::Write,
        _ => return None,
    })
}

pub(super) const fn until(code: u16) -> Option<Until> {
    Some(match code {
        0 => Until::CriticalExit,
        1 => Until::UserReturn,
        2 => Until::GuestEntry,
        _ => return None,
    })
}

pub(super) const fn owns(code: u8) -> Option<Owns> {
    Some(match code {
        0 => Owns::Yes,
        1 => Owns::NoLonger,
        _ => return None,
    })
}

pub(super) const fn charged(code: u8) -> Option<Charged> {
    Some(match code {
        0 => Charged::Donor,
        1 => Charged::Owner,
        _ => return None,
    })
}
