//! What the classes `fss` and `ts` have in common: priorities as the dispatcher sees them, requests
//! for kernel priority, host locks.
//!
//! A class keeps its threads, by id, beside the queues and the turnstiles. The queues are told of
//! every dispatch priority: a thread's own, or what it has inherited.

use super::{Dispatch, Turnstiles};
use crate::event::Standing;
use crate::ids::{CoreId, HostLockId, VcpuId};
use crate::policy::{Inherited, KernelRequest, Preempt, Resched};
use crate::time::Nanos;

/// A thread as all classes have it.
pub(in crate::policies) trait Member {
    /// Its own priority now.
    fn priority(&self) -> u8;

    /// It has the kernel-priority flag.
    fn flagged(&self) -> bool;

    /// How many requests for kernel priority it has.
    fn requests(&mut self) -> &mut u32;
}

/// How many lists of threads the walk of each second goes through.
pub(in crate::policies) const LISTS: usize = 16;

/// A class of threads. Only the methods without a body are its own.
pub(in crate::policies) trait Class {
    type Thread: Member;

    /// Threads, queues, turnstiles.
    fn parts(&self) -> (&[Self::Thread], &Dispatch, &Turnstiles);

    /// The same, to change.
    fn parts_mut(&mut self) -> (&mut [Self::Thread], &mut Dispatch, &mut Turnstiles);

    /// The list that the next walk begins with.
    fn marker(&mut self) -> &mut usize;

    /// A second has passed for the threads of one list: every [`LISTS`]th from that number on. Whether
    /// it did anything for any of them.
    fn walk(&mut self, now: Nanos, list: usize) -> bool;

    /// A second has passed for all. The next walk begins with the first other list that this one did
    /// anything for.
    fn second(&mut self, now: Nanos) -> Resched {
        let first = *self.marker();
        self.walk(now, first);
        let mut next = None;
        for list in (1..LISTS).map(|step| (first + step) % LISTS) {
            if self.walk(now, list) && next.is_none() {
                next = Some(list);
            }
        }
        *self.marker() = next.unwrap_or(first);
        let (_, dispatch, _) = self.parts();
        dispatch.outranked_cores()
    }

    /// Its own priority, or what it has inherited.
    fn dispatch_priority(&self, vcpu: VcpuId) -> u8 {
        let (threads, _, turnstiles) = self.parts();
        turnstiles.over(vcpu, threads[vcpu.index()].priority())
    }

    /// The priority of a thread has changed: the queues are told.
    fn settle(&mut self, now: Nanos, vcpu: VcpuId) {
        let priority = self.dispatch_priority(vcpu);
        let (_, dispatch, _) = self.parts_mut();
        dispatch.change(now, vcpu, priority);
    }

    /// Inheritance has changed these.
    fn inherited(&mut self, now: Nanos, vcpus: Vec<VcpuId>) -> Inherited {
        for vcpu in &vcpus {
            self.settle(now, *vcpu);
        }
        let (_, dispatch, _) = self.parts();
        let resched = dispatch.outranked_by(&vcpus);
        Inherited { vcpus, resched }
    }

    /// Whether the thread on a core has to make room for somebody better.
    fn outranked(&self, core: CoreId, vcpu: VcpuId) -> Preempt {
        let (_, dispatch, _) = self.parts();
        if dispatch.outranked(core, vcpu) {
            dispatch.surrender(core, vcpu)
        } else {
            Preempt::Keep
        }
    }

    /// Kernel priority is asked for, or given back. The count does not go below zero.
    fn requested(&mut self, vcpu: VcpuId, request: KernelRequest) {
        let (threads, ..) = self.parts_mut();
        let requests = threads[vcpu.index()].requests();
        *requests = match request {
            KernelRequest::Begin => *requests + 1,
            KernelRequest::End => requests.saturating_sub(1),
        };
    }

    /// The thread waits for a host lock.
    fn waits(&mut self, now: Nanos, vcpu: VcpuId, lock: HostLockId) -> Inherited {
        let (threads, _, turnstiles) = self.parts_mut();
        let own = |vcpu: VcpuId| threads[vcpu.index()].priority();
        let raised = turnstiles.wait(vcpu, lock, own);
        self.inherited(now, raised)
    }

    /// The thread owns a host lock.
    fn owns(&mut self, now: Nanos, vcpu: VcpuId, lock: HostLockId) {
        let (threads, _, turnstiles) = self.parts_mut();
        let own = |vcpu: VcpuId| threads[vcpu.index()].priority();
        turnstiles.taken(vcpu, lock, own);
        self.settle(now, vcpu);
    }

    /// The thread has given a host lock back.
    fn releases(&mut self, now: Nanos, vcpu: VcpuId, lock: HostLockId) -> Inherited {
        let (_, _, turnstiles) = self.parts_mut();
        let lost = turnstiles.released(vcpu, lock);
        self.inherited(now, lost.then_some(vcpu).into_iter().collect())
    }

    /// How the thread stands in the eyes of an observer.
    fn stands(&self, vcpu: VcpuId) -> Standing {
        let (threads, ..) = self.parts();
        let thread = &threads[vcpu.index()];
        Standing {
            kernel_priority: thread.flagged(),
            boosted: self.dispatch_priority(vcpu) > thread.priority(),
            ..Standing::default()
        }
    }
}
