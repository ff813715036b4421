//! Giving cores and taking them back.

use super::{Dispatcher, Output, State, Violation};
use crate::effect::Effect;
use crate::event::{EventKind, PreemptReason, Until, Waits, WakeSource};
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
}

impl Dispatcher {
    /// Charges the vCPU on a core up to now.
    pub(super) fn charge(&mut self, vcpu: VcpuId) {
        let now = self.now;
        let entry = self.vcpu(vcpu);
        if !matches!(entry.state, State::Running(_)) {
            return;
        }
        let ran = now.since(entry.charged_to);
        entry.charged_to = now;
        entry.charged += ran;
        if ran > Nanos::ZERO {
            self.policy.charge(now, vcpu, ran);
        }
    }

    /// Charges everybody on a core, before the policy is asked about all of them.
    pub(super) fn charge_all(&mut self) {
        for index in 0..self.cores.len() {
            if let Some(vcpu) = self.cores[index].vcpu {
                self.charge(vcpu);
            }
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
        let entry = self.vcpu(vcpu);
        entry.state = State::Running(core);
        entry.entered = now;
        entry.charged_to = now;
        self.policy.entered(now, core, vcpu);
        self.emit(out, vcpu, EventKind::Running(core));
        self.arm_slice(core, slice, out);
    }

    pub(super) fn arm_slice(&mut self, core: CoreId, slice: Slice, out: &mut Output) {
        let at = match slice {
            Slice::For(Nanos::ZERO) => {
                let vcpu = self.cores[core.index()].vcpu.unwrap_or(VcpuId(0));
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

    /// Asks for the core back, once.
    pub(super) fn kick(&mut self, core: CoreId, why: PreemptReason, out: &mut Output) {
        let Some(entry) = self.cores.get_mut(core.index()) else {
            self.violated(Violation::NoSuchCore, VcpuId(0), out);
            return;
        };
        if let (Some(vcpu), None) = (entry.vcpu, entry.kicked) {
            entry.kicked = Some(why);
            self.emit(out, vcpu, EventKind::Kicked(core, why));
            out.effects.push(Effect::Kick { core, vcpu });
        }
    }

    /// Remembers that the core is wanted. The first reason stays.
    fn owe(&mut self, core: CoreId, until: Until, why: PreemptReason, out: &mut Output) {
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
        let Some(vcpu) = self.cores[core.index()].vcpu else {
            return;
        };
        self.charge(vcpu);
        let answer = self.policy.slice_end(self.now, core, vcpu);
        self.note_standing(vcpu, out);
        match answer {
            SliceEnd::Extend(slice) => self.arm_slice(core, slice, out),
            SliceEnd::Kick => self.kick(core, PreemptReason::SliceEnd, out),
        }
    }

    /// Takes the vCPU off its core and gives the core to whoever the policy picks, which may be the
    /// same one again.
    pub(super) fn leave(&mut self, core: CoreId, vcpu: VcpuId, how: Leave, out: &mut Output) {
        let now = self.now;
        self.charge(vcpu);
        self.close_books(vcpu, out);
        let entry = &mut self.cores[core.index()];
        entry.vcpu = None;
        entry.kicked = None;
        entry.owed = None;
        self.busy -= 1;
        self.arm_slice(core, Slice::Open, out);
        let mut inherited = Inherited::default();
        let home = match how {
            Leave::Requeue(why) => Some(self.requeue(vcpu, why, out)),
            Leave::Block(on) => {
                self.vcpu(vcpu).state = State::Blocked(on);
                self.policy.block(now, core, vcpu, on);
                inherited = self.will(vcpu, on);
                self.note_standing(vcpu, out);
                None
            }
            Leave::Retire => {
                self.vcpu(vcpu).state = State::Retired;
                self.policy.retire(now, core, vcpu);
                None
            }
        };
        let next = self.choose(core, out);
        if next.is_none_or(|(next, _)| next != vcpu) {
            out.effects.push(Effect::Park { core, vcpu });
        }
        self.grant(core, next, out);
        self.inherited(inherited, PreemptReason::Wakeup, out);
        // It may go first where it was placed, if that is elsewhere.
        if let Some(home) = home.filter(|home| *home != core)
            && self.vcpus[vcpu.index()].state == State::Ready
        {
            self.consider(home, vcpu, out);
        }
    }

    /// The books of a stay on a core: charged time is run time.
    fn close_books(&mut self, vcpu: VcpuId, out: &mut Output) {
        let now = self.now;
        let entry = self.vcpu(vcpu);
        if matches!(entry.state, State::Running(_)) {
            entry.ran += now.since(entry.entered);
            if entry.ran != entry.charged {
                self.violated(Violation::ChargeMismatch, vcpu, out);
            }
        }
    }

    /// Puts a vCPU on the policy's run queue; the answer is the core to consider it for.
    fn requeue(&mut self, vcpu: VcpuId, why: Enqueue, out: &mut Output) -> CoreId {
        let now = self.now;
        let entry = self.vcpu(vcpu);
        entry.state = State::Ready;
        entry.ready_since = now;
        self.ready += 1;
        let Placed(home) = self.policy.enqueue(now, vcpu, why);
        self.note_standing(vcpu, out);
        if home.index() < self.cores.len() {
            return home;
        }
        self.violated(Violation::NoSuchCore, vcpu, out);
        CoreId(0)
    }

    /// Who runs on the core. One that was woken to try a mutex again may find it taken.
    fn choose(&mut self, core: CoreId, out: &mut Output) -> Option<(VcpuId, Slice)> {
        loop {
            let (vcpu, slice) = self.choose_ready(core, out)?;
            if self.goes_on(core, vcpu, out) {
                return Some((vcpu, slice));
            }
        }
    }

    /// Asks the policy who runs on the core, and checks the answer.
    fn choose_ready(&mut self, core: CoreId, out: &mut Output) -> Option<(VcpuId, Slice)> {
        if self.ready == 0 {
            return None;
        }
        match self.policy.pick(self.now, core) {
            Pick::Run(vcpu, slice) => {
                let state = self.vcpus.get(vcpu.index()).map(|entry| entry.state);
                if state == Some(State::Ready) {
                    return Some((vcpu, slice));
                }
                let named = state.map_or(VcpuId(0), |_| vcpu);
                self.violated(Violation::PickedNotReady, named, out);
                self.choose_instead()
            }
            Pick::Idle => match self.policy.conserving() {
                WorkConserving::No => None,
                WorkConserving::Yes => {
                    let waiting = self.longest_ready()?;
                    self.violated(Violation::IdleWhileReady, waiting, out);
                    self.choose_instead()
                }
            },
        }
    }

    fn choose_instead(&mut self) -> Option<(VcpuId, Slice)> {
        let vcpu = self.longest_ready()?;
        self.policy.remove(self.now, vcpu);
        Some((vcpu, Slice::For(INSTEAD)))
    }

    fn grant(&mut self, core: CoreId, next: Option<(VcpuId, Slice)>, out: &mut Output) {
        let Some((vcpu, slice)) = next else { return };
        self.ready -= 1;
        self.busy += 1;
        self.cores[core.index()].vcpu = Some(vcpu);
        let entry = self.vcpu(vcpu);
        entry.state = State::Granted(core, slice);
        let from = entry.last_core.replace(core);
        if let Some(from) = from.filter(|from| *from != core) {
            self.emit(out, vcpu, EventKind::Migrated { from, to: core });
        }
        self.emit(out, vcpu, EventKind::Granted(core));
        out.effects.push(Effect::Run { core, vcpu });
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

    pub(super) fn wake(&mut self, vcpu: VcpuId, by: WakeSource, out: &mut Output) {
        if matches!(self.vcpus[vcpu.index()].state, State::Blocked(_)) {
            self.emit(out, vcpu, EventKind::Woken(by));
            self.policy.woken_by(self.now, vcpu, by);
            self.make_ready(vcpu, Enqueue::Wake, out);
        }
    }

    /// Looks at the core where a ready vCPU was placed: idle, to be preempted, or neither.
    fn consider(&mut self, home: CoreId, woken: VcpuId, out: &mut Output) {
        let Some(running) = self.cores[home.index()].vcpu else {
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
        self.charge(running);
        let preempt = self.policy.preempts(self.now, home, running, woken);
        self.kick_if(preempt, home, PreemptReason::Wakeup, out);
    }
}
