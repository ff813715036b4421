//! Who spins for which lock, and when it looks again.
//!
//! A vCPU that spins takes no steps while nothing can have changed: it looks again, one step later, when another
//! step has touched the lock; when a vCPU that it watches loses its core; when it has spun for as long as it
//! said; and when it comes on a core again. Of several that look at the same instant the one that began to
//! spin first is first.

use super::Underway;
use crate::machine::Machine;
use crate::queue::Slot;
use crate::vcpu::{Call, Place, Task};
use std::sync::atomic::Ordering;
use stealtime_scheduler::ids::{GuestLockId, VcpuId, VmId};
use stealtime_scheduler::time::Nanos;

impl Machine<'_> {
    pub(super) fn leave_spinners(&mut self, vcpu: VcpuId, underway: &mut Underway) {
        if let (Some(lock), Some(turn)) = (underway.among.take(), underway.turn) {
            let lock = self.vcpu(vcpu).lock_id(lock);
            self.locks.watched(lock).spinners.remove(&(turn, vcpu));
        }
    }

    pub(super) fn join_spinners(
        &mut self,
        vcpu: VcpuId,
        underway: &mut Underway,
        lock: Option<u16>,
    ) {
        let turn = *underway.turn.get_or_insert_with(|| {
            self.locks.turns += 1;
            self.locks.turns
        });
        if let Some(lock) = lock {
            underway.among = Some(lock);
            let lock = self.vcpu(vcpu).lock_id(lock);
            self.locks.watched(lock).spinners.insert((turn, vcpu));
        }
    }

    /// A step has changed what others may see of a lock, or of the mutex of a channel.
    pub(super) fn touched(&mut self, vm: VmId, number: u16, touched: Option<u16>) {
        let last = touched.map_or(number, |touched| touched.max(number));
        for number in number..=last {
            self.locks.owner_changed(GuestLockId::new(vm, number));
        }
        let Some(number) = touched else { return };
        let lock = GuestLockId::new(vm, number);
        let watched = self.locks.watched(lock);
        let spinners: Vec<_> = watched.spinners.iter().map(|(_, vcpu)| *vcpu).collect();
        let waiters: Vec<_> = watched.waiters.iter().copied().collect();
        for vcpu in spinners {
            self.list(vcpu);
            self.look_soon(vcpu);
        }
        // One that sleeps may have been handed the lock.
        for vcpu in waiters {
            self.list(vcpu);
        }
    }

    /// A spinner on a core looks one step later.
    fn look_soon(&mut self, vcpu: VcpuId) {
        let at = self.now + self.costs.lock_step;
        let entry = self.vcpu(vcpu);
        if entry.place == Place::Guest && entry.task == Task::Spin {
            let at = at.max(entry.from);
            let slot = Slot::Step(vcpu);
            if self.queue.due(slot).is_none_or(|due| due > at) {
                self.queue.set(slot, at);
            }
        }
    }

    /// A spinner that has just looked does so again when its time is over.
    pub(super) fn look_later(&mut self, vcpu: VcpuId) {
        let window = self.locks.spin_window;
        let from = self.vcpu(vcpu).from;
        let Some(underway) = &self.vcpu(vcpu).underway else {
            return;
        };
        let windows = window.map(|window| underway.told + window);
        let until = [underway.spin.until, windows];
        if let Some(until) = until.into_iter().flatten().min() {
            let left = Nanos(until.saturating_sub(underway.spun).max(1));
            self.queue.set(Slot::Step(vcpu), from + left);
        }
    }

    /// A spinner looks, or says first that it has spun too long.
    pub(crate) fn spinner_looks(&mut self, vcpu: VcpuId) {
        let window = self.locks.spin_window;
        let entry = self.vcpu(vcpu);
        if let (Some(window), Some(underway)) = (window, &mut entry.underway)
            && underway.spun - underway.told >= window
            && let Some(lock) = underway.among
        {
            underway.told = underway.spun;
            return self.call(vcpu, Call::SpunTooLong(lock));
        }
        self.lock_step(vcpu);
    }

    /// The host has given the vCPU a core, or taken it away: siblings may look at that.
    pub(crate) fn has_core(&mut self, vcpu: VcpuId, has: bool) {
        let vm = self.vcpu(vcpu).vm;
        let node = self.locks.node(vm, vcpu);
        let before = node.running.swap(u32::from(has), Ordering::Relaxed);
        if has || before == 0 || self.locks.vms[vm.index()].locks.is_empty() {
            return;
        }
        let index = self.locks.index(vcpu);
        let watch = |other: &VcpuId| {
            let underway = &self.vcpus[other.index()].underway;
            underway.is_some_and(|underway| underway.spin.while_runs == Some(index))
        };
        let members = &self.locks.vms[vm.index()].members;
        let watching: Vec<_> = members.iter().copied().filter(watch).collect();
        for other in watching {
            self.look_soon(other);
        }
    }
}
