//! Asking for a core back: by a kick, later, or when a slice ends.

use super::{Dispatcher, Output, Violation};
use crate::effect::Effect;
use crate::event::{EventKind, PreemptReason, Until};
use crate::ids::{CoreId, VcpuId};
use crate::input::Timer;
use crate::policy::{Preempt, Slice, SliceEnd};
use crate::time::Nanos;

/// The slice given in the stead of a policy whose own answer cannot be used.
pub(super) const INSTEAD: Nanos = Nanos::from_millis(10);

impl Dispatcher {
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
}
