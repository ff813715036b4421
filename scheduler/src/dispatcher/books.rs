//! Who is in which state, and who is charged for what runs.

use super::{Dispatcher, Output, State, Violation};
use crate::ids::{CoreId, VcpuId};
use crate::time::Nanos;

impl Dispatcher {
    /// Whose turn it is on the core: the scheduling context.
    pub(super) fn account(&self, core: CoreId) -> Option<VcpuId> {
        let entry = self.cores.get(core.index())?;
        entry.donor.or(entry.vcpu)
    }

    /// Changes a vCPU's state.
    pub(super) fn put(&mut self, vcpu: VcpuId, state: State) {
        let before = std::mem::replace(&mut self.vcpu(vcpu).state, state);
        self.ready -= usize::from(before == State::Ready);
        self.ready += usize::from(state == State::Ready);
        self.aside -= usize::from(before == State::Aside);
        self.aside += usize::from(state == State::Aside);
    }

    /// Charges the account of a core up to now.
    pub(super) fn charge(&mut self, core: CoreId) {
        let now = self.now;
        let Some(vcpu) = self.cores[core.index()].vcpu else {
            return;
        };
        if !matches!(self.vcpus[vcpu.index()].state, State::Running(_)) {
            return;
        }
        let entry = &mut self.cores[core.index()];
        let ran = now.since(entry.charged_to);
        entry.charged_to = now;
        entry.charged += ran;
        let account = entry.donor.unwrap_or(vcpu);
        self.vcpu(account).charged += ran;
        if ran > Nanos::ZERO {
            self.policy.charge(now, account, ran);
        }
    }

    /// Charges everybody on a core, before the policy is asked about all of them.
    pub(super) fn charge_all(&mut self) {
        for index in 0..self.cores.len() {
            self.charge(CoreId(u16::try_from(index).unwrap_or(u16::MAX)));
        }
    }

    /// The books of a stay on a core: charged time is run time.
    pub(super) fn close_books(&mut self, core: CoreId, vcpu: VcpuId, out: &mut Output) {
        if matches!(self.vcpus[vcpu.index()].state, State::Running(_)) {
            let entry = self.cores[core.index()];
            let stayed = self.now.since(entry.entered);
            self.vcpu(vcpu).ran += stayed;
            if stayed != entry.charged {
                self.violated(Violation::ChargeMismatch, vcpu, out);
            }
        }
    }
}
