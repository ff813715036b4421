//! The graph of waits: from a vCPU to what it waits for, and from there to those that have it.
//!
//! Locks of the hypervisor and of guests and cores are alike here: something that vCPUs have and
//! others wait for.

use super::scene::{Scene, State};
use stealtime_scheduler::event::Waits;
use stealtime_scheduler::ids::{CoreId, GuestLockId, HostLockId, VcpuId, VmId};

/// What a vCPU waits for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Wanted {
    HostLock(HostLockId),
    GuestLock(GuestLockId),
    Core(CoreId),
    /// That this one moves: it is in no queue until then.
    Vcpu(VcpuId),
}

/// A scene, and to which VM every vCPU belongs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Graph<'a> {
    pub(super) scene: &'a Scene,
    pub(super) vms: &'a [VmId],
}

fn id(index: usize) -> VcpuId {
    VcpuId(u32::try_from(index).unwrap_or(u32::MAX))
}

impl Graph<'_> {
    /// What a vCPU waits for: a lock before a core, for with a core alone it gets nowhere.
    pub(super) fn wanted(&self, vcpu: VcpuId) -> Option<Wanted> {
        let entry = &self.scene.vcpus[vcpu.index()];
        match (entry.state, entry.wants) {
            (State::Blocked(Waits::HostLock(lock, _)), _) => Some(Wanted::HostLock(lock)),
            // While the hypervisor keeps it, it does not even spin.
            (State::Blocked(Waits::Host | Waits::Idle | Waits::Sleep), _) => None,
            (State::Blocked(Waits::GuestLock(lock)), _) => Some(Wanted::GuestLock(lock)),
            (State::Unborn | State::Retired, _) => None,
            (_, Some((lock, _))) if self.owner(Wanted::GuestLock(lock)).is_some() => {
                Some(Wanted::GuestLock(lock))
            }
            (State::Ready(_), _) => self.turn(vcpu),
            (_, Some((lock, _))) => Some(Wanted::GuestLock(lock)),
            _ => None,
        }
    }

    /// What a ready vCPU waits for: the core on whose queue it is, or whoever it is set aside for.
    pub(super) fn turn(&self, vcpu: VcpuId) -> Option<Wanted> {
        let queued = self.scene.queues.of(vcpu).map(Wanted::Core);
        queued.or_else(|| self.scene.vcpus[vcpu.index()].behind.map(Wanted::Vcpu))
    }

    /// All that have it.
    pub(super) fn owners(&self, wanted: Wanted) -> Vec<VcpuId> {
        match wanted {
            Wanted::HostLock(lock) => {
                let lock = self.scene.host_locks.get(lock.index());
                lock.map_or_else(Vec::new, |lock| lock.owners.clone())
            }
            Wanted::GuestLock(lock) => {
                let known = self.scene.guest_locks.get(&lock);
                known.map_or_else(Vec::new, |lock| lock.owners.clone())
            }
            Wanted::Core(core) => {
                let core = self.scene.cores.get(core.index());
                core.and_then(|core| core.vcpu).into_iter().collect()
            }
            Wanted::Vcpu(vcpu) => vec![vcpu],
        }
    }

    /// The one of them that is in the way: of several the one that is on no core, the longest so.
    /// If a guest does not tell who has its lock, the only one of its vCPUs that has any.
    pub(super) fn owner(&self, wanted: Wanted) -> Option<VcpuId> {
        let told = self.owners(wanted);
        let rank = |vcpu: &VcpuId| {
            let entry = &self.scene.vcpus[vcpu.index()];
            (entry.state.core().is_some(), entry.since, *vcpu)
        };
        let one = told
            .into_iter()
            .filter(|o| o.index() < self.scene.vcpus.len())
            .min_by_key(rank);
        match wanted {
            Wanted::GuestLock(lock) => one.or_else(|| self.only_holder(lock.vm())),
            Wanted::HostLock(_) | Wanted::Core(_) | Wanted::Vcpu(_) => one,
        }
    }

    fn only_holder(&self, vm: VmId) -> Option<VcpuId> {
        let all = self.scene.vcpus.iter().zip(self.vms).enumerate();
        let mut holders = all.filter(|(_, (vcpu, of))| **of == vm && vcpu.guest_locks > 0);
        match (holders.next(), holders.next()) {
            (Some((index, _)), None) => Some(id(index)),
            _ => None,
        }
    }

    /// The locks that a vCPU has.
    pub(super) fn held(&self, vcpu: VcpuId) -> Vec<Wanted> {
        let host = self.scene.vcpus[vcpu.index()].holds.iter();
        let guest = self.scene.guest_locks.iter();
        let guest = guest.filter(|(_, lock)| lock.owners.contains(&vcpu));
        host.map(|(lock, _)| Wanted::HostLock(*lock))
            .chain(guest.map(|(lock, _)| Wanted::GuestLock(*lock)))
            .collect()
    }

    /// All that wait for it.
    pub(super) fn waiters(&self, wanted: Wanted) -> Vec<VcpuId> {
        let waits = |vcpu: &VcpuId| {
            let entry = &self.scene.vcpus[vcpu.index()];
            match wanted {
                Wanted::HostLock(lock) => {
                    matches!(entry.state, State::Blocked(Waits::HostLock(of, _)) if of == lock)
                        || entry.retries == Some(lock)
                }
                Wanted::GuestLock(lock) => entry.wants.is_some_and(|(of, _)| of == lock),
                Wanted::Core(_) | Wanted::Vcpu(_) => {
                    matches!(entry.state, State::Ready(_)) && self.turn(*vcpu) == Some(wanted)
                }
            }
        };
        (0..self.scene.vcpus.len()).map(id).filter(waits).collect()
    }
}
