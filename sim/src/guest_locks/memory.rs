//! The guest locks of all VMs in memory of the simulator, and what the dispatcher was told of them.

use std::collections::{BTreeMap, BTreeSet};
use stealtime_guest::lock::{Context, Lock, Memory, Node};
use stealtime_scheduler::ids::{GuestLockId, VcpuId, VmId};
use stealtime_scheduler::input::GuestLocks;
use stealtime_scheduler::time::Nanos;
use stealtime_workloads::run::Plan;

/// A lock of a VM as the machine sees it.
#[derive(Debug, Default)]
pub(super) struct Watched {
    /// Those that spin for it, by the order in which they began.
    pub(super) spinners: BTreeSet<(u64, VcpuId)>,
    /// Those of whom the dispatcher was told that they wait for it.
    pub(super) waiters: BTreeSet<VcpuId>,
    /// Its owner as the dispatcher was told.
    owner: Option<VcpuId>,
    /// It is in the list of those whose owner may be another one.
    listed: bool,
}

/// The guest locks of all VMs.
#[derive(Debug)]
pub(crate) struct AllLocks {
    pub(super) vms: Vec<VmLocks>,
    /// Each vCPU's number within its VM.
    indices: Vec<u32>,
    hand_off: bool,
    /// How long a vCPU spins before it says so, in nanoseconds.
    pub(super) spin_window: Option<u64>,
    pub(super) turns: u64,
    /// Locks whose owner may be another one since the dispatcher was told.
    pub(super) changed: Vec<GuestLockId>,
}

#[derive(Debug)]
pub(super) struct VmLocks {
    pub(super) locks: Vec<Lock>,
    nodes: Vec<Node>,
    pub(super) members: Vec<VcpuId>,
    watched: Vec<Watched>,
}

impl VmLocks {
    fn memory(&self) -> Memory<'_> {
        Memory {
            locks: &self.locks,
            nodes: &self.nodes,
        }
    }
}

impl AllLocks {
    pub(crate) fn new(plan: &Plan, hand_off: bool, spin_window: Option<Nanos>) -> Self {
        let mut members: Vec<Vec<VcpuId>> = plan.vms.iter().map(|_| Vec::new()).collect();
        let mut indices = Vec::with_capacity(plan.vcpus.len());
        for (id, vcpu) in (0..).map(VcpuId).zip(&plan.vcpus) {
            let siblings = &mut members[vcpu.vm.index()];
            indices.push(u32::try_from(siblings.len()).unwrap_or(u32::MAX));
            siblings.push(id);
        }
        let vms = plan.vms.iter().zip(members).map(|(vm, members)| VmLocks {
            locks: vm
                .locks
                .iter()
                .map(|(_, kind)| {
                    let lock = Lock::default();
                    kind.write(&lock);
                    lock
                })
                .collect(),
            nodes: members.iter().map(|_| Node::default()).collect(),
            members,
            watched: vm.locks.iter().map(|_| Watched::default()).collect(),
        });
        Self {
            vms: vms.collect(),
            indices,
            hand_off,
            spin_window: spin_window.map(|window| window.0),
            turns: 0,
            changed: Vec::new(),
        }
    }

    pub(super) fn index(&self, vcpu: VcpuId) -> u32 {
        self.indices[vcpu.index()]
    }

    pub(super) fn node(&self, vm: VmId, vcpu: VcpuId) -> &Node {
        &self.vms[vm.index()].nodes[self.index(vcpu) as usize]
    }

    pub(super) fn context(&self, vm: VmId, vcpu: VcpuId) -> Context<'_> {
        let memory = self.vms[vm.index()].memory();
        let mut context = Context::new(memory, self.index(vcpu));
        context.hand_off = self.hand_off;
        context
    }

    /// What the vCPU's memory says of its locks.
    pub(super) fn seen(&self, vm: VmId, vcpu: VcpuId) -> GuestLocks {
        let memory = self.vms[vm.index()].memory();
        let seen = memory.seen(self.index(vcpu));
        GuestLocks {
            held: seen.held,
            critical: seen.critical,
            waits_for: seen.waits_for.map(|lock| GuestLockId::new(vm, lock)),
            in_line: memory.in_line(seen),
        }
    }

    pub(super) fn watched(&mut self, lock: GuestLockId) -> &mut Watched {
        &mut self.vms[lock.vm().index()].watched[usize::from(lock.lock())]
    }

    /// The dispatcher is told of another lock that the vCPU waits for.
    pub(super) fn waits(
        &mut self,
        vcpu: VcpuId,
        before: Option<GuestLockId>,
        now: Option<GuestLockId>,
    ) {
        if before == now {
            return;
        }
        if let Some(lock) = before {
            self.watched(lock).waiters.remove(&vcpu);
        }
        if let Some(lock) = now {
            self.watched(lock).waiters.insert(vcpu);
            self.owner_changed(lock);
        }
    }

    pub(super) fn owner_changed(&mut self, lock: GuestLockId) {
        if !std::mem::replace(&mut self.watched(lock).listed, true) {
            self.changed.push(lock);
        }
    }

    /// Owners of which the dispatcher has to be told: of locks that somebody waits for.
    pub(super) fn new_owners(&mut self) -> BTreeMap<GuestLockId, Option<VcpuId>> {
        let mut new = BTreeMap::new();
        for lock in std::mem::take(&mut self.changed) {
            let vm = &mut self.vms[lock.vm().index()];
            let owner = vm.memory().owner(lock.lock());
            let owner = owner.and_then(|index| vm.members.get(index as usize).copied());
            let watched = &mut vm.watched[usize::from(lock.lock())];
            watched.listed = false;
            if !watched.waiters.is_empty() && watched.owner != owner {
                watched.owner = owner;
                new.insert(lock, owner);
            }
        }
        new
    }
}
