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

mod balance;
mod budget;
mod runqueue;
#[cfg(test)]
mod tests;
mod units;

use crate::event::Waits;
use crate::ids::{CoreId, VcpuId};
use crate::policy::{
    Clocks, Division, Enqueue, Pick, Placed, Policy, Preempt, Refused, Resched, Slice, SliceEnd,
    VcpuParams, WorkConserving,
};
use crate::registry::{PolicyInfo, ScheduledBy};
use crate::spec::{OptionInfo, OptionKind};
use crate::time::Nanos;
use units::{Credit2, FLOOR, INIT, Unit, WEIGHT};

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
        params.refuse_nice("credit2", knows)?;
        params.refuse_slice("credit2", knows)?;
        params.refuse_reservation("credit2", knows)?;
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
        self.give_back(vcpu);
    }

    fn take(&mut self, now: Nanos, core: CoreId, vcpu: VcpuId) -> Slice {
        self.displaced[core.index()] = None;
        let index = self.of_core[core.index()];
        if self.units[vcpu.index()].runqueue != index {
            self.migrate(now, vcpu, index);
        }
        self.runqueues[index].queue.remove(vcpu);
        if self.credit(vcpu) <= 0 {
            self.reset(now, index, vcpu);
        }
        self.running[core.index()] = Some(vcpu);
        let unit = self.unit(vcpu);
        unit.parked = false;
        unit.on = Some(core);
        unit.home = Some(core);
        unit.picked = now;
        Slice::For(self.length(now, vcpu))
    }

    fn pick(&mut self, now: Nanos, core: CoreId) -> Pick {
        let candidate = self.chosen(core).or_else(|| self.pull(now, core));
        let Some(vcpu) = candidate else {
            return Pick::Idle;
        };
        Pick::Run(vcpu, self.take(now, core, vcpu))
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

    fn rank(&self, vcpu: VcpuId) -> Option<String> {
        let unit = &self.units[vcpu.index()];
        let parked = if unit.parked { ", parked" } else { "" };
        Some(format!("credit {} us{parked}", unit.credit / 1_000))
    }

    fn conserving(&self) -> WorkConserving {
        if self.budgets.any() {
            WorkConserving::No
        } else {
            WorkConserving::Yes
        }
    }
}
