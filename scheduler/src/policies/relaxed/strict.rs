//! ESX 2: the whole VM is stopped, and started when there are cores for all of it.

use super::fair::{Place, Relaxed};
use crate::ids::{CoreId, VcpuId};
use crate::time::Nanos;

impl Relaxed {
    /// Adds what the VM's vCPUs have gained of skew since the last poll, and stops all of them if it is
    /// too much for any. Adds the cores on which somebody is to leave.
    pub(super) fn hold_if_skewed(&mut self, now: Nanos, vm: usize, cores: &mut Vec<CoreId>) {
        let members = self.vms[vm].members.clone();
        if members.len() < 2 || self.vms[vm].held {
            return;
        }
        let runnable = |vcpu: &VcpuId| self.vcpus[vcpu.index()].place != Place::Away;
        let members: Vec<_> = members.into_iter().filter(runnable).collect();
        let made = |vcpu: VcpuId| self.vcpus[vcpu.index()].progress.at(now);
        let moves: Vec<_> = members
            .iter()
            .map(|vcpu| made(*vcpu) > self.vcpus[vcpu.index()].seen)
            .collect();
        let anybody = moves.contains(&true);
        let poll = self.poll;
        for (vcpu, moves) in members.iter().zip(moves) {
            let entry = self.entry(*vcpu);
            entry.seen = entry.progress.at(now);
            if anybody && !moves {
                entry.skew += poll;
            }
        }
        let too_much = |vcpu: &VcpuId| self.rules.is_too_much(self.vcpus[vcpu.index()].skew);
        if members.iter().any(too_much) {
            self.vms[vm].held = true;
            self.held += 1;
            for vcpu in members {
                self.give_back(vcpu);
                cores.extend(self.stop(vcpu));
            }
        }
    }

    /// If the vCPU was given a core to start on and has not been picked for it, the core is free again.
    pub(super) fn give_back(&mut self, vcpu: VcpuId) {
        for core in &mut self.cores {
            core.given_to.take_if(|given| *given == vcpu);
        }
    }

    fn waiting(&self, vm: usize) -> impl Iterator<Item = VcpuId> {
        let all = self.vms[vm].members.iter().copied();
        all.filter(|vcpu| self.vcpus[vcpu.index()].place == Place::Waits)
    }

    /// Of the stopped VMs the one whose turn comes first, with the virtual run time that it is by: the
    /// least of its waiting vCPUs.
    pub(super) fn next_held(&self) -> Option<(i128, usize)> {
        if self.held == 0 {
            return None;
        }
        let held = (0..self.vms.len()).filter(|vm| self.vms[*vm].held);
        let turn = |vm| {
            let all = self.waiting(vm);
            let least = all.map(|vcpu| self.vcpus[vcpu.index()].vruntime).min()?;
            Some((least, vm))
        };
        held.filter_map(turn).min()
    }

    /// Who starts on the core: one of a VM that starts as a whole, or the first of the queue, or nobody
    /// because the core is kept for a VM whose turn it is.
    pub(super) fn first_or_whole_vm(&mut self, core: CoreId) -> Option<VcpuId> {
        if let Some(given) = self.cores[core.index()].given_to.take() {
            return Some(given);
        }
        let first = self.queue.first();
        let turn = self.next_held();
        let turn = turn.filter(|(key, _)| first.is_none_or(|(queued, _)| *key <= queued));
        if let Some((_, vm)) = turn {
            if !self.start(vm) {
                return None;
            }
            if let Some(given) = self.cores[core.index()].given_to.take() {
                return Some(given);
            }
        }
        self.next(core)
    }

    /// Starts a stopped VM if there are idle cores for all its runnable vCPUs (or all cores are idle,
    /// and it is wider than the machine).
    fn start(&mut self, vm: usize) -> bool {
        let on = |vcpu: &VcpuId| matches!(self.vcpus[vcpu.index()].place, Place::On(_));
        if self.vms[vm].members.iter().any(on) {
            return false;
        }
        let mut waiting: Vec<_> = self.waiting(vm).collect();
        let cores = self.cores.len();
        let idle = |core: &usize| {
            let core = &self.cores[*core];
            core.running.is_none() && core.given_to.is_none()
        };
        let idle: Vec<_> = (0..cores).filter(idle).collect();
        if idle.len() < waiting.len().min(cores) {
            return false;
        }
        self.vms[vm].held = false;
        self.held -= 1;
        for vcpu in &self.vms[vm].members {
            self.vcpus[vcpu.index()].skew = Nanos::ZERO;
        }
        // If there are too few cores, who has had least comes first.
        waiting.sort_by_key(|vcpu| (self.vcpus[vcpu.index()].vruntime, *vcpu));
        let mut idle = idle.into_iter();
        for vcpu in waiting {
            self.set_stopped(vcpu, false);
            match idle.next() {
                Some(core) => self.cores[core].given_to = Some(vcpu),
                None => self.queue_up(vcpu, false),
            }
        }
        true
    }
}
