//! Guest locks in virtual time: the guest's own machines, taken step by step.
//!
//! A lock's machine ([`Operation`]) is the code that the guest kernel runs, on memory that lies here. Each
//! step takes what an op costs. A vCPU that spins takes no steps while nothing can have changed: it looks
//! again, one op later, when another step has touched the lock; when a vCPU that it watches loses its core;
//! when it has spun for as long as it said; and when it comes on a core again. Of several that look at the
//! same instant the one that began to spin first is first.

use crate::machine::Machine;
use crate::queue::Slot;
use crate::vcpu::{After, Call, Place, Task, Then};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use stealtime_guest::call::Refusal;
use stealtime_guest::lock::{Context, Lock, Memory, Node, Operation, Spin, Step, Want};
use stealtime_scheduler::ids::{GuestLockId, VcpuId, VmId};
use stealtime_scheduler::input::{ExitReason, GuestLocks, Input};
use stealtime_scheduler::time::Nanos;
use stealtime_workloads::run::Plan;

/// An operation on a lock that is under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Underway {
    operation: Operation,
    /// How long it has spun, in nanoseconds.
    pub(crate) spun: u64,
    /// As much of it as the dispatcher was told of.
    told: u64,
    /// When it began to spin, as a number that grows over the run.
    turn: Option<u64>,
    /// What it spins for.
    spin: Spin,
    /// The lock among whose spinners it is.
    among: Option<u16>,
    /// No lock is held and no critical section entered any more, and the host was not told yet.
    safe_again: bool,
}

/// A lock of a VM as the machine sees it.
#[derive(Debug, Default)]
struct Watched {
    /// Those that spin for it, by the order in which they began.
    spinners: BTreeSet<(u64, VcpuId)>,
    /// Those of whom the dispatcher was told that they wait for it.
    waiters: BTreeSet<VcpuId>,
    /// Its owner as the dispatcher was told.
    owner: Option<VcpuId>,
    /// It is in the list of those whose owner may be another one.
    listed: bool,
}

/// The guest locks of all VMs.
#[derive(Debug)]
pub(crate) struct AllLocks {
    vms: Vec<VmLocks>,
    /// Each vCPU's number within its VM.
    indices: Vec<u32>,
    hand_off: bool,
    /// How long a vCPU spins before it says so, in nanoseconds.
    spin_window: Option<u64>,
    turns: u64,
    /// Locks whose owner may be another one since the dispatcher was told.
    changed: Vec<GuestLockId>,
}

#[derive(Debug)]
struct VmLocks {
    locks: Vec<Lock>,
    nodes: Vec<Node>,
    members: Vec<VcpuId>,
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

    fn index(&self, vcpu: VcpuId) -> u32 {
        self.indices[vcpu.index()]
    }

    fn node(&self, vm: VmId, vcpu: VcpuId) -> &Node {
        &self.vms[vm.index()].nodes[self.index(vcpu) as usize]
    }

    fn context(&self, vm: VmId, vcpu: VcpuId) -> Context<'_> {
        let memory = self.vms[vm.index()].memory();
        let mut context = Context::new(memory, self.index(vcpu));
        context.hand_off = self.hand_off;
        context
    }

    /// What the vCPU's memory says of its locks.
    fn seen(&self, vm: VmId, vcpu: VcpuId) -> GuestLocks {
        let memory = self.vms[vm.index()].memory();
        let seen = memory.seen(self.index(vcpu));
        GuestLocks {
            held: seen.held,
            critical: seen.critical,
            waits_for: seen.waits_for.map(|lock| GuestLockId::new(vm, lock)),
        }
    }

    fn watched(&mut self, lock: GuestLockId) -> &mut Watched {
        &mut self.vms[lock.vm().index()].watched[usize::from(lock.lock())]
    }

    /// The dispatcher is told of another lock that the vCPU waits for.
    fn waits(&mut self, vcpu: VcpuId, before: Option<GuestLockId>, now: Option<GuestLockId>) {
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

    fn owner_changed(&mut self, lock: GuestLockId) {
        if !std::mem::replace(&mut self.watched(lock).listed, true) {
            self.changed.push(lock);
        }
    }

    /// Owners of which the dispatcher has to be told: of locks that somebody waits for.
    fn new_owners(&mut self) -> BTreeMap<GuestLockId, Option<VcpuId>> {
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

impl Machine<'_> {
    /// What guests say of their locks is told before anything is decided.
    pub(crate) fn tell_locks(&mut self) {
        let mut changed = std::mem::take(&mut self.changed);
        for vcpu in changed.drain(..) {
            let entry = self.vcpu(vcpu);
            entry.listed = false;
            let (vm, gone) = (entry.vm, entry.place == Place::Gone);
            let locks = self.locks.seen(vm, vcpu);
            let told = std::mem::replace(&mut self.vcpu(vcpu).told, locks);
            if told != locks && !gone {
                self.locks.waits(vcpu, told.waits_for, locks.waits_for);
                self.handle(Input::Locks { vcpu, locks }, None);
            }
        }
        self.changed = changed;
        if !self.locks.changed.is_empty() {
            for (lock, owner) in self.locks.new_owners() {
                self.handle(Input::GuestOwner { lock, owner }, None);
            }
        }
    }

    /// The vCPU's word on its locks may have changed; the dispatcher is told before its next decision.
    fn list(&mut self, vcpu: VcpuId) {
        let entry = self.vcpu(vcpu);
        if !std::mem::replace(&mut entry.listed, true) {
            self.changed.push(vcpu);
        }
    }

    /// The program does something with a lock.
    pub(crate) fn operate(&mut self, vcpu: VcpuId, want: Want, number: u16) -> Result<(), Refusal> {
        let vm = self.vcpu(vcpu).vm;
        let operation = Operation::begin(&self.locks.context(vm, vcpu), want, number)?;
        self.vcpu(vcpu).underway = Some(Underway {
            operation,
            spun: 0,
            told: 0,
            turn: None,
            spin: Spin::default(),
            among: None,
            safe_again: false,
        });
        self.lock_step(vcpu);
        Ok(())
    }

    /// The next step of the operation that is under way.
    pub(crate) fn lock_step(&mut self, vcpu: VcpuId) {
        let vm = self.vcpu(vcpu).vm;
        let Some(mut underway) = self.vcpu(vcpu).underway.take() else {
            return;
        };
        let mut context = self.locks.context(vm, vcpu);
        context.spun = underway.spun;
        let before = context.state();
        let step = underway.operation.step(&mut context);
        let (touched, taken, after) = (context.touched, context.taken, context.state());
        underway.safe_again |= context.safe_again;
        let waits_for = after.waits_for;
        self.vcpu(vcpu).view.lock_acquisitions += taken;
        if before != after {
            self.list(vcpu);
        }
        self.leave_spinners(vcpu, &mut underway);
        if touched.is_some() || taken > 0 {
            self.touched(vm, underway.operation.number(), touched);
        }
        if let Step::Spin(spin) = step {
            underway.spin = spin;
            self.join_spinners(vcpu, &mut underway, waits_for);
        }
        let tells = std::mem::take(&mut underway.safe_again) && self.vcpu(vcpu).owed;
        self.vcpu(vcpu).underway = (step != Step::Done).then_some(underway);
        match step {
            Step::Done if tells => self.call(vcpu, Call::CriticalLeft(After::Next)),
            Step::Sleep(lock) if tells => self.call(vcpu, Call::CriticalLeft(After::Wait(lock))),
            Step::Spin(_) if tells => self.call(vcpu, Call::CriticalLeft(After::Step)),
            Step::Done => self.next_op(vcpu),
            Step::Again => self.step_follows(vcpu, 0, tells),
            Step::Work(length) => self.step_follows(vcpu, length, tells),
            Step::Spin(_) => self.vcpu(vcpu).task = Task::Spin,
            Step::Sleep(lock) => self.call(vcpu, Call::Wait(lock)),
            Step::Wake(index, lock) => {
                self.keep_in_mind(vcpu, tells);
                let sibling = self.locks.vms[vm.index()].members[index as usize];
                self.call(vcpu, Call::Wake(sibling, lock));
            }
        }
        if self.vcpu(vcpu).task == Task::Spin {
            self.look_later(vcpu);
        }
    }

    /// The next step follows after so much work.
    fn step_follows(&mut self, vcpu: VcpuId, work: u64, tells: bool) {
        self.keep_in_mind(vcpu, tells);
        let overhead = self.costs.op.0;
        self.vcpu(vcpu).task = Task::Code {
            overhead,
            work,
            then: Then::LockStep,
        };
    }

    /// What the host waits to be told is not told before a wake-up is on its way.
    fn keep_in_mind(&mut self, vcpu: VcpuId, tells: bool) {
        if let Some(underway) = &mut self.vcpu(vcpu).underway {
            underway.safe_again |= tells;
        }
    }

    fn leave_spinners(&mut self, vcpu: VcpuId, underway: &mut Underway) {
        if let (Some(lock), Some(turn)) = (underway.among.take(), underway.turn) {
            let lock = self.vcpu(vcpu).lock_id(lock);
            self.locks.watched(lock).spinners.remove(&(turn, vcpu));
        }
    }

    fn join_spinners(&mut self, vcpu: VcpuId, underway: &mut Underway, lock: Option<u16>) {
        let turn = *underway.turn.get_or_insert_with(|| {
            self.locks.turns += 1;
            self.locks.turns
        });
        if let Some(lock) = lock {
            underway.among = Some(lock);
            let lock = self.vcpu(vcpu).lock_id(lock);
            self.locks.watched(lock).spinners.insert((turn, vcpu));
        }
    }

    /// A step has changed what others may see of a lock, or of the mutex of a channel.
    fn touched(&mut self, vm: VmId, number: u16, touched: Option<u16>) {
        let last = touched.map_or(number, |touched| touched.max(number));
        for number in number..=last {
            self.locks.owner_changed(GuestLockId::new(vm, number));
        }
        let Some(number) = touched else { return };
        let lock = GuestLockId::new(vm, number);
        let watched = self.locks.watched(lock);
        let spinners: Vec<_> = watched.spinners.iter().map(|(_, vcpu)| *vcpu).collect();
        let waiters: Vec<_> = watched.waiters.iter().copied().collect();
        for vcpu in spinners {
            self.list(vcpu);
            self.look_soon(vcpu);
        }
        // One that sleeps may have been handed the lock.
        for vcpu in waiters {
            self.list(vcpu);
        }
    }

    /// A spinner on a core looks one op later.
    fn look_soon(&mut self, vcpu: VcpuId) {
        let at = self.now + self.costs.op;
        let entry = self.vcpu(vcpu);
        if entry.place == Place::Guest && entry.task == Task::Spin {
            let at = at.max(entry.from);
            let slot = Slot::Step(vcpu);
            if self.queue.due(slot).is_none_or(|due| due > at) {
                self.queue.set(slot, at);
            }
        }
    }

    /// A spinner that has just looked does so again when its time is over.
    fn look_later(&mut self, vcpu: VcpuId) {
        let window = self.locks.spin_window;
        let from = self.vcpu(vcpu).from;
        let Some(underway) = &self.vcpu(vcpu).underway else {
            return;
        };
        let windows = window.map(|window| underway.told + window);
        let until = [underway.spin.until, windows];
        if let Some(until) = until.into_iter().flatten().min() {
            let left = Nanos(until.saturating_sub(underway.spun).max(1));
            self.queue.set(Slot::Step(vcpu), from + left);
        }
    }

    /// A spinner looks, or says first that it has spun too long.
    pub(crate) fn spinner_looks(&mut self, vcpu: VcpuId) {
        let window = self.locks.spin_window;
        let entry = self.vcpu(vcpu);
        if let (Some(window), Some(underway)) = (window, &mut entry.underway)
            && underway.spun - underway.told >= window
            && let Some(lock) = underway.among
        {
            underway.told = underway.spun;
            return self.call(vcpu, Call::SpunTooLong(lock));
        }
        self.lock_step(vcpu);
    }

    /// The guest calls the VMM.
    fn call(&mut self, vcpu: VcpuId, call: Call) {
        self.leave(vcpu, call, ExitReason::Call);
    }

    pub(crate) fn enter_critical(&mut self, vcpu: VcpuId) -> Result<(), Refusal> {
        let vm = self.vcpu(vcpu).vm;
        let entered = self.locks.context(vm, vcpu).enter_critical();
        entered.ok_or(Refusal::TooDeep)?;
        self.list(vcpu);
        self.next_op(vcpu);
        Ok(())
    }

    pub(crate) fn leave_critical(&mut self, vcpu: VcpuId) -> Result<(), Refusal> {
        let vm = self.vcpu(vcpu).vm;
        let mut context = self.locks.context(vm, vcpu);
        let left = context.leave_critical();
        let safe_again = context.safe_again;
        left.ok_or(Refusal::NotCritical)?;
        self.list(vcpu);
        if safe_again && self.vcpu(vcpu).owed {
            self.call(vcpu, Call::CriticalLeft(After::Next));
        } else {
            self.next_op(vcpu);
        }
        Ok(())
    }

    /// The host has given the vCPU a core, or taken it away: siblings may look at that.
    pub(crate) fn has_core(&mut self, vcpu: VcpuId, has: bool) {
        let vm = self.vcpu(vcpu).vm;
        let node = self.locks.node(vm, vcpu);
        let before = node.running.swap(u32::from(has), Ordering::Relaxed);
        if has || before == 0 || self.locks.vms[vm.index()].locks.is_empty() {
            return;
        }
        let index = self.locks.index(vcpu);
        let watch = |other: &VcpuId| {
            let underway = &self.vcpus[other.index()].underway;
            underway.is_some_and(|underway| underway.spin.while_runs == Some(index))
        };
        let members = &self.locks.vms[vm.index()].members;
        let watching: Vec<_> = members.iter().copied().filter(watch).collect();
        for other in watching {
            self.look_soon(other);
        }
    }

    /// The guest of a vCPU may know who lends it its turn.
    pub(crate) fn lent(&mut self, to: VcpuId, donor: Option<VcpuId>) {
        let vm = self.vcpu(to).vm;
        let mark = donor.map_or(0, |donor| self.locks.index(donor) + 1);
        self.locks.node(vm, to).donor.store(mark, Ordering::Relaxed);
    }

    /// The vCPU is gone: nobody wakes it, and it looks at nothing.
    pub(crate) fn forget_operation(&mut self, vcpu: VcpuId) {
        if let Some(mut underway) = self.vcpu(vcpu).underway.take() {
            self.leave_spinners(vcpu, &mut underway);
        }
    }
}
