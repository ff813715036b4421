//! The 32-byte form of inputs, effects and events.
//!
//! A run is kept on disk as a row of such records (`docs/trace-format.md`). All numbers are
//! little-endian, and what an item does not use is zero:
//!
//! ```text
//! byte  0      class: 1 input, 2 effect, 3 event
//!       1      code of the item within its class
//!       2      detail: a reason, a vector, the kind of a timer or of a wait
//!       3      flags: 1 = the optional "other" is there; 1 and 2 for two switches
//!       4.. 8  the vCPU
//!       8..16  when, in nanoseconds since the start of the run (0 for an effect)
//!      16..24  value: a length of time or an instant, in nanoseconds
//!      24..28  other: a second vCPU, or a guest lock
//!      28..30  place: a core, a host lock, a count
//!      30..32  place 2: the core that a vCPU comes from, a second count, a moment
//! ```
//!
//! # Invariants
//! The form is canonical: an item has exactly one record, and a record that is not the record of
//! any item is an error. So a changed byte is either noticed at once or means another item.

#[cfg(test)]
mod documented;
mod fields;
mod parts;
#[cfg(test)]
mod tests;

use crate::effect::Effect;
use crate::event::{Event, EventKind};
use crate::ids::{CoreId, GuestLockId, HostLockId, VcpuId};
use crate::input::{GuestLocks, Input};
use crate::time::Nanos;
use fields::Fields;

/// Length of a record.
pub const RECORD_BYTES: usize = 32;

/// An item as it is kept.
pub type Record = [u8; RECORD_BYTES];

/// What a record says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Item {
    /// The dispatcher was told this at this time.
    Input(Nanos, Input),
    /// It asked for this.
    Effect(Effect),
    /// It told this.
    Event(Event),
}

/// A record that is not the record of any item.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadRecord {
    /// Neither input, effect nor event.
    #[error("class {0} is none of 1 (input), 2 (effect), 3 (event)")]
    Class(u8),
    /// No item of this class has this code.
    #[error("there is no {class} with code {code}")]
    Code {
        /// The class in words.
        class: &'static str,
        /// The code.
        code: u8,
    },
    /// The item has no such detail.
    #[error("the {class} with code {code} has no detail {detail}")]
    Detail {
        /// The class in words.
        class: &'static str,
        /// The code.
        code: u8,
        /// The detail.
        detail: u8,
    },
    /// Bytes that the item does not use are not zero, or a switch has a value that it cannot have.
    #[error("the {class} with code {code} has something in bytes that it does not use")]
    NotCanonical {
        /// The class in words.
        class: &'static str,
        /// The code.
        code: u8,
    },
}

const INPUT: u8 = 1;
const EFFECT: u8 = 2;
const EVENT: u8 = 3;

/// The record of an item.
#[must_use]
pub fn encode(item: &Item) -> Record {
    fields_of(item).to_bytes()
}

/// The item of a record.
///
/// # Errors
/// If it is the record of no item.
pub fn decode(record: &Record) -> Result<Item, BadRecord> {
    let fields = Fields::from_bytes(record);
    let unknown = BadRecord::Code {
        class: class_name(fields.class),
        code: fields.code,
    };
    let detail = BadRecord::Detail {
        class: class_name(fields.class),
        code: fields.code,
        detail: fields.detail,
    };
    let item = match fields.class {
        INPUT => Item::Input(
            Nanos(fields.at),
            input_from(&fields).ok_or(if fields.code < INPUTS {
                detail
            } else {
                unknown
            })?,
        ),
        EFFECT => Item::Effect(effect_from(&fields).ok_or(if fields.code < EFFECTS {
            detail
        } else {
            unknown
        })?),
        EVENT => Item::Event(Event {
            at: Nanos(fields.at),
            vcpu: VcpuId(fields.vcpu),
            kind: event_from(&fields).ok_or(if fields.code < EVENTS {
                detail
            } else {
                unknown
            })?,
        }),
        class => return Err(BadRecord::Class(class)),
    };
    if encode(&item) == *record {
        Ok(item)
    } else {
        Err(BadRecord::NotCanonical {
            class: class_name(fields.class),
            code: fields.code,
        })
    }
}

const fn class_name(class: u8) -> &'static str {
    match class {
        INPUT => "input",
        EFFECT => "effect",
        _ => "event",
    }
}

fn fields_of(item: &Item) -> Fields {
    match item {
        Item::Input(at, input) => Fields {
            class: INPUT,
            at: at.0,
            ..input_fields(input)
        },
        Item::Effect(effect) => Fields {
            class: EFFECT,
            ..effect_fields(effect)
        },
        Item::Event(event) => Fields {
            class: EVENT,
            at: event.at.0,
            vcpu: event.vcpu.0,
            ..event_fields(&event.kind)
        },
    }
}

/// How many codes inputs have.
const INPUTS: u8 = 24;

fn input_fields(input: &Input) -> Fields {
    match *input {
        Input::Admit { vcpu } => Fields::of(0, vcpu),
        Input::Retire { vcpu, why } => Fields::of(1, vcpu).detail(why as u8),
        Input::Entered { core, vcpu } => Fields::of(2, vcpu).place(core.0),
        Input::Exited { vcpu, why } => Fields::of(3, vcpu).detail(why as u8),
        Input::Resumed { vcpu } => Fields::of(4, vcpu),
        Input::UserReturn { vcpu } => Fields::of(5, vcpu),
        Input::Stopped { core, vcpu } => Fields::of(6, vcpu).place(core.0),
        Input::Yield { vcpu } => Fields::of(7, vcpu),
        Input::Block { vcpu, on } => Fields::of(8, vcpu).block_on(on),
        Input::Interrupt { to, vector, from } => {
            Fields::of(9, to).detail(vector).other(from.map(|v| v.0))
        }
        Input::InterruptsTaken { vcpu, at, more } => {
            Fields::of(10, vcpu).value(at.0).detail(more.into())
        }
        Input::ArmPeriodic {
            vcpu,
            period,
            vector,
        } => Fields::of(11, vcpu).detail(vector).value(period.0),
        Input::TimerDue { timer } => Fields::code(12).timer(timer),
        Input::HostLock {
            vcpu,
            lock,
            priority,
        } => Fields::of(13, vcpu)
            .place(lock.0)
            .detail(parts::priority_code(priority)),
        Input::HostUnlock { vcpu, lock } => Fields::of(14, vcpu).place(lock.0),
        Input::Locks { vcpu, locks } => Fields::of(15, vcpu)
            .places(locks.held, locks.critical)
            .detail(locks.in_line.into())
            .other(locks.waits_for.map(|lock| lock.0)),
        Input::HostDelay { vcpu, delay } => Fields::of(16, vcpu).value(delay.0),
        Input::Mark(mark) => Fields::code(17).detail(mark as u8),
        Input::CriticalLeft { vcpu } => Fields::of(18, vcpu),
        Input::HostAcquire {
            vcpu,
            lock,
            mode,
            priority,
        } => Fields::of(19, vcpu)
            .place(lock.0)
            .detail(2 * mode as u8 + parts::priority_code(priority)),
        Input::GuestOwner { lock, owner } => Fields::code(20)
            .value(u64::from(lock.0))
            .other(owner.map(|v| v.0)),
        Input::GuestWait { vcpu, lock } => Fields::of(21, vcpu).value(u64::from(lock.0)),
        Input::GuestWake { vcpu, by, lock } => Fields::of(22, vcpu)
            .value(u64::from(lock.0))
            .other(Some(by.0)),
        Input::SpunTooLong { vcpu, lock } => Fields::of(23, vcpu).value(u64::from(lock.0)),
    }
}

fn input_from(f: &Fields) -> Option<Input> {
    let vcpu = VcpuId(f.vcpu);
    let core = CoreId(f.place);
    let lock = HostLockId(f.place);
    Some(match f.code {
        0 => Input::Admit { vcpu },
        1 => Input::Retire {
            vcpu,
            why: parts::retire_reason(f.detail)?,
        },
        2 => Input::Entered { core, vcpu },
        3 => Input::Exited {
            vcpu,
            why: parts::exit_reason(f.detail)?,
        },
        4 => Input::Resumed { vcpu },
        5 => Input::UserReturn { vcpu },
        6 => Input::Stopped { core, vcpu },
        7 => Input::Yield { vcpu },
        8 => Input::Block {
            vcpu,
            on: f.get_block_on()?,
        },
        9 => Input::Interrupt {
            to: vcpu,
            vector: f.detail,
            from: f.get_other().map(VcpuId),
        },
        10 => Input::InterruptsTaken {
            vcpu,
            at: Nanos(f.value),
            more: f.detail != 0,
        },
        11 => Input::ArmPeriodic {
            vcpu,
            period: Nanos(f.value),
            vector: f.detail,
        },
        12 => Input::TimerDue {
            timer: f.get_timer()?,
        },
        13 => Input::HostLock {
            vcpu,
            lock,
            priority: parts::priority(f.detail)?,
        },
        14 => Input::HostUnlock { vcpu, lock },
        15 => Input::Locks {
            vcpu,
            locks: GuestLocks {
                held: f.place,
                critical: f.place_2,
                waits_for: f.get_other().map(GuestLockId),
                in_line: f.detail != 0,
            },
        },
        16 => Input::HostDelay {
            vcpu,
            delay: Nanos(f.value),
        },
        17 => Input::Mark(parts::mark(f.detail)?),
        18 => Input::CriticalLeft { vcpu },
        19 => Input::HostAcquire {
            vcpu,
            lock,
            mode: parts::host_mode(f.detail / 2)?,
            priority: parts::priority(f.detail % 2)?,
        },
        20 => Input::GuestOwner {
            lock: f.get_guest_lock()?,
            owner: f.get_other().map(VcpuId),
        },
        21 => Input::GuestWait {
            vcpu,
            lock: f.get_guest_lock()?,
        },
        22 => Input::GuestWake {
            vcpu,
            by: VcpuId(f.other),
            lock: f.get_guest_lock()?,
        },
        23 => Input::SpunTooLong {
            vcpu,
            lock: f.get_guest_lock()?,
        },
        _ => return None,
    })
}

/// How many codes effects have.
const EFFECTS: u8 = 8;

fn effect_fields(effect: &Effect) -> Fields {
    match *effect {
        Effect::Run { core, vcpu } => Fields::of(0, vcpu).place(core.0),
        Effect::Park { core, vcpu } => Fields::of(1, vcpu).place(core.0),
        Effect::Kick { core, vcpu } => Fields::of(2, vcpu).place(core.0),
        Effect::Arm { timer, at } => Fields::code(3).timer(timer).value(at.0),
        Effect::Cancel { timer } => Fields::code(4).timer(timer),
        Effect::Inject { vcpu, vector } => Fields::of(5, vcpu).detail(vector),
        Effect::Owe { core, vcpu } => Fields::of(6, vcpu).place(core.0),
        Effect::Lent { to, donor } => Fields::of(7, to).other(donor.map(|v| v.0)),
    }
}

fn effect_from(f: &Fields) -> Option<Effect> {
    let vcpu = VcpuId(f.vcpu);
    let core = CoreId(f.place);
    Some(match f.code {
        0 => Effect::Run { core, vcpu },
        1 => Effect::Park { core, vcpu },
        2 => Effect::Kick { core, vcpu },
        3 => Effect::Arm {
            timer: f.get_timer()?,
            at: Nanos(f.value),
        },
        4 => Effect::Cancel {
            timer: f.get_timer()?,
        },
        5 => Effect::Inject {
            vcpu,
            vector: f.detail,
        },
        6 => Effect::Owe { core, vcpu },
        7 => Effect::Lent {
            to: vcpu,
            donor: f.get_other().map(VcpuId),
        },
        _ => return None,
    })
}

/// How many codes events have.
const EVENTS: u8 = 30;

fn event_fields(kind: &EventKind) -> Fields {
    match *kind {
        EventKind::Admitted => Fields::code(0),
        EventKind::Retired(why) => Fields::code(1).detail(why as u8),
        EventKind::Woken(by) => Fields::code(2).wake_source(by),
        EventKind::Granted(core) => Fields::code(3).place(core.0),
        EventKind::Running(core) => Fields::code(4).place(core.0),
        EventKind::Exited(why) => Fields::code(5).detail(why as u8),
        EventKind::Resumed => Fields::code(6),
        EventKind::Kicked(core, why) => Fields::code(7).place(core.0).detail(why as u8),
        EventKind::Preempted(core, why) => Fields::code(8).place(core.0).detail(why as u8),
        EventKind::Yielded(core) => Fields::code(9).place(core.0),
        EventKind::Blocked(waits) => Fields::code(10).waits(waits),
        EventKind::Migrated { from, to } => Fields::code(11).places(to.0, from.0),
        EventKind::InterruptRaised { vector, from } => {
            Fields::code(12).detail(vector).other(from.map(|v| v.0))
        }
        EventKind::InterruptsTaken { at } => Fields::code(13).value(at.0),
        EventKind::HostLockTaken(lock) => Fields::code(14).place(lock.0),
        EventKind::HostLockReleased(lock) => Fields::code(15).place(lock.0),
        EventKind::Locks {
            held,
            critical,
            waits_for,
            in_line,
        } => Fields::code(16)
            .places(held, critical)
            .detail(in_line.into())
            .other(waits_for.map(|lock| lock.0)),
        EventKind::UserReturn => Fields::code(17),
        EventKind::Standing(standing) => Fields::code(18).standing(standing),
        EventKind::HostDelay(delay) => Fields::code(19).value(delay.0),
        EventKind::Violation(rule) => Fields::code(20).place(rule),
        EventKind::Mark(mark) => Fields::code(21).detail(mark as u8),
        EventKind::Owed(core, why, until) => Fields::code(22)
            .places(core.0, until as u16)
            .detail(why as u8),
        EventKind::GuestOwner { lock, owns } => {
            Fields::code(23).value(u64::from(lock.0)).detail(owns as u8)
        }
        EventKind::SpunTooLong(lock) => Fields::code(24).value(u64::from(lock.0)),
        EventKind::Borrows { donor, charged } => {
            Fields::code(25).detail(charged as u8).other(Some(donor.0))
        }
        EventKind::YieldedTo(to) => Fields::code(26).other(Some(to.0)),
        EventKind::Deadlock { owner } => Fields::code(27).other(Some(owner.0)),
        EventKind::Placed(core) => Fields::code(28).place(core.0),
        EventKind::SetAside { behind } => Fields::code(29).other(behind.map(|v| v.0)),
    }
}

fn event_from(f: &Fields) -> Option<EventKind> {
    let core = CoreId(f.place);
    Some(match f.code {
        0 => EventKind::Admitted,
        1 => EventKind::Retired(parts::retire_reason(f.detail)?),
        2 => EventKind::Woken(f.get_wake_source()?),
        3 => EventKind::Granted(core),
        4 => EventKind::Running(core),
        5 => EventKind::Exited(parts::exit_reason(f.detail)?),
        6 => EventKind::Resumed,
        7 => EventKind::Kicked(core, parts::preempt_reason(f.detail)?),
        8 => EventKind::Preempted(core, parts::preempt_reason(f.detail)?),
        9 => EventKind::Yielded(core),
        10 => EventKind::Blocked(f.get_waits()?),
        11 => EventKind::Migrated {
            from: CoreId(f.place_2),
            to: core,
        },
        12 => EventKind::InterruptRaised {
            vector: f.detail,
            from: f.get_other().map(VcpuId),
        },
        13 => EventKind::InterruptsTaken { at: Nanos(f.value) },
        14 => EventKind::HostLockTaken(HostLockId(f.place)),
        15 => EventKind::HostLockReleased(HostLockId(f.place)),
        16 => EventKind::Locks {
            held: f.place,
            critical: f.place_2,
            waits_for: f.get_other().map(GuestLockId),
            in_line: f.detail != 0,
        },
        17 => EventKind::UserReturn,
        18 => EventKind::Standing(f.get_standing()),
        19 => EventKind::HostDelay(Nanos(f.value)),
        20 => EventKind::Violation(f.place),
        21 => EventKind::Mark(parts::mark(f.detail)?),
        22 => EventKind::Owed(
            core,
            parts::preempt_reason(f.detail)?,
            parts::until(f.place_2)?,
        ),
        23 => EventKind::GuestOwner {
            lock: f.get_guest_lock()?,
            owns: parts::owns(f.detail)?,
        },
        24 => EventKind::SpunTooLong(f.get_guest_lock()?),
        25 => EventKind::Borrows {
            donor: VcpuId(f.other),
            charged: parts::charged(f.detail)?,
        },
        26 => EventKind::YieldedTo(VcpuId(f.other)),
        27 => EventKind::Deadlock {
            owner: VcpuId(f.other),
        },
        28 => EventKind::Placed(core),
        29 => EventKind::SetAside {
            behind: f.get_other().map(VcpuId),
        },
        _ => return None,
    })
}
