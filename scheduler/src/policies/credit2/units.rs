//! The units of `credit2`: who runs next on a core, for how long, and where one that wakes is
//! considered.

use super::budget::{self, Budgets};
use super::runqueue::RunQueue;
use crate::ids::{CoreId, VcpuId};
use crate::time::Nanos;
use std::cmp::Reverse;

pub(super) const INIT: i64 = 10_000_000;
pub(super) const FLOOR: i64 = -10_000_000;
pub(super) const CARRY_OVER: i64 = 500_000;
pub(super) const MIN_TIMER: Nanos = Nanos::from_micros(500);
pub(super) const MAX_TIMER: Nanos = Nanos::from_millis(10);
pub(super) const MIGRATE_RESISTANCE: i64 = 500_000;
pub(super) const TICKLE_TOLERANCE: Nanos = Nanos::from_micros(50);
/// Xen's default weight of a domain: one share of ours.
pub(super) const WEIGHT: i64 = 256;

#[derive(Debug)]
pub(super) struct Unit {
    pub(super) vm: usize,
    pub(super) weight: i64,
    pub(super) credit: i64,
    /// Weighted time that does not make a whole nanosecond of credit yet.
    pub(super) residue: i64,
    pub(super) runqueue: usize,
    pub(super) on: Option<CoreId>,
    pub(super) home: Option<CoreId>,
    pub(super) picked: Nanos,
    /// Runnable, but kept off the queue for lack of budget.
    pub(super) parked: bool,
}

#[derive(Debug)]
pub(super) struct Credit2 {
    pub(super) ratelimit: Nanos,
    pub(super) units: Vec<Unit>,
    pub(super) runqueues: Vec<RunQueue>,
    /// The run queue of each core.
    pub(super) of_core: Vec<usize>,
    pub(super) running: Vec<Option<VcpuId>>,
    /// Who was just taken off each core although it would go on: a candidate like the rest.
    pub(super) displaced: Vec<Option<VcpuId>>,
    pub(super) budgets: Budgets,
}

impl Credit2 {
    pub(super) fn new(ratelimit: Nanos, cores: u16, shared: u16) -> Self {
        let queues = cores.div_ceil(shared);
        let cores_of = |queue: u16| (queue * shared..cores.min((queue + 1) * shared)).map(CoreId);
        Self {
            ratelimit,
            units: Vec::new(),
            runqueues: (0..queues)
                .map(|queue| RunQueue::new(cores_of(queue).collect()))
                .collect(),
            of_core: (0..cores).map(|core| usize::from(core / shared)).collect(),
            running: vec![None; usize::from(cores)],
            displaced: vec![None; usize::from(cores)],
            budgets: Budgets::default(),
        }
    }

    pub(super) fn unit(&mut self, vcpu: VcpuId) -> &mut Unit {
        &mut self.units[vcpu.index()]
    }

    pub(super) fn credit(&self, vcpu: VcpuId) -> i64 {
        self.units[vcpu.index()].credit
    }

    pub(super) fn queue_of(&mut self, vcpu: VcpuId) -> &mut RunQueue {
        &mut self.runqueues[self.units[vcpu.index()].runqueue]
    }

    pub(super) fn left(&mut self, now: Nanos, core: CoreId, vcpu: VcpuId) {
        self.running[core.index()] = None;
        self.unit(vcpu).on = None;
        self.queue_of(vcpu).runnable(now, -1);
    }

    /// The core where a unit is to be considered: an idle one, its last one first; else the one where
    /// it is furthest ahead of what runs there.
    pub(super) fn tickle(&self, now: Nanos, vcpu: VcpuId) -> CoreId {
        let unit = &self.units[vcpu.index()];
        let home = unit.home.unwrap_or(CoreId(0));
        let cores = &self.runqueues[unit.runqueue].cores;
        if cores.contains(&home) && self.running[home.index()].is_none() {
            return home;
        }
        let idle = cores
            .iter()
            .find(|core| self.running[core.index()].is_none());
        let best = || {
            let ahead = |core: &CoreId| {
                self.score(now, *core, vcpu)
                    .map(|score| (score, Reverse(*core)))
            };
            cores
                .iter()
                .filter_map(ahead)
                .max()
                .map(|(_, Reverse(core))| core)
        };
        idle.copied().or_else(best).unwrap_or(cores[0])
    }

    /// How far ahead of what runs on the core the unit is, if that may be preempted.
    pub(super) fn score(&self, now: Nanos, core: CoreId, vcpu: VcpuId) -> Option<i64> {
        let running = self.running[core.index()]?;
        let ran = now.since(self.units[running.index()].picked);
        if ran + TICKLE_TOLERANCE <= self.ratelimit {
            return None;
        }
        let foreign = self.units[vcpu.index()].home != Some(core);
        let resistance = if foreign { MIGRATE_RESISTANCE } else { 0 };
        Some(self.credit(vcpu) - self.credit(running) - resistance).filter(|score| *score > 0)
    }

    /// The best waiting unit for a core, given the credit that it must exceed.
    pub(super) fn candidate(&self, core: CoreId, floor: Option<i64>) -> Option<VcpuId> {
        let queue = &self.runqueues[self.of_core[core.index()]].queue;
        for (Reverse(credit), vcpu) in queue.iter() {
            let Some(floor) = floor else {
                return Some(vcpu);
            };
            if credit <= floor {
                return None;
            }
            let foreign = self.units[vcpu.index()]
                .home
                .is_some_and(|home| home != core);
            if !foreign || credit >= floor + MIGRATE_RESISTANCE {
                return Some(vcpu);
            }
        }
        None
    }

    /// Who runs next on the core: one that is ahead of who was displaced from it, as far as one from
    /// another core has to be; else the displaced one; else the first.
    pub(super) fn chosen(&mut self, core: CoreId) -> Option<VcpuId> {
        let index = self.of_core[core.index()];
        let displaced = self.displaced[core.index()].take();
        let waits = displaced.filter(|vcpu| self.runqueues[index].queue.contains(*vcpu));
        match waits {
            Some(vcpu) => self.candidate(core, Some(self.credit(vcpu))).or(Some(vcpu)),
            None => self.candidate(core, None),
        }
    }

    /// For how long the unit runs: until its credit equals that of the best waiting one.
    pub(super) fn length(&self, now: Nanos, vcpu: VcpuId) -> Nanos {
        let unit = &self.units[vcpu.index()];
        let runqueue = &self.runqueues[unit.runqueue];
        let best = runqueue
            .queue
            .first()
            .map_or(0, |(Reverse(credit), _)| credit.max(0));
        let lead = (unit.credit - best).max(0) * unit.weight / runqueue.heaviest();
        let ran = now.since(unit.picked);
        let least = MIN_TIMER.max(self.ratelimit - ran);
        let length = Nanos(lead.unsigned_abs()).max(least).min(MAX_TIMER);
        match self.budgets.left(unit.vm, vcpu) {
            Some(left) => length.min(left).max(Nanos(1)),
            None => length,
        }
    }

    /// Queues a runnable unit, or parks it if it has no budget.
    pub(super) fn place(&mut self, vcpu: VcpuId) {
        let vm = self.units[vcpu.index()].vm;
        let unit = self.unit(vcpu);
        unit.parked = false;
        let credit = unit.credit;
        if self.budgets.draw(vm, vcpu) == budget::Draw::Empty {
            self.unit(vcpu).parked = true;
        } else {
            self.queue_of(vcpu).queue.insert(vcpu, Reverse(credit));
        }
    }

    pub(super) fn forget(&mut self, vcpu: VcpuId) {
        self.give_back(vcpu);
        let weight = self.units[vcpu.index()].weight;
        if self.units[vcpu.index()].home.is_some() {
            self.queue_of(vcpu).leave(vcpu, weight);
        }
    }

    /// What a unit has drawn and does not need while it is away is for its siblings.
    pub(super) fn give_back(&mut self, vcpu: VcpuId) {
        let vm = self.units[vcpu.index()].vm;
        self.budgets.give_back(vm, vcpu);
    }
}
