//! The queues of `balance`, one a core, and where a vCPU goes.
//!
//! Virtual times are those of the core's own queue. Who moves keeps its distance to the queue's least.

use crate::ids::{CoreId, VcpuId};
use crate::queue::KeyedQueue;
use crate::spec::Options;
use crate::time::Nanos;
use std::cmp::Reverse;

/// How often queues are made even.
pub(super) const PERIOD: Nanos = Nanos::from_millis(32);

/// Virtual nanoseconds of a vCPU of weight 1 for a nanosecond of run time.
const SCALE: i128 = 1 << 16;

#[derive(Debug)]
struct Vcpu {
    vm: usize,
    weight: i128,
    vruntime: i128,
    /// `lead` and `lag` in its virtual time.
    lead: i128,
    lag: i128,
    /// The core on which it is queued or runs.
    core: Option<CoreId>,
    /// The last of these.
    home: CoreId,
}

#[derive(Default, Debug)]
pub(super) struct Queue {
    waiting: KeyedQueue<i128>,
    running: Option<VcpuId>,
    /// Weight of all that wait or run here.
    load: i128,
    /// The least virtual time of any of them; it never goes back.
    floor: i128,
}

/// Where vCPUs are queued.
#[derive(Debug)]
enum Rule {
    Apart,
    Random(fastrand::Rng),
}

#[derive(Debug)]
pub(super) struct Balance {
    rule: Rule,
    pub(super) quantum: Nanos,
    lead: Nanos,
    lag: Nanos,
    vcpus: Vec<Vcpu>,
    /// How many vCPUs of each VM are queued or run on each core.
    vms: Vec<Vec<u32>>,
    pub(super) queues: Vec<Queue>,
}

impl Queue {
    fn is_idle(&self) -> bool {
        self.running.is_none() && self.waiting.is_empty()
    }
}

impl Balance {
    pub(super) fn new(options: &Options, cores: u16) -> Self {
        let seed = options.int("seed").unsigned_abs();
        Self {
            rule: match options.word("place") {
                "random" => Rule::Random(fastrand::Rng::with_seed(seed)),
                _ => Rule::Apart,
            },
            quantum: options.time("quantum"),
            lead: options.time("lead"),
            lag: options.time("lag"),
            vcpus: Vec::new(),
            vms: Vec::new(),
            queues: (0..cores).map(|_| Queue::default()).collect(),
        }
    }

    pub(super) fn add(&mut self, vm: usize, weight: u32) {
        if self.vms.len() <= vm {
            self.vms.resize(vm + 1, vec![0; self.queues.len()]);
        }
        let weight = i128::from(weight);
        self.vcpus.push(Vcpu {
            vm,
            weight,
            vruntime: 0,
            lead: i128::from(self.lead.0) * SCALE / weight,
            lag: i128::from(self.lag.0) * SCALE / weight,
            core: None,
            home: CoreId(0),
        });
    }

    fn entry(&mut self, vcpu: VcpuId) -> &mut Vcpu {
        &mut self.vcpus[vcpu.index()]
    }

    fn on(&mut self, core: CoreId) -> &mut Queue {
        &mut self.queues[core.index()]
    }

    /// The core on which a vCPU is queued or runs.
    pub(super) fn core_of(&self, vcpu: VcpuId) -> Option<CoreId> {
        self.vcpus[vcpu.index()].core
    }

    fn cores(&self) -> impl Iterator<Item = (CoreId, &Queue)> {
        (0..=u16::MAX).map(CoreId).zip(&self.queues)
    }

    /// Whether the queue of a core, on which the vCPU itself is not, holds a sibling.
    fn holds_sibling(&self, core: CoreId, vcpu: VcpuId) -> bool {
        self.vms[self.vcpus[vcpu.index()].vm][core.index()] > 0
    }

    /// The core for one that wakes or is new.
    pub(super) fn choose(&mut self, vcpu: VcpuId) -> CoreId {
        let cores = u16::try_from(self.queues.len()).unwrap_or(u16::MAX);
        if let Rule::Random(draws) = &mut self.rule {
            return CoreId(draws.u16(0..cores));
        }
        let home = self.vcpus[vcpu.index()].home;
        // The best first: idle ones bear nothing; the last core among equals, then the lower number.
        let rank =
            |(core, queue): (CoreId, &Queue)| (!queue.is_idle(), queue.load, core != home, core);
        let free = self
            .cores()
            .filter(|(core, _)| !self.holds_sibling(*core, vcpu));
        let best = free.map(rank).min();
        let best = best.or_else(|| self.cores().map(rank).min());
        best.map_or(home, |(.., core)| core)
    }

    /// One that was away joins the queue of the core, not far behind all others.
    pub(super) fn arrive(&mut self, vcpu: VcpuId, core: CoreId) {
        self.shift(vcpu, core);
        let floor = self.queues[core.index()].floor;
        let entry = self.entry(vcpu);
        entry.vruntime = entry.vruntime.max(floor - entry.lag);
        self.queue(vcpu, core, false);
    }

    /// From the virtual time of its last core to that of this one.
    fn shift(&mut self, vcpu: VcpuId, core: CoreId) {
        let from = self.vcpus[vcpu.index()].home;
        let apart = self.queues[core.index()].floor - self.queues[from.index()].floor;
        self.entry(vcpu).vruntime += apart;
    }

    /// The vCPU belongs to the queue of the core from now on, which bears its weight.
    fn joins(&mut self, vcpu: VcpuId, core: CoreId) {
        let entry = self.entry(vcpu);
        entry.core = Some(core);
        entry.home = core;
        let (vm, weight) = (entry.vm, entry.weight);
        self.on(core).load += weight;
        self.vms[vm][core.index()] += 1;
    }

    /// The vCPU belongs to no queue. The answer is the core to whose it belonged.
    fn quits(&mut self, vcpu: VcpuId) -> Option<CoreId> {
        let entry = self.entry(vcpu);
        let (vm, weight) = (entry.vm, entry.weight);
        let core = entry.core.take()?;
        self.on(core).load -= weight;
        self.vms[vm][core.index()] -= 1;
        Some(core)
    }

    /// Queues a vCPU that is on no core; one that yields goes behind all others.
    pub(super) fn queue(&mut self, vcpu: VcpuId, core: CoreId, yields: bool) {
        self.joins(vcpu, core);
        let own = self.vcpus[vcpu.index()].vruntime;
        let waiting = &mut self.on(core).waiting;
        let last = waiting.last().filter(|_| yields).map(|(key, _)| key);
        waiting.insert(vcpu, last.map_or(own, |last| last.max(own)));
    }

    /// Takes a waiting vCPU off its queue.
    pub(super) fn unqueue(&mut self, vcpu: VcpuId) {
        if let Some(core) = self.quits(vcpu) {
            self.on(core).waiting.remove(vcpu);
        }
    }

    /// The waiting vCPU has the core.
    pub(super) fn run(&mut self, core: CoreId, vcpu: VcpuId) {
        self.on(core).waiting.remove(vcpu);
        self.on(core).running = Some(vcpu);
    }

    /// The vCPU leaves the core.
    pub(super) fn leave(&mut self, core: CoreId, vcpu: VcpuId) {
        self.quits(vcpu);
        self.on(core).running = None;
    }

    /// virtual time += ran · SCALE / weight.
    pub(super) fn advance(&mut self, vcpu: VcpuId, ran: Nanos) {
        let entry = self.entry(vcpu);
        entry.vruntime += i128::from(ran.0) * SCALE / entry.weight;
        let (own, core) = (entry.vruntime, entry.home);
        let queue = self.on(core);
        let first = queue.waiting.first().map_or(own, |(key, _)| key);
        queue.floor = queue.floor.max(own.min(first));
    }

    pub(super) fn first(&self, core: CoreId) -> Option<VcpuId> {
        let first = self.queues[core.index()].waiting.first();
        first.map(|(_, vcpu)| vcpu)
    }

    /// Whether the first that waits here goes before the one that runs.
    pub(super) fn first_is_before(&self, core: CoreId, running: VcpuId) -> bool {
        let own = self.vcpus[running.index()].vruntime;
        let first = self.queues[core.index()].waiting.first();
        first.is_some_and(|(key, _)| key <= own)
    }

    /// Whether one that runs is so far ahead that the other takes its place.
    pub(super) fn is_ahead(&self, running: VcpuId, of: VcpuId) -> bool {
        let (running, of) = (&self.vcpus[running.index()], &self.vcpus[of.index()]);
        running.vruntime - of.vruntime > of.lead
    }

    /// Brings the first of the longest queue over to an idle core, on which there is no sibling then.
    pub(super) fn pull(&mut self, to: CoreId) -> Option<VcpuId> {
        let length = |(core, queue): (CoreId, &Queue)| (queue.waiting.len(), Reverse(core));
        let (_, Reverse(from)) = self.cores().map(length).max()?;
        let vcpu = self.first(from)?;
        self.migrate(vcpu, to);
        Some(vcpu)
    }

    /// Moves a waiting vCPU to another core.
    pub(super) fn migrate(&mut self, vcpu: VcpuId, to: CoreId) {
        self.unqueue(vcpu);
        self.shift(vcpu, to);
        self.queue(vcpu, to, false);
    }

    /// Makes queues even. The answer is the cores on which somebody goes before the one that runs.
    pub(super) fn even_out(&mut self) -> Vec<CoreId> {
        let mut wanted = Vec::new();
        while let Some((vcpu, to, turn)) = self.improvement() {
            self.migrate(vcpu, to);
            let on = self.queues[to.index()].running;
            if on.is_some_and(|on| self.first_is_before(to, on)) {
                wanted.push(to);
            }
            if turn {
                break;
            }
        }
        wanted
    }

    /// A move from the core that bears most to the one that bears least: the first that waits there, may
    /// go, and weighs no more than the difference; whether it only turns them about.
    fn improvement(&self) -> Option<(VcpuId, CoreId, bool)> {
        let gives = self.cores().filter(|(_, queue)| !queue.waiting.is_empty());
        let (most, Reverse(from)) = gives
            .map(|(core, queue)| (queue.load, Reverse(core)))
            .max()?;
        let (least, to) = self.cores().map(|(core, queue)| (queue.load, core)).min()?;
        let room = most - least;
        let waiting = self.queues[from.index()].waiting.iter();
        let mut may_go = waiting.map(|(_, vcpu)| vcpu).filter(|vcpu| {
            let stays_apart =
                matches!(self.rule, Rule::Random(_)) || !self.holds_sibling(to, *vcpu);
            self.vcpus[vcpu.index()].weight <= room && stays_apart
        });
        let vcpu = may_go.next()?;
        let turn = self.vcpus[vcpu.index()].weight == room;
        (room > 0).then_some((vcpu, to, turn))
    }
}
