//! Giving cores and taking them back.

use super::chain::End;
use super::{Core, Dispatcher, Output, State, Violation};
use crate::effect::Effect;
use crate::event::{Charged, EventKind, PreemptReason, Until, Waits, WakeSource};
use crate::ids::{CoreId, VcpuId};
use crate::input::Timer;
use crate::policy::{Enqueue, Inherited, Pick, Placed, Preempt, Slice, SliceEnd, WorkConserving};
use crate::time::Nanos;

/// The slice given in the stead of a policy whose own answer cannot be used.
const INSTEAD: Nanos = Nanos::from_millis(10);

/// How the vCPU on a core leaves it.
#[derive(Clone, Copy)]
pub(super) enum Leave {
    /// It stays runnable.
    Requeue(Enqueue),
    /// It waits.
    Block(Waits),
    /// It is gone for good.
    Retire,
    /// It waits for a lock, and what is left of its turn goes to the owner.
    Lend(VcpuId, PreemptReason),
    /// It stays runnable, and its core goes to a sibling.
    YieldTo(VcpuId),
}

/// Who runs on a core, for how long, and whose turn it is.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    pub(super) vcpu: VcpuId,
    pub(super) slice: Slice,
    /// The vCPU that lends it, and who is charged.
    pub(super) lent_by: Option<(VcpuId, Charged)>,
}

/// What a vCPU leaves behind on its core.
#[derive(Default)]
struct Left {
    /// Who has the core by rights, without the policy being asked.
    next: Option<Turn>,
    /// Where it was queued itself.
    own: Option<(VcpuId, CoreId)>,
    /// Where the donor was queued whose turn it used.
    donor: Option<(VcpuId, CoreId)>,
    /// Where those were queued that it kept from competing.
    back: Vec<(VcpuId, CoreId)>,
    inherited: Inherited,
}

impl Turn {
    /// A vCPU's own turn.
    pub(super) const fn own(vcpu: VcpuId, slice: Slice) -> Self {
        Self {
            vcpu,
            slice,
            lent_by: None,
        }
    }
}

impl Dispatcher {
    /// Whose turn it is on the core: the scheduling context.
    pub(super) fn account(&self, core: CoreId) -> Option<VcpuId> {
        let entry = self.cores.get(core.index())?;
        entry.donor.or(entry.vcpu)
    }

    /// Changes a vCPU's state.
    pub(super) fn put(&mut self, vcpu: VcpuId, state: State) {
        let before = std::mem::replace(&mut self.vcpu(vcpu).state, state);
        self.ready -= usize::from(before == State::Ready);
        self.ready += usize::from(state == State::Ready);
        self.aside -= usize::from(before == State::Aside);
        self.aside += usize::from(state == State::Aside);
    }

    /// Charges the account of a core up to now.
    pub(super) fn charge(&mut self, core: CoreId) {
        let now = self.now;
        let Some(vcpu) = self.cores[core.index()].vcpu else {
            return;
        };
        if !matches!(self.vcpus[vcpu.index()].state, State::Running(_)) {
            return;
        }
        let entry = &mut self.cores[core.index()];
        let ran = now.since(entry.charged_to);
        entry.charged_to = now;
        entry.charged += ran;
        let account = entry.donor.unwrap_or(vcpu);
        self.vcpu(account).charged += ran;
        if ran > Nanos::ZERO {
            self.policy.charge(now, account, ran);
        }
    }

    /// Charges everybody on a core, before the policy is asked about all of them.
    pub(super) fn charge_all(&mut self) {
        for index in 0..self.cores.len() {
            self.charge(CoreId(u16::try_from(index).unwrap_or(u16::MAX)));
        }
    }

    /// The granted vCPU is on its core: its slice begins.
    pub(super) fn entered(&mut self, core: CoreId, vcpu: VcpuId, out: &mut Output) {
        let now = self.now;
        let State::Granted(granted, slice) = self.vcpu(vcpu).state else {
            return;
        };
        if granted != core {
            return;
        }
        self.put(vcpu, State::Running(core));
        let entry = &mut self.cores[core.index()];
        entry.entered = now;
        entry.charged_to = now;
        entry.charged = Nanos::ZERO;
        let account = self.account(core).unwrap_or(vcpu);
        self.policy.entered(now, core, account);
        self.emit(out, vcpu, EventKind::Running(core));
        let slice = self.repay(core, slice);
        self.arm_slice(core, slice, out);
    }

    pub(super) fn arm_slice(&mut self, core: CoreId, slice: Slice, out: &mut Output) {
        let at = match slice {
            Slice::For(Nanos::ZERO) => {
                let vcpu = self.account(core).unwrap_or(VcpuId(0));
                self.violated(Violation::EmptySlice, vcpu, out);
                Some(self.now + INSTEAD)
            }
            Slice::For(length) => Some(self.now + length),
            Slice::Open => None,
        };
        let armed = std::mem::replace(&mut self.cores[core.index()].slice_armed, at);
        match (armed, at) {
            (_, Some(at)) => out.effects.push(Effect::Arm {
                timer: Timer::Slice(core),
                at,
            }),
            (Some(_), None) => out.effects.push(Effect::Cancel {
                timer: Timer::Slice(core),
            }),
            (None, None) => {}
        }
    }

    /// Asks for the core back, once, unless that is put off for now.
    pub(super) fn kick(&mut self, core: CoreId, why: PreemptReason, out: &mut Output) {
        if core.index() >= self.cores.len() {
            self.violated(Violation::NoSuchCore, VcpuId(0), out);
        } else if self.cores[core.index()].kicked.is_none() && !self.put_off(core, why, out) {
            self.kick_now(core, why, out);
        }
    }

    /// Asks for the core back, once.
    pub(super) fn kick_now(&mut self, core: CoreId, why: PreemptReason, out: &mut Output) {
        let entry = &mut self.cores[core.index()];
        if let (Some(vcpu), None) = (entry.vcpu, entry.kicked) {
            entry.kicked = Some(why);
            self.emit(out, vcpu, EventKind::Kicked(core, why));
            out.effects.push(Effect::Kick { core, vcpu });
        }
    }

    /// Remembers that the core is wanted. The first reason stays.
    pub(super) fn owe(&mut self, core: CoreId, until: Until, why: PreemptReason, out: &mut Output) {
        let Some(vcpu) = self.cores[core.index()].vcpu else {
            return;
        };
        if self.cores[core.index()].owed.is_none() {
            self.cores[core.index()].owed = Some((until, why));
            self.emit(out, vcpu, EventKind::Owed(core, why, until));
            if until == Until::CriticalExit {
                out.effects.push(Effect::Owe { core, vcpu });
            }
        }
    }

    pub(super) fn kick_if(
        &mut self,
        preempt: Preempt,
        core: CoreId,
        why: PreemptReason,
        out: &mut Output,
    ) {
        match preempt {
            Preempt::Kick => self.kick(core, why, out),
            Preempt::Defer(until) => self.owe(core, until, why, out),
            Preempt::Keep => {}
        }
    }

    /// The slice timer of the core was due.
    pub(super) fn slice_ended(&mut self, core: CoreId, out: &mut Output) {
        let (Some(vcpu), Some(account)) = (self.cores[core.index()].vcpu, self.account(core))
        else {
            return;
        };
        self.charge(core);
        if self.vcpus[vcpu.index()].guest.waits_for.is_some() {
            self.look_for_deadlock(vcpu, out);
        }
        self.call_back_runnable(vcpu, out);
        let answer = self.policy.slice_end(self.now, core, account);
        self.note_standing(account, out);
        match answer {
            SliceEnd::Extend(slice) => self.arm_slice(core, slice, out),
            SliceEnd::Kick => self.kick(core, PreemptReason::SliceEnd, out),
        }
    }

    /// Takes the vCPU off its core and gives the core to whoever the policy picks, which may be the
    /// same one again.
    pub(super) fn leave(&mut self, core: CoreId, vcpu: VcpuId, how: Leave, out: &mut Output) {
        self.charge(core);
        self.close_books(core, vcpu, out);
        self.end_grace(core, out);
        let entry = self.cores[core.index()];
        let rest = entry.slice_armed.map_or(Slice::Open, |at| {
            Slice::For(at.since(self.now).max(Nanos(1)))
        });
        self.cores[core.index()] = Core {
            slice_armed: entry.slice_armed,
            ..Core::default()
        };
        self.busy -= 1;
        self.arm_slice(core, Slice::Open, out);
        let mut left = match entry.donor {
            None => self.leave_own_turn(core, vcpu, how, rest, out),
            Some(donor) => self.leave_lent_turn(core, vcpu, donor, how, out),
        };
        // Whom it kept from competing: not if it goes to sleep for something that is no lock.
        if !matches!(how, Leave::Block(on) if !self.lends(on)) {
            left.back = self.call_back(vcpu, out);
        }
        let next = left.next.or_else(|| self.choose(core, out));
        if next.is_none_or(|next| next.vcpu != vcpu) {
            out.effects.push(Effect::Park { core, vcpu });
        }
        self.grant(core, next, out);
        self.inherited(left.inherited, PreemptReason::Wakeup, out);
        // They may go first where they were placed, if that is elsewhere.
        for (vcpu, home) in left.own.into_iter().chain(left.donor).chain(left.back) {
            if home != core {
                self.consider_if_ready(home, vcpu, out);
            }
        }
    }

    /// Off a core on its own turn.
    fn leave_own_turn(
        &mut self,
        core: CoreId,
        vcpu: VcpuId,
        how: Leave,
        rest: Slice,
        out: &mut Output,
    ) -> Left {
        let mut left = Left::default();
        match how {
            Leave::Requeue(why) => left.own = Some((vcpu, self.requeue(vcpu, why, out))),
            Leave::Block(on) => {
                if self.lends(on) {
                    self.vcpu(vcpu).sleeps = Some(on);
                    match self.chain_end(vcpu) {
                        End::Runnable(owner) | End::OnCore(owner)
                            if self.moves(core, vcpu, owner, out) => {}
                        End::Runnable(owner) => {
                            self.turn_goes_on(core, vcpu, owner, rest, &mut left, out);
                        }
                        End::OnCore(owner) | End::Asleep(owner) => {
                            self.set_aside(core, vcpu, Some(owner));
                        }
                        End::Free | End::Circle => self.set_aside(core, vcpu, None),
                    }
                } else {
                    self.put(vcpu, State::Blocked(on));
                    self.policy.block(self.now, core, vcpu, on);
                }
                // A donor does not wait, as far as the policy knows.
                if matches!(self.vcpus[vcpu.index()].state, State::Blocked(_)) {
                    left.inherited = self.will(vcpu, on);
                    self.note_standing(vcpu, out);
                }
            }
            Leave::Retire => {
                self.put(vcpu, State::Retired);
                self.policy.retire(self.now, core, vcpu);
            }
            Leave::Lend(owner, _) => self.turn_goes_on(core, vcpu, owner, rest, &mut left, out),
            Leave::YieldTo(target) => {
                let spin = self.layers.spin.as_mut();
                let sticky = spin.is_some_and(|spin| {
                    spin.yields(vcpu);
                    spin.sticky()
                });
                if sticky {
                    self.steps_aside(core, vcpu, Some(target), out);
                } else {
                    let why = Enqueue::Yield(core);
                    left.own = Some((vcpu, self.requeue(vcpu, why, out)));
                }
                let slice = self.take(core, target);
                if self.goes_on(core, target, out) {
                    left.next = Some(Turn::own(target, slice));
                }
            }
        }
        left
    }

    /// What is left of a waiter's turn goes to the owner. An owner that pays itself would get a turn
    /// of its own, and the two could hand the core to each other for ever: there the policy decides.
    fn turn_goes_on(
        &mut self,
        core: CoreId,
        vcpu: VcpuId,
        owner: VcpuId,
        rest: Slice,
        left: &mut Left,
        out: &mut Output,
    ) {
        match self.chain().map(|chain| chain.charged) {
            Some(Charged::Donor) => left.next = Some(self.lend(core, vcpu, owner, rest)),
            Some(Charged::Owner) | None => {
                let why = Enqueue::Preempted(core, PreemptReason::LockWait);
                left.own = Some((vcpu, self.requeue(vcpu, why, out)));
            }
        }
    }

    /// Off a core on the turn of another one. Its own place in the queue is what it was, and the
    /// donor goes back to the queue.
    fn leave_lent_turn(
        &mut self,
        core: CoreId,
        vcpu: VcpuId,
        donor: VcpuId,
        how: Leave,
        out: &mut Output,
    ) -> Left {
        let mut left = Left::default();
        self.end_loan(vcpu, donor, out);
        let why = match how {
            Leave::Requeue(Enqueue::Preempted(_, why)) | Leave::Lend(_, why) => why,
            Leave::Requeue(_) | Leave::Block(_) | Leave::Retire | Leave::YieldTo(_) => {
                PreemptReason::LoanOver
            }
        };
        let stays = match how {
            Leave::Block(on) => {
                self.vcpu(vcpu).sleeps = Some(on).filter(|on| self.lends(*on));
                let end = self.chain_end(vcpu);
                if !self.lends(on) || !matches!(end, End::Runnable(_)) {
                    self.put(vcpu, State::Blocked(on));
                    if let End::OnCore(owner) | End::Asleep(owner) = end
                        && self.lends(on)
                    {
                        self.go_behind(vcpu, Some(owner));
                    }
                }
                matches!(end, End::Runnable(_)) && self.lends(on)
            }
            Leave::Retire => {
                self.put(vcpu, State::Retired);
                false
            }
            Leave::Requeue(_) | Leave::Lend(..) | Leave::YieldTo(_) => true,
        };
        match (stays, self.vcpus[vcpu.index()].queued) {
            (true, Some(home)) => {
                self.put(vcpu, State::Ready);
                self.tell_place(vcpu, home, out);
            }
            (true, None) => {
                let home = self.requeue(vcpu, Enqueue::Wake, out);
                left.own = Some((vcpu, home));
            }
            (false, Some(_)) => {
                self.vcpu(vcpu).queued = None;
                self.policy.remove(self.now, vcpu);
                if matches!(how, Leave::Retire) {
                    self.policy.retire_waiting(self.now, vcpu);
                }
            }
            (false, None) if matches!(how, Leave::Retire) => {
                self.policy.retire_waiting(self.now, vcpu);
            }
            (false, None) => {}
        }
        let home = self.requeue(donor, Enqueue::Preempted(core, why), out);
        left.donor = Some((donor, home));
        left
    }

    /// The books of a stay on a core: charged time is run time.
    fn close_books(&mut self, core: CoreId, vcpu: VcpuId, out: &mut Output) {
        if matches!(self.vcpus[vcpu.index()].state, State::Running(_)) {
            let entry = self.cores[core.index()];
            let stayed = self.now.since(entry.entered);
            self.vcpu(vcpu).ran += stayed;
            if stayed != entry.charged {
                self.violated(Violation::ChargeMismatch, vcpu, out);
            }
        }
    }

    /// Puts a vCPU on the policy's run queue; the answer is the core to consider it for.
    pub(super) fn requeue(&mut self, vcpu: VcpuId, why: Enqueue, out: &mut Output) -> CoreId {
        let now = self.now;
        self.put(vcpu, State::Ready);
        let entry = self.vcpu(vcpu);
        entry.ready_since = now;
        let Placed(mut home) = self.policy.enqueue(now, vcpu, why);
        self.note_standing(vcpu, out);
        if home.index() >= self.cores.len() {
            self.violated(Violation::NoSuchCore, vcpu, out);
            home = CoreId(0);
        }
        self.vcpu(vcpu).queued = Some(home);
        self.tell_place(vcpu, home, out);
        home
    }

    /// Tells on which core's queue a vCPU is, if that is news.
    fn tell_place(&mut self, vcpu: VcpuId, home: CoreId, out: &mut Output) {
        let entry = self.vcpu(vcpu);
        let asleep = entry.sleeps.is_some();
        if entry.told.replace(home) != Some(home) || asleep {
            self.emit(out, vcpu, EventKind::Placed(home));
        }
    }

    /// Who runs on the core. One that was woken to try a mutex again may find it taken, and one that
    /// waits for a lock does not run itself.
    fn choose(&mut self, core: CoreId, out: &mut Output) -> Option<Turn> {
        loop {
            let (vcpu, slice) = self.choose_ready(core, out)?;
            let Some(turn) = self.follow(core, vcpu, slice, out) else {
                continue;
            };
            if self.goes_on(core, turn.vcpu, out) {
                return Some(turn);
            }
        }
    }

    /// Asks the policy who runs on the core, and checks the answer.
    fn choose_ready(&mut self, core: CoreId, out: &mut Output) -> Option<(VcpuId, Slice)> {
        while self.ready > 0 {
            match self.policy.pick(self.now, core) {
                Pick::Run(vcpu, slice) => {
                    let entry = self.vcpus.get_mut(vcpu.index());
                    let state = entry.map(|entry| (entry.state, entry.queued.take()));
                    match state {
                        Some((State::Ready, _)) => return Some((vcpu, slice)),
                        // Its own turn has come while it uses another's: that can wait.
                        Some((State::Granted(..) | State::Running(_), Some(_))) => {
                            self.policy.block(self.now, core, vcpu, Waits::Host);
                        }
                        _ => {
                            let named = state.map_or(VcpuId(0), |_| vcpu);
                            self.violated(Violation::PickedNotReady, named, out);
                            return self.choose_instead();
                        }
                    }
                }
                Pick::Idle => match self.policy.conserving() {
                    WorkConserving::No => return None,
                    WorkConserving::Yes => {
                        let waiting = self.longest_ready()?;
                        self.violated(Violation::IdleWhileReady, waiting, out);
                        return self.choose_instead();
                    }
                },
            }
        }
        None
    }

    fn choose_instead(&mut self) -> Option<(VcpuId, Slice)> {
        let vcpu = self.longest_ready()?;
        self.vcpu(vcpu).queued = None;
        self.policy.remove(self.now, vcpu);
        Some((vcpu, Slice::For(INSTEAD)))
    }

    fn grant(&mut self, core: CoreId, next: Option<Turn>, out: &mut Output) {
        let Some(turn) = next else { return };
        let vcpu = turn.vcpu;
        self.busy += 1;
        self.cores[core.index()].vcpu = Some(vcpu);
        self.put(vcpu, State::Granted(core, turn.slice));
        let entry = self.vcpu(vcpu);
        entry.told = Some(core);
        let from = entry.last_core.replace(core);
        if let Some(from) = from.filter(|from| *from != core) {
            self.emit(out, vcpu, EventKind::Migrated { from, to: core });
        }
        self.emit(out, vcpu, EventKind::Granted(core));
        out.effects.push(Effect::Run { core, vcpu });
        if let Some((donor, charged)) = turn.lent_by {
            self.begin_loan(core, vcpu, donor, charged, out);
        }
        if let Some(spin) = &mut self.layers.spin {
            spin.runs(vcpu);
        }
        self.note_standing(vcpu, out);
    }

    /// Gives idle cores to whoever waits.
    pub(super) fn fill_idle_cores(&mut self, out: &mut Output) {
        let mut index = 0;
        while self.ready > 0 && self.busy < self.cores.len() && index < self.cores.len() {
            if self.cores[index].vcpu.is_none() {
                let core = CoreId(u16::try_from(index).unwrap_or(u16::MAX));
                let next = self.choose(core, out);
                self.grant(core, next, out);
            }
            index += 1;
        }
    }

    /// A vCPU has become runnable.
    pub(super) fn make_ready(&mut self, vcpu: VcpuId, why: Enqueue, out: &mut Output) {
        let home = self.requeue(vcpu, why, out);
        self.consider(home, vcpu, out);
    }

    /// A vCPU that waits, wherever it waits, does so no longer.
    pub(super) fn wake(&mut self, vcpu: VcpuId, by: WakeSource, out: &mut Output) {
        let entry = &self.vcpus[vcpu.index()];
        let (state, asleep) = (entry.state, entry.sleeps.is_some());
        if !asleep && !matches!(state, State::Blocked(_)) {
            return;
        }
        self.vcpu(vcpu).sleeps = None;
        self.emit(out, vcpu, EventKind::Woken(by));
        if self.stays_moved(vcpu) && state == State::Ready {
            self.policy.woken_by(self.now, vcpu, by);
            return;
        }
        match state {
            // Its turn is used by another one until that one has stopped.
            State::Lent(core) => self.loan_over(core, vcpu, out),
            // A donor is placed anew, as anybody who wakes.
            State::Ready => {
                self.policy.remove(self.now, vcpu);
                self.compete(vcpu, by, out);
            }
            _ => {
                self.unfollow(vcpu);
                self.compete(vcpu, by, out);
                self.rouse(vcpu, out);
            }
        }
    }

    fn compete(&mut self, vcpu: VcpuId, by: WakeSource, out: &mut Output) {
        self.policy.woken_by(self.now, vcpu, by);
        self.make_ready(vcpu, Enqueue::Wake, out);
    }

    pub(super) fn consider_if_ready(&mut self, home: CoreId, vcpu: VcpuId, out: &mut Output) {
        if self.vcpus[vcpu.index()].state == State::Ready {
            self.consider(home, vcpu, out);
        }
    }

    /// Looks at the core where a ready vCPU was placed: idle, to be preempted, or neither.
    fn consider(&mut self, home: CoreId, woken: VcpuId, out: &mut Output) {
        let Some(running) = self.account(home) else {
            let next = self.choose(home, out);
            self.grant(home, next, out);
            return;
        };
        // An idle core elsewhere takes it without anyone being disturbed.
        if self.busy < self.cores.len() {
            self.fill_idle_cores(out);
            if self.vcpus[woken.index()].state != State::Ready {
                return;
            }
        }
        // A donor disturbs nobody for an owner that runs already.
        let asleep = self.vcpus[woken.index()].sleeps.is_some();
        if asleep && !matches!(self.chain_end(woken), End::Runnable(_)) {
            return;
        }
        self.charge(home);
        let preempt = self.policy.preempts(self.now, home, running, woken);
        self.kick_if(preempt, home, PreemptReason::Wakeup, out);
    }
}
