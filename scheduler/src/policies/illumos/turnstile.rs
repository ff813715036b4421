//! Turnstiles: who waits for a host lock lends its priority to the owner.
//!
//! 1. Who blocks wills its dispatch priority to the owner of the lock, that owner to the owner of the
//!    lock that it waits for itself, and so on. A link has no effect if what is willed is not better
//!    than the owner's own priority; the walk goes on all the same.
//! 2. What a thread has inherited is the best of what was willed to it through each lock that it owns.
//!    Its dispatch priority is that or its own, whichever is better.
//! 3. With the release of a lock, what was willed through it is gone. A new owner to whom the lock is
//!    handed inherits from those that still wait for it.
//! 4. A lock that is held by readers has no owner: readers never inherit, and the walk ends there.
//! 5. A circle of waiters ends the walk (the original panics: such a program waits for ever).
//!
//! Plain locks have no owner here either: only mutexes and writers inherit.
//!
//! Source: illumos `os/turnstile.c`, `os/rwlock.c`, by their behaviour.

use crate::ids::{HostLockId, VcpuId};

#[derive(Clone, Default, Debug)]
struct Lock {
    owner: Option<VcpuId>,
    waiters: Vec<VcpuId>,
    /// What the owner inherits through this lock; 0 for nothing.
    willed: u8,
}

#[derive(Clone, Default, Debug)]
struct Seat {
    waits_for: Option<HostLockId>,
    /// What it has inherited; 0 for nothing.
    inherited: u8,
}

/// All turnstiles.
#[derive(Debug)]
pub(in crate::policies) struct Turnstiles {
    on: bool,
    locks: Vec<Lock>,
    seats: Vec<Seat>,
}

impl Turnstiles {
    pub(in crate::policies) const fn new(on: bool) -> Self {
        Self {
            on,
            locks: Vec::new(),
            seats: Vec::new(),
        }
    }

    /// One more thread, in order of id.
    pub(in crate::policies) fn add(&mut self) {
        self.seats.push(Seat::default());
    }

    fn lock(&mut self, lock: HostLockId) -> &mut Lock {
        if self.locks.len() <= lock.index() {
            self.locks.resize(lock.index() + 1, Lock::default());
        }
        &mut self.locks[lock.index()]
    }

    /// The dispatch priority of a thread with this priority of its own.
    pub(in crate::policies) fn over(&self, vcpu: VcpuId, own: u8) -> u8 {
        own.max(self.seats[vcpu.index()].inherited)
    }

    /// The thread waits for the lock: the answer is whose dispatch priority is better now. `own` is
    /// what everybody has of its own.
    pub(in crate::policies) fn wait(
        &mut self,
        vcpu: VcpuId,
        lock: HostLockId,
        own: impl Fn(VcpuId) -> u8,
    ) -> Vec<VcpuId> {
        let mut raised = Vec::new();
        if !self.on {
            return raised;
        }
        self.lock(lock).waiters.push(vcpu);
        self.seats[vcpu.index()].waits_for = Some(lock);
        let mut from = vcpu;
        // No chain is longer than there are threads: one that is has a circle in it.
        for _ in 0..self.seats.len() {
            let Some(lock) = self.seats[from.index()].waits_for else {
                break;
            };
            let Some(owner) = self.lock(lock).owner.filter(|owner| *owner != vcpu) else {
                break;
            };
            let willed = self.over(from, own(from));
            if willed > own(owner) {
                let before = self.over(owner, own(owner));
                let through = &mut self.lock(lock).willed;
                *through = willed.max(*through);
                self.inherit(owner);
                if self.over(owner, own(owner)) > before {
                    raised.push(owner);
                }
            }
            from = owner;
        }
        raised
    }

    /// The best of what was willed to the thread through all its locks.
    fn inherit(&mut self, owner: VcpuId) {
        let own = self.locks.iter().filter(|lock| lock.owner == Some(owner));
        let best = own.map(|lock| lock.willed).max();
        self.seats[owner.index()].inherited = best.unwrap_or(0);
    }

    /// The thread waits no longer.
    pub(in crate::policies) fn awake(&mut self, vcpu: VcpuId) {
        if let Some(lock) = self.seats[vcpu.index()].waits_for.take() {
            self.lock(lock).waiters.retain(|waiter| *waiter != vcpu);
        }
    }

    /// The thread owns the lock alone.
    pub(in crate::policies) fn taken(
        &mut self,
        vcpu: VcpuId,
        lock: HostLockId,
        own: impl Fn(VcpuId) -> u8,
    ) {
        if !self.on {
            return;
        }
        self.awake(vcpu);
        let waiters = &self.lock(lock).waiters.clone();
        let best = waiters
            .iter()
            .map(|waiter| self.over(*waiter, own(*waiter)));
        let willed = best.max().filter(|best| *best > own(vcpu)).unwrap_or(0);
        let lock = self.lock(lock);
        (lock.owner, lock.willed) = (Some(vcpu), willed);
        self.inherit(vcpu);
    }

    /// The thread, which owned the lock alone, has released it: whether it has lost what it had
    /// inherited, or some of it.
    pub(in crate::policies) fn released(&mut self, vcpu: VcpuId, lock: HostLockId) -> bool {
        if !self.on {
            return false;
        }
        let released = self.lock(lock);
        (released.owner, released.willed) = (None, 0);
        let before = self.seats[vcpu.index()].inherited;
        self.inherit(vcpu);
        self.seats[vcpu.index()].inherited < before
    }
}

#[cfg(test)]
#[path = "turnstile_tests.rs"]
mod tests;
