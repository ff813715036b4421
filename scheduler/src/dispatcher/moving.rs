//! Donors that move to the queue of their owner's core, and come back.

use super::{Dispatcher, Output};
use crate::event::{PreemptReason, Waits};
use crate::ids::{CoreId, VcpuId};
use crate::layers::{Elsewhere, Return};
use crate::policy::{Enqueue, Pinned};

impl Dispatcher {
    /// A sleeping vCPU that is on the core for the policy moves to the queue of its owner's core, if the
    /// layer says so, the policy can, and it is not there already.
    pub(super) fn moves(
        &mut self,
        core: CoreId,
        vcpu: VcpuId,
        owner: VcpuId,
        out: &mut Output,
    ) -> bool {
        let follows = self
            .chain()
            .is_some_and(|chain| matches!(chain.elsewhere, Elsewhere::Follows(_)));
        let home = self.vcpus[owner.index()].last_core;
        let Some(home) = home.filter(|home| follows && *home != core) else {
            return false;
        };
        if self.policy.pin(vcpu, Some(home)) == Pinned::No {
            return false;
        }
        self.vcpu(vcpu).moved = true;
        let why = Enqueue::Preempted(core, PreemptReason::LockWait);
        let placed = self.requeue(vcpu, why, out);
        self.placed.push((vcpu, placed));
        true
    }

    /// One that has moved, and waits no more, is picked on its last owner's core: it is placed anew.
    pub(super) fn comes_back(&mut self, core: CoreId, vcpu: VcpuId, out: &mut Output) {
        self.stays_free(vcpu);
        self.policy.block(self.now, core, vcpu, Waits::Host);
        let placed = self.requeue(vcpu, Enqueue::Wake, out);
        self.placed.push((vcpu, placed));
    }

    /// It is bound to no core's queue any more.
    fn stays_free(&mut self, vcpu: VcpuId) {
        if std::mem::take(&mut self.vcpu(vcpu).moved) {
            let _ = self.policy.pin(vcpu, None);
        }
    }

    /// A vCPU waits no longer. Whether it stays where it is queued until it is picked there.
    pub(super) fn stays_moved(&mut self, vcpu: VcpuId) -> bool {
        let on_pick = self
            .chain()
            .is_some_and(|chain| chain.elsewhere == Elsewhere::Follows(Return::OnPick));
        let stays = on_pick && self.vcpus[vcpu.index()].moved;
        if !stays {
            self.stays_free(vcpu);
        }
        stays
    }
}
