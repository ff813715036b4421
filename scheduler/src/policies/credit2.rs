//! `credit2`: Xen's credit2 scheduler.
//!
//! 1. Cores share a run queue, 16 at most (option `runqueue`). A run queue is in order of credit.
//! 2. Credit is time: every vCPU starts with 10 ms and burns it while it runs, faster the less its
//!    share: credit −= time · (largest weight on the run queue) / weight. It never goes below −10 ms.
//! 3. The vCPU with the most credit runs; among equals the one that runs already. One that last ran on
//!    another core must be ahead by 500 us.
//! 4. It runs until its credit would equal that of the best waiting one, but at least 500 us and the
//!    rest of the rate limit, and at most 10 ms.
//! 5. When the one chosen has no credit left, every vCPU of the run queue gets 10 ms (20 ms if the
//!    chosen one is at the floor), and has 10.5 ms at most.
//! 6. A vCPU that wakes goes to an idle core, else to the core where it is furthest ahead of the
//!    running one, if that one has run for the rate limit.
//! 7. A capped VM has a budget of 10 ms · cap in each 10 ms, which its vCPUs draw in parts. Without
//!    budget they are parked until the next period.
//! 8. At every reset the run queue whose load differs most is looked at, and one vCPU is moved if that
//!    evens the loads. Load is a running average over about a second.
//!
//! Readings: at a reset the vCPUs running on other cores are charged afterwards instead of before; an
//! idle core whose run queue is empty takes a vCPU from the fullest one at once; a vCPU counts as a
//! whole core of load, so moving one evens the loads only if they differ by more than that.
//!
//! Source: Xen `xen/common/sched/credit2.c` (2026).

mod budget;
mod runqueue;
#[cfg(test)]
mod tests;

use crate::event::Waits;
use crate::ids::{CoreId, VcpuId};
use crate::policy::{
    Clocks, Division, Enqueue, Pick, Placed, Policy, Preempt, Refused, Resched, Slice, SliceEnd,
    VcpuParams, WorkConserving,
};
use crate::registry::{PolicyInfo, ScheduledBy};
use crate::spec::{OptionInfo, OptionKind};
use crate::time::Nanos;
use budget::Budgets;
use runqueue::RunQueue;
use std::cmp::Reverse;

/// What `credit2` says of itself.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "credit2",
    summary: "Xen credit2: most credit first, run queues shared by cores, caps",
    rules: &[
        "Up to 16 cores share a run queue, which is in order of credit.",
        "Running burns credit, faster the less the share of the VM; the floor is -10 ms.",
        "The vCPU with the most credit runs; one from another core must be 500 us ahead.",
        "It runs until its credit equals that of the best waiting one: 500 us to 10 ms.",
        "When the chosen one has no credit left, all of the run queue get 10 ms more.",
        "A waking vCPU goes to an idle core, else where it is furthest ahead.",
        "A capped VM has a budget in each 10 ms; without budget its vCPUs are parked.",
        "At a reset one vCPU may be moved to or from the run queue whose load differs most.",
    ],
    source: "Xen xen/common/sched/credit2.c (2026)",
    quirks: &[
        "There is no boost: who sleeps keeps its credit, and is ahead by that when it wakes.",
        "Credits are clipped at 10.5 ms at a reset, so long sleep earns half a millisecond at most.",
    ],
    options: &[
        OptionInfo {
            name: "ratelimit",
            kind: OptionKind::Time {
                min: Nanos::ZERO,
                max: Nanos::from_millis(500),
            },
            default: "1ms",
            help: "time that a vCPU runs before a waking one may preempt it; 0 = none",
        },
        OptionInfo {
            name: "runqueue",
            kind: OptionKind::Word(&["socket", "core", "all"]),
            default: "socket",
            help: "which cores share a run queue: 16, one, or all",
        },
    ],
    scheduled_by: ScheduledBy::Policy,
    consistent: |_options| Ok(()),
    build: |options, cores| {
        let shared = match options.word("runqueue") {
            "core" => 1,
            "all" => cores,
            _ => 16,
        };
        Box::new(Credit2::new(
            options.time("ratelimit"),
            cores,
            shared.max(1),
        ))
    },
};

const INIT: i64 = 10_000_000;
const FLOOR: i64 = -10_000_000;
const CARRY_OVER: i64 = 500_000;
const MIN_TIMER: Nanos = Nanos::from_micros(500);
const MAX_TIMER: Nanos = Nanos::from_millis(10);
const MIGRATE_RESISTANCE: i64 = 500_000;
const TICKLE_TOLERANCE: Nanos = Nanos::from_micros(50);
/// Xen's default weight of a domain: one share of ours.
const WEIGHT: i64 = 256;

#[derive(Debug)]
struct Unit {
    vm: usize,
    weight: i64,
    credit: i64,
    /// Weighted time that does not make a whole nanosecond of credit yet.
    residue: i64,
    runqueue: usize,
    on: Option<CoreId>,
    home: Option<CoreId>,
    picked: Nanos,
    /// Runnable, but kept off the queue for lack of budget.
    parked: bool,
}

#[derive(Debug)]
struct Credit2 {
    ratelimit: Nanos,
    units: Vec<Unit>,
    runqueues: Vec<RunQueue>,
    /// The run queue of each core.
    of_core: Vec<usize>,
    running: Vec<Option<VcpuId>>,
    /// Who was just taken off each core although it would go on: a candidate like the rest.
    displaced: Vec<Option<VcpuId>>,
    budgets: Budgets,
}

impl Credit2 {
    fn new(ratelimit: Nanos, cores: u16, shared: u16) -> Self {
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

    fn unit(&mut self, vcpu: VcpuId) -> &mut Unit {
        &mut self.units[vcpu.index()]
    }

    fn credit(&self, vcpu: VcpuId) -> i64 {
        self.units[vcpu.index()].credit
    }

    fn queue_of(&mut self, vcpu: VcpuId) -> &mut RunQueue {
        &mut self.runqueues[self.units[vcpu.index()].runqueue]
    }

    /// Assigns a unit to a run queue for the first time: the least loaded, the lower number first.
    fn assign(&mut self, vcpu: VcpuId) {
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

    fn left(&mut self, now: Nanos, core: CoreId, vcpu: VcpuId) {
        self.running[core.index()] = None;
        self.unit(vcpu).on = None;
        self.queue_of(vcpu).runnable(now, -1);
    }

    /// The core where a unit is to be considered: an idle one, its last one first; else the one where
    /// it is furthest ahead of what runs there.
    fn tickle(&self, now: Nanos, vcpu: VcpuId) -> CoreId {
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
    fn score(&self, now: Nanos, core: CoreId, vcpu: VcpuId) -> Option<i64> {
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
    fn candidate(&self, core: CoreId, floor: Option<i64>) -> Option<VcpuId> {
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
    fn chosen(&mut self, core: CoreId) -> Option<VcpuId> {
        let index = self.of_core[core.index()];
        let displaced = self.displaced[core.index()].take();
        let waits = displaced.filter(|vcpu| self.runqueues[index].queue.contains(*vcpu));
        match waits {
            Some(vcpu) => self.candidate(core, Some(self.credit(vcpu))).or(Some(vcpu)),
            None => self.candidate(core, None),
        }
    }

    /// Every unit of the run queue gets more credit, because the one chosen has none left.
    fn reset(&mut self, now: Nanos, index: usize, chosen: VcpuId) {
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
    fn migrate(&mut self, now: Nanos, vcpu: VcpuId, to: usize) {
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

    /// For how long the unit runs: until its credit equals that of the best waiting one.
    fn length(&self, now: Nanos, vcpu: VcpuId) -> Nanos {
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
    fn place(&mut self, vcpu: VcpuId) {
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

    fn forget(&mut self, vcpu: VcpuId) {
        self.give_back(vcpu);
        let weight = self.units[vcpu.index()].weight;
        if self.units[vcpu.index()].home.is_some() {
            self.queue_of(vcpu).leave(vcpu, weight);
        }
    }

    /// What a unit has drawn and does not need while it is away is for its siblings.
    fn give_back(&mut self, vcpu: VcpuId) {
        let vm = self.units[vcpu.index()].vm;
        self.budgets.give_back(vm, vcpu);
    }

    /// For an idle core whose run queue is empty: the last of the fullest other one.
    fn pull(&mut self, now: Nanos, core: CoreId) -> Option<VcpuId> {
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

impl Policy for Credit2 {
    fn clocks(&self) -> Clocks {
        Clocks {
            tick: None,
            period: self.budgets.any().then_some(budget::PERIOD),
        }
    }

    fn divides(&self) -> Division {
        Division::Vms
    }

    fn declare(&mut self, vcpu: VcpuId, params: &VcpuParams) -> Result<(), Refused> {
        let knows = "shares and a cap per VM";
        params.no_nice("credit2", knows)?;
        params.no_slice("credit2", knows)?;
        params.no_reservation("credit2", knows)?;
        let shares = i64::from(params.group_shares("credit2")?);
        self.budgets.declare(params.vm.index(), vcpu, params.cap);
        self.units.push(Unit {
            vm: params.vm.index(),
            weight: shares * WEIGHT,
            credit: INIT,
            residue: 0,
            runqueue: 0,
            on: None,
            home: None,
            picked: Nanos::ZERO,
            parked: false,
        });
        Ok(())
    }

    fn enqueue(&mut self, now: Nanos, vcpu: VcpuId, why: Enqueue) -> Placed {
        match why {
            Enqueue::New => self.assign(vcpu),
            Enqueue::Wake => {}
            Enqueue::Preempted(core, _) | Enqueue::Yield(core) => self.left(now, core, vcpu),
        }
        self.queue_of(vcpu).runnable(now, 1);
        self.place(vcpu);
        if let Enqueue::Preempted(core, _) = why {
            self.displaced[core.index()] = Some(vcpu);
        }
        Placed(self.tickle(now, vcpu))
    }

    fn remove(&mut self, now: Nanos, vcpu: VcpuId) {
        self.queue_of(vcpu).queue.remove(vcpu);
        self.queue_of(vcpu).runnable(now, -1);
        self.unit(vcpu).parked = false;
        self.forget(vcpu);
    }

    fn pick(&mut self, now: Nanos, core: CoreId) -> Pick {
        let candidate = self.chosen(core).or_else(|| self.pull(now, core));
        let Some(vcpu) = candidate else {
            return Pick::Idle;
        };
        let index = self.units[vcpu.index()].runqueue;
        self.runqueues[index].queue.remove(vcpu);
        if self.credit(vcpu) <= 0 {
            self.reset(now, index, vcpu);
        }
        self.running[core.index()] = Some(vcpu);
        let unit = self.unit(vcpu);
        unit.on = Some(core);
        unit.home = Some(core);
        unit.picked = now;
        Pick::Run(vcpu, Slice::For(self.length(now, vcpu)))
    }

    /// credit −= ran · (largest weight) / weight, the remainder kept; floor −10 ms.
    fn charge(&mut self, _now: Nanos, vcpu: VcpuId, ran: Nanos) {
        let heaviest = self.queue_of(vcpu).heaviest();
        let unit = self.unit(vcpu);
        let weighted = i64::try_from(ran.0)
            .unwrap_or(i64::MAX)
            .saturating_mul(heaviest);
        let weighted = weighted.saturating_add(unit.residue);
        unit.residue = weighted % unit.weight;
        unit.credit = (unit.credit - weighted / unit.weight).max(FLOOR);
        let vm = unit.vm;
        self.budgets.burn(vm, vcpu, ran);
    }

    fn preempts(&mut self, now: Nanos, core: CoreId, _running: VcpuId, woken: VcpuId) -> Preempt {
        if !self.units[woken.index()].parked && self.score(now, core, woken).is_some() {
            Preempt::Kick
        } else {
            Preempt::Keep
        }
    }

    fn slice_end(&mut self, now: Nanos, core: CoreId, vcpu: VcpuId) -> SliceEnd {
        let vm = self.units[vcpu.index()].vm;
        if self.budgets.draw(vm, vcpu) == budget::Draw::Empty {
            return SliceEnd::Kick;
        }
        if self.candidate(core, Some(self.credit(vcpu))).is_some() {
            return SliceEnd::Kick;
        }
        // It is chosen again, with all that follows from that.
        if self.credit(vcpu) <= 0 {
            self.reset(now, self.units[vcpu.index()].runqueue, vcpu);
        }
        SliceEnd::Extend(Slice::For(self.length(now, vcpu)))
    }

    fn periodic(&mut self, now: Nanos) -> Resched {
        self.budgets.replenish();
        let parked = (0..self.units.len()).filter(|index| self.units[*index].parked);
        let parked: Vec<_> = parked
            .filter_map(|index| u32::try_from(index).ok())
            .collect();
        let mut cores = Vec::new();
        for vcpu in parked.into_iter().map(VcpuId) {
            self.place(vcpu);
            let core = self.tickle(now, vcpu);
            if !self.units[vcpu.index()].parked && self.score(now, core, vcpu).is_some() {
                cores.push(core);
            }
        }
        Resched(cores)
    }

    fn block(&mut self, now: Nanos, core: CoreId, vcpu: VcpuId, _on: Waits) {
        self.left(now, core, vcpu);
        self.give_back(vcpu);
    }

    fn retire(&mut self, now: Nanos, core: CoreId, vcpu: VcpuId) {
        self.left(now, core, vcpu);
        self.forget(vcpu);
    }

    fn retire_waiting(&mut self, _now: Nanos, vcpu: VcpuId) {
        self.forget(vcpu);
    }

    fn conserving(&self) -> WorkConserving {
        if self.budgets.any() {
            WorkConserving::No
        } else {
            WorkConserving::Yes
        }
    }
}
