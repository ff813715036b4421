//! `balance`: balance scheduling, which keeps siblings apart.
//!
//! 1. Every core has a fair queue: the vCPU with the least virtual run time goes first, for a `quantum`.
//!    Virtual time advances with run time over weight.
//! 2. A vCPU that is queued anew (it wakes, is new, or moves) goes to no core whose queue holds a
//!    sibling, the one that runs there included. Among the other cores the normal rule decides: its last
//!    if that is idle, the first idle one, the one that bears the least weight (its last among equals).
//! 3. If there is a sibling on every core, the normal rule decides over all.
//! 4. Who wakes is at most `lag` behind the least of the queue. It preempts one that is ahead by more
//!    than `lead`. Both are times of its own running.
//! 5. An idle core takes the first of the longest queue. Every 32 ms waiting vCPUs are moved from the
//!    core that bears most to the one that bears least, as far as that evens them and rule 2 allows.
//!    Where it only turns them about, one is moved each time, so that three on two cores take turns.
//!
//! Nothing makes siblings run at the same time. But none of them waits behind another, as a lock holder
//! would behind one that spins for the lock.
//!
//! Source: Sukwong and Kim, "Is co-scheduling too expensive for SMP VMs?", EuroSys 2011: rules 2 and 3,
//! from its abstract and general knowledge. The rest is a plain fair queue of our own.

mod queues;
#[cfg(test)]
mod tests;

use crate::event::Waits;
use crate::ids::{CoreId, VcpuId};
use crate::policy::{
    Clocks, Enqueue, Pick, Placed, Policy, Preempt, Refused, Resched, Slice, SliceEnd, VcpuParams,
};
use crate::registry::{PolicyInfo, ScheduledBy};
use crate::spec::{OptionInfo, OptionKind};
use crate::time::Nanos;
use queues::{Balance, PERIOD};

/// What `balance` says of itself.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "balance",
    summary: "balance scheduling: siblings are never queued on the same core",
    rules: &[
        "Every core has a fair queue: least run time over weight first, for a `quantum`.",
        "A vCPU that wakes, is new or moves goes to no core whose queue holds a sibling, running or \
         waiting. Among the others: its last if idle, an idle one, the one that bears least weight.",
        "If there is a sibling on every core, that rule decides over all.",
        "Who wakes is at most `lag` behind the least of the queue, and preempts one that is ahead by \
         more than `lead`.",
        "An idle core takes the first of the longest queue. Every 32 ms queues are made even by weight \
         as far as siblings stay apart; where they cannot be, vCPUs take turns.",
    ],
    source: "Sukwong and Kim, EuroSys 2011, for where siblings go; the queues are our own",
    quirks: &[
        "Siblings need not run at the same time: a waiter may still spin for one that waits elsewhere.",
        "A VM with more vCPUs than there are cores gets no help for those beyond.",
    ],
    options: &[
        OptionInfo {
            name: "place",
            kind: OptionKind::Word(&["apart", "random"]),
            default: "apart",
            help: "where vCPUs are queued: apart from their siblings, or, to compare, on any core",
        },
        OptionInfo {
            name: "seed",
            kind: OptionKind::Int {
                min: 0,
                max: i64::MAX,
            },
            default: "1",
            help: "seed of place=random",
        },
        OptionInfo {
            name: "quantum",
            kind: OptionKind::Time {
                min: Nanos::from_micros(100),
                max: Nanos::from_secs(1),
            },
            default: "5ms",
            help: "time on a core before the choice is made anew",
        },
        OptionInfo {
            name: "lead",
            kind: OptionKind::Time {
                min: Nanos::ZERO,
                max: Nanos::from_secs(1),
            },
            default: "1ms",
            help: "run time by which one that wakes must be behind the one on the core to preempt it",
        },
        OptionInfo {
            name: "lag",
            kind: OptionKind::Time {
                min: Nanos::ZERO,
                max: Nanos::from_secs(10),
            },
            default: "3ms",
            help: "run time by which one that wakes may be behind all others on its core",
        },
    ],
    scheduled_by: ScheduledBy::Policy,
    consistent: |_options| Ok(()),
    build: |options, cores| Box::new(Balance::new(options, cores)),
};

impl Policy for Balance {
    fn clocks(&self) -> Clocks {
        Clocks {
            tick: None,
            period: (self.queues.len() > 1).then_some(PERIOD),
        }
    }

    fn declare(&mut self, _vcpu: VcpuId, params: &VcpuParams) -> Result<(), Refused> {
        let knows = "weight, or shares of a VM with a single vCPU";
        params.refuse_all_but_weights("balance", knows)?;
        let weight = params.flat_weight("balance")?;
        self.add(params.vm.index(), weight);
        Ok(())
    }

    fn enqueue(&mut self, _now: Nanos, vcpu: VcpuId, why: Enqueue) -> Placed {
        Placed(match why {
            Enqueue::New | Enqueue::Wake => {
                let core = self.choose(vcpu);
                self.arrive(vcpu, core);
                core
            }
            Enqueue::Preempted(core, _) => {
                self.leave(core, vcpu);
                self.queue(vcpu, core, false);
                core
            }
            Enqueue::Yield(core) => {
                self.leave(core, vcpu);
                self.queue(vcpu, core, true);
                core
            }
        })
    }

    fn remove(&mut self, _now: Nanos, vcpu: VcpuId) {
        self.unqueue(vcpu);
    }

    fn take(&mut self, _now: Nanos, core: CoreId, vcpu: VcpuId) -> Slice {
        if self.core_of(vcpu) != Some(core) {
            self.migrate(vcpu, core);
        }
        self.run(core, vcpu);
        Slice::For(self.quantum)
    }

    fn pick(&mut self, _now: Nanos, core: CoreId) -> Pick {
        let Some(vcpu) = self.first(core).or_else(|| self.pull(core)) else {
            return Pick::Idle;
        };
        self.run(core, vcpu);
        Pick::Run(vcpu, Slice::For(self.quantum))
    }

    fn charge(&mut self, _now: Nanos, vcpu: VcpuId, ran: Nanos) {
        self.advance(vcpu, ran);
    }

    fn preempts(&mut self, _now: Nanos, core: CoreId, running: VcpuId, woken: VcpuId) -> Preempt {
        if self.core_of(woken) == Some(core) && self.is_ahead(running, woken) {
            Preempt::Kick
        } else {
            Preempt::Keep
        }
    }

    fn slice_end(&mut self, _now: Nanos, core: CoreId, vcpu: VcpuId) -> SliceEnd {
        if self.first_is_before(core, vcpu) {
            SliceEnd::Kick
        } else {
            SliceEnd::Extend(Slice::For(self.quantum))
        }
    }

    fn block(&mut self, _now: Nanos, core: CoreId, vcpu: VcpuId, _on: Waits) {
        self.leave(core, vcpu);
    }

    fn retire(&mut self, _now: Nanos, core: CoreId, vcpu: VcpuId) {
        self.leave(core, vcpu);
    }

    fn periodic(&mut self, _now: Nanos) -> Resched {
        Resched(self.even_out())
    }
}
