//! Guest locks of scripted vCPUs, all of one VM: handed on to who lent its turn, else to the first in
//! line, which is passed over no oftener than by a guest's own mutex. Even numbers sleep, odd ones spin.
//! The dispatcher is told of every change at once.

use super::World;
use crate::ids::{GuestLockId, VcpuId, VmId};
use crate::input::{GuestLocks, Input};
use crate::time::Nanos;
use std::collections::VecDeque;
use stealtime_guest::lock::PASSED_OVER;

/// How long a spinner spins before it says so.
pub(crate) const WINDOW: Nanos = Nanos::from_micros(50);

#[derive(Debug, Default)]
pub(super) struct Lock {
    pub(super) owner: Option<VcpuId>,
    pub(super) line: VecDeque<VcpuId>,
    /// How often in a row the first in line was passed over for a donor.
    passed_over: u32,
}

/// What a vCPU has to do with locks.
#[derive(Debug, Default)]
pub(super) struct Seat {
    held: u16,
    waits_for: Option<u16>,
    pub(super) owed: bool,
    pub(super) donor: Option<VcpuId>,
}

const fn name(lock: u16) -> GuestLockId {
    GuestLockId::new(VmId(0), lock)
}

const fn sleeps(lock: u16) -> bool {
    lock.is_multiple_of(2)
}

impl World {
    /// A spinner whose window is over says so and goes on.
    pub(super) fn still_spins(&mut self, vcpu: VcpuId) -> bool {
        let machine = &mut self.vcpus[vcpu.index()];
        let Some(lock) = machine.guest.waits_for.filter(|lock| !sleeps(*lock)) else {
            return false;
        };
        machine.left = WINDOW;
        let lock = name(lock);
        self.tell(Input::SpunTooLong { vcpu, lock });
        true
    }

    pub(super) fn take_guest_lock(&mut self, vcpu: VcpuId, number: u16) {
        let lock = self.guest_locks.entry(number).or_default();
        if lock.owner.is_none() {
            lock.owner = Some(vcpu);
            self.vcpus[vcpu.index()].guest.held += 1;
            self.tell_locks(vcpu);
            return;
        }
        lock.line.push_back(vcpu);
        self.vcpus[vcpu.index()].guest.waits_for = Some(number);
        self.tell_locks(vcpu);
        self.tell_owner(number);
        if sleeps(number) {
            let lock = name(number);
            self.tell(Input::GuestWait { vcpu, lock });
        } else {
            self.vcpus[vcpu.index()].left = WINDOW;
        }
    }

    pub(super) fn release_guest_lock(&mut self, vcpu: VcpuId, number: u16) {
        let donor = self.vcpus[vcpu.index()].guest.donor;
        let lock = self.guest_locks.get_mut(&number).expect("it is held");
        assert_eq!(
            lock.owner,
            Some(vcpu),
            "lock {number} is released by its owner"
        );
        let lent = lock.line.iter().position(|next| Some(*next) == donor);
        let place = lent.filter(|_| lock.passed_over < PASSED_OVER).unwrap_or(0);
        lock.passed_over = if place > 0 { lock.passed_over + 1 } else { 0 };
        let next = lock.line.remove(place);
        lock.owner = next;
        self.vcpus[vcpu.index()].guest.held -= 1;
        self.tell_locks(vcpu);
        if let Some(next) = next {
            let machine = &mut self.vcpus[next.index()];
            machine.guest.held += 1;
            machine.guest.waits_for = None;
            machine.load();
            self.tell_locks(next);
        }
        self.tell_owner(number);
        if let Some(next) = next.filter(|_| sleeps(number)) {
            self.tell(Input::GuestWake {
                vcpu: next,
                by: vcpu,
                lock: name(number),
            });
        }
        let seat = &self.vcpus[vcpu.index()].guest;
        if seat.held == 0 && seat.owed {
            self.tell(Input::CriticalLeft { vcpu });
        }
    }

    /// Who waits for a lock that nobody holds: there must be none.
    pub(crate) fn forgotten(&self) -> Option<VcpuId> {
        let free = self
            .guest_locks
            .values()
            .filter(|lock| lock.owner.is_none());
        free.flat_map(|lock| lock.line.front().copied()).next()
    }

    fn tell_locks(&mut self, vcpu: VcpuId) {
        let seat = &self.vcpus[vcpu.index()].guest;
        let locks = GuestLocks {
            held: seat.held,
            critical: 0,
            waits_for: seat.waits_for.map(name),
            in_line: false,
        };
        self.tell(Input::Locks { vcpu, locks });
    }

    fn tell_owner(&mut self, number: u16) {
        let owner = self.guest_locks[&number].owner;
        let lock = name(number);
        self.tell(Input::GuestOwner { lock, owner });
    }
}
