//! How a vCPU leaves its core.

use super::chain::End;
use super::next::Turn;
use super::{Core, Dispatcher, Output, State};
use crate::effect::Effect;
use crate::event::{Charged, PreemptReason, Waits};
use crate::ids::{CoreId, VcpuId};
use crate::policy::{Enqueue, Inherited, Slice};
use crate::time::Nanos;

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

impl Dispatcher {
    /// Takes the vCPU off its core and gives the core to whoever the policy picks, which may be the
    /// same one again.
    pub(super) fn leave(&mut self, core: CoreId, vcpu: VcpuId, how: Leave, out: &mut Output) {
        self.charge(core);
        self.close_books(core, vcpu, out);
        self.end_grace(core, out);
        let entry = self.cores[core.index()];
        let rest = rest_of_turn(&entry, self.now);
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
        rest: Option<Slice>,
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
                        End::OnCore(owner) | End::Stuck(owner) => {
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
                    self.set_aside_and_tell(core, vcpu, Some(target), out);
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

    /// What is left of a waiter's turn goes to the owner. If nothing is, the policy decides who is next. An
    /// owner that pays itself would get a turn of its own, and the two could hand the core to each other for
    /// ever: there the policy decides too.
    fn turn_goes_on(
        &mut self,
        core: CoreId,
        vcpu: VcpuId,
        owner: VcpuId,
        rest: Option<Slice>,
        left: &mut Left,
        out: &mut Output,
    ) {
        match (self.chain().map(|chain| chain.charged), rest) {
            (Some(Charged::Donor), Some(rest)) => {
                left.next = Some(self.lend(core, vcpu, owner, rest));
            }
            _ => {
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
                    if let End::OnCore(owner) | End::Stuck(owner) = end
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
}

/// How much of the turn on a core is left for others; none if the core is wanted back, now or later.
fn rest_of_turn(core: &Core, now: Nanos) -> Option<Slice> {
    let wanted = core.kicked.is_some() || core.owed.is_some();
    let rest = core
        .slice_armed
        .map_or(Slice::Open, |at| Slice::For(at.since(now).max(Nanos(1))));
    (!wanted).then_some(rest)
}
