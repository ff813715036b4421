//! What each input means.

use super::host_locks::{Claim, How};
use super::leave::Leave;
use super::{Dispatcher, Output, State, next_multiple};
use crate::effect::Effect;
use crate::event::{EventKind, PreemptReason, Until, Waits, WakeSource};
use crate::ids::{CoreId, VcpuId};
use crate::input::{BlockOn, Input, RetireReason, Timer};
use crate::policy::{Enqueue, Mode, Resched};
use crate::time::Nanos;

impl Dispatcher {
    pub(super) fn dispatch(&mut self, input: Input, out: &mut Output) {
        match input {
            Input::Admit { vcpu } => self.admit(vcpu, out),
            Input::Retire { vcpu, why } => self.retire(vcpu, why, out),
            Input::Entered { core, vcpu } => {
                if self.running_on(vcpu) == Some(core) {
                    self.back_in_guest(vcpu, out);
                } else {
                    self.entered(core, vcpu, out);
                }
                // One may have woken since the grant and been put off until guest code runs.
                self.settle(vcpu, Until::GuestEntry, out);
            }
            Input::Exited { vcpu, why } => {
                self.mode(vcpu, Mode::Hypervisor);
                self.emit(out, vcpu, EventKind::Exited(why));
            }
            Input::Resumed { vcpu } => {
                self.mode(vcpu, Mode::Guest);
                self.emit(out, vcpu, EventKind::Resumed);
                self.settle(vcpu, Until::GuestEntry, out);
            }
            Input::UserReturn { vcpu } => self.user_return(vcpu, out),
            Input::Stopped { core, vcpu } => self.stopped(core, vcpu, out),
            Input::CriticalLeft { vcpu } => self.critical_left(vcpu, out),
            Input::Yield { vcpu } => self.yielded(vcpu, out),
            Input::Block { vcpu, on } => self.block(vcpu, on, out),
            Input::Interrupt { to, vector, from } => self.interrupt(to, vector, from, out),
            Input::InterruptsTaken { vcpu, at, more } => {
                let now = self.now;
                let entry = self.vcpu(vcpu);
                // Its clock is known with an error; what cannot have been is not told.
                let at = at.max(entry.interrupted_since).min(now);
                if more {
                    entry.interrupted_since = at;
                } else {
                    entry.pending_interrupts = 0;
                }
                self.emit(out, vcpu, EventKind::InterruptsTaken { at });
            }
            Input::ArmPeriodic {
                vcpu,
                period,
                vector,
            } => {
                self.arm_periodic(vcpu, period, vector, out);
            }
            Input::TimerDue { timer } => self.timer_due(timer, out),
            Input::HostLock {
                vcpu,
                lock,
                priority,
            } => {
                let how = How::Plain;
                let claim = Claim {
                    vcpu,
                    how,
                    priority,
                };
                self.host_lock(lock, claim, out);
            }
            Input::HostAcquire {
                vcpu,
                lock,
                mode,
                priority,
            } => {
                let how = How::Mode(mode);
                let claim = Claim {
                    vcpu,
                    how,
                    priority,
                };
                self.host_lock(lock, claim, out);
            }
            Input::HostUnlock { vcpu, lock } => self.host_unlock(vcpu, lock, out),
            Input::Locks { vcpu, locks } => {
                let entry = self.vcpu(vcpu);
                let before = std::mem::replace(&mut entry.guest, locks);
                if before.waits_for != locks.waits_for {
                    entry.windows_in_vain = 0;
                    self.not_in_a_circle(vcpu);
                }
                self.policy.locks(self.now, vcpu, locks);
                let kind = EventKind::Locks {
                    held: locks.held,
                    critical: locks.critical,
                    waits_for: locks.waits_for,
                    in_line: locks.in_line,
                };
                self.emit(out, vcpu, kind);
            }
            Input::GuestOwner { lock, owner } => self.guest_owner(lock, owner, out),
            Input::GuestWait { vcpu, lock } => self.guest_wait(vcpu, lock, out),
            Input::GuestWake { vcpu, by, lock } => self.guest_wake(vcpu, by, lock, out),
            Input::SpunTooLong { vcpu, lock } => self.spun_too_long(vcpu, lock, out),
            Input::HostDelay { vcpu, delay } => {
                self.emit(out, vcpu, EventKind::HostDelay(delay));
            }
            Input::Mark(mark) => self.emit(out, VcpuId(0), EventKind::Mark(mark)),
        }
    }

    /// The core that the vCPU runs on, if it is on one.
    pub(super) fn running_on(&self, vcpu: VcpuId) -> Option<CoreId> {
        match self.vcpus[vcpu.index()].state {
            State::Running(core) => Some(core),
            _ => None,
        }
    }

    fn admit(&mut self, vcpu: VcpuId, out: &mut Output) {
        if self.vcpus[vcpu.index()].state == State::Unborn {
            self.emit(out, vcpu, EventKind::Admitted);
            self.make_ready(vcpu, Enqueue::New, out);
        }
    }

    /// Off its core or queue first, then its locks go on to those that wait for them: nobody is asked
    /// to leave a core that is about to be free.
    fn retire(&mut self, vcpu: VcpuId, why: RetireReason, out: &mut Output) {
        let state = self.vcpus[vcpu.index()].state;
        if state == State::Retired {
            return;
        }
        self.emit(out, vcpu, EventKind::Retired(why));
        self.arm_wake(vcpu, None, out);
        self.arm_periodic(vcpu, Nanos::ZERO, 0, out);
        match state {
            State::Running(core) | State::Granted(core, _) => {
                self.leave(core, vcpu, Leave::Retire, out);
            }
            State::Ready => {
                self.vcpu(vcpu).queued = None;
                self.policy.remove(self.now, vcpu);
                self.policy.retire_waiting(self.now, vcpu);
            }
            State::Lent(core) => self.retire_donor(core, vcpu, out),
            State::Blocked(_) | State::Aside => self.policy.retire_waiting(self.now, vcpu),
            State::Unborn | State::Retired => {}
        }
        self.put(vcpu, State::Retired);
        self.unfollow(vcpu);
        self.guest_owners.retain(|_, owner| *owner != vcpu);
        self.rouse(vcpu, out);
        self.forget_locks(vcpu, out);
    }

    /// It was about to give its core back, was left on it after all (`puts_back`), and is there. It may have
    /// left its guest for that, or not have gone back yet from something else.
    fn back_in_guest(&mut self, vcpu: VcpuId, out: &mut Output) {
        if self.vcpu(vcpu).exited {
            self.mode(vcpu, Mode::Guest);
            self.emit(out, vcpu, EventKind::Resumed);
        }
    }

    /// The policy is told what runs on a core, unless it does not know that this one is on it.
    fn mode(&mut self, vcpu: VcpuId, mode: Mode) {
        self.vcpu(vcpu).exited = mode == Mode::Hypervisor;
        let lent = self
            .running_on(vcpu)
            .is_some_and(|core| self.cores[core.index()].donor.is_some());
        if !lent {
            self.policy.mode(self.now, vcpu, mode);
        }
    }

    fn user_return(&mut self, vcpu: VcpuId, out: &mut Output) {
        self.emit(out, vcpu, EventKind::UserReturn);
        if let Some(core) = self.running_on(vcpu) {
            self.charge(core);
            // To the policy a vCPU that uses another's turn is not on the core.
            if self.cores[core.index()].donor.is_none() {
                let preempt = self.policy.user_return(self.now, core, vcpu);
                self.note_standing(vcpu, out);
                self.kick_if(preempt, core, PreemptReason::PriorityDrop, out);
            }
            self.settle(vcpu, Until::UserReturn, out);
        }
    }

    /// The moment of a remembered preemption has come.
    pub(super) fn settle(&mut self, vcpu: VcpuId, moment: Until, out: &mut Output) {
        let Some(core) = self.running_on(vcpu) else {
            return;
        };
        if let Some((until, why)) = self.cores[core.index()].owed
            && until == moment
        {
            match self.cores[core.index()].donor {
                Some(donor) if why == PreemptReason::LoanOver => self.loan_over(core, donor, out),
                _ => self.kick_now(core, why, out),
            }
        }
    }

    /// A kick is acknowledged, be it on the way to the core. Without a kick on the books (it was
    /// overtaken by a block or a yield) there is nothing to do.
    fn stopped(&mut self, core: CoreId, vcpu: VcpuId, out: &mut Output) {
        let entry = self.cores.get(core.index()).copied();
        let on_it = entry.filter(|entry| entry.vcpu == Some(vcpu));
        if let Some(why) = on_it.and_then(|entry| entry.kicked) {
            if self.puts_back(core, why, out) {
                return;
            }
            self.emit(out, vcpu, EventKind::Preempted(core, why));
            self.leave(
                core,
                vcpu,
                Leave::Requeue(Enqueue::Preempted(core, why)),
                out,
            );
        }
    }

    fn yielded(&mut self, vcpu: VcpuId, out: &mut Output) {
        if let Some(core) = self.running_on(vcpu) {
            self.emit(out, vcpu, EventKind::Yielded(core));
            self.leave(core, vcpu, Leave::Requeue(Enqueue::Yield(core)), out);
        }
    }

    /// Nothing to wait for: nothing happens. A vCPU that is on no core cannot begin to wait.
    fn block(&mut self, vcpu: VcpuId, on: BlockOn, out: &mut Output) {
        if self.running_on(vcpu).is_none() {
            return;
        }
        let (waits, until) = match on {
            BlockOn::Idle if self.vcpus[vcpu.index()].pending_interrupts > 0 => return,
            BlockOn::Idle => (Waits::Idle, None),
            BlockOn::Sleep(until) => (Waits::Sleep, Some(until)),
            BlockOn::Host(until) => (Waits::Host, Some(until)),
        };
        if until.is_some_and(|until| until <= self.now) {
            return;
        }
        self.arm_wake(vcpu, until, out);
        self.block_on(vcpu, waits, out);
    }

    pub(super) fn block_on(&mut self, vcpu: VcpuId, waits: Waits, out: &mut Output) {
        if let Some(core) = self.running_on(vcpu) {
            self.emit(out, vcpu, EventKind::Blocked(waits));
            self.leave(core, vcpu, Leave::Block(waits), out);
        }
    }

    fn interrupt(&mut self, to: VcpuId, vector: u8, from: Option<VcpuId>, out: &mut Output) {
        let state = self.vcpus.get(to.index()).map(|entry| entry.state);
        if matches!(state, None | Some(State::Retired | State::Unborn)) {
            return;
        }
        let now = self.now;
        let entry = self.vcpu(to);
        if entry.pending_interrupts == 0 {
            entry.interrupted_since = now;
        }
        entry.pending_interrupts = entry.pending_interrupts.saturating_add(1);
        self.emit(out, to, EventKind::InterruptRaised { vector, from });
        out.effects.push(Effect::Inject { vcpu: to, vector });
        if state == Some(State::Blocked(Waits::Idle)) {
            self.wake(to, WakeSource::Interrupt(from), out);
        }
    }

    fn arm_wake(&mut self, vcpu: VcpuId, at: Option<Nanos>, out: &mut Output) {
        let timer = Timer::Wake(vcpu);
        match (
            std::mem::replace(&mut self.wake_armed[vcpu.index()], at),
            at,
        ) {
            (_, Some(at)) => out.effects.push(Effect::Arm { timer, at }),
            (Some(_), None) => out.effects.push(Effect::Cancel { timer }),
            (None, None) => {}
        }
    }

    fn arm_periodic(&mut self, vcpu: VcpuId, period: Nanos, vector: u8, out: &mut Output) {
        let timer = Timer::Periodic(vcpu);
        let on = (period > Nanos::ZERO).then_some((period, vector));
        self.vcpu(vcpu).periodic = on;
        let at = on.map(|(period, _)| self.now + period);
        match (
            std::mem::replace(&mut self.periodic_armed[vcpu.index()], at),
            at,
        ) {
            (_, Some(at)) => out.effects.push(Effect::Arm { timer, at }),
            (Some(_), None) => out.effects.push(Effect::Cancel { timer }),
            (None, None) => {}
        }
    }

    /// A timer may be reported after it was cancelled or armed anew: only what is armed, and due,
    /// counts.
    fn timer_due(&mut self, timer: Timer, out: &mut Output) {
        let armed = match timer {
            Timer::Slice(core) => &mut self.cores[core.index()].slice_armed,
            Timer::Wake(vcpu) => &mut self.wake_armed[vcpu.index()],
            Timer::Periodic(vcpu) => &mut self.periodic_armed[vcpu.index()],
            Timer::Tick => &mut self.tick_armed,
            Timer::Period => &mut self.period_armed,
            Timer::Policy => &mut self.policy_armed,
            Timer::Grace(core) => &mut self.cores[core.index()].grace_armed,
        };
        let Some(at) = armed.take_if(|at| *at <= self.now) else {
            return;
        };
        match timer {
            Timer::Slice(core) => self.slice_ended(core, out),
            Timer::Grace(core) => self.grace_over(core, out),
            Timer::Wake(vcpu) => self.wake(vcpu, WakeSource::Timer, out),
            Timer::Periodic(vcpu) => self.periodic_due(vcpu, at, out),
            Timer::Tick => self.tick(out),
            Timer::Period => {
                self.charge_all();
                let resched = self.policy.periodic(self.now);
                self.reschedule(resched, out);
            }
            Timer::Policy => {
                self.charge_all();
                let resched = self.policy.timer(self.now);
                self.reschedule(resched, out);
            }
        }
    }

    /// What concerns all may have changed anybody's standing.
    fn reschedule(&mut self, Resched(cores): Resched, out: &mut Output) {
        for index in 0..self.vcpus.len() {
            self.note_standing(VcpuId(u32::try_from(index).unwrap_or(u32::MAX)), out);
        }
        for core in cores {
            self.kick(core, PreemptReason::Period, out);
        }
    }

    /// The next period keeps the phase of the first, even if this one was told late.
    fn periodic_due(&mut self, vcpu: VcpuId, due: Nanos, out: &mut Output) {
        let Some((period, vector)) = self.vcpu(vcpu).periodic else {
            return;
        };
        let at = due + next_multiple(self.now.since(due), period);
        self.periodic_armed[vcpu.index()] = Some(at);
        out.effects.push(Effect::Arm {
            timer: Timer::Periodic(vcpu),
            at,
        });
        self.interrupt(vcpu, vector, None, out);
    }

    fn tick(&mut self, out: &mut Output) {
        for index in 0..self.cores.len() {
            let core = CoreId(u16::try_from(index).unwrap_or(u16::MAX));
            let Some(vcpu) = self.cores[index].vcpu else {
                continue;
            };
            if self.running_on(vcpu).is_some() {
                self.charge(core);
                let account = self.account(core).unwrap_or(vcpu);
                let preempt = self.policy.tick(self.now, core, account);
                self.note_standing(account, out);
                self.kick_if(preempt, core, PreemptReason::Tick, out);
            }
        }
    }
}
