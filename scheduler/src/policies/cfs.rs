//! `cfs`: Linux's completely fair scheduler as it was before EEVDF (2.6.23 to 6.5).
//!
//! 1. A vCPU's virtual runtime advances with its run time, divided by its weight (1024 at nice 0).
//! 2. The vCPU with the least virtual runtime runs next.
//! 3. Its slice is its weighted part of the period: `latency`, or `granularity` for each runnable vCPU
//!    if there are too many for that, and never less than `granularity`.
//! 4. A new vCPU starts one of its slices behind the queue's minimum (START_DEBIT).
//! 5. A vCPU that wakes is placed at the queue's minimum less half a `latency`, unless it is further
//!    ahead already (GENTLE_FAIR_SLEEPERS): sleepers get credit, up to that much.
//! 6. It preempts if its virtual runtime is less than the running one's by more than
//!    `wakeup-granularity`, scaled by its weight (WAKEUP_PREEMPTION).
//! 7. A vCPU that yields goes behind all others.
//! 8. One queue for all cores; a period counts the vCPUs per core. (The original has a queue per CPU
//!    and balances them.)
//!
//! Source: the Linux kernel's `kernel/sched/fair.c` up to 6.5, from general knowledge; constants are
//! those of its `sysctl` defaults, multiplied by 1 + ⌊log2 of at most 8 cores⌋.

use crate::event::Waits;
use crate::ids::{CoreId, VcpuId};
use crate::policies::nice::weight_of_nice;
use crate::policy::{Enqueue, Pick, Placed, Policy, Preempt, Refused, Slice, SliceEnd, VcpuParams};
use crate::queue::KeyedQueue;
use crate::registry::{PolicyInfo, ScheduledBy};
use crate::spec::{OptionInfo, OptionKind, SWITCH};
use crate::time::Nanos;

/// A time, or the kernel's default for the number of cores.
const SCALED: OptionKind = OptionKind::TimeOr {
    word: "auto",
    min: Nanos::from_micros(1),
    max: Nanos::from_secs(1),
};

/// What `cfs` says of itself.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "cfs",
    summary: "Linux's fair scheduler before EEVDF: virtual runtime with sleeper credit",
    rules: &[
        "Virtual runtime advances with run time divided by weight (1024 at nice 0).",
        "The vCPU with the least virtual runtime runs next.",
        "A slice is a weighted part of the period, at least `granularity` long.",
        "A new vCPU starts one of its slices behind the queue's minimum.",
        "A vCPU that wakes is placed at the minimum less half a `latency` at most.",
        "It preempts if it is behind the running one by more than `wakeup-granularity`.",
        "A vCPU that yields goes behind all others.",
        "One queue for all cores; a period counts the vCPUs per core.",
    ],
    source: "Linux kernel/sched/fair.c up to 6.5, from general knowledge",
    quirks: &[
        "A sleeper's credit is not paid for: many short sleeps can gain more than a fair share.",
        "The slice shrinks with the number of runnable vCPUs, so switches grow with load.",
    ],
    options: &[
        OptionInfo {
            name: "latency",
            kind: SCALED,
            default: "auto",
            help: "period in which every vCPU runs once; auto = 6 ms scaled by the number of cores",
        },
        OptionInfo {
            name: "granularity",
            kind: SCALED,
            default: "auto",
            help: "least slice; auto = 0.75 ms scaled by the number of cores",
        },
        OptionInfo {
            name: "wakeup-granularity",
            kind: SCALED,
            default: "auto",
            help: "lead that a waking vCPU needs to preempt; auto = 1 ms scaled by the number of cores",
        },
        OptionInfo {
            name: "sleeper-credit",
            kind: SWITCH,
            default: "on",
            help: "place a waking vCPU half a latency before the minimum",
        },
    ],
    scheduled_by: ScheduledBy::Policy,
    consistent: |_options| Ok(()),
    build: |options, cores| Box::new(Cfs::new(options, cores)),
};

/// Weight at nice 0.
const NICE_0: i128 = 1024;

#[derive(Debug)]
struct Entity {
    weight: i128,
    vruntime: i128,
    /// Run time since it was last picked.
    ran: Nanos,
    home: CoreId,
}

#[derive(Debug)]
struct Cfs {
    latency: Nanos,
    granularity: Nanos,
    wakeup_granularity: Nanos,
    sleeper_credit: bool,
    entities: Vec<Entity>,
    queue: KeyedQueue<i128>,
    running: Vec<Option<VcpuId>>,
    /// Weights of all runnable vCPUs, running ones included.
    load: i128,
    min_vruntime: i128,
}

impl Cfs {
    fn new(options: &crate::spec::Options, cores: u16) -> Self {
        let factor = u64::from(1 + cores.clamp(1, 8).ilog2());
        let scaled = |name: &str, micros: u64| {
            let given = options.time_or_word(name);
            given.unwrap_or(Nanos::from_micros(micros * factor))
        };
        Self {
            latency: scaled("latency", 6_000),
            granularity: scaled("granularity", 750),
            wakeup_granularity: scaled("wakeup-granularity", 1_000),
            sleeper_credit: options.on("sleeper-credit"),
            entities: Vec::new(),
            queue: KeyedQueue::default(),
            running: vec![None; usize::from(cores)],
            load: 0,
            min_vruntime: 0,
        }
    }

    /// slice = max(latency, runnable per core · granularity) · weight / (load per core), at least
    /// the granularity.
    fn slice(&self, vcpu: VcpuId) -> Nanos {
        let cores = self.running.len() as u64;
        let runnable = self.queue.len() as u64 + self.running.iter().flatten().count() as u64;
        let runnable = runnable.max(1).div_ceil(cores);
        let period = self.latency.max(Nanos(self.granularity.0 * runnable));
        let weight = self.entities[vcpu.index()].weight;
        let load = (self.load / i128::from(cores)).max(weight);
        let part = i128::from(period.0) * weight / load;
        Nanos(u64::try_from(part).unwrap_or(period.0)).max(self.granularity)
    }

    /// The least virtual runtime of any runnable vCPU; it never goes back.
    fn advance_minimum(&mut self) {
        let running = self
            .running
            .iter()
            .flatten()
            .map(|v| self.entities[v.index()].vruntime)
            .min();
        let queued = self.queue.first().map(|(vruntime, _)| vruntime);
        if let Some(least) = running.into_iter().chain(queued).min() {
            self.min_vruntime = self.min_vruntime.max(least);
        }
    }

    fn place(&mut self, vcpu: VcpuId, why: Enqueue) {
        let credit = if self.sleeper_credit {
            i128::from(self.latency.0) / 2
        } else {
            0
        };
        let slice = i128::from(self.slice(vcpu).0);
        let minimum = self.min_vruntime;
        let entity = &mut self.entities[vcpu.index()];
        match why {
            Enqueue::New => entity.vruntime = minimum + slice * NICE_0 / entity.weight,
            Enqueue::Wake => entity.vruntime = entity.vruntime.max(minimum - credit),
            Enqueue::Yield(_) => {
                let last = self.queue.last().map_or(minimum, |(vruntime, _)| vruntime);
                entity.vruntime = entity.vruntime.max(last);
            }
            Enqueue::Preempted(..) => {}
        }
    }

    /// The vCPU, no longer queued, has the core.
    fn sits(&mut self, core: CoreId, vcpu: VcpuId) -> Slice {
        self.running[core.index()] = Some(vcpu);
        let entity = &mut self.entities[vcpu.index()];
        entity.home = core;
        entity.ran = Nanos::ZERO;
        Slice::For(self.slice(vcpu))
    }

    /// Takes a vCPU that leaves the core for a while, or for ever, out of the load.
    fn leave(&mut self, core: CoreId, vcpu: VcpuId) {
        self.running[core.index()] = None;
        self.load -= self.entities[vcpu.index()].weight;
        self.advance_minimum();
    }
}

impl Policy for Cfs {
    fn declare(&mut self, _vcpu: VcpuId, params: &VcpuParams) -> Result<(), Refused> {
        let knows = "weight or nice, or shares of a VM with a single vCPU";
        params.refuse_slice("cfs", knows)?;
        params.refuse_limits("cfs", knows)?;
        let weight = match params.nice {
            Some(nice) => i128::from(weight_of_nice(nice)),
            None => i128::from(params.flat_weight("cfs")?) * NICE_0,
        };
        self.entities.push(Entity {
            weight,
            vruntime: 0,
            ran: Nanos::ZERO,
            home: CoreId(0),
        });
        Ok(())
    }

    fn enqueue(&mut self, _now: Nanos, vcpu: VcpuId, why: Enqueue) -> Placed {
        self.advance_minimum();
        match why {
            Enqueue::New | Enqueue::Wake => self.load += self.entities[vcpu.index()].weight,
            Enqueue::Preempted(core, _) | Enqueue::Yield(core) => {
                self.running[core.index()] = None;
            }
        }
        self.place(vcpu, why);
        let entity = &self.entities[vcpu.index()];
        self.queue.insert(vcpu, entity.vruntime);
        Placed(entity.home)
    }

    fn remove(&mut self, _now: Nanos, vcpu: VcpuId) {
        if self.queue.remove(vcpu).is_some() {
            self.load -= self.entities[vcpu.index()].weight;
        }
    }

    fn take(&mut self, _now: Nanos, core: CoreId, vcpu: VcpuId) -> Slice {
        self.queue.remove(vcpu);
        self.sits(core, vcpu)
    }

    fn pick(&mut self, _now: Nanos, core: CoreId) -> Pick {
        let Some((_, vcpu)) = self.queue.pop_first() else {
            return Pick::Idle;
        };
        Pick::Run(vcpu, self.sits(core, vcpu))
    }

    /// vruntime += ran · 1024 / weight.
    fn charge(&mut self, _now: Nanos, vcpu: VcpuId, ran: Nanos) {
        let entity = &mut self.entities[vcpu.index()];
        entity.vruntime += i128::from(ran.0) * NICE_0 / entity.weight;
        entity.ran += ran;
        self.advance_minimum();
    }

    fn preempts(&mut self, _now: Nanos, _core: CoreId, running: VcpuId, woken: VcpuId) -> Preempt {
        let (running, woken) = (
            &self.entities[running.index()],
            &self.entities[woken.index()],
        );
        let lead = i128::from(self.wakeup_granularity.0) * NICE_0 / woken.weight;
        if running.vruntime - woken.vruntime > lead {
            Preempt::Kick
        } else {
            Preempt::Keep
        }
    }

    fn slice_end(&mut self, _now: Nanos, _core: CoreId, vcpu: VcpuId) -> SliceEnd {
        if self.queue.is_empty() {
            self.entities[vcpu.index()].ran = Nanos::ZERO;
            return SliceEnd::Extend(Slice::For(self.slice(vcpu)));
        }
        // Vcpus that came since shorten the slice, those that went lengthen it.
        let (slice, ran) = (self.slice(vcpu), self.entities[vcpu.index()].ran);
        if ran >= slice {
            SliceEnd::Kick
        } else {
            SliceEnd::Extend(Slice::For(slice - ran))
        }
    }

    fn block(&mut self, _now: Nanos, core: CoreId, vcpu: VcpuId, _on: Waits) {
        self.leave(core, vcpu);
    }

    fn retire(&mut self, _now: Nanos, core: CoreId, vcpu: VcpuId) {
        self.leave(core, vcpu);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Step, World, ms, plain, repeat, secs, spin, us, weighted};

    #[test]
    fn two_equals_alternate_by_half_the_latency() {
        let mut world = World::new("cfs", 1, vec![(plain(0), spin()), (plain(1), spin())]);
        world.run_until(ms(30));
        let lengths: Vec<_> = world
            .switches(0)
            .windows(2)
            .map(|w| w[1].0 - w[0].0)
            .collect();
        // The first is alone with its debit: 6 ms.
        assert!(
            lengths[1..].iter().all(|length| *length == ms(3)),
            "{lengths:?}"
        );
    }

    #[test]
    fn shares_follow_weights_and_nice() {
        let vcpus = vec![
            (weighted(0, 1), spin()),
            (weighted(1, 2), spin()),
            (weighted(2, 4), spin()),
        ];
        let mut world = World::new("cfs", 1, vcpus);
        world.run_until(secs(14));
        for (vcpu, share) in [(0, 1.0), (1, 2.0), (2, 4.0)] {
            assert!(
                (world.share(vcpu) - share / 7.0).abs() < 0.002,
                "{}",
                world.share(vcpu)
            );
        }
        let nice = |nice| VcpuParams {
            nice: Some(nice),
            ..plain(0)
        };
        let mut world = World::new("cfs", 1, vec![(nice(0), spin()), (nice(5), spin())]);
        world.run_until(secs(14));
        let expected = 1_024.0 / (1_024.0 + 335.0);
        assert!(
            (world.share(0) - expected).abs() < 0.002,
            "{}",
            world.share(0)
        );
    }

    #[test]
    fn a_sleeper_preempts_at_once_with_credit_and_waits_its_turn_without() {
        let wait = |policy: &str| {
            let sleeper = repeat(&[Step::Run(us(100)), Step::Sleep(us(48_400))]);
            let vcpus = vec![(plain(0), sleeper), (plain(1), spin()), (plain(2), spin())];
            let mut world = World::new(policy, 1, vcpus);
            world.run_until(secs(5));
            world.longest_wait(0)
        };
        assert_eq!(wait("cfs"), Nanos::ZERO);
        let waits = wait("cfs:sleeper-credit=off");
        assert!(waits > us(500) && waits < ms(4), "{waits}");
    }

    #[test]
    fn with_many_vcpus_the_period_grows_and_the_slice_stays_at_the_granularity() {
        let vcpus = (0..32).map(|vm| (plain(vm), spin())).collect();
        let mut world = World::new("cfs", 1, vcpus);
        world.run_until(secs(2));
        let lengths: Vec<_> = world
            .switches(0)
            .windows(2)
            .map(|w| w[1].0 - w[0].0)
            .collect();
        assert!(
            lengths.iter().skip(64).all(|length| *length == us(750)),
            "{lengths:?}"
        );
    }
}
