//! The fields of a record, by name.
//!
//! Each item fills in the few that it needs; the table of bytes stands in the parent module.

use super::{RECORD_BYTES, Record};
use crate::event::{Standing, Waits, WakeSource};
use crate::ids::{CoreId, GuestLockId, HostLockId, VcpuId};
use crate::input::{BlockOn, Timer};
use crate::time::Nanos;

#[derive(Clone, Copy, Default)]
pub(super) struct Fields {
    pub(super) class: u8,
    pub(super) code: u8,
    pub(super) detail: u8,
    pub(super) flags: u8,
    pub(super) vcpu: u32,
    pub(super) at: u64,
    pub(super) value: u64,
    pub(super) other: u32,
    pub(super) place: u16,
    pub(super) place_2: u16,
}

/// The optional `other` is there.
const HAS_OTHER: u8 = 1;
const KERNEL_PRIORITY: u8 = 1;
const BOOSTED: u8 = 2;
const COSTOPPED: u8 = 4;

/// `N` bytes of a record from `start` on.
fn part<const N: usize>(record: &Record, start: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&record[start..start + N]);
    bytes
}

impl Fields {
    pub(super) fn code(code: u8) -> Self {
        Self {
            code,
            ..Self::default()
        }
    }

    pub(super) fn of(code: u8, vcpu: VcpuId) -> Self {
        Self {
            vcpu: vcpu.0,
            ..Self::code(code)
        }
    }

    pub(super) fn to_bytes(self) -> Record {
        let mut record = [0; RECORD_BYTES];
        record[0] = self.class;
        record[1] = self.code;
        record[2] = self.detail;
        record[3] = self.flags;
        record[4..8].copy_from_slice(&self.vcpu.to_le_bytes());
        record[8..16].copy_from_slice(&self.at.to_le_bytes());
        record[16..24].copy_from_slice(&self.value.to_le_bytes());
        record[24..28].copy_from_slice(&self.other.to_le_bytes());
        record[28..30].copy_from_slice(&self.place.to_le_bytes());
        record[30..32].copy_from_slice(&self.place_2.to_le_bytes());
        record
    }

    pub(super) fn from_bytes(record: &Record) -> Self {
        Self {
            class: record[0],
            code: record[1],
            detail: record[2],
            flags: record[3],
            vcpu: u32::from_le_bytes(part(record, 4)),
            at: u64::from_le_bytes(part(record, 8)),
            value: u64::from_le_bytes(part(record, 16)),
            other: u32::from_le_bytes(part(record, 24)),
            place: u16::from_le_bytes(part(record, 28)),
            place_2: u16::from_le_bytes(part(record, 30)),
        }
    }

    pub(super) fn detail(self, detail: u8) -> Self {
        Self { detail, ..self }
    }

    pub(super) fn value(self, value: u64) -> Self {
        Self { value, ..self }
    }

    pub(super) fn place(self, place: u16) -> Self {
        Self { place, ..self }
    }

    pub(super) fn places(self, place: u16, place_2: u16) -> Self {
        Self {
            place,
            place_2,
            ..self
        }
    }

    pub(super) fn other(self, other: Option<u32>) -> Self {
        match other {
            None => self,
            Some(other) => Self {
                flags: HAS_OTHER,
                other,
                ..self
            },
        }
    }

    pub(super) fn get_other(&self) -> Option<u32> {
        (self.flags == HAS_OTHER).then_some(self.other)
    }

    /// A guest lock in the place of a 64-bit value.
    pub(super) fn get_guest_lock(&self) -> Option<GuestLockId> {
        u32::try_from(self.value).ok().map(GuestLockId)
    }

    pub(super) fn timer(self, timer: Timer) -> Self {
        match timer {
            Timer::Slice(core) => self.detail(0).place(core.0),
            Timer::Wake(vcpu) => Self {
                vcpu: vcpu.0,
                ..self.detail(1)
            },
            Timer::Periodic(vcpu) => Self {
                vcpu: vcpu.0,
                ..self.detail(2)
            },
            Timer::Tick => self.detail(3),
            Timer::Period => self.detail(4),
            Timer::Policy => self.detail(5),
            Timer::Grace(core) => self.detail(6).place(core.0),
        }
    }

    pub(super) fn get_timer(&self) -> Option<Timer> {
        Some(match self.detail {
            0 => Timer::Slice(CoreId(self.place)),
            1 => Timer::Wake(VcpuId(self.vcpu)),
            2 => Timer::Periodic(VcpuId(self.vcpu)),
            3 => Timer::Tick,
            4 => Timer::Period,
            5 => Timer::Policy,
            6 => Timer::Grace(CoreId(self.place)),
            _ => return None,
        })
    }

    pub(super) fn block_on(self, on: BlockOn) -> Self {
        match on {
            BlockOn::Idle => self.detail(0),
            BlockOn::Sleep(until) => self.detail(1).value(until.0),
            BlockOn::Host(until) => self.detail(2).value(until.0),
        }
    }

    pub(super) fn get_block_on(&self) -> Option<BlockOn> {
        Some(match self.detail {
            0 => BlockOn::Idle,
            1 => BlockOn::Sleep(Nanos(self.value)),
            2 => BlockOn::Host(Nanos(self.value)),
            _ => return None,
        })
    }

    pub(super) fn waits(self, waits: Waits) -> Self {
        match waits {
            Waits::Idle => self.detail(0),
            Waits::Sleep => self.detail(1),
            Waits::Host => self.detail(2),
            Waits::HostLock(lock, owner) => self.detail(3).place(lock.0).other(Some(owner.0)),
            Waits::GuestLock(lock) => self.detail(4).value(u64::from(lock.0)),
        }
    }

    pub(super) fn get_waits(&self) -> Option<Waits> {
        Some(match self.detail {
            0 => Waits::Idle,
            1 => Waits::Sleep,
            2 => Waits::Host,
            3 => Waits::HostLock(HostLockId(self.place), VcpuId(self.other)),
            4 => Waits::GuestLock(self.get_guest_lock()?),
            _ => return None,
        })
    }

    pub(super) fn wake_source(self, by: WakeSource) -> Self {
        match by {
            WakeSource::Timer => self.detail(0),
            WakeSource::Interrupt(from) => self.detail(1).other(from.map(|vcpu| vcpu.0)),
            WakeSource::HostLock(from) => self.detail(2).other(Some(from.0)),
            WakeSource::GuestLock(from) => self.detail(3).other(Some(from.0)),
        }
    }

    pub(super) fn get_wake_source(&self) -> Option<WakeSource> {
        Some(match self.detail {
            0 => WakeSource::Timer,
            1 => WakeSource::Interrupt(self.get_other().map(VcpuId)),
            2 => WakeSource::HostLock(VcpuId(self.other)),
            3 => WakeSource::GuestLock(VcpuId(self.other)),
            _ => return None,
        })
    }

    pub(super) fn standing(self, standing: Standing) -> Self {
        let flags = [
            (standing.kernel_priority, KERNEL_PRIORITY),
            (standing.boosted, BOOSTED),
            (standing.costopped, COSTOPPED),
        ];
        let set = flags.into_iter().filter(|(is_set, _)| *is_set);
        Self {
            flags: set.map(|(_, flag)| flag).sum(),
            ..self
        }
    }

    pub(super) fn get_standing(&self) -> Standing {
        Standing {
            kernel_priority: self.flags & KERNEL_PRIORITY != 0,
            boosted: self.flags & BOOSTED != 0,
            costopped: self.flags & COSTOPPED != 0,
        }
    }
}
