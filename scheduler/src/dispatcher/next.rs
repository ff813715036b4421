//! Who is on a core next, and for how long.

use super::preempt::INSTEAD;
use super::{Dispatcher, Output, State, Violation};
use crate::effect::Effect;
use crate::event::{Charged, EventKind, Waits};
use crate::ids::{CoreId, VcpuId};
use crate::policy::{Pick, Slice, WorkConserving};
use crate::time::Nanos;

/// Who runs on a core, for how long, and whose turn it is.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    pub(super) vcpu: VcpuId,
    pub(super) slice: Slice,
    /// The vCPU that lends it, and who is charged.
    pub(super) lent_by: Option<(VcpuId, Charged)>,
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
    /// Who runs on the core. One that was woken to try a mutex again may find it taken, and one that
    /// waits for a lock does not run itself.
    pub(super) fn choose(&mut self, core: CoreId, out: &mut Output) -> Option<Turn> {
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

    /// Gives the core to a queued vCPU without asking the policy who is next.
    pub(super) fn take(&mut self, core: CoreId, vcpu: VcpuId) -> Slice {
        self.vcpu(vcpu).queued = None;
        self.policy.take(self.now, core, vcpu)
    }

    pub(super) fn grant(&mut self, core: CoreId, next: Option<Turn>, out: &mut Output) {
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
        self.vcpu(vcpu).exited = false;
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
}
