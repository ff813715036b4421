//! Becoming runnable: on which core's queue, and whether somebody makes room.

use super::chain::End;
use super::{Dispatcher, Output, State, Violation};
use crate::event::{EventKind, PreemptReason, WakeSource};
use crate::ids::{CoreId, VcpuId};
use crate::policy::{Enqueue, Placed};

impl Dispatcher {
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
    pub(super) fn tell_place(&mut self, vcpu: VcpuId, home: CoreId, out: &mut Output) {
        let entry = self.vcpu(vcpu);
        let asleep = entry.sleeps.is_some();
        if entry.told.replace(home) != Some(home) || asleep {
            self.emit(out, vcpu, EventKind::Placed(home));
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

    pub(super) fn consider_placed(&mut self, out: &mut Output) {
        while let Some((vcpu, home)) = self.placed.pop() {
            self.consider_if_ready(home, vcpu, out);
        }
    }
}
