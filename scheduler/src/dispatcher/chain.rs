//! Who waits for whom, and whose turn a waiter's turn is.

use super::switch::Turn;
use super::{Dispatcher, Output, State};
use crate::effect::Effect;
use crate::event::{Charged, EventKind, PreemptReason, Until, Waits};
use crate::ids::{CoreId, GuestLockId, VcpuId};
use crate::layers::{Chain, Elsewhere, LoanEnds, Return};
use crate::policy::{Enqueue, Pinned, Slice};

/// What is at the end of a chain of waits.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// A vCPU that could run and is off core.
    Runnable(VcpuId),
    /// One that has a core, or is on the way to it.
    OnCore(VcpuId),
    /// One that waits for something that is no lock.
    Asleep(VcpuId),
    /// Nobody: the lock is free, or its owner is not known.
    Free,
    /// The chain comes back to itself.
    Circle,
}

impl Dispatcher {
    /// The rules for the turns of those that wait, if they lend them.
    pub(super) const fn chain(&self) -> Option<Chain> {
        match self.layers.chain {
            Some(chain) if chain.lends => Some(chain),
            _ => None,
        }
    }

    /// The owner of the lock that a vCPU waits for, asleep or spinning.
    pub(super) fn waits_for(&self, vcpu: VcpuId) -> Option<VcpuId> {
        let entry = &self.vcpus[vcpu.index()];
        let owner = match (entry.waits(), entry.retry) {
            (Some(Waits::HostLock(lock, _)), _) | (None, Some((lock, _))) => {
                self.locks.holder(lock)
            }
            (Some(Waits::GuestLock(lock)), _) => self.guest_owners.get(&lock).copied(),
            (Some(_), _) => None,
            (None, None) => {
                let lock = entry.guest.waits_for;
                lock.and_then(|lock| self.guest_owners.get(&lock).copied())
            }
        };
        let gone = |owner: VcpuId| {
            matches!(
                self.vcpus[owner.index()].state,
                State::Retired | State::Unborn
            )
        };
        owner.filter(|owner| *owner != vcpu && owner.index() < self.vcpus.len() && !gone(*owner))
    }

    /// Follows a waiter to the end of its chain.
    pub(super) fn chain_end(&self, from: VcpuId) -> End {
        let mut at = from;
        for _ in 0..=self.vcpus.len() {
            let Some(owner) = self.waits_for(at) else {
                return if at == from {
                    End::Free
                } else {
                    self.end_at(at)
                };
            };
            at = owner;
        }
        End::Circle
    }

    fn end_at(&self, vcpu: VcpuId) -> End {
        let entry = &self.vcpus[vcpu.index()];
        match entry.state {
            // It has the lock, and its wake-up is on the way.
            State::Ready if entry.sleeps.is_some() => End::Asleep(vcpu),
            State::Ready => End::Runnable(vcpu),
            // A donor that waits no more has asked for its core back.
            State::Granted(..) | State::Running(_) | State::Lent(_) => End::OnCore(vcpu),
            State::Aside | State::Blocked(_) => End::Asleep(vcpu),
            State::Unborn | State::Retired => End::Free,
        }
    }

    /// Whether a wait is one for a lock, which a chain can be followed through.
    pub(super) const fn lends(&self, on: Waits) -> bool {
        self.chain().is_some() && matches!(on, Waits::HostLock(..) | Waits::GuestLock(_))
    }

    /// What becomes of the turn of a vCPU that the policy has just picked for the core. None: it was
    /// set aside, and the policy is to pick again.
    pub(super) fn follow(
        &mut self,
        core: CoreId,
        vcpu: VcpuId,
        slice: Slice,
        out: &mut Output,
    ) -> Option<Turn> {
        let entry = &self.vcpus[vcpu.index()];
        let asleep = entry.sleeps;
        let waits = asleep.is_some() || entry.guest.waits_for.is_some();
        if entry.moved && asleep.is_none() {
            self.comes_back(core, vcpu, out);
            return None;
        }
        if self.chain().is_none() || !waits {
            return Some(Turn::own(vcpu, slice));
        }
        let end = self.chain_end(vcpu);
        if asleep.is_some()
            && let End::Runnable(owner) | End::OnCore(owner) = end
            && self.moves(core, vcpu, owner, out)
        {
            return None;
        }
        match (end, asleep) {
            (End::Runnable(owner), _) => Some(self.lend(core, vcpu, owner, slice)),
            (End::OnCore(owner) | End::Asleep(owner), Some(_)) => {
                self.steps_aside(core, vcpu, Some(owner), out);
                None
            }
            // Its wake-up is on the way, or will never come.
            (End::Free | End::Circle, Some(_)) => {
                self.steps_aside(core, vcpu, None, out);
                self.look_for_deadlock(vcpu, out);
                None
            }
            (_, None) => Some(Turn::own(vcpu, slice)),
        }
    }

    /// A vCPU that waits, and is on the core for the policy, lends its turn to the owner at the end
    /// of its chain.
    pub(super) fn lend(
        &mut self,
        core: CoreId,
        donor: VcpuId,
        owner: VcpuId,
        slice: Slice,
    ) -> Turn {
        let charged = self.chain().map_or(Charged::Donor, |chain| chain.charged);
        // Whose turn is used is in no queue: the loan tells.
        self.vcpu(donor).told = None;
        match charged {
            Charged::Donor => {
                self.put(donor, State::Lent(core));
                Turn {
                    vcpu: owner,
                    slice,
                    lent_by: Some((donor, charged)),
                }
            }
            Charged::Owner => {
                self.set_aside(core, donor, Some(owner));
                let slice = self.take(core, owner);
                Turn {
                    vcpu: owner,
                    slice,
                    lent_by: Some((donor, charged)),
                }
            }
        }
    }

    /// A vCPU that the policy has just picked for the core finds that it still has to wait, asleep.
    pub(super) fn waits_again(&mut self, core: CoreId, vcpu: VcpuId, on: Waits, out: &mut Output) {
        if !self.lends(on) {
            self.put(vcpu, State::Blocked(on));
            self.policy.block(self.now, core, vcpu, on);
            return;
        }
        self.vcpu(vcpu).sleeps = Some(on);
        match self.chain_end(vcpu) {
            End::Runnable(_) => {
                let why = Enqueue::Preempted(core, PreemptReason::LockWait);
                let _ = self.requeue(vcpu, why, out);
            }
            End::OnCore(owner) | End::Asleep(owner) => self.set_aside(core, vcpu, Some(owner)),
            End::Free | End::Circle => self.set_aside(core, vcpu, None),
        }
    }

    /// A lock that may have been free has an owner: who sleeps for it, behind nobody, lends to that
    /// one from now on.
    pub(super) fn line_up(&mut self, lock: GuestLockId, out: &mut Output) {
        let on = Waits::GuestLock(lock);
        if !self.lends(on) {
            return;
        }
        let members = self.vms.get(lock.vm().index());
        let idle = |vcpu: &&VcpuId| {
            let entry = &self.vcpus[vcpu.index()];
            entry.state == State::Blocked(on) && entry.behind.is_none()
        };
        let sleepers: Vec<_> = members
            .into_iter()
            .flatten()
            .filter(idle)
            .copied()
            .collect();
        for vcpu in sleepers {
            match self.chain_end(vcpu) {
                End::Runnable(_) => {
                    let home = self.requeue(vcpu, Enqueue::Wake, out);
                    self.consider_if_ready(home, vcpu, out);
                }
                End::OnCore(owner) | End::Asleep(owner) => self.go_behind(vcpu, Some(owner)),
                End::Free | End::Circle => {}
            }
        }
    }

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
    fn comes_back(&mut self, core: CoreId, vcpu: VcpuId, out: &mut Output) {
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

    pub(super) fn consider_placed(&mut self, out: &mut Output) {
        while let Some((vcpu, home)) = self.placed.pop() {
            self.consider_if_ready(home, vcpu, out);
        }
    }

    /// Gives the core to a queued vCPU without asking the policy who is next.
    pub(super) fn take(&mut self, core: CoreId, vcpu: VcpuId) -> Slice {
        self.vcpu(vcpu).queued = None;
        self.policy.take(self.now, core, vcpu)
    }

    /// Takes a vCPU that is on the core for the policy out of the competition, until the one named
    /// leaves its core, wakes or gives up a lock.
    pub(super) fn set_aside(&mut self, core: CoreId, vcpu: VcpuId, behind: Option<VcpuId>) {
        let asleep = self.vcpus[vcpu.index()].sleeps;
        let on = asleep.unwrap_or(Waits::Host);
        self.policy.block(self.now, core, vcpu, on);
        self.put(vcpu, asleep.map_or(State::Aside, State::Blocked));
        self.go_behind(vcpu, behind);
    }

    /// The same of one that was taken to be queued, or would be.
    pub(super) fn steps_aside(
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
            self.unfollow(follower);
            let home = self.requeue(follower, Enqueue::Wake, out);
            self.consider_if_ready(home, follower, out);
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
            self.unfollow(vcpu);
            let home = self.requeue(vcpu, Enqueue::Wake, out);
            self.consider_if_ready(home, vcpu, out);
        }
    }

    /// All that wait behind `vcpu` compete again, and whatever follows from that.
    pub(super) fn rouse(&mut self, vcpu: VcpuId, out: &mut Output) {
        for (follower, home) in self.call_back(vcpu, out) {
            self.consider_if_ready(home, follower, out);
        }
    }

    /// What there is to tell and to do when a turn is used by another one.
    pub(super) fn begin_loan(
        &mut self,
        core: CoreId,
        vcpu: VcpuId,
        donor: VcpuId,
        charged: Charged,
        out: &mut Output,
    ) {
        self.emit(out, vcpu, EventKind::Borrows { donor, charged });
        if charged == Charged::Owner {
            return;
        }
        self.cores[core.index()].donor = Some(donor);
        if self.tells_donor(vcpu, donor) {
            let donor = Some(donor);
            out.effects.push(Effect::Lent { to: vcpu, donor });
        }
        // A spinner is not woken by the release: the owner tells.
        if self.vcpus[donor.index()].sleeps.is_none() {
            self.owe(core, Until::CriticalExit, PreemptReason::LoanOver, out);
        }
    }

    pub(super) fn end_loan(&mut self, vcpu: VcpuId, donor: VcpuId, out: &mut Output) {
        if self.tells_donor(vcpu, donor) {
            out.effects.push(Effect::Lent {
                to: vcpu,
                donor: None,
            });
        }
    }

    fn tells_donor(&self, vcpu: VcpuId, donor: VcpuId) -> bool {
        let tells = self.chain().is_some_and(|chain| chain.blocked_donor);
        tells && self.vcpus[vcpu.index()].vm == self.vcpus[donor.index()].vm
    }

    /// A vCPU whose turn is used by another one is gone: that one goes on, on its own account.
    pub(super) fn retire_donor(&mut self, core: CoreId, donor: VcpuId, out: &mut Output) {
        self.charge(core);
        self.policy.retire(self.now, core, donor);
        self.on_its_own(core, donor, out);
    }

    /// A donor no longer waits: its core is asked back, or the two compete.
    pub(super) fn loan_over(&mut self, core: CoreId, donor: VcpuId, out: &mut Output) {
        let ends = self.chain().map_or(LoanEnds::AtOnce, |chain| chain.ends);
        if ends == LoanEnds::AtOnce || self.cores[core.index()].kicked.is_some() {
            return self.kick_now(core, PreemptReason::LoanOver, out);
        }
        self.charge(core);
        let why = Enqueue::Preempted(core, PreemptReason::LoanOver);
        let home = self.requeue(donor, why, out);
        self.on_its_own(core, donor, out);
        self.consider_if_ready(home, donor, out);
    }

    /// Who has used a donor's turn goes on, on its own account.
    fn on_its_own(&mut self, core: CoreId, donor: VcpuId, out: &mut Output) {
        self.cores[core.index()].donor = None;
        let owed = &mut self.cores[core.index()].owed;
        let _ = owed.take_if(|(_, why)| *why == PreemptReason::LoanOver);
        let Some(vcpu) = self.cores[core.index()].vcpu else {
            return;
        };
        self.end_loan(vcpu, donor, out);
        if self.vcpus[vcpu.index()].queued.is_none() {
            let _ = self.policy.enqueue(self.now, vcpu, Enqueue::Wake);
        }
        let slice = self.take(core, vcpu);
        if self.running_on(vcpu).is_some() {
            self.policy.entered(self.now, core, vcpu);
            self.arm_slice(core, slice, out);
        } else {
            self.put(vcpu, State::Granted(core, slice));
        }
    }
}

impl super::Vcpu {
    /// What it waits for, asleep.
    pub(super) fn waits(&self) -> Option<Waits> {
        match self.state {
            State::Blocked(on) => Some(on),
            _ => self.sleeps,
        }
    }
}
