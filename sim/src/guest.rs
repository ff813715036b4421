//! Guest mode: what a stretch of guest code leads to.

use crate::locks::{GuestLock, HandOver, Take, Turn};
use crate::machine::Machine;
use crate::queue::Slot;
use crate::vcpu::{Place, Task, Then};
use stealtime_guest::call::{Refusal, UNUSED_PORT};
use stealtime_guest::interp::Action;
use stealtime_guest::op::Misdeed;
use stealtime_scheduler::ids::VcpuId;
use stealtime_scheduler::input::{ExitReason, Input};
use stealtime_scheduler::time::Nanos;

/// Ops done in one go before the queue is looked at again, and with it the stop flag.
const OPS_AT_ONCE: u32 = 1_024;

impl Machine<'_> {
    /// The vCPU enters guest mode and takes the interrupts that wait for it. Its code goes on when
    /// the entry is done.
    pub(crate) fn enter_guest(&mut self, vcpu: VcpuId) {
        let now = self.now;
        let (entry_cost, interrupt_cost) = (self.costs.entry, self.costs.interrupt);
        let entry = self.vcpu(vcpu);
        entry.place = Place::Guest;
        let taken = entry.take_interrupts();
        entry.from = now + entry_cost + Nanos(interrupt_cost.0 * u64::from(taken));
        let due = entry.from + entry.code_left();
        let wanted = entry.kicked || entry.doomed;
        self.queue.set(Slot::Step(vcpu), due);
        // A signal that was for these interrupts has nothing left to do.
        if !wanted {
            self.queue.cancel(Slot::Signal(vcpu));
        }
        if taken > 0 {
            self.tell(Input::InterruptsTaken { vcpu }, None);
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
                Task::Spin { lock, turn, .. } => self.look_at_lock(vcpu, lock, turn),
                Task::Call(_) | Task::Host(_) => {}
            }
            let entry = self.vcpu(vcpu);
            if entry.place != Place::Guest || matches!(entry.task, Task::Spin { .. }) {
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
            Then::Refuse(refusal) => Err(refusal),
        };
        if let Err(refusal) = done {
            self.fail_in_guest(vcpu, ExitReason::Unexpected, &refusal.to_string());
        }
    }

    fn next_op(&mut self, vcpu: VcpuId) {
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
            Action::Lock(lock) => return self.lock(vcpu, lock),
            Action::Unlock(lock) => self.unlock(vcpu, lock)?,
            Action::CriticalEnter => {
                let deeper = entry.locks.critical.checked_add(1);
                entry.locks.critical = deeper.ok_or(Refusal::TooDeep)?;
                self.list(vcpu);
            }
            Action::CriticalLeave => {
                let outer = entry.locks.critical.checked_sub(1);
                entry.locks.critical = outer.ok_or(Refusal::NotCritical)?;
                let tells = outer == Some(0) && entry.owed;
                self.list(vcpu);
                if tells {
                    self.leave(vcpu, action, ExitReason::Call);
                    return Ok(());
                }
            }
            Action::WaitInterrupt if entry.interrupted => entry.interrupted = false,
            Action::WaitInterrupt => {
                self.leave(vcpu, action, ExitReason::Halt);
                return Ok(());
            }
            Action::Fault(misdeed) => {
                self.commit(vcpu, misdeed);
                return Ok(());
            }
            call => {
                self.leave(vcpu, call, ExitReason::Call);
                return Ok(());
            }
        }
        self.next_op(vcpu);
        Ok(())
    }

    /// The guest calls the VMM, or halts.
    fn leave(&mut self, vcpu: VcpuId, call: Action, why: ExitReason) {
        let cost = match why {
            ExitReason::Halt => self.costs.halt_exit,
            _ => self.costs.exit,
        };
        let due = self.now + cost;
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

    /// The vCPU's word on its locks has changed; the dispatcher is told before its next decision.
    pub(crate) fn list(&mut self, vcpu: VcpuId) {
        let entry = self.vcpu(vcpu);
        if !std::mem::replace(&mut entry.listed, true) {
            self.changed.push(vcpu);
        }
    }

    fn lock(&mut self, vcpu: VcpuId, number: u16) -> Result<(), Refusal> {
        let lock = self.guest_lock(vcpu, number)?;
        if lock.held_by(vcpu) {
            return Err(Refusal::AlreadyHeld(number));
        }
        match lock.ask(vcpu) {
            (Take::Taken, _) => {
                self.vcpu(vcpu).holds_one_more();
                self.goes_on_with_lock(vcpu);
            }
            (Take::Spin, turn) => {
                let entry = self.vcpu(vcpu);
                entry.locks.waits_for = Some(entry.lock_id(number));
                entry.task = Task::Spin {
                    lock: number,
                    turn,
                    watches: true,
                };
            }
        }
        self.list(vcpu);
        Ok(())
    }

    fn guest_lock(&mut self, vcpu: VcpuId, number: u16) -> Result<&mut GuestLock, Refusal> {
        let vm = self.vcpu(vcpu).vm;
        let lock = self.locks[vm.index()].get_mut(usize::from(number));
        lock.ok_or(Refusal::NoSuchLock(number))
    }

    fn goes_on_with_lock(&mut self, vcpu: VcpuId) {
        self.vcpu(vcpu).view.lock_acquisitions += 1;
        self.next_op(vcpu);
    }

    /// A spinner has come on a core.
    fn look_at_lock(&mut self, vcpu: VcpuId, number: u16, turn: Turn) {
        let vm = self.vcpu(vcpu).vm;
        let lock = &mut self.locks[vm.index()][usize::from(number)];
        let knew = lock.held_by(vcpu);
        match lock.come(vcpu, turn) {
            Take::Taken => {
                // A ticket lock was its own since its predecessor released it.
                if !knew {
                    self.vcpu(vcpu).holds_one_more();
                    self.list(vcpu);
                }
                self.goes_on_with_lock(vcpu);
            }
            Take::Spin => {
                if let Task::Spin { watches, .. } = &mut self.vcpu(vcpu).task {
                    *watches = true;
                }
            }
        }
    }

    /// A spinner goes off its core, or at least out of guest mode.
    pub(crate) fn look_away(&mut self, vcpu: VcpuId) {
        let entry = &mut self.vcpus[vcpu.index()];
        if let Task::Spin {
            lock,
            turn,
            watches,
        } = &mut entry.task
            && std::mem::take(watches)
        {
            self.locks[entry.vm.index()][usize::from(*lock)].go(vcpu, *turn);
        }
    }

    fn unlock(&mut self, vcpu: VcpuId, number: u16) -> Result<(), Refusal> {
        let lock = self.guest_lock(vcpu, number)?;
        if !lock.held_by(vcpu) {
            return Err(Refusal::NotHeld(number));
        }
        let next = lock.release();
        let entry = self.vcpu(vcpu);
        entry.locks.held = entry.locks.held.saturating_sub(1);
        self.list(vcpu);
        match next {
            HandOver::Nobody => {}
            HandOver::Unseen(next) => {
                self.vcpu(next).holds_one_more();
                self.list(next);
            }
            // It spins in guest mode on another core, and sees it at once.
            HandOver::Taken(next) => {
                let now = self.now;
                self.vcpu(next).settle(now);
                self.vcpu(next).holds_one_more();
                self.list(next);
                self.goes_on_with_lock(next);
                let entry = self.vcpu(next);
                let due = entry.from + entry.code_left();
                self.queue.set(Slot::Step(next), due);
            }
        }
        Ok(())
    }
}
