//! An event in words.

use super::What;
use crate::kind::{Kind, detail};
use crate::names::Names;
use std::fmt::{self, Display, Formatter};
use stealtime_scheduler::event::{
    Charged, Event, EventKind, Owns, Standing, Until, Waits, WakeSource,
};
use stealtime_scheduler::ids::VcpuId;
use stealtime_scheduler::input::Mark;

/// An item's kind and what is to be said of it, in one line.
pub(super) struct Words<'a>(pub(super) &'a What, pub(super) &'a Names);

impl Display for Words<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            What::Event(event) => said(f, event, self.1),
            What::Input(input) => write!(f, "input   {input:?}"),
            What::Effect(effect) => write!(f, "effect  {effect:?}"),
        }
    }
}

fn said(f: &mut Formatter<'_>, event: &Event, names: &Names) -> fmt::Result {
    f.write_str(Kind::of(&event.kind).name())?;
    match event.kind {
        EventKind::Woken(WakeSource::Timer) => f.write_str(" by its timer"),
        EventKind::Woken(WakeSource::Interrupt(from)) => {
            write!(f, " by an interrupt {}", by(from, names))
        }
        EventKind::Woken(WakeSource::HostLock(from)) => {
            write!(f, " by {}, which released a host lock", names.vcpu(from))
        }
        EventKind::Woken(WakeSource::GuestLock(from)) => {
            write!(f, " by {}, which released a guest lock", names.vcpu(from))
        }
        EventKind::Blocked(Waits::GuestLock(lock)) => {
            write!(f, ": asleep for guest lock `{}`", names.guest_lock(lock))
        }
        EventKind::GuestOwner { lock, owns } => {
            let lock = names.guest_lock(lock);
            match owns {
                Owns::Yes => write!(f, ": it owns guest lock `{lock}`"),
                Owns::NoLonger => write!(f, ": it owns guest lock `{lock}` no longer"),
            }
        }
        EventKind::SpunTooLong(lock) => write!(f, " for guest lock `{}`", names.guest_lock(lock)),
        EventKind::Borrows { donor, charged } => {
            let account = match charged {
                Charged::Donor => "which is charged",
                Charged::Owner => "and is charged itself",
            };
            write!(f, " the turn of {}, {account}", names.vcpu(donor))
        }
        EventKind::SetAside { behind } => {
            behind.map_or(Ok(()), |behind| write!(f, " behind {}", names.vcpu(behind)))
        }
        EventKind::YieldedTo(to) => write!(f, " {}", names.vcpu(to)),
        EventKind::Deadlock { owner } => {
            write!(f, ": {} and it wait for each other", names.vcpu(owner))
        }
        EventKind::Blocked(Waits::Idle) => f.write_str(": idle until an interrupt"),
        EventKind::Blocked(Waits::Sleep) => f.write_str(": asleep until its timer"),
        EventKind::Blocked(Waits::Host) => f.write_str(": waits in the hypervisor"),
        EventKind::Blocked(Waits::HostLock(lock, owner)) => write!(
            f,
            ": waits for host lock `{}`, which {} holds",
            names.host_lock(lock),
            names.vcpu(owner)
        ),
        EventKind::Migrated { from, .. } => write!(f, " from {}", names.core_in_words(from)),
        EventKind::InterruptRaised { vector, from } => {
            write!(f, " {vector} {}", by(from, names))
        }
        EventKind::InterruptsTaken { at } => write!(f, " {} before", event.at.since(at)),
        EventKind::HostLockTaken(lock) | EventKind::HostLockReleased(lock) => {
            write!(f, " `{}`", names.host_lock(lock))
        }
        EventKind::Locks {
            held,
            critical,
            waits_for,
            in_line,
        } => {
            write!(f, ": holds {held}, critical depth {critical}")?;
            waits_for.map_or(Ok(()), |lock| {
                let how = if in_line { "waits in line" } else { "waits" };
                write!(f, ", {how} for guest lock `{}`", names.guest_lock(lock))
            })
        }
        EventKind::Standing(standing) => write!(f, ": {}", stands(standing)),
        EventKind::HostDelay(delay) => write!(f, ": {delay}"),
        EventKind::Owed(_, why, until) => {
            let why = EventKind::Kicked(stealtime_scheduler::ids::CoreId(0), why);
            let why = detail(&why, names).unwrap_or_default();
            write!(f, " ({why}) until {}", moment(until))
        }
        EventKind::Mark(Mark::MeasureStart) => f.write_str(": the measurement begins"),
        EventKind::Mark(Mark::MeasureEnd) => f.write_str(": the measurement ends"),
        kind => detail(&kind, names).map_or(Ok(()), |detail| write!(f, ": {detail}")),
    }
}

fn by(from: Option<VcpuId>, names: &Names) -> String {
    from.map_or_else(
        || "of a timer or device".to_owned(),
        |from| format!("of {}", names.vcpu(from)),
    )
}

/// A standing in words.
pub(super) fn stands(standing: Standing) -> String {
    let all = [
        (standing.kernel_priority, "kernel priority"),
        (standing.boosted, "boosted"),
        (standing.costopped, "co-stopped"),
    ];
    let words: Vec<_> = all
        .iter()
        .filter(|(has, _)| *has)
        .map(|(_, word)| *word)
        .collect();
    match words.as_slice() {
        [] => "plain".to_owned(),
        words => words.join(", "),
    }
}

/// When a remembered preemption is looked at.
pub(crate) const fn moment(until: Until) -> &'static str {
    match until {
        Until::CriticalExit => "it leaves its critical section",
        Until::UserReturn => "its thread returns to user mode",
        Until::GuestEntry => "the hypervisor's work on its behalf is done",
    }
}
