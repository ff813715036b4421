//! Locks inside the hypervisor: who holds them and who waits.
//!
//! A lock is handed directly to the waiter that came first, so that a lock is never free while
//! somebody waits for it. What wakes, and what a request for kernel priority does, is decided above.

use crate::ids::{HostLockId, VcpuId};
use crate::input::KernelPriority;
use std::collections::VecDeque;

#[derive(Debug, Default)]
struct Lock {
    owner: Option<(VcpuId, KernelPriority)>,
    waiters: VecDeque<(VcpuId, KernelPriority)>,
}

/// What came of asking for a lock.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Acquire {
    /// It was free.
    Taken,
    /// It is held by this one; the asker was put in the queue.
    Held(VcpuId),
    /// The asker holds it already, or there is no such lock: nothing changed.
    Misused,
}

/// The new owner of a released lock.
pub(super) type HandOff = Option<(VcpuId, KernelPriority)>;

#[derive(Debug)]
pub(super) struct HostLocks {
    locks: Vec<Lock>,
}

impl HostLocks {
    pub(super) fn new(count: u16) -> Self {
        Self {
            locks: (0..count).map(|_| Lock::default()).collect(),
        }
    }

    pub(super) fn acquire(
        &mut self,
        lock: HostLockId,
        vcpu: VcpuId,
        priority: KernelPriority,
    ) -> Acquire {
        let Some(lock) = self.locks.get_mut(lock.index()) else {
            return Acquire::Misused;
        };
        match lock.owner {
            None => {
                lock.owner = Some((vcpu, priority));
                Acquire::Taken
            }
            Some((owner, _)) if owner == vcpu => Acquire::Misused,
            Some((owner, _)) => {
                lock.waiters.push_back((vcpu, priority));
                Acquire::Held(owner)
            }
        }
    }

    /// Releases a lock. `None` if `vcpu` does not hold it; else how it was held, and the new owner.
    pub(super) fn release(
        &mut self,
        lock: HostLockId,
        vcpu: VcpuId,
    ) -> Option<(KernelPriority, HandOff)> {
        let lock = self.locks.get_mut(lock.index())?;
        let (_, held) = lock.owner.filter(|(owner, _)| *owner == vcpu)?;
        lock.owner = lock.waiters.pop_front();
        Some((held, lock.owner))
    }

    /// Takes a vCPU out of every queue and names the locks that it holds.
    pub(super) fn forget(&mut self, vcpu: VcpuId) -> Vec<HostLockId> {
        let mut held = Vec::new();
        for (index, lock) in self.locks.iter_mut().enumerate() {
            lock.waiters.retain(|(waiter, _)| *waiter != vcpu);
            if lock.owner.is_some_and(|(owner, _)| owner == vcpu) {
                held.extend(u16::try_from(index).map(HostLockId));
            }
        }
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use KernelPriority::{Asked, NotAsked};

    const L: HostLockId = HostLockId(0);

    #[test]
    fn a_released_lock_goes_to_the_first_that_waited() {
        let mut locks = HostLocks::new(1);
        assert_eq!(locks.acquire(L, VcpuId(0), NotAsked), Acquire::Taken);
        assert_eq!(locks.acquire(L, VcpuId(1), Asked), Acquire::Held(VcpuId(0)));
        assert_eq!(
            locks.acquire(L, VcpuId(2), NotAsked),
            Acquire::Held(VcpuId(0))
        );
        assert_eq!(
            locks.release(L, VcpuId(0)),
            Some((NotAsked, Some((VcpuId(1), Asked))))
        );
        assert_eq!(
            locks.release(L, VcpuId(1)),
            Some((Asked, Some((VcpuId(2), NotAsked))))
        );
        assert_eq!(locks.release(L, VcpuId(2)), Some((NotAsked, None)));
    }

    #[test]
    fn only_the_owner_can_release_and_nobody_can_take_a_lock_twice() {
        let mut locks = HostLocks::new(1);
        assert_eq!(locks.release(L, VcpuId(0)), None);
        assert_eq!(locks.acquire(L, VcpuId(0), NotAsked), Acquire::Taken);
        assert_eq!(locks.acquire(L, VcpuId(0), NotAsked), Acquire::Misused);
        assert_eq!(locks.release(L, VcpuId(1)), None);
        assert_eq!(
            locks.acquire(HostLockId(9), VcpuId(0), NotAsked),
            Acquire::Misused
        );
    }

    #[test]
    fn a_vcpu_that_is_gone_waits_for_nothing_and_its_locks_are_named() {
        let mut locks = HostLocks::new(2);
        assert_eq!(locks.acquire(L, VcpuId(0), NotAsked), Acquire::Taken);
        assert_eq!(
            locks.acquire(L, VcpuId(1), NotAsked),
            Acquire::Held(VcpuId(0))
        );
        assert_eq!(locks.forget(VcpuId(1)), vec![]);
        assert_eq!(locks.forget(VcpuId(0)), vec![L]);
        assert_eq!(locks.release(L, VcpuId(0)), Some((NotAsked, None)));
    }
}
