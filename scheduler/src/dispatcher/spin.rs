//! A vCPU that has spun for too long.

use super::chain::End;
use super::leave::Leave;
use super::{Dispatcher, Output, State};
use crate::event::{EventKind, PreemptReason};
use crate::ids::{GuestLockId, VcpuId};
use crate::layers::yieldto::Sibling;

impl Dispatcher {
    /// Its turn goes to the owner at the end of its chain, or its core to a sibling, as the layers
    /// say; else it goes on.
    pub(super) fn spun_too_long(&mut self, vcpu: VcpuId, lock: GuestLockId, out: &mut Output) {
        let Some(core) = self.running_on(vcpu) else {
            return;
        };
        self.emit(out, vcpu, EventKind::SpunTooLong(lock));
        self.look_for_deadlock(vcpu, out);
        self.call_back_runnable(vcpu, out);
        if !self.guest_owners.contains_key(&lock) {
            let windows = &mut self.vcpu(vcpu).windows_in_vain;
            *windows = windows.saturating_add(1);
        }
        let lent = self.cores[core.index()].donor.is_some();
        if self.chain().is_some()
            && let End::Runnable(owner) = self.chain_end(vcpu)
        {
            let why = PreemptReason::LockWait;
            self.emit(out, vcpu, EventKind::Preempted(core, why));
            self.leave(core, vcpu, Leave::Lend(owner, why), out);
        } else if !lent && let Some(target) = self.yields_to(vcpu) {
            self.emit(out, vcpu, EventKind::YieldedTo(target));
            self.emit(out, vcpu, EventKind::Yielded(core));
            self.leave(core, vcpu, Leave::YieldTo(target), out);
        }
    }

    fn yields_to(&mut self, vcpu: VcpuId) -> Option<VcpuId> {
        let vm = self.vcpus[vcpu.index()].vm;
        let vcpus = &self.vcpus;
        let members = &self.vms[vm.index()];
        let spin = self.layers.spin.as_mut()?;
        let sibling = |vcpu: &VcpuId| {
            let entry = &vcpus[vcpu.index()];
            Sibling {
                vcpu: *vcpu,
                ready: entry.state == State::Ready && entry.sleeps.is_none(),
                in_kernel: entry.guest.held > 0 || entry.guest.critical > 0,
                interrupted: entry.pending_interrupts > 0,
            }
        };
        let siblings: Vec<_> = members.iter().map(sibling).collect();
        let me = members.iter().position(|member| *member == vcpu)?;
        spin.target(vm.index(), me, &siblings)
    }
}
