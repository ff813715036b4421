//! Who waits for whom.

use super::{Dispatcher, Output, State};
use crate::event::{PreemptReason, Waits};
use crate::ids::{CoreId, GuestLockId, VcpuId};
use crate::layers::Chain;
use crate::policy::Enqueue;

/// What is at the end of a chain of waits.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// A vCPU that could run and is off core.
    Runnable(VcpuId),
    /// One that has a core, or is on the way to it.
    OnCore(VcpuId),
    /// One that waits for something that is no lock, or spins in vain: a turn is of no use to it.
    Stuck(VcpuId),
    /// Nobody: the lock is free, or its owner is not known.
    Free,
    /// The chain comes back to itself.
    Circle,
}

impl Dispatcher {
    /// The rules for the turns of those that wait, if they lend them.
    pub(super) const fn chain(&self) -> Option<Chain> {
        match self.layers.chain {
            Some(chain) if chain.lends => Some(chain),
            _ => None,
        }
    }

    /// Whether a wait is one for a lock, which a chain can be followed through.
    pub(super) const fn lends(&self, on: Waits) -> bool {
        self.chain().is_some() && matches!(on, Waits::HostLock(..) | Waits::GuestLock(_))
    }

    /// The owner of the lock that a vCPU waits for, asleep or spinning. Of a guest lock only while its word
    /// is that it waits for it: one that sleeps, or is on the way to, may have been given the lock meanwhile.
    /// Then nobody may be left of whom it is known that they wait, and who owns the lock is not told.
    pub(super) fn waits_for(&self, vcpu: VcpuId) -> Option<VcpuId> {
        let entry = &self.vcpus[vcpu.index()];
        let owner = match (entry.waits(), entry.retry) {
            (Some(Waits::HostLock(lock, _)), _) | (None, Some((lock, _))) => {
                self.locks.holder(lock)
            }
            (Some(Waits::GuestLock(_)), _) | (None, None) => {
                let lock = entry.guest.waits_for;
                lock.and_then(|lock| self.guest_owners.get(&lock).copied())
            }
            (Some(_), _) => None,
        };
        let gone = |owner: VcpuId| {
            matches!(
                self.vcpus[owner.index()].state,
                State::Retired | State::Unborn
            )
        };
        owner.filter(|owner| *owner != vcpu && owner.index() < self.vcpus.len() && !gone(*owner))
    }

    /// Follows a waiter to the end of its chain.
    pub(super) fn chain_end(&self, from: VcpuId) -> End {
        let mut at = from;
        for _ in 0..=self.vcpus.len() {
            let Some(owner) = self.waits_for(at) else {
                return if at == from {
                    End::Free
                } else {
                    self.end_at(at)
                };
            };
            at = owner;
        }
        End::Circle
    }

    fn end_at(&self, vcpu: VcpuId) -> End {
        let entry = &self.vcpus[vcpu.index()];
        match entry.state {
            // It has the lock, and its wake-up is on the way; or it spins, and nobody knows whom for.
            State::Ready if entry.sleeps.is_some() || entry.spins_in_vain() => End::Stuck(vcpu),
            State::Ready => End::Runnable(vcpu),
            // A donor that waits no more has asked for its core back.
            State::Granted(..) | State::Running(_) | State::Lent(_) => End::OnCore(vcpu),
            State::Aside | State::Blocked(_) => End::Stuck(vcpu),
            State::Unborn | State::Retired => End::Free,
        }
    }

    /// A vCPU that the policy has just picked for the core finds that it still has to wait, asleep.
    pub(super) fn waits_again(&mut self, core: CoreId, vcpu: VcpuId, on: Waits, out: &mut Output) {
        if !self.lends(on) {
            self.put(vcpu, State::Blocked(on));
            self.policy.block(self.now, core, vcpu, on);
            return;
        }
        self.vcpu(vcpu).sleeps = Some(on);
        match self.chain_end(vcpu) {
            End::Runnable(_) => {
                let why = Enqueue::Preempted(core, PreemptReason::LockWait);
                let _ = self.requeue(vcpu, why, out);
            }
            End::OnCore(owner) | End::Stuck(owner) => self.set_aside(core, vcpu, Some(owner)),
            End::Free | End::Circle => self.set_aside(core, vcpu, None),
        }
    }

    /// A lock that may have been free has an owner: who sleeps for it, behind nobody, lends to that
    /// one from now on.
    pub(super) fn line_up(&mut self, lock: GuestLockId, out: &mut Output) {
        let on = Waits::GuestLock(lock);
        if !self.lends(on) {
            return;
        }
        let members = self.vms.get(lock.vm().index());
        let idle = |vcpu: &&VcpuId| {
            let entry = &self.vcpus[vcpu.index()];
            entry.state == State::Blocked(on) && entry.behind.is_none()
        };
        let sleepers: Vec<_> = members
            .into_iter()
            .flatten()
            .filter(idle)
            .copied()
            .collect();
        for vcpu in sleepers {
            match self.chain_end(vcpu) {
                End::Runnable(_) => {
                    let home = self.requeue(vcpu, Enqueue::Wake, out);
                    self.consider_if_ready(home, vcpu, out);
                }
                End::OnCore(owner) | End::Stuck(owner) => self.go_behind(vcpu, Some(owner)),
                End::Free | End::Circle => {}
            }
        }
    }
}

impl super::Vcpu {
    /// What it waits for, asleep.
    pub(super) fn waits(&self) -> Option<Waits> {
        match self.state {
            State::Blocked(on) => Some(on),
            _ => self.sleeps,
        }
    }

    /// Whether whom it spins for is not helped by a turn that is lent to it, because nobody knows who that is.
    /// One window does not tell: the lock may have come free as it ended, and it takes it with its next turn.
    pub(super) const fn spins_in_vain(&self) -> bool {
        self.windows_in_vain > 1
    }
}
