//! `relaxed`: the co-scheduling of VMware ESX, relaxed (vSphere 4 and later) or strict (ESX 2).
//!
//! 1. In the first place a fair queue for all cores: the vCPU with the least virtual run time goes
//!    first, for a `quantum`. Virtual time advances with run time times the number of the VM's runnable
//!    vCPUs over its shares. Who wakes is at most `lag` behind the least of any that is queued or runs;
//!    it takes the place of one that is ahead by more than `lead`. Both are times of its own running.
//! 2. A vCPU makes progress while it runs guest code or is halted. Work of the hypervisor on its behalf
//!    is none, nor is waiting for it.
//! 3. Each `poll`, for every VM: the skew of a runnable vCPU is what its progress is ahead of the
//!    slowest runnable sibling's (or of the mean). Who waits holds nobody back; who was halted is
//!    brought up to the slowest when it wakes.
//! 4. Co-stop: one whose skew passes `costop` is stopped, alone, and its core goes, for what is left of
//!    its quantum, to the sibling that lags most. Co-start: it may run again once its skew is below
//!    `costart`.
//! 5. `generation=esx2`: a vCPU gains skew while it makes no progress and a runnable sibling does. When
//!    a skew passes `costop`, the whole VM is stopped, and started only when there are idle cores for all
//!    its runnable vCPUs at once. When it is its turn by rule 1, cores that fall idle are kept for it.
//!
//! Readings: the vendor publishes parameters, not the comparison (`compare`), the exact reference
//! (`skew`), or what takes a skew of ESX 2 back (here: only the start of the VM). A vCPU that waits in
//! the hypervisor, as for a host lock, is not counted as a laggard: it may wait for one that would be
//! stopped for its sake.
//!
//! Source: VMware, "The CPU Scheduler in VMware vSphere 5.1", as quoted by others; public tables of
//! ESXi options. What is not in these is a construction of our own.

mod fair;
mod progress;
mod skew;
mod strict;
#[cfg(test)]
mod tests;

use crate::event::{Standing, Waits};
use crate::ids::{CoreId, VcpuId};
use crate::policy::{
    Clocks, Division, Enqueue, Mode, Pick, Placed, Policy, Preempt, Refused, Resched, Slice,
    SliceEnd, VcpuParams, WorkConserving,
};
use crate::registry::{PolicyInfo, ScheduledBy};
use crate::spec::{Inconsistent, OptionInfo, OptionKind};
use crate::time::Nanos;
use fair::{Place, Relaxed};
use skew::Generation;

/// What `relaxed` says of itself.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "relaxed",
    summary: "VMware co-scheduling: vCPUs too far ahead of their siblings are stopped",
    rules: &[
        "A fair queue for all cores, by run time over the VM's shares; a vCPU runs for a `quantum`. \
         Who wakes is at most `lag` behind the least of any that is queued or runs, and takes the \
         place of one that is ahead by more than `lead`.",
        "A vCPU makes progress while it runs guest code or is halted; work of the hypervisor for it, \
         and waiting for that, is none.",
        "Each `poll`: the skew of a runnable vCPU is what its progress is ahead of its slowest runnable \
         sibling's (or of the mean).",
        "Co-stop: one whose skew passes `costop` is stopped, alone; its core goes, for what is left of \
         its quantum, to the sibling that lags most. Co-start: it may run again once its skew is below `costart`.",
        "generation=esx2: a vCPU gains skew while it makes no progress and a runnable sibling does; \
         past `costop` the whole VM is stopped, and started when there are idle cores for all its \
         runnable vCPUs at once. When it is its turn, cores that fall idle are kept for it.",
    ],
    source: "VMware, The CPU Scheduler in VMware vSphere 5.1, as quoted by others; tables of ESXi \
             options; the rest is a construction of our own",
    quirks: &[
        "A stopped vCPU waits although cores may be idle: that time is told as co-stopped, not ready.",
        "Halted vCPUs hold nobody back, so a guest that spins instead of halting is stopped more often.",
        "generation=esx2 leaves cores idle as strict gang scheduling does: a narrow VM's turn wastes \
         what a wide one could use.",
        "Being halted is progress, so who was halted for long is as far ahead when it wakes. It stands stopped until \
         its slowest runnable sibling has caught up: for seconds, if that one has little of a core.",
        "A VM of a single vCPU is never stopped.",
    ],
    options: &[
        OptionInfo {
            name: "costop",
            kind: OptionKind::Time {
                min: Nanos::ZERO,
                max: Nanos::from_millis(100),
            },
            default: "3ms",
            help: "skew beyond which a vCPU is stopped; 0 = never",
        },
        OptionInfo {
            name: "costart",
            kind: OptionKind::Time {
                min: Nanos::ZERO,
                max: Nanos::from_millis(100),
            },
            default: "2ms",
            help: "skew below which it may run again; less than costop",
        },
        OptionInfo {
            name: "poll",
            kind: OptionKind::Time {
                min: Nanos::from_millis(1),
                max: Nanos::from_millis(5),
            },
            default: "1ms",
            help: "interval between looks at the skew",
        },
        OptionInfo {
            name: "compare",
            kind: OptionKind::Word(&["above", "at-least"]),
            default: "above",
            help: "whether a skew that equals costop is enough to stop",
        },
        OptionInfo {
            name: "skew",
            kind: OptionKind::Word(&["slowest", "mean"]),
            default: "slowest",
            help: "whose progress a vCPU's is set against: its slowest sibling's, or the mean of all",
        },
        OptionInfo {
            name: "generation",
            kind: OptionKind::Word(&["relaxed", "esx2"]),
            default: "relaxed",
            help: "stop vCPUs one by one (vSphere 4 and later), or the whole VM (ESX 2)",
        },
        OptionInfo {
            name: "quantum",
            kind: OptionKind::Time {
                min: Nanos::from_millis(1),
                max: Nanos::from_secs(1),
            },
            default: "200ms",
            help: "time on a core before the choice is made anew",
        },
        OptionInfo {
            name: "lead",
            kind: OptionKind::Time {
                min: Nanos::ZERO,
                max: Nanos::from_secs(1),
            },
            default: "1ms",
            help: "run time by which one that wakes must be behind the one on the core to take its place",
        },
        OptionInfo {
            name: "lag",
            kind: OptionKind::Time {
                min: Nanos::ZERO,
                max: Nanos::from_secs(10),
            },
            default: "20ms",
            help: "run time by which one that wakes may be behind all others",
        },
    ],
    scheduled_by: ScheduledBy::Policy,
    consistent: |options| {
        let (costop, costart) = (options.time("costop"), options.time("costart"));
        if costop == Nanos::ZERO || costart < costop {
            return Ok(());
        }
        Err(Inconsistent {
            option: "costart",
            expected: format!("a time less than costop, {costop}"),
        })
    },
    build: |options, cores| Box::new(Relaxed::new(options, cores)),
};

impl Policy for Relaxed {
    fn clocks(&self) -> Clocks {
        let siblings = self.vms.iter().any(|vm| vm.members.len() > 1);
        Clocks {
            tick: None,
            period: (siblings && self.rules.is_on()).then_some(self.poll),
        }
    }

    fn divides(&self) -> Division {
        Division::Vms
    }

    fn declare(&mut self, vcpu: VcpuId, params: &VcpuParams) -> Result<(), Refused> {
        let knows = "shares per VM, the same for all its vCPUs";
        params.refuse_all_but_weights("relaxed", knows)?;
        let shares = params.group_shares("relaxed")?;
        self.add(vcpu, params.vm.index(), shares);
        Ok(())
    }

    fn enqueue(&mut self, now: Nanos, vcpu: VcpuId, why: Enqueue) -> Placed {
        match why {
            Enqueue::New | Enqueue::Wake => self.arrives(now, vcpu),
            Enqueue::Preempted(core, _) | Enqueue::Yield(core) => self.leaves(now, core, vcpu),
        }
        self.moves(vcpu, Place::Waits);
        if self.vms[self.vcpus[vcpu.index()].vm].held {
            self.set_stopped(vcpu, true);
        }
        if !self.vcpus[vcpu.index()].stopped {
            self.queue_up(vcpu, matches!(why, Enqueue::Yield(_)));
        }
        Placed(self.considered(vcpu))
    }

    fn remove(&mut self, _now: Nanos, vcpu: VcpuId) {
        self.queue.remove(vcpu);
        self.give_back(vcpu);
        self.goes_away(vcpu);
    }

    /// Even one that is stopped.
    fn take(&mut self, now: Nanos, core: CoreId, vcpu: VcpuId) -> Slice {
        self.give_back(vcpu);
        self.sits(now, core, vcpu)
    }

    fn pick(&mut self, now: Nanos, core: CoreId) -> Pick {
        let next = match self.rules.generation {
            Generation::Relaxed => self.laggard_for(now, core).or_else(|| self.next(core)),
            Generation::Esx2 => self.first_or_whole_vm(core),
        };
        next.map_or(Pick::Idle, |vcpu| {
            Pick::Run(vcpu, self.sits(now, core, vcpu))
        })
    }

    fn entered(&mut self, now: Nanos, _core: CoreId, vcpu: VcpuId) {
        self.entry(vcpu).progress.begins(now);
    }

    fn mode(&mut self, now: Nanos, vcpu: VcpuId, mode: Mode) {
        if matches!(self.vcpus[vcpu.index()].place, Place::On(_)) {
            let progress = &mut self.entry(vcpu).progress;
            match mode {
                Mode::Guest => progress.begins(now),
                Mode::Hypervisor => progress.ends(now),
            }
        }
    }

    fn charge(&mut self, _now: Nanos, vcpu: VcpuId, ran: Nanos) {
        self.advance(vcpu, ran);
    }

    fn preempts(&mut self, _now: Nanos, core: CoreId, running: VcpuId, woken: VcpuId) -> Preempt {
        if !self.vcpus[woken.index()].stopped && self.claims(core, running, woken) {
            Preempt::Kick
        } else {
            Preempt::Keep
        }
    }

    fn slice_end(&mut self, now: Nanos, core: CoreId, vcpu: VcpuId) -> SliceEnd {
        let own = self.vcpus[vcpu.index()].vruntime;
        let better = |key: i128| key < own;
        let first = self.queue.first().map(|(key, _)| key);
        let held = self.next_held().map(|(key, _)| key);
        if first.is_some_and(better) || held.is_some_and(better) {
            SliceEnd::Kick
        } else {
            self.cores[core.index()].until = now + self.quantum;
            SliceEnd::Extend(Slice::For(self.quantum))
        }
    }

    fn block(&mut self, now: Nanos, core: CoreId, vcpu: VcpuId, on: Waits) {
        self.leaves(now, core, vcpu);
        self.goes_away(vcpu);
        if matches!(on, Waits::Idle | Waits::Sleep) {
            self.entry(vcpu).progress.begins(now);
        }
    }

    fn retire(&mut self, now: Nanos, core: CoreId, vcpu: VcpuId) {
        self.leaves(now, core, vcpu);
        self.goes_away(vcpu);
    }

    fn periodic(&mut self, now: Nanos) -> Resched {
        let mut cores = Vec::new();
        for vm in 0..self.vms.len() {
            match self.rules.generation {
                Generation::Relaxed => self.even_out(now, vm, &mut cores),
                Generation::Esx2 => self.hold_if_skewed(now, vm, &mut cores),
            }
        }
        Resched(cores)
    }

    fn standing(&self, vcpu: VcpuId) -> Standing {
        Standing {
            costopped: self.vcpus[vcpu.index()].stopped,
            ..Standing::default()
        }
    }

    fn conserving(&self) -> WorkConserving {
        WorkConserving::No
    }
}
