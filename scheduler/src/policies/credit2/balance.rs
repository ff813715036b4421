//! The run queues of `credit2` among each other: the reset of credit, and where units move.

use super::runqueue;
use super::units::{CARRY_OVER, Credit2, FLOOR, INIT};
use crate::ids::{CoreId, VcpuId};
use crate::time::Nanos;
use std::cmp::Reverse;

impl Credit2 {
    /// Assigns a unit to a run queue for the first time: the least loaded, the lower number first.
    pub(super) fn assign(&mut self, vcpu: VcpuId) {
        let least = self
            .runqueues
            .iter()
            .enumerate()
            .min_by_key(|(_, rq)| rq.fill());
        let runqueue = least.map_or(0, |(index, _)| index);
        let weight = self.units[vcpu.index()].weight;
        self.unit(vcpu).runqueue = runqueue;
        self.unit(vcpu).home = Some(self.runqueues[runqueue].cores[0]);
        self.runqueues[runqueue].join(vcpu, weight);
    }

    /// Every unit of the run queue gets more credit, because the one chosen has none left.
    pub(super) fn reset(&mut self, now: Nanos, index: usize, chosen: VcpuId) {
        let gift = if self.credit(chosen) <= FLOOR {
            2 * INIT
        } else {
            INIT
        };
        for vcpu in self.runqueues[index].members.clone() {
            let unit = self.unit(vcpu);
            unit.credit = (unit.credit + gift).min(INIT + CARRY_OVER);
            let credit = unit.credit;
            if self.runqueues[index].queue.remove(vcpu).is_some() {
                self.runqueues[index].queue.insert(vcpu, Reverse(credit));
            }
        }
        self.balance(now, index);
    }

    /// Moves one waiting unit between this run queue and the one whose load differs most.
    fn balance(&mut self, now: Nanos, index: usize) {
        for runqueue in &mut self.runqueues {
            runqueue.runnable(now, 0);
        }
        let own = self.runqueues[index].load;
        let others = (0..self.runqueues.len()).filter(|other| *other != index);
        let Some(other) = others.max_by_key(|o| (self.runqueues[*o].load - own).abs()) else {
            return;
        };
        let (from, to) = if self.runqueues[other].load > own {
            (other, index)
        } else {
            (index, other)
        };
        let difference = self.runqueues[from].load - self.runqueues[to].load;
        if difference <= runqueue::ONE {
            return;
        }
        if let Some((_, vcpu)) = self.runqueues[from].queue.last() {
            self.migrate(now, vcpu, to);
        }
    }

    /// Moves a waiting unit to another run queue.
    pub(super) fn migrate(&mut self, now: Nanos, vcpu: VcpuId, to: usize) {
        let (from, weight, credit) = {
            let unit = self.unit(vcpu);
            (
                std::mem::replace(&mut unit.runqueue, to),
                unit.weight,
                unit.credit,
            )
        };
        self.runqueues[from].queue.remove(vcpu);
        self.runqueues[from].leave(vcpu, weight);
        self.runqueues[from].runnable(now, -1);
        self.runqueues[to].join(vcpu, weight);
        self.runqueues[to].runnable(now, 1);
        self.runqueues[to].queue.insert(vcpu, Reverse(credit));
        self.unit(vcpu).home = Some(self.runqueues[to].cores[0]);
    }

    /// For an idle core whose run queue is empty: the last of the fullest other one.
    pub(super) fn pull(&mut self, now: Nanos, core: CoreId) -> Option<VcpuId> {
        let own = self.of_core[core.index()];
        let others = self
            .runqueues
            .iter()
            .enumerate()
            .filter(|(index, _)| *index != own);
        let (_, fullest) = others.max_by_key(|(index, rq)| (rq.queue.len(), Reverse(*index)))?;
        let (_, vcpu) = fullest.queue.last()?;
        self.migrate(now, vcpu, own);
        Some(vcpu)
    }
}
