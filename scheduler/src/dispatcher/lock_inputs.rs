//! Host locks: taking, waiting, releasing, and what the policy is told of it.

use super::host_locks::{Acquire, Claim};
use super::{Dispatcher, Output, State};
use crate::event::{EventKind, PreemptReason, Waits, WakeSource};
use crate::ids::{CoreId, HostLockId, VcpuId};
use crate::input::KernelPriority;
use crate::policy::{Inherited, KernelRequest, Resched};

impl Dispatcher {
    pub(super) fn host_lock(&mut self, lock: HostLockId, claim: Claim, out: &mut Output) {
        if self.running_on(claim.vcpu).is_none() {
            return;
        }
        match self.locks.acquire(lock, claim) {
            Acquire::Taken => self.own_host_lock(lock, claim, out),
            Acquire::Held(owner) => {
                self.block_on(claim.vcpu, Waits::HostLock(lock, owner), out);
            }
            Acquire::Misused => {}
        }
    }

    fn own_host_lock(&mut self, lock: HostLockId, claim: Claim, out: &mut Output) {
        let vcpu = claim.vcpu;
        self.emit(out, vcpu, EventKind::HostLockTaken(lock));
        if claim.how.can_inherit() {
            self.policy.lock_taken(self.now, vcpu, lock);
        }
        if claim.priority == KernelPriority::Asked {
            self.policy
                .kernel_priority(self.now, vcpu, KernelRequest::Begin);
        }
        self.note_standing(vcpu, out);
    }

    pub(super) fn host_unlock(&mut self, vcpu: VcpuId, lock: HostLockId, out: &mut Output) {
        let policy = &self.policy;
        let rank = |vcpu| policy.lock_rank(vcpu);
        let Some(released) = self.locks.release(lock, vcpu, rank) else {
            return;
        };
        self.emit(out, vcpu, EventKind::HostLockReleased(lock));
        let gone = self.vcpus[vcpu.index()].state == State::Retired;
        if released.held.priority == KernelPriority::Asked && !gone {
            self.policy
                .kernel_priority(self.now, vcpu, KernelRequest::End);
            self.note_standing(vcpu, out);
        }
        if released.held.how.can_inherit() {
            let inherited = self.policy.lock_released(self.now, vcpu, lock);
            self.inherited(inherited, PreemptReason::PriorityDrop, out);
        }
        // A new owner's request counts before it wakes: it competes as an owner.
        for claim in released.owners {
            self.hand_over(lock, claim, vcpu, out);
        }
        for claim in released.retry {
            self.vcpu(claim.vcpu).retry = Some((lock, claim));
            self.wake(claim.vcpu, WakeSource::HostLock(vcpu), out);
        }
        // Who waits behind the last owner waits for another one now.
        self.rouse(vcpu, out);
    }

    fn hand_over(&mut self, lock: HostLockId, claim: Claim, from: VcpuId, out: &mut Output) {
        self.own_host_lock(lock, claim, out);
        self.wake(claim.vcpu, WakeSource::HostLock(from), out);
    }

    /// A vCPU is gone: its locks go on to others, and it is in nobody's way any more.
    pub(super) fn forget_locks(&mut self, vcpu: VcpuId, out: &mut Output) {
        for lock in self.locks.forget(vcpu) {
            self.host_unlock(vcpu, lock, out);
        }
        for (lock, claim) in self.locks.admit_readers() {
            self.hand_over(lock, claim, vcpu, out);
        }
    }

    /// The policy is told that a vCPU that has just left its core waits for a lock.
    pub(super) fn will(&mut self, vcpu: VcpuId, on: Waits) -> Inherited {
        match on {
            Waits::HostLock(lock, _) => self.policy.lock_wait(self.now, vcpu, lock),
            _ => Inherited::default(),
        }
    }

    pub(super) fn inherited(&mut self, by: Inherited, why: PreemptReason, out: &mut Output) {
        let Inherited { vcpus, resched } = by;
        for vcpu in vcpus {
            self.note_standing(vcpu, out);
        }
        let Resched(cores) = resched;
        for core in cores {
            self.kick(core, why, out);
        }
    }

    /// Whether a vCPU that was just picked for the core can go on: if it was woken to try a mutex
    /// again and finds it taken, it goes back to wait without having run.
    pub(super) fn goes_on(&mut self, core: CoreId, vcpu: VcpuId, out: &mut Output) -> bool {
        let Some((lock, claim)) = self.vcpu(vcpu).retry.take() else {
            return true;
        };
        match self.locks.acquire(lock, claim) {
            Acquire::Taken => {
                self.own_host_lock(lock, claim, out);
                true
            }
            Acquire::Misused => true,
            Acquire::Held(owner) => {
                let on = Waits::HostLock(lock, owner);
                self.emit(out, vcpu, EventKind::Blocked(on));
                self.waits_again(core, vcpu, on, out);
                let inherited = self.will(vcpu, on);
                self.note_standing(vcpu, out);
                self.inherited(inherited, PreemptReason::Wakeup, out);
                false
            }
        }
    }
}
