//! Guest locks: who owns them, who sleeps for them, who wakes whom.

use super::{Dispatcher, Output, State};
use crate::event::{EventKind, Owns, Waits, WakeSource};
use crate::ids::{GuestLockId, VcpuId};

impl Dispatcher {
    pub(super) fn guest_owner(
        &mut self,
        lock: GuestLockId,
        owner: Option<VcpuId>,
        out: &mut Output,
    ) {
        let before = match owner {
            Some(owner) => self.guest_owners.insert(lock, owner),
            None => self.guest_owners.remove(&lock),
        };
        let changes = [(before, Owns::NoLonger), (owner, Owns::Yes)];
        if before != owner {
            for (vcpu, owns) in changes {
                if let Some(vcpu) = vcpu {
                    self.emit(out, vcpu, EventKind::GuestOwner { lock, owns });
                }
            }
            // Who waits behind the last owner may be waiting for another one now.
            if let Some(before) = before {
                self.not_in_a_circle(before);
                self.rouse(before, out);
            }
            self.line_up(lock, out);
            self.no_longer_in_vain(lock, out);
        }
    }

    /// Something is known of a lock: whom those that spin for it spin for, or that one of them may have it.
    fn no_longer_in_vain(&mut self, lock: GuestLockId, out: &mut Output) {
        let members = self.vms.get(lock.vm().index()).into_iter().flatten();
        let counts = |vcpu: &&VcpuId| {
            let entry = &self.vcpus[vcpu.index()];
            entry.windows_in_vain > 0 && entry.guest.waits_for == Some(lock)
        };
        let spinners: Vec<_> = members.filter(counts).copied().collect();
        for vcpu in spinners {
            let in_vain = self.vcpus[vcpu.index()].spins_in_vain();
            self.vcpu(vcpu).windows_in_vain = 0;
            if in_vain {
                self.rouse(vcpu, out);
            }
        }
    }

    /// The guest wants to sleep. It does not if it was woken meanwhile.
    pub(super) fn guest_wait(&mut self, vcpu: VcpuId, lock: GuestLockId, out: &mut Output) {
        if self.running_on(vcpu).is_none() || std::mem::take(&mut self.vcpu(vcpu).woken_early) {
            return;
        }
        self.block_on(vcpu, Waits::GuestLock(lock), out);
        self.look_for_deadlock(vcpu, out);
    }

    pub(super) fn guest_wake(
        &mut self,
        vcpu: VcpuId,
        by: VcpuId,
        _lock: GuestLockId,
        out: &mut Output,
    ) {
        let Some(entry) = self.vcpus.get(vcpu.index()) else {
            return;
        };
        match entry.state {
            State::Unborn | State::Retired => {}
            _ if matches!(entry.waits(), Some(Waits::GuestLock(_))) => {
                self.wake(vcpu, WakeSource::GuestLock(by), out);
            }
            _ => self.vcpu(vcpu).woken_early = true,
        }
    }
}
