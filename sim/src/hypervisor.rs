//! The hypervisor's side: grants, exits, calls, kicks.
//!
//! The order of inputs is that of a KVM vCPU thread: `Entered`, then for each exit `Exited`, what the
//! exit means, and `Resumed`; or `Stopped` in place of `Resumed` if the core is wanted. A thread looks
//! whether it is wanted each time before it enters the guest, so a kick is overtaken by an exit.

use crate::cost::CostModel;
use crate::guest::may_lose_core;
use crate::machine::Machine;
use crate::queue::Slot;
use crate::vcpu::{After, Call, Place, Task, Then};
use stealtime_guest::call::Port;
use stealtime_guest::interp::Action;
use stealtime_guest::layout::FIRST_INTERRUPT;
use stealtime_guest::op;
use stealtime_scheduler::ids::{CoreId, HostLockId, VcpuId};
use stealtime_scheduler::input::{
    BlockOn, ExitReason, HostMode, Input, KernelPriority, RetireReason,
};
use stealtime_scheduler::time::Nanos;

impl Machine<'_> {
    fn core_of(&self, vcpu: VcpuId) -> CoreId {
        self.vcpus[vcpu.index()].core.unwrap_or(CoreId(0))
    }

    /// Tells of something that the vCPU's own thread does, on its core.
    fn tell_from(&mut self, vcpu: VcpuId, input: Input) {
        let core = self.vcpus[vcpu.index()].core;
        self.tell(input, core);
    }

    /// The granted vCPU's thread is on its core.
    pub(crate) fn entered(&mut self, vcpu: VcpuId) {
        let core = self.core_of(vcpu);
        self.vcpu(vcpu).place = Place::Hypervisor;
        self.tell_from(vcpu, Input::Entered { core, vcpu });
        let entry = self.vcpu(vcpu);
        let wanted = entry.kicked;
        match entry.task {
            // It was taken off its core in the midst of a call and goes on with that.
            Task::Host(left) => {
                let why = ExitReason::Call;
                self.tell_from(vcpu, Input::Exited { vcpu, why });
                self.host_work(vcpu, left);
            }
            // It never got as far as the guest.
            _ if wanted => self.resume(vcpu),
            _ => self.enter_guest(vcpu),
        }
    }

    /// A call or halt has arrived at the VMM.
    pub(crate) fn exited(&mut self, vcpu: VcpuId, why: ExitReason) {
        self.out_of_guest(vcpu, why);
        if self.vcpu(vcpu).doomed {
            self.retire(vcpu, RetireReason::Fault);
        } else if let Task::Call(call) = self.vcpu(vcpu).task {
            if let Call::Action(action) = call
                && let Some(nonsense) = meaningless(action)
            {
                return self.fail(vcpu, &nonsense);
            }
            if why == ExitReason::Halt || may_lose_core(call) {
                self.tell_thefts(vcpu);
            }
            let costs = self.costs;
            self.vcpu(vcpu).fetch_after(call, costs);
            match call {
                Call::Action(action) => self.carry_out_call(vcpu, action),
                call => self.carry_out_lock_call(vcpu, call),
            }
        }
    }

    /// Guest code stopped; perhaps it took its interrupts before.
    pub(crate) fn out_of_guest(&mut self, vcpu: VcpuId, why: ExitReason) {
        self.vcpu(vcpu).place = Place::Hypervisor;
        self.tell_from(vcpu, Input::Exited { vcpu, why });
        self.tell_handled(vcpu);
    }

    /// Tells of the interrupts that the guest took in this stay, unless it was told already.
    pub(crate) fn tell_handled(&mut self, vcpu: VcpuId) {
        let now = self.now;
        let entry = self.vcpu(vcpu);
        entry.give_back_interrupts(now);
        if let Some(at) = entry.handled.take() {
            let more = entry.pending != [0; 4];
            self.tell_from(vcpu, Input::InterruptsTaken { vcpu, at, more });
        }
    }

    fn carry_out_call(&mut self, vcpu: VcpuId, call: Action) {
        let now = self.now;
        let input = match call {
            Action::Sleep(length) => Input::Block {
                vcpu,
                on: BlockOn::Sleep(now + Nanos(length)),
            },
            Action::HostWait(length) => Input::Block {
                vcpu,
                on: BlockOn::Host(now + Nanos(length)),
            },
            Action::WaitInterrupt => Input::Block {
                vcpu,
                on: BlockOn::Idle,
            },
            Action::Periodic { period, vector } => Input::ArmPeriodic {
                vcpu,
                period: Nanos(period),
                vector,
            },
            Action::Yield => Input::Yield { vcpu },
            Action::Interrupt { vcpu: to, vector } => Input::Interrupt {
                to: VcpuId(to),
                vector,
                from: Some(vcpu),
            },
            Action::HostLock {
                lock,
                kernel_priority,
            } => Input::HostLock {
                vcpu,
                lock: HostLockId(lock),
                priority: asked(kernel_priority),
            },
            Action::HostAcquire {
                lock,
                mode,
                kernel_priority,
            } => Input::HostAcquire {
                vcpu,
                lock: HostLockId(lock),
                mode: mode_of(mode),
                priority: asked(kernel_priority),
            },
            Action::HostUnlock(lock) => Input::HostUnlock {
                vcpu,
                lock: HostLockId(lock),
            },
            Action::UserReturn => Input::UserReturn { vcpu },
            Action::Hypervisor(length) => return self.host_work(vcpu, length),
            Action::End => return self.retire(vcpu, RetireReason::Finished),
            // A call for its own sake; the others never reach the VMM.
            Action::Exit
            | Action::Run(_)
            | Action::Guest(..)
            | Action::RequestBegin
            | Action::RequestEnd
            | Action::Fault(_)
            | Action::CriticalEnter
            | Action::CriticalLeave => return self.handled(vcpu),
        };
        self.tell_and_resume(vcpu, input);
    }

    fn carry_out_lock_call(&mut self, vcpu: VcpuId, call: Call) {
        let id = |lock| self.vcpus[vcpu.index()].lock_id(lock);
        let input = match call {
            Call::Wait(lock) => Input::GuestWait {
                vcpu,
                lock: id(lock),
            },
            Call::Wake(sibling, lock) => Input::GuestWake {
                vcpu: sibling,
                by: vcpu,
                lock: id(lock),
            },
            Call::SpunTooLong(lock) => Input::SpunTooLong {
                vcpu,
                lock: id(lock),
            },
            Call::CriticalLeft(_) | Call::Action(_) => Input::CriticalLeft { vcpu },
        };
        self.tell_and_resume(vcpu, input);
    }

    fn tell_and_resume(&mut self, vcpu: VcpuId, input: Input) {
        self.tell_from(vcpu, input);
        if self.vcpu(vcpu).place == Place::Hypervisor {
            self.handled(vcpu);
        }
    }

    /// The dispatcher knows of the call; the thread is about to be done with it.
    fn handled(&mut self, vcpu: VcpuId) {
        let mut work = self.costs.handling;
        if self.vcpu(vcpu).kicked {
            work += self.costs.leaving;
        }
        if work == Nanos::ZERO {
            return self.resume(vcpu);
        }
        let core = self.vcpu(vcpu).core;
        let due = self.now + self.drawn(work) + self.owed_to_timers(core);
        self.queue.set(Slot::Step(vcpu), due);
    }

    /// The hypervisor is done with something: work on the vCPU's behalf, or a call.
    pub(crate) fn hypervisor_done(&mut self, vcpu: VcpuId) {
        match self.vcpu(vcpu).task {
            Task::Host(_) => self.host_work_ends(vcpu),
            _ => self.resume(vcpu),
        }
    }

    /// Work on the vCPU's behalf begins, or goes on. A vCPU that is wanted already does not begin.
    fn host_work(&mut self, vcpu: VcpuId, left: u64) {
        let now = self.now;
        let entry = self.vcpu(vcpu);
        entry.task = Task::Host(left);
        entry.from = now;
        if entry.kicked || entry.doomed {
            return self.resume(vcpu);
        }
        self.queue.set(Slot::Step(vcpu), now + Nanos(left));
    }

    fn host_work_ends(&mut self, vcpu: VcpuId) {
        let op = self.costs.op;
        self.vcpu(vcpu).fetch(op);
        self.resume(vcpu);
    }

    /// A signal has arrived at the vCPU's thread.
    pub(crate) fn signalled(&mut self, vcpu: VcpuId) {
        let now = self.now;
        match self.vcpu(vcpu).place {
            Place::Guest => {
                self.vcpu(vcpu).settle(now);
                self.vcpu(vcpu).gap_begins(now);
                self.queue.cancel(Slot::Step(vcpu));
                self.out_of_guest(vcpu, ExitReason::Kick);
                self.resume(vcpu);
            }
            Place::Hypervisor => {
                let entry = self.vcpu(vcpu);
                if let (Task::Host(left), true) = (entry.task, entry.kicked || entry.doomed) {
                    entry.task = Task::Host(left.saturating_sub(now.since(entry.from).0));
                    self.queue.cancel(Slot::Step(vcpu));
                    self.resume(vcpu);
                }
            }
            // On its way out or in it looks for itself whether it is wanted.
            Place::Unborn | Place::Off | Place::Switching | Place::Leaving(_) | Place::Gone => {}
        }
    }

    /// The vCPU's thread is about to enter the guest again, unless it is wanted.
    pub(crate) fn resume(&mut self, vcpu: VcpuId) {
        let entry = self.vcpu(vcpu);
        if entry.doomed {
            return self.retire(vcpu, RetireReason::Fault);
        }
        if entry.kicked && self.stop(vcpu) {
            return;
        }
        if let Task::Host(left) = self.vcpu(vcpu).task {
            return self.host_work(vcpu, left);
        }
        self.tell_from(vcpu, Input::Resumed { vcpu });
        // A preemption may have waited for just this moment.
        if self.vcpu(vcpu).kicked && self.stop(vcpu) {
            return;
        }
        self.enter_guest(vcpu);
    }

    /// Gives the core back, as was asked. The answer is whether the vCPU has left it.
    fn stop(&mut self, vcpu: VcpuId) -> bool {
        let core = self.core_of(vcpu);
        self.vcpu(vcpu).kicked = false;
        self.tell_thefts(vcpu);
        self.leaver = Some(vcpu);
        self.tell_from(vcpu, Input::Stopped { core, vcpu });
        self.leaver = None;
        self.vcpu(vcpu).place != Place::Hypervisor
    }
}

const fn asked(kernel_priority: bool) -> KernelPriority {
    if kernel_priority {
        KernelPriority::Asked
    } else {
        KernelPriority::NotAsked
    }
}

const fn mode_of(mode: op::HostMode) -> HostMode {
    match mode {
        op::HostMode::Mutex => HostMode::Mutex,
        op::HostMode::Read => HostMode::Read,
        op::HostMode::Write => HostMode::Write,
    }
}

/// A call whose arguments the VMM refuses, in its words: vectors below the first interrupt are the
/// processor's own.
fn meaningless(call: Action) -> Option<String> {
    let (port, a, vector) = match call {
        Action::Interrupt { vcpu, vector } => (Port::Interrupt, u64::from(vcpu), vector),
        Action::Periodic { period, vector } if period > 0 => (Port::Periodic, period, vector),
        _ => return None,
    };
    (vector < FIRST_INTERRUPT).then(|| {
        format!("made a call with arguments that mean nothing ({port:?}: {a:#x}, {vector:#x})")
    })
}

impl crate::vcpu::Vcpu<'_> {
    /// What follows a call: the next op, after a halt the look whether an interrupt has come, or the
    /// next step of an operation on a lock.
    fn fetch_after(&mut self, call: Call, costs: &CostModel) {
        let code = |overhead, then| Task::Code {
            overhead,
            work: 0,
            then,
        };
        match call {
            Call::Action(action @ Action::WaitInterrupt) => {
                self.task = code(0, Then::Do(action));
            }
            Call::Action(Action::Hypervisor(length)) => self.task = Task::Host(length),
            Call::Action(Action::End) => {}
            Call::Action(_) => self.fetch(costs.op),
            Call::CriticalLeft(After::Next) => self.fetch(costs.lock_step),
            Call::CriticalLeft(After::Wait(lock)) => {
                self.task = code(0, Then::Call(Call::Wait(lock)));
            }
            Call::CriticalLeft(After::Step)
            | Call::Wait(_)
            | Call::Wake(..)
            | Call::SpunTooLong(_) => self.task = code(costs.lock_step.0, Then::LockStep),
        }
    }
}
