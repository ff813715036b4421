//! The units of `credit` and the queues of its cores: order, stealing, rate limit.

use crate::ids::{CoreId, VcpuId};
use crate::queue::KeyedQueue;
use crate::spec::Options;
use crate::time::Nanos;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Run time below which the rate limit is looked at again after as long: the source's guard.
pub(super) const MIN_TIMER: Nanos = Nanos::from_micros(100);

/// In rising order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Priority {
    Over,
    Under,
    Boost,
}

#[derive(Debug)]
pub(super) struct Unit {
    pub(super) domain: usize,
    pub(super) credits: i64,
    /// Time run that does not make a whole credit yet.
    pub(super) unburnt: Nanos,
    pub(super) priority: Priority,
    pub(super) active: bool,
    pub(super) parked: bool,
    /// Runnable, but kept off the queues because it is parked.
    pub(super) waiting_parked: bool,
    pub(super) yielded: bool,
    pub(super) picked: Nanos,
    pub(super) on: Option<CoreId>,
    pub(super) home: Option<CoreId>,
}

#[derive(Debug)]
pub(super) struct Domain {
    pub(super) weight: i64,
    pub(super) cap: Option<i64>,
    pub(super) active: Vec<VcpuId>,
}

#[derive(Debug, Default)]
pub(super) struct Core {
    /// In order of priority when last sorted, then of arrival.
    pub(super) queue: KeyedQueue<(Reverse<Priority>, u64)>,
    pub(super) running: Option<VcpuId>,
    pub(super) recheck: Option<Nanos>,
}

#[derive(Debug)]
pub(super) struct Credit {
    pub(super) ratelimit: Nanos,
    pub(super) tslice: Nanos,
    pub(super) by_tick: bool,
    pub(super) units: Vec<Unit>,
    pub(super) domains: Vec<Domain>,
    /// Domains with active units, in the order in which accounting visits them.
    pub(super) list: Vec<usize>,
    pub(super) cores: Vec<Core>,
    /// When a rate limit has passed on a core.
    pub(super) rechecks: BTreeSet<(Nanos, CoreId)>,
    pub(super) balance: i64,
    pub(super) queued: usize,
    /// Arrivals at queues, in steps of two.
    pub(super) sequence: u64,
}

impl Credit {
    pub(super) fn new(options: &Options, cores: u16) -> Self {
        Self {
            ratelimit: options.time("ratelimit"),
            tslice: options.time("tslice"),
            by_tick: options.word("charge") == "tick",
            units: Vec::new(),
            domains: Vec::new(),
            list: Vec::new(),
            cores: (0..cores).map(|_| Core::default()).collect(),
            sequence: 0,
            rechecks: BTreeSet::new(),
            balance: 0,
            queued: 0,
        }
    }

    pub(super) fn unit(&mut self, vcpu: VcpuId) -> &mut Unit {
        &mut self.units[vcpu.index()]
    }

    pub(super) fn priority(&self, vcpu: VcpuId) -> Priority {
        self.units[vcpu.index()].priority
    }

    /// Behind all of equal or higher priority; one that yielded goes one place further, behind the
    /// first of lower priority, unless that one is the last.
    pub(super) fn insert(&mut self, core: CoreId, vcpu: VcpuId) {
        let unit = &self.units[vcpu.index()];
        let (class, yielded) = (Reverse(unit.priority), unit.yielded);
        // Steps of two leave room behind every place for one that yielded.
        self.sequence += 2;
        let behind_equals = (class, self.sequence);
        let queue = &mut self.cores[core.index()].queue;
        let lower = queue.first_above(behind_equals).filter(|_| yielded);
        let place = match lower {
            Some(((class, sequence), first)) if queue.last().is_some_and(|(_, l)| l != first) => {
                (class, sequence + 1)
            }
            _ => behind_equals,
        };
        queue.insert(vcpu, place);
        self.queued += 1;
        self.unit(vcpu).home = Some(core);
    }

    pub(super) fn unqueue(&mut self, vcpu: VcpuId) {
        if let Some(core) = self.units[vcpu.index()].home
            && self.cores[core.index()].queue.remove(vcpu).is_some()
        {
            self.queued -= 1;
        }
        self.unit(vcpu).waiting_parked = false;
    }

    pub(super) fn head(&self, core: usize) -> Option<VcpuId> {
        self.cores[core].queue.first().map(|(_, vcpu)| vcpu)
    }

    /// The order by the priorities of now, which accounting has changed.
    pub(super) fn sort(&mut self, core: usize) {
        let queue = &mut self.cores[core].queue;
        let before: Vec<_> = std::iter::from_fn(|| queue.pop_first()).collect();
        for ((_, sequence), vcpu) in before {
            queue.insert(vcpu, (Reverse(self.units[vcpu.index()].priority), sequence));
        }
    }

    pub(super) fn least_loaded(&self) -> CoreId {
        let load = |core: &Core| core.queue.len() + usize::from(core.running.is_some());
        let least = (0..self.cores.len()).min_by_key(|index| load(&self.cores[*index]));
        CoreId(u16::try_from(least.unwrap_or(0)).unwrap_or(0))
    }

    /// The first unit elsewhere of strictly higher priority, cores in order from the next one on.
    /// A queue whose head is no better is of no use.
    pub(super) fn steal(&mut self, core: CoreId, above: Option<Priority>) -> Option<VcpuId> {
        let cores = self.cores.len();
        let mut others = (1..cores).map(|step| (core.index() + step) % cores);
        let found = others.find_map(|peer| {
            let head = self.head(peer)?;
            (Some(self.priority(head)) > above).then_some(head)
        })?;
        self.unqueue(found);
        Some(found)
    }

    /// Whether a core that goes through its choice again would take somebody better from elsewhere:
    /// the running unit is OVER, and so is all that waits behind it.
    pub(super) fn would_steal(&self, core: CoreId, running: VcpuId) -> bool {
        let best = self.priority(running);
        let mut peers = (0..self.cores.len()).filter(|peer| *peer != core.index());
        best == Priority::Over
            && peers.any(|peer| {
                self.head(peer)
                    .is_some_and(|head| self.priority(head) > best)
            })
    }

    /// Looks at the core again once its unit has run for the rate limit.
    pub(super) fn recheck(&mut self, core: CoreId, at: Option<Nanos>) {
        if let Some(old) = std::mem::replace(&mut self.cores[core.index()].recheck, at) {
            self.rechecks.remove(&(old, core));
        }
        if let Some(at) = at {
            self.rechecks.insert((at, core));
        }
    }

    pub(super) fn left(&mut self, core: CoreId, vcpu: VcpuId) {
        self.cores[core.index()].running = None;
        self.unit(vcpu).on = None;
        self.recheck(core, None);
    }

    /// Whether the head of the queue goes before the running unit when the core is scheduled anew:
    /// the running one goes behind its equals.
    pub(super) fn head_goes_first(&self, core: CoreId, running: VcpuId) -> bool {
        let head = self.head(core.index());
        head.is_some_and(|head| self.priority(head) >= self.priority(running))
    }
}
