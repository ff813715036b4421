//! Preemptions that are put off because the vCPU is in a critical section, or next in line for one.

use super::{Dispatcher, Output, State};
use crate::effect::Effect;
use crate::event::{EventKind, PreemptReason, Until};
use crate::ids::{CoreId, VcpuId};
use crate::input::{GuestLocks, Timer};
use crate::layers::GraceEnds;
use crate::policy::Slice;
use crate::time::Nanos;

impl Dispatcher {
    /// Whether the preemption that is due on the core is put off. One grace a stay; while it lasts
    /// other reasons wait for its end too.
    pub(super) fn put_off(&mut self, core: CoreId, why: PreemptReason, out: &mut Output) -> bool {
        if self.cores[core.index()].grace.is_some() {
            return true;
        }
        let may = self.may_be_put_off(core, why);
        if may {
            self.begin_grace(core, why, out);
        }
        may
    }

    /// The same for a vCPU that has already left its guest: it was safe when it was asked to, and is
    /// not any more. It gets its core back.
    pub(super) fn puts_back(&mut self, core: CoreId, why: PreemptReason, out: &mut Output) -> bool {
        let entry = self.cores[core.index()];
        let Some(vcpu) = entry.vcpu else { return false };
        if entry.grace.is_some() || !self.may_be_put_off(core, why) {
            return false;
        }
        self.cores[core.index()].kicked = None;
        out.effects.push(Effect::Run { core, vcpu });
        self.begin_grace(core, why, out);
        true
    }

    fn may_be_put_off(&self, core: CoreId, why: PreemptReason) -> bool {
        let Some(vcpu) = self.cores[core.index()].vcpu else {
            return false;
        };
        let lock_aware = matches!(why, PreemptReason::LockWait | PreemptReason::LoanOver);
        let runs = matches!(self.vcpus[vcpu.index()].state, State::Running(_));
        self.is_unsafe(vcpu) && runs && !lock_aware
    }

    /// Whether others wait if the vCPU has no core, as far as the layer asks; never without one.
    fn is_unsafe(&self, vcpu: VcpuId) -> bool {
        let guest = self.vcpus[vcpu.index()].guest;
        self.layers.grace.is_some_and(|grace| {
            guest.held > 0 || guest.critical > 0 || (grace.line && self.line_moves(guest))
        })
    }

    /// Whether the vCPU waits in a line that moves, as far as is known: the owner has a core. Behind one that has
    /// none it would wait for as long as it is let. Waiters before it are not looked at.
    fn line_moves(&self, guest: GuestLocks) -> bool {
        let lock = guest.waits_for.filter(|_| guest.in_line);
        let owner = lock.and_then(|lock| self.guest_owners.get(&lock));
        owner.is_some_and(|owner| self.running_on(*owner).is_some())
    }

    /// The guest holds nothing any more, and saw that a preemption is pending. One that has just joined a line
    /// says so too, because it announces a lock before it knows whether it gets it.
    pub(super) fn critical_left(&mut self, vcpu: VcpuId, out: &mut Output) {
        if !self.is_unsafe(vcpu) {
            self.settle(vcpu, Until::CriticalExit, out);
        }
    }

    fn begin_grace(&mut self, core: CoreId, why: PreemptReason, out: &mut Output) {
        let (Some(grace), Some(vcpu)) = (self.layers.grace, self.cores[core.index()].vcpu) else {
            return;
        };
        let until = Until::CriticalExit;
        let at = self.now + grace.most;
        let entry = &mut self.cores[core.index()];
        entry.grace = Some(self.now);
        entry.grace_armed = Some(at);
        entry.owed = Some((until, why));
        self.emit(out, vcpu, EventKind::Owed(core, why, until));
        if grace.ends == GraceEnds::WhenSafe {
            out.effects.push(Effect::Owe { core, vcpu });
        }
        out.effects.push(Effect::Arm {
            timer: Timer::Grace(core),
            at,
        });
    }

    /// The longest that a preemption may be put off is over.
    pub(super) fn grace_over(&mut self, core: CoreId, out: &mut Output) {
        if let (Some(_), Some((_, why))) = (
            self.cores[core.index()].grace,
            self.cores[core.index()].owed,
        ) {
            self.kick_now(core, why, out);
        }
    }

    /// The vCPU leaves the core: what it had beyond its turn is noted.
    pub(super) fn end_grace(&mut self, core: CoreId, out: &mut Output) {
        let entry = &mut self.cores[core.index()];
        let since = entry.grace.take();
        if entry.grace_armed.take().is_some() {
            out.effects.push(Effect::Cancel {
                timer: Timer::Grace(core),
            });
        }
        let repaid = self.layers.grace.is_some_and(|grace| grace.repaid);
        if let (Some(since), Some(account), true) = (since, self.account(core), repaid) {
            let beyond = self.now.since(since);
            self.vcpu(account).borrowed += beyond;
        }
    }

    /// A slice of the account's, shortened by what it has borrowed: by nine tenths at most.
    pub(super) fn repay(&mut self, core: CoreId, slice: Slice) -> Slice {
        let Some(account) = self.account(core) else {
            return slice;
        };
        let Slice::For(length) = slice else {
            return slice;
        };
        let entry = self.vcpu(account);
        let cut = entry
            .borrowed
            .min(Nanos(length.0 - length.0 / 10))
            .min(Nanos(length.0.saturating_sub(1)));
        entry.borrowed = entry.borrowed.since(cut);
        Slice::For(length.since(cut))
    }
}
