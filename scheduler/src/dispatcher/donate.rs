//! Whose turn a waiter's turn is.

use super::chain::End;
use super::next::Turn;
use super::{Dispatcher, Output, State};
use crate::effect::Effect;
use crate::event::{Charged, EventKind, PreemptReason, Until};
use crate::ids::{CoreId, VcpuId};
use crate::layers::LoanEnds;
use crate::policy::{Enqueue, Slice};

impl Dispatcher {
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
            (End::OnCore(owner) | End::Stuck(owner), Some(_)) => {
                self.set_aside_and_tell(core, vcpu, Some(owner), out);
                None
            }
            // Its wake-up is on the way, or will never come.
            (End::Free | End::Circle, Some(_)) => {
                self.set_aside_and_tell(core, vcpu, None, out);
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
