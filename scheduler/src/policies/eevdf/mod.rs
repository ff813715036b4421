//! `eevdf`: earliest eligible virtual deadline first, as Linux's fair class does it.
//!
//! 1. Every core has a queue. A vCPU's virtual time runs at 1024 / weight of real time; its lag is the
//!    weighted average of the queue minus its own virtual time.
//! 2. Eligible is who is not ahead of the average. Of the eligible, the earliest deadline runs. A
//!    deadline is one slice of virtual time after the request for it began.
//! 3. Who runs is protected, as long as it is eligible, for the shortest slice on the queue (run to
//!    parity), or for 0.7 ms without run to parity.
//! 4. Who wakes is placed such that its lag is as when it left; a newcomer starts at the average with
//!    half a slice. Lag is bounded by two slices or a tick, whichever is longer.
//! 5. Who goes to sleep ahead of the average stays on the queue, counted but not run, until the average
//!    has come to it or it wakes (delayed dequeue). It gains no credit by that.
//! 6. Who wakes preempts if it is the one to run by rules 2 and 3. A shorter slice than that of the one
//!    on the core lifts the protection (preempt short).
//! 7. Who yields gives up the rest of its request if it is eligible, and asks for one more.
//! 8. Several cores: see `balance.rs`.
//!
//! Buddies, and the classes of batch and idle tasks, are not modelled.
//!
//! Source: Linux `kernel/sched/fair.c`, about v6.18, by its behaviour; Stoica and Abdel-Wahab 1995.

mod balance;
mod entity;
mod queue;
#[cfg(test)]
mod tests;
mod tree;

use crate::event::Waits;
use crate::ids::{CoreId, VcpuId};
use crate::policies::nice::weight_of_nice;
use crate::policy::{
    Clocks, Enqueue, Pick, Pinned, Placed, Policy, Preempt, Refused, Resched, Slice, SliceEnd,
    VcpuParams,
};
use crate::registry::{PolicyInfo, ScheduledBy};
use crate::spec::{OptionInfo, OptionKind, Options, SWITCH};
use crate::time::Nanos;
use entity::{Entity, Request};
use queue::{Features, Queues};

/// Shortest and longest slice that can be asked for.
const SLICES: (Nanos, Nanos) = (Nanos::from_micros(100), Nanos::from_millis(100));
/// The slice of a machine with one core, and the shortest stay on a core without run to parity.
const GRANULARITY: Nanos = Nanos::from_micros(700);
/// The tick that bounds lag when ends of requests are noticed exactly: 250 a second.
const USUAL_TICK: Nanos = Nanos::from_millis(4);

/// What `eevdf` says of itself.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "eevdf",
    summary: "Linux fair class: earliest eligible virtual deadline first, weights, lag",
    rules: &[
        "Every core has a queue. Virtual time runs at 1/weight of real time; lag is the weighted \
         average of the queue minus the own virtual time.",
        "Eligible is who is not ahead of the average. Of the eligible, the earliest deadline runs; a \
         deadline is one slice of virtual time after its request began.",
        "Who runs is protected, as long as it is eligible, for the shortest slice on the queue (run \
         to parity), or for 0.7 ms without run to parity.",
        "Who wakes is placed such that its lag is as when it left; a newcomer starts at the average \
         with half a slice. Lag is bounded by two slices or a tick, whichever is longer.",
        "Who goes to sleep ahead of the average stays on the queue, counted but not run, until the \
         average has come to it or it wakes; it gains no credit by that.",
        "Who wakes preempts if it is the one to run. A shorter slice than that of the one on the core \
         lifts the protection.",
        "Who yields gives up the rest of its request if it is eligible, and asks for one more.",
        "An idle core pulls from the longest queue. Every 32 ms queues are made even by weight; where \
         they cannot be, vCPUs take turns on the busier core.",
    ],
    source: "Linux kernel/sched/fair.c, about v6.18; Stoica and Abdel-Wahab 1995",
    quirks: &[
        "A vCPU that wakes with the usual slice waits until the one on the core has used its own: \
         there is no bonus for sleepers.",
        "With a tick the end of a request is noticed late: 2.8 ms end at 4 ms.",
        "Between cores only the simple balance described above; Linux's is another.",
    ],
    options: &[
        OptionInfo {
            name: "slice",
            kind: OptionKind::TimeOr {
                word: "auto",
                min: SLICES.0,
                max: SLICES.1,
            },
            default: "auto",
            help: "length of a request; auto: 0.7 ms x (1 + log2 of cores, 8 at most, rounded down)",
        },
        OptionInfo {
            name: "tick",
            kind: OptionKind::TimeOr {
                word: "exact",
                min: SLICES.0,
                max: SLICES.1,
            },
            default: "exact",
            help: "when ends of requests are noticed: exactly, or at ticks of this period",
        },
        OptionInfo {
            name: "run-to-parity",
            kind: SWITCH,
            default: "on",
            help: "protect who runs for the shortest slice on the queue",
        },
        OptionInfo {
            name: "place-lag",
            kind: SWITCH,
            default: "on",
            help: "keep lag over a sleep",
        },
        OptionInfo {
            name: "delay-dequeue",
            kind: SWITCH,
            default: "on",
            help: "leave sleepers that are ahead of the average on the queue",
        },
        OptionInfo {
            name: "preempt-short",
            kind: SWITCH,
            default: "on",
            help: "a shorter slice may preempt before the protection is over",
        },
    ],
    scheduled_by: ScheduledBy::Policy,
    consistent: |_options| Ok(()),
    build: |options, cores| Box::new(Eevdf::new(options, cores)),
};

#[derive(Debug)]
struct Eevdf {
    slice: Nanos,
    tick: Option<Nanos>,
    preempt_short: bool,
    queues: Queues,
}

/// The slice for a number of cores.
fn usual_slice(cores: u16) -> Nanos {
    Nanos(GRANULARITY.get() * u64::from(1 + cores.clamp(1, 8).ilog2()))
}

fn signed(time: Nanos) -> i64 {
    i64::try_from(time.get()).unwrap_or(i64::MAX)
}

impl Eevdf {
    fn new(options: &Options, cores: u16) -> Self {
        let features = Features {
            run_to_parity: options.on("run-to-parity"),
            delay_dequeue: options.on("delay-dequeue"),
            place_lag: options.on("place-lag"),
            preempt_short: options.on("preempt-short"),
        };
        let slice = options.time_or_word("slice");
        let tick = options.time_or_word("tick");
        let bound = tick.unwrap_or(USUAL_TICK);
        Self {
            slice: slice.unwrap_or_else(|| usual_slice(cores)),
            tick,
            preempt_short: features.preempt_short,
            queues: Queues::new(cores, features, GRANULARITY, bound),
        }
    }

    fn slice_from_now(&self, core: CoreId) -> Slice {
        match self.tick {
            None => Slice::For(self.queues.time_to_decide(core)),
            Some(_) => Slice::Open,
        }
    }

    /// Whether somebody else is to run on the core.
    fn is_outdone(&mut self, core: CoreId, vcpu: VcpuId) -> bool {
        self.queues.best_awake(core) != Some(vcpu)
    }

    fn wake(&mut self, now: Nanos, vcpu: VcpuId, request: Request) -> CoreId {
        let entity = self.queues.entity(vcpu);
        let here = entity.bound.is_none_or(|bound| entity.core == Some(bound));
        if let (true, Some(core)) = (entity.delayed, entity.core) {
            self.queues.update(core, now);
            if here {
                self.queues.wake_delayed(core, vcpu);
                return core;
            }
            self.queues.end_delay(core, vcpu);
        }
        let core = balance::place(&self.queues, vcpu);
        self.queues.update(core, now);
        self.queues.place(core, vcpu, request);
        self.queues.put(core, vcpu);
        core
    }

    /// The one on the core goes back to its queue, or to the one that it was sent to.
    fn put_back(&mut self, now: Nanos, core: CoreId, vcpu: VcpuId) -> CoreId {
        let to = self.queues.entity(vcpu).sent_to.take();
        if let Some(to) = to.filter(|to| *to != core) {
            let lag = self.queues.clamped_lag(core, vcpu);
            self.queues.clear_current(core, vcpu);
            self.queues.forget_sleepers(core);
            self.queues.update(to, now);
            self.queues.settle(to, vcpu, lag);
            return to;
        }
        self.queues.clear_current(core, vcpu);
        self.queues.put(core, vcpu);
        core
    }
}

impl Policy for Eevdf {
    fn clocks(&self) -> Clocks {
        let several = self.queues.cores.len() > 1;
        Clocks {
            tick: self.tick,
            period: several.then_some(balance::PERIOD),
        }
    }

    fn declare(&mut self, _vcpu: VcpuId, params: &VcpuParams) -> Result<(), Refused> {
        let knows = "weights, nice values (either, not both) and slices from 0.1 ms to 100 ms";
        params.refuse_limits("eevdf", knows)?;
        let refused = |param| Refused::unknown("eevdf", param, knows);
        let given = params.weight.is_some() || params.shares.is_some();
        let weight = match params.nice {
            Some(_) if given => return Err(refused("nice")),
            Some(nice) => i64::from(weight_of_nice(nice)),
            None => i64::from(params.flat_weight("eevdf")?) * 1024,
        };
        let slice = params.slice.unwrap_or(self.slice);
        if !(SLICES.0..=SLICES.1).contains(&slice) {
            return Err(refused("slice"));
        }
        self.queues.add(Entity::new(weight, signed(slice)));
        Ok(())
    }

    fn enqueue(&mut self, now: Nanos, vcpu: VcpuId, why: Enqueue) -> Placed {
        Placed(match why {
            Enqueue::New => self.wake(now, vcpu, Request::Half),
            Enqueue::Wake => self.wake(now, vcpu, Request::Whole),
            Enqueue::Preempted(core, _) => self.put_back(now, core, vcpu),
            Enqueue::Yield(core) => {
                if self.queues.core(core).runnable > 0 {
                    self.queues.forfeit(core, vcpu);
                }
                self.put_back(now, core, vcpu)
            }
        })
    }

    fn pin(&mut self, vcpu: VcpuId, to: Option<CoreId>) -> Pinned {
        let entity = self.queues.entity(vcpu);
        entity.bound = to;
        entity.sent_to = to;
        Pinned::Yes
    }

    fn remove(&mut self, _now: Nanos, vcpu: VcpuId) {
        let entity = self.queues.entity(vcpu);
        if let (true, Some(core)) = (entity.queued, entity.core) {
            self.queues.take(core, vcpu);
            self.queues.forget_sleepers(core);
        }
    }

    /// As in a pick, sleepers whose debt is paid leave the queue first.
    fn take(&mut self, now: Nanos, core: CoreId, vcpu: VcpuId) -> Slice {
        let _best = self.queues.best_awake(core);
        let from = self.queues.entity(vcpu).core;
        if let Some(from) = from.filter(|from| *from != core) {
            self.queues.update(from, now);
            self.queues.migrate(from, core, vcpu);
        }
        self.queues.take(core, vcpu);
        self.queues.set_current(core, vcpu);
        self.slice_from_now(core)
    }

    fn pick(&mut self, now: Nanos, core: CoreId) -> Pick {
        let best = self.queues.best_awake(core);
        let Some(vcpu) = best.or_else(|| balance::pull(&mut self.queues, core, now)) else {
            return Pick::Idle;
        };
        self.queues.take(core, vcpu);
        self.queues.set_current(core, vcpu);
        Pick::Run(vcpu, self.slice_from_now(core))
    }

    fn entered(&mut self, now: Nanos, core: CoreId, _vcpu: VcpuId) {
        self.queues.arrived(core, now);
    }

    fn charge(&mut self, now: Nanos, vcpu: VcpuId, ran: Nanos) {
        if let Some(core) = self.queues.entity(vcpu).core {
            self.queues.charge(core, vcpu, now, ran);
        }
    }

    fn preempts(&mut self, _now: Nanos, core: CoreId, running: VcpuId, woken: VcpuId) -> Preempt {
        let entities = &self.queues.entities;
        let (on, new) = (&entities[running.index()], &entities[woken.index()]);
        if new.core != Some(core) {
            return Preempt::Keep;
        }
        if self.preempt_short && new.slice < on.slice && self.queues.eligible(core, woken) {
            let virtual_time = on.virtual_time;
            self.queues.unprotect_at(core, virtual_time);
        }
        if self.queues.best(core) == Some(woken) {
            Preempt::Kick
        } else {
            Preempt::Keep
        }
    }

    fn slice_end(&mut self, _now: Nanos, core: CoreId, vcpu: VcpuId) -> SliceEnd {
        if self.is_outdone(core, vcpu) {
            return SliceEnd::Kick;
        }
        self.queues.protect(core);
        SliceEnd::Extend(self.slice_from_now(core))
    }

    fn block(&mut self, _now: Nanos, core: CoreId, vcpu: VcpuId, _on: Waits) {
        self.queues.entity(vcpu).sent_to = None;
        self.queues.sleep(core, vcpu);
    }

    fn retire(&mut self, _now: Nanos, core: CoreId, vcpu: VcpuId) {
        self.queues.clear_current(core, vcpu);
        self.queues.forget_sleepers(core);
    }

    fn retire_waiting(&mut self, now: Nanos, vcpu: VcpuId) {
        self.remove(now, vcpu);
    }

    fn tick(&mut self, _now: Nanos, core: CoreId, vcpu: VcpuId) -> Preempt {
        if self.is_outdone(core, vcpu) {
            Preempt::Kick
        } else {
            Preempt::Keep
        }
    }

    fn periodic(&mut self, now: Nanos) -> Resched {
        Resched(balance::even_out(&mut self.queues, signed(self.slice), now))
    }
}
