//! Runnable vCPUs, or sleeping donors, that do not compete until another one moves.

use super::{Dispatcher, Output, State};
use crate::event::{EventKind, Waits};
use crate::ids::{CoreId, VcpuId};
use crate::policy::Enqueue;

impl Dispatcher {
    /// Takes a vCPU that is on the core for the policy out of the competition, until the one named
    /// leaves its core, wakes or gives up a lock.
    pub(super) fn set_aside(&mut self, core: CoreId, vcpu: VcpuId, behind: Option<VcpuId>) {
        let asleep = self.vcpus[vcpu.index()].sleeps;
        let on = asleep.unwrap_or(Waits::Host);
        self.policy.block(self.now, core, vcpu, on);
        self.put(vcpu, asleep.map_or(State::Aside, State::Blocked));
        self.go_behind(vcpu, behind);
    }

    /// The same, and tells: of one that readers of the events would else take to be queued. Where it blocks or
    /// somebody borrows its turn, that tells.
    pub(super) fn set_aside_and_tell(
        &mut self,
        core: CoreId,
        vcpu: VcpuId,
        behind: Option<VcpuId>,
        out: &mut Output,
    ) {
        self.vcpu(vcpu).told = None;
        self.emit(out, vcpu, EventKind::SetAside { behind });
        self.set_aside(core, vcpu, behind);
    }

    pub(super) fn go_behind(&mut self, vcpu: VcpuId, behind: Option<VcpuId>) {
        self.vcpu(vcpu).behind = behind;
        if let Some(other) = behind {
            self.vcpu(other).followers.push(vcpu);
        }
    }

    /// It is not set aside any more.
    pub(super) fn unfollow(&mut self, vcpu: VcpuId) {
        if let Some(other) = self.vcpu(vcpu).behind.take() {
            self.vcpu(other)
                .followers
                .retain(|follower| *follower != vcpu);
        }
    }

    /// Those that were set aside until `vcpu` moves compete again. The answer is where each was
    /// placed.
    pub(super) fn call_back(&mut self, vcpu: VcpuId, out: &mut Output) -> Vec<(VcpuId, CoreId)> {
        let mut placed = Vec::new();
        // By far the most often nobody waits behind it.
        if self.vcpus[vcpu.index()].followers.is_empty() {
            return placed;
        }
        let mut movers = vec![vcpu];
        while let Some(mover) = movers.pop() {
            for follower in std::mem::take(&mut self.vcpu(mover).followers) {
                self.vcpu(follower).behind = None;
                placed.push((follower, self.requeue(follower, Enqueue::Wake, out)));
                movers.push(follower);
            }
        }
        placed
    }

    /// Those among them that could run and only wait for `vcpu` to leave its core compete again: it
    /// has had its turn, or spins itself.
    pub(super) fn call_back_runnable(&mut self, vcpu: VcpuId, out: &mut Output) {
        if self.aside == 0 {
            return;
        }
        let (vcpus, followers) = (&self.vcpus, &self.vcpus[vcpu.index()].followers);
        let aside = |follower: &VcpuId| vcpus[follower.index()].state == State::Aside;
        let aside: Vec<_> = followers.iter().copied().filter(aside).collect();
        for follower in aside {
            self.comes_forward(follower, out);
        }
    }

    /// An idle core is for anybody who could run.
    pub(super) fn fill_with_those_aside(&mut self, out: &mut Output) {
        while self.aside > 0 && self.busy < self.cores.len() {
            let aside = |entry: &super::Vcpu| entry.state == State::Aside;
            let Some(index) = self.vcpus.iter().position(aside) else {
                return;
            };
            let vcpu = VcpuId(u32::try_from(index).unwrap_or(u32::MAX));
            self.comes_forward(vcpu, out);
        }
    }

    /// One that was set aside competes again.
    fn comes_forward(&mut self, vcpu: VcpuId, out: &mut Output) {
        self.unfollow(vcpu);
        let home = self.requeue(vcpu, Enqueue::Wake, out);
        self.consider_if_ready(home, vcpu, out);
    }

    /// All that wait behind `vcpu` compete again, and whatever follows from that.
    pub(super) fn rouse(&mut self, vcpu: VcpuId, out: &mut Output) {
        for (follower, home) in self.call_back(vcpu, out) {
            self.consider_if_ready(home, follower, out);
        }
    }
}
