//! Locks inside the hypervisor: who holds them and who waits.
//!
//! Three kinds; the first use of a lock decides which it is:
//!
//! * plain: handed directly to the waiter that came first, so never free while somebody waits;
//! * mutex: released, then all that waited are woken and try again, so the first that runs has it;
//! * reader-writer: handed directly. A reader waits for a writer that holds it or waits for it, a
//!   writer for everybody. The last reader hands it to the best writer. A writer hands it to all
//!   readers that rank no lower than the best writer, or to that writer if there are none.
//!
//! Ranks are the policy's; among equals the first that came goes first. What wakes, and what a request
//! for kernel priority does, is decided above. A waiter blocks at once: it does not spin first.

use crate::ids::{HostLockId, VcpuId};
use crate::input::{HostMode, KernelPriority};
use std::cmp::Reverse;

/// How a lock is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum How {
    /// As a plain lock.
    Plain,
    /// As one of the others.
    Mode(HostMode),
}

impl How {
    /// Whether who holds it so is known by name to those that wait, and can inherit from them.
    pub(super) const fn can_inherit(self) -> bool {
        matches!(self, Self::Mode(HostMode::Mutex | HostMode::Write))
    }

    const fn reads(self) -> bool {
        matches!(self, Self::Mode(HostMode::Read))
    }

    /// Whether both are uses of the same kind of lock.
    const fn fits(self, other: Self) -> bool {
        matches!(
            (self, other),
            (Self::Plain, Self::Plain)
                | (Self::Mode(HostMode::Mutex), Self::Mode(HostMode::Mutex))
                | (
                    Self::Mode(HostMode::Read | HostMode::Write),
                    Self::Mode(HostMode::Read | HostMode::Write)
                )
        )
    }
}

/// Who has a lock, or wants it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Claim {
    pub(super) vcpu: VcpuId,
    pub(super) how: How,
    pub(super) priority: KernelPriority,
}

#[derive(Debug, Default)]
struct Lock {
    /// The first use, which decides the kind.
    first: Option<How>,
    /// Several only if all read.
    holders: Vec<Claim>,
    waiters: Vec<Claim>,
}

/// What came of asking for a lock.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Acquire {
    /// It was free.
    Taken,
    /// It is held by this one (and maybe others); the asker was put in the queue.
    Held(VcpuId),
    /// The asker holds it already, there is no such lock, or it is of another kind: nothing changed.
    Misused,
}

/// What came of a release.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Released {
    /// How it was held.
    pub(super) held: Claim,
    /// Those that own it now.
    pub(super) owners: Vec<Claim>,
    /// Those that are to try again.
    pub(super) retry: Vec<Claim>,
}

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

    pub(super) fn acquire(&mut self, lock: HostLockId, claim: Claim) -> Acquire {
        let Some(lock) = self.locks.get_mut(lock.index()) else {
            return Acquire::Misused;
        };
        let kind = *lock.first.get_or_insert(claim.how);
        let holds = lock.holders.iter().any(|holder| holder.vcpu == claim.vcpu);
        if holds || !kind.fits(claim.how) {
            return Acquire::Misused;
        }
        match lock.holders.first() {
            Some(holder) if !lock.joins(claim.how) => {
                let holder = holder.vcpu;
                lock.waiters.push(claim);
                Acquire::Held(holder)
            }
            _ => {
                lock.holders.push(claim);
                Acquire::Taken
            }
        }
    }

    /// Who holds the lock: the first, if several read.
    pub(super) fn holder(&self, lock: HostLockId) -> Option<VcpuId> {
        let lock = self.locks.get(lock.index())?;
        lock.holders.first().map(|claim| claim.vcpu)
    }

    /// Releases a lock; none if `vcpu` does not hold it.
    pub(super) fn release(
        &mut self,
        lock: HostLockId,
        vcpu: VcpuId,
        rank: impl Fn(VcpuId) -> u8,
    ) -> Option<Released> {
        let lock = self.locks.get_mut(lock.index())?;
        let place = lock.holders.iter().position(|holder| holder.vcpu == vcpu)?;
        let held = lock.holders.remove(place);
        let mut released = Released {
            held,
            owners: Vec::new(),
            retry: Vec::new(),
        };
        if !lock.holders.is_empty() {
            return Some(released);
        }
        match held.how {
            How::Plain if !lock.waiters.is_empty() => {
                released.owners.push(lock.waiters.remove(0));
            }
            How::Plain => {}
            How::Mode(HostMode::Mutex) => released.retry = std::mem::take(&mut lock.waiters),
            How::Mode(mode) => released.owners = lock.hand_over(mode, rank),
        }
        lock.holders.clone_from(&released.owners);
        Some(released)
    }

    /// Takes a vCPU out of every queue and names the locks that it holds.
    pub(super) fn forget(&mut self, vcpu: VcpuId) -> Vec<HostLockId> {
        let mut held = Vec::new();
        for (index, lock) in self.locks.iter_mut().enumerate() {
            lock.waiters.retain(|waiter| waiter.vcpu != vcpu);
            if lock.holders.iter().any(|holder| holder.vcpu == vcpu) {
                held.extend(u16::try_from(index).map(HostLockId));
            }
        }
        held
    }

    /// After a waiting writer is gone: the readers that only it kept from joining others.
    pub(super) fn admit_readers(&mut self) -> Vec<(HostLockId, Claim)> {
        let mut admitted = Vec::new();
        for (index, lock) in self.locks.iter_mut().enumerate() {
            let reads = |claim: &Claim| claim.how.reads();
            let blocked = !lock.waiters.is_empty() && lock.waiters.iter().all(reads);
            if let (true, true, Ok(id)) = (
                blocked,
                lock.holders.iter().all(reads),
                u16::try_from(index).map(HostLockId),
            ) {
                admitted.extend(lock.waiters.iter().map(|claim| (id, *claim)));
                lock.holders.append(&mut lock.waiters);
            }
        }
        admitted
    }
}

impl Lock {
    /// Whether one more can hold it beside those that do.
    fn joins(&self, how: How) -> bool {
        let reads = |claim: &Claim| claim.how.reads();
        how.reads() && self.holders.iter().all(reads) && self.waiters.iter().all(reads)
    }

    /// The new owners of a reader-writer lock that was held in this mode.
    fn hand_over(&mut self, was: HostMode, rank: impl Fn(VcpuId) -> u8) -> Vec<Claim> {
        let writers = self.waiters.iter().enumerate();
        let writers = writers.filter(|(_, claim)| !claim.how.reads());
        // The first among equals: the place counts backwards.
        let best = writers.max_by_key(|(place, claim)| (rank(claim.vcpu), Reverse(*place)));
        let best = best.map(|(place, claim)| (place, rank(claim.vcpu)));
        let joins = |claim: &Claim| {
            let beside = match best {
                Some((_, least)) => was == HostMode::Write && rank(claim.vcpu) >= least,
                None => true,
            };
            claim.how.reads() && beside
        };
        let mut readers: Vec<_> = self.waiters.iter().copied().filter(joins).collect();
        if let (true, Some((place, _))) = (readers.is_empty(), best) {
            return vec![self.waiters.remove(place)];
        }
        self.waiters
            .retain(|claim| !readers.iter().any(|reader| reader.vcpu == claim.vcpu));
        readers.sort_by_key(|claim| Reverse(rank(claim.vcpu)));
        readers
    }
}

#[cfg(test)]
#[path = "host_locks_tests.rs"]
mod tests;
