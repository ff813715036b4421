//! Classes of events, in the manner of KTR's masks: an event may belong to several.

use std::str::FromStr;
use stealtime_scheduler::event::{EventKind, Waits, WakeSource};

/// Classes of events, as bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mask(u16);

impl Mask {
    const PROC: u16 = 1;
    const SCHED: u16 = 1 << 1;
    const INTR: u16 = 1 << 2;
    const LOCK: u16 = 1 << 3;
    const EXIT: u16 = 1 << 4;
    const HOST: u16 = 1 << 5;
    const MARK: u16 = 1 << 6;
    const INPUT: u16 = 1 << 7;
    const EFFECT: u16 = 1 << 8;

    /// Where a vCPU is in its life.
    pub const PROCESS: Self = Self(Self::PROC);
    /// Locks.
    pub const LOCKS: Self = Self(Self::LOCK);
    /// All events; not the inputs and effects of the dispatcher.
    pub const EVENTS: Self = Self(Self::INPUT - 1);
    /// What the dispatcher was told.
    pub const INPUTS: Self = Self(Self::INPUT);
    /// What the dispatcher asked for.
    pub const EFFECTS: Self = Self(Self::EFFECT);

    /// Every class by name, with what it holds.
    pub const NAMED: [(&'static str, Self, &'static str); 11] = [
        (
            "proc",
            Self::PROCESS,
            "where a vCPU is in its life: admitted, woken, granted, running, preempted, yielded, blocked, migrated, retired",
        ),
        (
            "sched",
            Self(Self::SCHED),
            "what is decided of who is on a core: placed, set_aside, kicked, owed, standing, borrows, yielded_to, and rules a policy broke",
        ),
        (
            "intr",
            Self(Self::INTR),
            "interrupts raised and handled, and wake-ups by them",
        ),
        (
            "lock",
            Self::LOCKS,
            "locks of the hypervisor and of guests, and vCPUs that wait for or are woken by one",
        ),
        (
            "exit",
            Self(Self::EXIT),
            "guest code left and entered again, and returns to user mode of the host",
        ),
        (
            "host",
            Self(Self::HOST),
            "time that a vCPU's thread waited for the host",
        ),
        ("mark", Self(Self::MARK), "begin and end of the measurement"),
        (
            "input",
            Self::INPUTS,
            "what the dispatcher was told, as `replay` feeds it",
        ),
        ("effect", Self::EFFECTS, "what the dispatcher asked for"),
        ("events", Self::EVENTS, "all but input and effect"),
        (
            "all",
            Self(Self::EVENTS.0 | Self::INPUT | Self::EFFECT),
            "everything in the stream",
        ),
    ];

    /// Whether they have a class in common.
    #[must_use]
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The classes of an event.
    #[must_use]
    pub const fn of(event: &EventKind) -> Self {
        Self(match event {
            EventKind::Woken(WakeSource::Interrupt(_)) => Self::PROC | Self::INTR,
            EventKind::Woken(WakeSource::HostLock(_))
            | EventKind::Blocked(Waits::HostLock(..) | Waits::GuestLock(_)) => {
                Self::PROC | Self::LOCK
            }
            EventKind::Admitted
            | EventKind::Retired(_)
            | EventKind::Woken(_)
            | EventKind::Granted(_)
            | EventKind::Running(_)
            | EventKind::Preempted(..)
            | EventKind::Yielded(_)
            | EventKind::Blocked(_)
            | EventKind::Migrated { .. } => Self::PROC,
            EventKind::Kicked(..)
            | EventKind::Placed(_)
            | EventKind::SetAside { .. }
            | EventKind::Owed(..)
            | EventKind::Standing(_)
            | EventKind::Borrows { .. }
            | EventKind::YieldedTo(_)
            | EventKind::Violation(_) => Self::SCHED,
            EventKind::InterruptRaised { .. } | EventKind::InterruptsTaken { .. } => Self::INTR,
            EventKind::HostLockTaken(_)
            | EventKind::HostLockReleased(_)
            | EventKind::GuestOwner { .. }
            | EventKind::SpunTooLong(_)
            | EventKind::Deadlock { .. }
            | EventKind::Locks { .. } => Self::LOCK,
            EventKind::Exited(_) | EventKind::Resumed | EventKind::UserReturn => Self::EXIT,
            EventKind::HostDelay(_) => Self::HOST,
            EventKind::Mark(_) => Self::MARK,
        })
    }
}

impl Default for Mask {
    fn default() -> Self {
        Self::EVENTS
    }
}

/// A class that there is not.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no class of events `{0}`; there are {known}", known = Mask::known())]
pub struct NoSuchClass(pub String);

impl Mask {
    /// The names of all classes in one line.
    fn known() -> String {
        Self::NAMED.map(|(name, ..)| name).join(", ")
    }

    /// All classes, one a line, for `--help`.
    #[must_use]
    pub fn help() -> String {
        let line = |(name, _, what): (&str, Self, &str)| format!("  {name:<8} {what}\n");
        Self::NAMED.map(line).concat()
    }
}

/// Reads `intr,proc`.
impl FromStr for Mask {
    type Err = NoSuchClass;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut bits = 0;
        for word in text.split(',').map(str::trim) {
            let found = Self::NAMED.iter().find(|(name, ..)| *name == word);
            bits |= found.ok_or_else(|| NoSuchClass(word.to_owned()))?.1.0;
        }
        Ok(Self(bits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stealtime_scheduler::ids::{HostLockId, VcpuId};

    #[test]
    fn an_event_is_met_by_each_of_its_classes() {
        let waits = EventKind::Blocked(Waits::HostLock(HostLockId(0), VcpuId(0)));
        let meets = |mask: &str, event| {
            let mask: Mask = mask.parse().expect("known");
            mask.meets(Mask::of(&event))
        };
        assert!(meets("proc", waits) && meets("lock", waits) && meets("intr, lock", waits));
        assert!(!meets("intr", waits));
        assert!(!meets("lock", EventKind::Blocked(Waits::Idle)));
        assert!(meets("events", EventKind::UserReturn) && meets("all", EventKind::UserReturn));
    }

    #[test]
    fn an_unknown_class_is_answered_with_all_there_are() {
        let error = "intr,nosuch"
            .parse::<Mask>()
            .expect_err("unknown")
            .to_string();
        assert!(error.contains("nosuch"), "{error}");
        for (name, ..) in Mask::NAMED {
            assert!(error.contains(name), "{error}");
        }
        assert!("".parse::<Mask>().is_err());
    }
}
