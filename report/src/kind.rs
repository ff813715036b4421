//! Kinds of events by name, for those who ask for some of them.
//!
//! A kind has a name (`blocked`) and, where it comes in varieties, a detail (`blocked:host-lock`). A
//! [`Selector`] means one or the other.

mod selector;

pub use selector::{BadSelector, Selector};

use crate::names::Names;
use std::borrow::Cow;
use std::fmt;
use stealtime_scheduler::event::{
    Charged, EventKind, Owns, PreemptReason, Standing, Until, Waits, WakeSource,
};
use stealtime_scheduler::input::{Mark, RetireReason};

/// Varieties of a kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Details {
    /// There is one only.
    None,
    /// These.
    Words(&'static [&'static str]),
    /// The name of a lock in the hypervisor.
    HostLock,
    /// A number.
    Number,
}

macro_rules! kinds {
    ($($variant:ident $name:literal $details:expr, $says:literal;)*) => {
        /// A kind of event.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Kind {
            $(#[doc = $says] $variant,)*
        }

        impl Kind {
            /// All kinds, in the order of their numbers in a kept stream.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The name by which users ask for it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// What it means, in one line.
            #[must_use]
            pub const fn says(self) -> &'static str {
                match self { $(Self::$variant => $says,)* }
            }

            /// Its varieties.
            #[must_use]
            pub const fn details(self) -> Details {
                match self { $(Self::$variant => $details,)* }
            }
        }
    };
}

const REASONS: Details = Details::Words(&[
    "slice-end",
    "wakeup",
    "tick",
    "period",
    "priority-drop",
    "lock-wait",
    "loan-over",
]);

kinds! {
    Admitted "admitted" Details::None, "the vCPU takes part from now on";
    Retired "retired" Details::Words(&["finished", "fault", "run-over"]), "it is gone";
    Woken "woken" Details::Words(&["timer", "interrupt", "host-lock", "guest-lock"]), "it woke and is runnable";
    Granted "granted" Details::None, "it was granted a core";
    Running "running" Details::None, "it is on its core and runs guest code";
    Exited "exited" Details::Words(&["call", "halt", "kick", "interrupt-window", "unexpected", "shutdown", "failed"]), "guest code stopped, the hypervisor works on its behalf";
    Resumed "resumed" Details::None, "guest code runs again";
    Kicked "kicked" REASONS, "its core was asked back";
    Preempted "preempted" REASONS, "it left its core against its will";
    Yielded "yielded" Details::None, "it gave up its core and stays runnable";
    Blocked "blocked" Details::Words(&["idle", "sleep", "host", "host-lock", "guest-lock"]), "it waits";
    Migrated "migrated" Details::None, "it was given a core other than its last";
    InterruptRaised "irq_raise" Details::Number, "an interrupt was raised at it";
    InterruptsTaken "handler_run" Details::None, "at an exit: its guest has taken the interrupts that waited for it; their handler ran before";
    HostLockTaken "host_lock_taken" Details::HostLock, "it has a lock of the hypervisor";
    HostLockReleased "host_lock_released" Details::HostLock, "it released a lock of the hypervisor";
    Locks "locks" Details::Words(&["free", "holds", "waits"]), "what its guest says of its own locks has changed";
    UserReturn "user_return" Details::None, "its thread returned to user mode of the host";
    Standing "standing" Details::Words(&["plain", "boosted", "co-stopped", "kernel-priority"]), "its standing in the policy changed";
    HostDelay "host_delay" Details::None, "its thread waited for the host while it had a core";
    Violation "violation" Details::Number, "the policy broke a rule";
    Mark "mark" Details::Words(&["start", "end"]), "the measurement begins or ends";
    Owed "owed" Details::Words(&["critical-exit", "user-return", "guest-entry"]), "its core is wanted, but that is only remembered until the moment named";
    GuestOwner "guest_owner" Details::Words(&["yes", "no-longer"]), "it owns a lock of its guest that is waited for, or has ceased to";
    SpunTooLong "spun_too_long" Details::None, "it has spun for a lock of its guest for as long as it is meant to";
    Borrows "borrows" Details::Words(&["donor", "owner"]), "it uses the turn of another that waits for it, charged to that one or to itself";
    YieldedTo "yielded_to" Details::None, "it gave its core to another, because it spins";
    Deadlock "deadlock" Details::None, "it waits for a lock whose owner waits for it";
    Placed "placed" Details::None, "it is queued where it was not before: of the core that is considered for it first";
    SetAside "set_aside" Details::None, "it is in no queue for now, though it is ready or was queued to lend its turn";
}

const fn reason(reason: PreemptReason) -> &'static str {
    match reason {
        PreemptReason::SliceEnd => "slice-end",
        PreemptReason::Wakeup => "wakeup",
        PreemptReason::Tick => "tick",
        PreemptReason::Period => "period",
        PreemptReason::PriorityDrop => "priority-drop",
        PreemptReason::LockWait => "lock-wait",
        PreemptReason::LoanOver => "loan-over",
    }
}

impl Kind {
    /// The kind of an event.
    #[must_use]
    pub const fn of(event: &EventKind) -> Self {
        match event {
            EventKind::Admitted => Self::Admitted,
            EventKind::Retired(_) => Self::Retired,
            EventKind::Woken(_) => Self::Woken,
            EventKind::Granted(_) => Self::Granted,
            EventKind::Running(_) => Self::Running,
            EventKind::Exited(_) => Self::Exited,
            EventKind::Resumed => Self::Resumed,
            EventKind::Kicked(..) => Self::Kicked,
            EventKind::Owed(..) => Self::Owed,
            EventKind::Preempted(..) => Self::Preempted,
            EventKind::Yielded(_) => Self::Yielded,
            EventKind::Blocked(_) => Self::Blocked,
            EventKind::Migrated { .. } => Self::Migrated,
            EventKind::InterruptRaised { .. } => Self::InterruptRaised,
            EventKind::InterruptsTaken { .. } => Self::InterruptsTaken,
            EventKind::HostLockTaken(_) => Self::HostLockTaken,
            EventKind::HostLockReleased(_) => Self::HostLockReleased,
            EventKind::Locks { .. } => Self::Locks,
            EventKind::UserReturn => Self::UserReturn,
            EventKind::Standing(_) => Self::Standing,
            EventKind::HostDelay(_) => Self::HostDelay,
            EventKind::Violation(_) => Self::Violation,
            EventKind::Mark(_) => Self::Mark,
            EventKind::GuestOwner { .. } => Self::GuestOwner,
            EventKind::SpunTooLong(_) => Self::SpunTooLong,
            EventKind::Borrows { .. } => Self::Borrows,
            EventKind::YieldedTo(_) => Self::YieldedTo,
            EventKind::Deadlock { .. } => Self::Deadlock,
            EventKind::Placed(_) => Self::Placed,
            EventKind::SetAside { .. } => Self::SetAside,
        }
    }

    /// All kinds with their varieties, one a line, for `--help`.
    #[must_use]
    pub fn help() -> String {
        let line =
            |kind: &Self| format!("  {:<20}{}{}\n", kind.name(), kind.says(), kind.details());
        Self::ALL.iter().map(line).collect()
    }
}

impl fmt::Display for Details {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::Words(words) => write!(f, " (:{})", words.join(", :")),
            Self::HostLock => f.write_str(" (:LOCK)"),
            Self::Number => f.write_str(" (:NUMBER)"),
        }
    }
}

/// The variety of an event, if its kind has some.
#[must_use]
pub fn detail<'a>(event: &EventKind, names: &'a Names) -> Option<Cow<'a, str>> {
    Some(Cow::Borrowed(match event {
        EventKind::Retired(RetireReason::Finished) => "finished",
        EventKind::Retired(RetireReason::Fault) => "fault",
        EventKind::Retired(RetireReason::RunOver) => "run-over",
        EventKind::Woken(WakeSource::Timer) => "timer",
        EventKind::Woken(WakeSource::Interrupt(_)) => "interrupt",
        EventKind::Woken(WakeSource::HostLock(_)) | EventKind::Blocked(Waits::HostLock(..)) => {
            "host-lock"
        }
        EventKind::Exited(why) => why.name(),
        EventKind::Kicked(_, why) | EventKind::Preempted(_, why) => reason(*why),
        EventKind::Owed(_, _, until) => match until {
            Until::CriticalExit => "critical-exit",
            Until::UserReturn => "user-return",
            Until::GuestEntry => "guest-entry",
        },
        EventKind::Blocked(Waits::Idle) => "idle",
        EventKind::Blocked(Waits::Sleep) => "sleep",
        EventKind::Blocked(Waits::Host) => "host",
        EventKind::Woken(WakeSource::GuestLock(_)) | EventKind::Blocked(Waits::GuestLock(_)) => {
            "guest-lock"
        }
        EventKind::GuestOwner { owns, .. } => match owns {
            Owns::Yes => "yes",
            Owns::NoLonger => "no-longer",
        },
        EventKind::Borrows { charged, .. } => match charged {
            Charged::Donor => "donor",
            Charged::Owner => "owner",
        },
        EventKind::HostLockTaken(lock) | EventKind::HostLockReleased(lock) => {
            names.host_lock(*lock)
        }
        EventKind::Locks {
            waits_for: Some(_), ..
        } => "waits",
        EventKind::Locks { held: 0, .. } => "free",
        EventKind::Locks { .. } => "holds",
        EventKind::Standing(Standing {
            kernel_priority,
            boosted,
            costopped,
        }) => match (kernel_priority, costopped, boosted) {
            (true, ..) => "kernel-priority",
            (_, true, _) => "co-stopped",
            (.., true) => "boosted",
            _ => "plain",
        },
        EventKind::Mark(Mark::MeasureStart) => "start",
        EventKind::Mark(Mark::MeasureEnd) => "end",
        EventKind::InterruptRaised { vector, .. } => return Some(vector.to_string().into()),
        EventKind::Violation(rule) => return Some(rule.to_string().into()),
        EventKind::Admitted
        | EventKind::Placed(_)
        | EventKind::SetAside { .. }
        | EventKind::Granted(_)
        | EventKind::Running(_)
        | EventKind::Resumed
        | EventKind::Yielded(_)
        | EventKind::Migrated { .. }
        | EventKind::InterruptsTaken { .. }
        | EventKind::UserReturn
        | EventKind::SpunTooLong(_)
        | EventKind::YieldedTo(_)
        | EventKind::Deadlock { .. }
        | EventKind::HostDelay(_) => return None,
    }))
}
