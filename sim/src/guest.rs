//! Guest mode: what a stretch of guest code leads to.

use crate::machine::Machine;
use crate::queue::Slot;
use crate::vcpu::{Call, Place, Task, Then};
use stealtime_guest::call::{Refusal, UNUSED_PORT};
use stealtime_guest::interp::Action;
use stealtime_guest::op::Misdeed;
use stealtime_scheduler::ids::VcpuId;
use stealtime_scheduler::input::ExitReason;

/// Ops done in one go before the queue is looked at again, and with it the stop flag.
const OPS_AT_ONCE: u32 = 1_024;

impl Machine<'_> {
    /// The vCPU enters guest mode and takes the interrupts that wait for it. Its code goes on when
    /// the entry is done.
    pub(crate) fn enter_guest(&mut self, vcpu: VcpuId) {
        let now = self.now;
        let costs = self.costs;
        let entry = self.vcpu(vcpu);
        entry.place = Place::Guest;
        let taken = entry.take_interrupts();
        let loaded = std::mem::replace(&mut entry.loaded, true);
        let core = entry.core;
        // A round trip into the guest and back has one.
        let pace = self.pace();
        let mut from = now + pace.of(costs.entry) + self.owed_to_timers(core);
        if !loaded {
            from += pace.of(costs.load);
        }
        let mut handled = None;
        for _ in 0..taken {
            from += pace.of(costs.injection);
            handled = Some(from);
            from += pace.of(costs.handler);
        }
        let entry = self.vcpu(vcpu);
        entry.pace = pace;
        entry.from = from;
        entry.handled = handled.or(entry.handled);
        let due = entry.from + entry.code_left();
        let wanted = entry.kicked || entry.doomed;
        self.queue.set(Slot::Step(vcpu), due);
        // A signal that was for these interrupts has nothing left to do.
        if !wanted {
            self.queue.cancel(Slot::Signal(vcpu));
        }
    }

    /// A stretch of guest code is done. Goes on with the next ones as long as nothing else is due
    /// before they end.
    pub(crate) fn code_ends(&mut self, vcpu: VcpuId) {
        for _ in 0..OPS_AT_ONCE {
            let now = self.now;
            self.vcpu(vcpu).settle(now);
            match self.vcpu(vcpu).task {
                Task::Code { then, .. } => self.follow(vcpu, then),
                Task::Spin => self.spinner_looks(vcpu),
                Task::Call(_) | Task::Host(_) => {}
            }
            let entry = self.vcpu(vcpu);
            if entry.place != Place::Guest || entry.task == Task::Spin {
                return;
            }
            let due = entry.from + entry.code_left();
            if self.queue.next_at().is_some_and(|next| next <= due) {
                self.queue.set(Slot::Step(vcpu), due);
                return;
            }
            self.now = due;
        }
        let now = self.now;
        self.queue.set(Slot::Step(vcpu), now);
    }

    fn follow(&mut self, vcpu: VcpuId, then: Then) {
        let done = match then {
            Then::Next => {
                self.next_op(vcpu);
                Ok(())
            }
            Then::Do(action) => self.act(vcpu, action),
            Then::LockStep => {
                self.lock_step(vcpu);
                Ok(())
            }
            Then::Call(call) => {
                self.leave(vcpu, call, ExitReason::Call);
                Ok(())
            }
            Then::Refuse(refusal) => Err(refusal),
        };
        if let Err(refusal) = done {
            self.fail_in_guest(vcpu, ExitReason::Unexpected, &refusal.to_string());
        }
    }

    pub(crate) fn next_op(&mut self, vcpu: VcpuId) {
        let op = self.costs.op;
        self.vcpu(vcpu).fetch(op);
    }

    /// An action that the guest carries out itself, or a call.
    fn act(&mut self, vcpu: VcpuId, action: Action) -> Result<(), Refusal> {
        let now = self.now;
        let entry = self.vcpu(vcpu);
        match action {
            Action::RequestBegin => entry.request_from = Some(now),
            Action::RequestEnd => entry.request_ends(now)?,
            Action::Guest(want, lock) => return self.operate(vcpu, want, lock),
            Action::CriticalEnter => return self.enter_critical(vcpu),
            Action::CriticalLeave => return self.leave_critical(vcpu),
            Action::WaitInterrupt if entry.interrupted => entry.interrupted = false,
            Action::WaitInterrupt => {
                self.leave(vcpu, Call::Action(action), ExitReason::Halt);
                return Ok(());
            }
            Action::Fault(misdeed) => {
                self.commit(vcpu, misdeed);
                return Ok(());
            }
            call => {
                self.leave(vcpu, Call::Action(call), ExitReason::Call);
                return Ok(());
            }
        }
        self.next_op(vcpu);
        Ok(())
    }

    /// The guest calls the VMM, or halts.
    pub(crate) fn leave(&mut self, vcpu: VcpuId, call: Call, why: ExitReason) {
        let cost = match why {
            ExitReason::Halt => self.costs.halt_exit,
            _ if may_lose_core(call) => self.costs.exit + self.costs.leaving,
            _ => self.costs.exit,
        };
        let due = self.now + self.vcpu(vcpu).pace.of(cost);
        let entry = self.vcpu(vcpu);
        entry.task = Task::Call(call);
        entry.place = Place::Leaving(why);
        self.queue.set(Slot::Step(vcpu), due);
    }

    /// A fault on purpose, told in the words in which the KVM driver finds it.
    fn commit(&mut self, vcpu: VcpuId, misdeed: Misdeed) {
        let message = match misdeed {
            Misdeed::TripleFault => "triple fault".to_owned(),
            Misdeed::BadMemory => "page fault (vector 14)".to_owned(),
            Misdeed::BadInstruction => "undefined instruction (vector 6)".to_owned(),
            Misdeed::BadPort => format!("wrote to port {UNUSED_PORT:#x}, where nothing answers"),
        };
        let why = match misdeed {
            Misdeed::TripleFault => ExitReason::Shutdown,
            _ => ExitReason::Unexpected,
        };
        self.fail_in_guest(vcpu, why, &message);
    }
}

/// Whether a vCPU may be off its core after the call: what the host took of its stay is told before then.
pub(crate) const fn may_lose_core(call: Call) -> bool {
    match call {
        Call::Wait(_) | Call::SpunTooLong(_) => true,
        // Who is asked for its core by one of these leaves it when the call is handled.
        Call::Wake(..) | Call::CriticalLeft(_) => false,
        Call::Action(action) => matches!(
            action,
            Action::Sleep(_)
                | Action::HostWait(_)
                | Action::Yield
                | Action::HostLock { .. }
                | Action::HostAcquire { .. }
                | Action::End
        ),
    }
}
