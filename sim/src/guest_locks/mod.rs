//! Guest locks in virtual time: the guest's own machines, taken step by step.
//!
//! A lock's machine ([`Operation`]) is the code that the guest kernel runs, on memory that lies here
//! ([`memory`]). Each step has its cost. Spinning takes no steps ([`spinners`]).

mod memory;
mod spinners;

pub(crate) use memory::AllLocks;

use crate::machine::Machine;
use crate::vcpu::{After, Call, Place, Task, Then};
use std::sync::atomic::Ordering;
use stealtime_guest::call::Refusal;
use stealtime_guest::lock::{Operation, Spin, Step, Want};
use stealtime_scheduler::ids::VcpuId;
use stealtime_scheduler::input::{ExitReason, Input};

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
    pub(super) fn list(&mut self, vcpu: VcpuId) {
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
            Step::Done => self.next_op_after_step(vcpu),
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
        let overhead = self.costs.lock_step.0;
        self.vcpu(vcpu).task = Task::Code {
            overhead,
            work,
            then: Then::LockStep,
        };
    }

    /// The operation is over: what it cost is paid before the next op.
    fn next_op_after_step(&mut self, vcpu: VcpuId) {
        let step = self.costs.lock_step;
        self.vcpu(vcpu).fetch(step);
    }

    /// What the host waits to be told is not told before a wake-up is on its way.
    fn keep_in_mind(&mut self, vcpu: VcpuId, tells: bool) {
        if let Some(underway) = &mut self.vcpu(vcpu).underway {
            underway.safe_again |= tells;
        }
    }

    /// The guest calls the VMM.
    pub(super) fn call(&mut self, vcpu: VcpuId, call: Call) {
        self.leave(vcpu, call, ExitReason::Call);
    }

    pub(crate) fn enter_critical(&mut self, vcpu: VcpuId) -> Result<(), Refusal> {
        let vm = self.vcpu(vcpu).vm;
        let entered = self.locks.context(vm, vcpu).enter_critical();
        entered.ok_or(Refusal::TooDeep)?;
        self.list(vcpu);
        self.next_op_after_step(vcpu);
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
            self.next_op_after_step(vcpu);
        }
        Ok(())
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
