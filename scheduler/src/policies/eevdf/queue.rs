//! Run queues, one a core: virtual time, lag, eligibility, protection, placement.
//!
//! For each vCPU i with weight w (1024 at nice 0), slice r and virtual time v, over all on the queue
//! including the one on the core, W being the sum of their weights:
//!
//! * it advances by `v += ran * 1024 / w`, the remainder kept, so nothing is lost to rounding;
//! * the average is `V = sum(v * w) / W`, rounded towards the left; the lag is `V - v`;
//! * it is eligible if `v <= V`, computed without division as `sum(v * w) >= v * W`;
//! * a request is over when `v >= d`; the next deadline is `d = v + r * 1024 / w`.
//!
//! Virtual times are nanoseconds in 64 bits, sums are in 128 bits, so no reference point is needed.

use super::entity::{Entity, Request, virtual_length};
use super::tree::{Forest, Keys, Root};
use crate::ids::{CoreId, VcpuId};
use crate::time::Nanos;

/// What may be switched off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Features {
    pub(super) run_to_parity: bool,
    pub(super) delay_dequeue: bool,
    pub(super) place_lag: bool,
    pub(super) preempt_short: bool,
}

/// Who is on the core.
#[derive(Clone, Copy, Debug)]
pub(super) struct Current {
    pub(super) vcpu: VcpuId,
    /// Up to this virtual time nobody takes its place as long as it is eligible.
    pub(super) protected_to: i64,
    /// Up to when its time is booked; none until it has arrived.
    booked_to: Option<Nanos>,
    /// Booked beyond what the dispatcher has charged.
    ahead: Nanos,
}

/// A core's queue.
#[derive(Debug, Default)]
pub(super) struct RunQueue {
    root: Root,
    /// Of those in the tree.
    weight: i64,
    weighted_times: i128,
    /// How many in the tree are not delayed, and their weight.
    pub(super) runnable: usize,
    runnable_weight: i64,
    pub(super) current: Option<Current>,
    /// The average when the last one left.
    last_average: i64,
}

/// `times / weight`, rounded towards the left, for a weight above zero. `div_euclid` would divide 128
/// bits twice.
fn floor_divide(times: i128, weight: i64) -> i64 {
    let weight = i128::from(weight);
    let towards_zero = times / weight;
    let floor = towards_zero - i128::from(towards_zero * weight > times);
    i64::try_from(floor).unwrap_or(i64::MAX)
}

/// All queues.
#[derive(Debug)]
pub(super) struct Queues {
    pub(super) entities: Vec<Entity>,
    pub(super) cores: Vec<RunQueue>,
    trees: Forest,
    features: Features,
    /// Shortest time before a switch if there is no run to parity.
    granularity: i64,
    /// Period of the tick, for the bound of lag.
    tick: i64,
}

impl Queues {
    pub(super) fn new(cores: u16, features: Features, granularity: Nanos, tick: Nanos) -> Self {
        Self {
            entities: Vec::new(),
            cores: (0..cores).map(|_| RunQueue::default()).collect(),
            trees: Forest::new(),
            features,
            granularity: i64::try_from(granularity.get()).unwrap_or(i64::MAX),
            tick: i64::try_from(tick.get()).unwrap_or(i64::MAX),
        }
    }

    pub(super) fn add(&mut self, entity: Entity) {
        self.entities.push(entity);
        self.trees.add();
    }

    pub(super) fn entity(&mut self, vcpu: VcpuId) -> &mut Entity {
        &mut self.entities[vcpu.index()]
    }

    pub(super) fn core(&mut self, core: CoreId) -> &mut RunQueue {
        &mut self.cores[core.index()]
    }

    /// Nobody on it and nobody runnable queued.
    pub(super) fn is_idle(&self, core: CoreId) -> bool {
        let queue = &self.cores[core.index()];
        queue.current.is_none() && queue.runnable == 0
    }

    /// The weight of all that want to run on the core.
    pub(super) fn load(&self, core: CoreId) -> i64 {
        let queue = &self.cores[core.index()];
        let current = queue
            .current
            .map(|on| self.entities[on.vcpu.index()].weight);
        queue.runnable_weight + current.unwrap_or(0)
    }

    /// Sum of weighted virtual times and sum of weights, the one on the core included.
    fn sums(&self, core: CoreId) -> (i128, i64) {
        let queue = &self.cores[core.index()];
        let (times, weight) = (queue.weighted_times, queue.weight);
        match queue.current {
            Some(on) => {
                let entity = &self.entities[on.vcpu.index()];
                let own = i128::from(entity.virtual_time) * i128::from(entity.weight);
                (times + own, weight + entity.weight)
            }
            None => (times, weight),
        }
    }

    /// The average virtual time of the queue.
    pub(super) fn average(&self, core: CoreId) -> i64 {
        let (times, weight) = self.sums(core);
        if weight == 0 {
            return self.cores[core.index()].last_average;
        }
        floor_divide(times, weight)
    }

    /// Whether a virtual time is not ahead of the average.
    fn is_eligible(&self, core: CoreId) -> impl Fn(i64) -> bool + use<> {
        let (times, weight) = self.sums(core);
        move |virtual_time| times >= i128::from(virtual_time) * i128::from(weight)
    }

    pub(super) fn eligible(&self, core: CoreId, vcpu: VcpuId) -> bool {
        self.is_eligible(core)(self.entities[vcpu.index()].virtual_time)
    }

    /// Who would run if the one on the core had no protection left to claim: the earliest deadline
    /// among the eligible, the one on the core behind its equals; or that one if it is protected.
    pub(super) fn best(&self, core: CoreId) -> Option<VcpuId> {
        let queue = &self.cores[core.index()];
        let eligible = self.is_eligible(core);
        let on = queue
            .current
            .map(|on| (on, &self.entities[on.vcpu.index()]));
        let on = on.filter(|(_, entity)| eligible(entity.virtual_time));
        if let Some((current, entity)) = on
            && entity.virtual_time < current.protected_to
        {
            return Some(current.vcpu);
        }
        let first = self.trees.first(queue.root, &eligible);
        match (on, first) {
            (Some((current, entity)), Some(first)) => {
                let earlier = entity.deadline < self.entities[first.index()].deadline;
                Some(if earlier { current.vcpu } else { first })
            }
            (on, first) => first.or(on.map(|(current, _)| current.vcpu)),
        }
    }

    /// The same, but those found asleep are taken off the queue for good on the way.
    pub(super) fn best_awake(&mut self, core: CoreId) -> Option<VcpuId> {
        loop {
            let best = self.best(core)?;
            if !self.entities[best.index()].delayed {
                return Some(best);
            }
            self.end_delay(core, best);
        }
    }

    /// A sleeper whose debt is paid leaves the queue. It keeps no credit.
    pub(super) fn end_delay(&mut self, core: CoreId, vcpu: VcpuId) {
        let lag = self.clamped_lag(core, vcpu).min(0);
        self.take(core, vcpu);
        let entity = self.entity(vcpu);
        entity.delayed = false;
        entity.lag = lag;
    }

    /// Puts a vCPU into the tree of the core.
    pub(super) fn put(&mut self, core: CoreId, vcpu: VcpuId) {
        let entity = &mut self.entities[vcpu.index()];
        entity.queued = true;
        entity.core = Some(core);
        let keys = Keys {
            deadline: entity.deadline,
            virtual_time: entity.virtual_time,
            slice: entity.slice,
        };
        let queue = &mut self.cores[core.index()];
        queue.root = self.trees.insert(queue.root, vcpu, keys);
        queue.weight += entity.weight;
        queue.weighted_times += i128::from(entity.virtual_time) * i128::from(entity.weight);
        if !entity.delayed {
            queue.runnable += 1;
            queue.runnable_weight += entity.weight;
        }
    }

    /// Takes a vCPU out of the tree of the core.
    pub(super) fn take(&mut self, core: CoreId, vcpu: VcpuId) {
        let entity = &mut self.entities[vcpu.index()];
        entity.queued = false;
        let queue = &mut self.cores[core.index()];
        // If the last one leaves, the queue begins there when somebody comes again.
        if queue.current.is_none() && queue.weight == entity.weight {
            queue.last_average = entity.virtual_time;
        }
        queue.root = self.trees.remove(queue.root, vcpu);
        queue.weight -= entity.weight;
        queue.weighted_times -= i128::from(entity.virtual_time) * i128::from(entity.weight);
        if !entity.delayed {
            queue.runnable -= 1;
            queue.runnable_weight -= entity.weight;
        }
    }

    /// The vCPU that was taken from the tree is on the core from now on.
    pub(super) fn set_current(&mut self, core: CoreId, vcpu: VcpuId) {
        self.entities[vcpu.index()].core = Some(core);
        self.core(core).current = Some(Current {
            vcpu,
            protected_to: 0,
            booked_to: None,
            ahead: Nanos::ZERO,
        });
        self.protect(core);
    }

    /// Protects the one on the core for the shortest slice on its queue, at most up to its deadline.
    pub(super) fn protect(&mut self, core: CoreId) {
        let queue = &self.cores[core.index()];
        let Some(current) = queue.current else { return };
        let entity = &self.entities[current.vcpu.index()];
        let shortest = if self.features.run_to_parity {
            self.trees.least_slice(queue.root).unwrap_or(i64::MAX)
        } else {
            self.granularity
        };
        let length = virtual_length(shortest.min(entity.slice), entity.weight);
        let protected_to = entity.deadline.min(entity.virtual_time + length);
        self.unprotect_at(core, protected_to);
    }

    /// The one on the core is protected up to this virtual time.
    pub(super) fn unprotect_at(&mut self, core: CoreId, virtual_time: i64) {
        if let Some(current) = &mut self.core(core).current {
            current.protected_to = virtual_time;
        }
    }

    /// Run time until the one on the core has no more protection or its request is over.
    pub(super) fn time_to_decide(&self, core: CoreId) -> Nanos {
        let Some(current) = self.cores[core.index()].current else {
            return Nanos(1);
        };
        let entity = &self.entities[current.vcpu.index()];
        let end = entity.deadline.min(current.protected_to);
        entity.time_to(end.max(entity.virtual_time + 1))
    }

    /// The one on the core leaves it. Its virtual time is no longer part of the sums.
    pub(super) fn clear_current(&mut self, core: CoreId, vcpu: VcpuId) {
        let queue = &mut self.cores[core.index()];
        if queue.current.is_some_and(|on| on.vcpu == vcpu) {
            queue.current = None;
            if queue.weight == 0 {
                queue.last_average = self.entities[vcpu.index()].virtual_time;
            }
        }
    }

    pub(super) fn arrived(&mut self, core: CoreId, now: Nanos) {
        if let Some(current) = &mut self.core(core).current {
            current.booked_to = Some(now);
        }
    }

    /// The dispatcher charges the vCPU on the core.
    pub(super) fn charge(&mut self, core: CoreId, vcpu: VcpuId, now: Nanos, ran: Nanos) {
        let current = &mut self.cores[core.index()].current;
        let Some(current) = current.as_mut().filter(|on| on.vcpu == vcpu) else {
            return;
        };
        let ran = ran - std::mem::take(&mut current.ahead);
        current.booked_to = Some(now);
        self.entities[current.vcpu.index()].run(ran);
    }

    /// Books the time of the one on the core up to now, before the dispatcher charges it.
    pub(super) fn update(&mut self, core: CoreId, now: Nanos) {
        let Some(current) = &mut self.cores[core.index()].current else {
            return;
        };
        let Some(since) = current.booked_to else {
            return;
        };
        current.ahead += now - since;
        current.booked_to = Some(now);
        self.entities[current.vcpu.index()].run(now - since);
    }

    /// Lag of a vCPU on the queue, bounded by two slices or a tick, whichever is longer.
    pub(super) fn clamped_lag(&self, core: CoreId, vcpu: VcpuId) -> i64 {
        let entity = &self.entities[vcpu.index()];
        let limit = virtual_length((2 * entity.slice).max(self.tick), entity.weight);
        (self.average(core) - entity.virtual_time).clamp(-limit, limit)
    }

    /// Gives a vCPU that is on no queue its virtual time and deadline on the core's queue: such that
    /// its lag, after it has joined, is as it was.
    pub(super) fn place(&mut self, core: CoreId, vcpu: VcpuId, request: Request) {
        let (average, (_, weight)) = (self.average(core), self.sums(core));
        let place_lag = self.features.place_lag;
        let entity = self.entity(vcpu);
        let mut lag = 0;
        if place_lag && weight > 0 {
            let grown = i128::from(entity.lag) * i128::from(weight + entity.weight);
            lag = i64::try_from(grown / i128::from(weight)).unwrap_or(0);
        }
        entity.virtual_time = average - lag;
        entity.remainder = 0;
        entity.deadline = entity.virtual_time
            + match request {
                Request::Half => entity.virtual_slice() / 2,
                Request::Whole => entity.virtual_slice(),
                Request::Rest(rest) => rest,
            };
    }

    /// The one on the core goes to sleep. If it has had more than its due it stays on the queue until
    /// the others have caught up.
    pub(super) fn sleep(&mut self, core: CoreId, vcpu: VcpuId) {
        self.entity(vcpu).core = Some(core);
        if self.features.delay_dequeue && !self.eligible(core, vcpu) {
            self.clear_current(core, vcpu);
            self.entity(vcpu).delayed = true;
            self.put(core, vcpu);
        } else {
            self.entity(vcpu).lag = self.clamped_lag(core, vcpu);
            self.clear_current(core, vcpu);
        }
        self.forget_sleepers(core);
    }

    /// If only sleepers are left on a queue, nobody is there for them to wait for.
    pub(super) fn forget_sleepers(&mut self, core: CoreId) {
        if self.is_idle(core) {
            while let Some(sleeper) = self.best(core) {
                self.end_delay(core, sleeper);
            }
        }
    }

    /// A sleeper that is still on the queue wakes. Credit that it has gained asleep is not kept: it
    /// begins anew at the average. A debt stands, and so does its place.
    pub(super) fn wake_delayed(&mut self, core: CoreId, vcpu: VcpuId) {
        let entity = &self.entities[vcpu.index()];
        let gained = self.is_eligible(core)(entity.virtual_time + 1);
        if gained {
            self.take(core, vcpu);
            let entity = self.entity(vcpu);
            entity.delayed = false;
            entity.lag = 0;
            self.place(core, vcpu, Request::Whole);
            self.put(core, vcpu);
            return;
        }
        let queue = &mut self.cores[core.index()];
        queue.runnable += 1;
        queue.runnable_weight += entity.weight;
        self.entity(vcpu).delayed = false;
    }

    /// Moves a queued vCPU to another core with its lag and the rest of its request.
    pub(super) fn migrate(&mut self, from: CoreId, to: CoreId, vcpu: VcpuId) {
        let lag = self.clamped_lag(from, vcpu);
        self.take(from, vcpu);
        self.forget_sleepers(from);
        self.settle(to, vcpu, lag);
    }

    /// Queues a vCPU that comes from another core.
    pub(super) fn settle(&mut self, to: CoreId, vcpu: VcpuId, lag: i64) {
        let entity = self.entity(vcpu);
        let rest = entity.deadline - entity.virtual_time;
        entity.lag = lag;
        self.place(to, vcpu, Request::Rest(rest));
        self.put(to, vcpu);
    }

    /// Gives up what is left of the request, and one more.
    pub(super) fn forfeit(&mut self, core: CoreId, vcpu: VcpuId) {
        let eligible = self.eligible(core, vcpu);
        let entity = self.entity(vcpu);
        if eligible {
            entity.virtual_time = entity.deadline;
            entity.remainder = 0;
        }
        entity.deadline += entity.virtual_slice();
    }

    /// Those on the core's queue that want to run, in order of deadline.
    pub(super) fn waiting(&self, core: CoreId) -> impl Iterator<Item = VcpuId> {
        let members = self.trees.members(self.cores[core.index()].root);
        members
            .into_iter()
            .filter(|vcpu| !self.entities[vcpu.index()].delayed)
    }
}
