//! `credit`: Xen's credit scheduler (credit1).
//!
//! 1. Credits are time: 10 a millisecond. Every accounting period (30 ms) the credits of all cores are
//!    divided among the VMs by their shares, and within a VM evenly among its active vCPUs.
//! 2. Running burns credits. Accounting sets the priority: UNDER while credits are left, OVER below
//!    zero. Queues are in order of priority, first come first served within one.
//! 3. A vCPU that wakes while UNDER is BOOSTed above all until the next tick (10 ms) at which it is
//!    found running, or the next accounting.
//! 4. A vCPU runs for a time slice (30 ms), then goes behind its equals. A waking one preempts a
//!    running one of lower priority, but not before that one ran for `ratelimit`.
//! 5. A core whose best is OVER, or that is idle, steals a vCPU of strictly higher priority elsewhere.
//! 6. A vCPU that saved more than 300 credits stops earning, and keeps half.
//! 7. A capped VM's vCPUs are parked when they are too far below zero, until accounting lifts them.
//!
//! Readings: a vCPU is active from the first credit that it burns (in the source, from the first tick
//! that finds it running, so that one that is never found is never judged); an idle core steals at
//! once (the source waits 1 ms between attempts); a new vCPU is placed on the core with the fewest
//! vCPUs, and the periodic search for a better core is left to stealing; queues are sorted at the
//! accounting, not at the tick after it.
//!
//! Source: Xen `xen/common/sched/credit.c` (2026), `docs/misc/xen-command-line`.

mod account;
#[cfg(test)]
mod tests;

use crate::event::{Standing, Waits};
use crate::ids::{CoreId, VcpuId};
use crate::policy::{
    Clocks, Division, Enqueue, Pick, Placed, Policy, Preempt, Refused, Resched, Slice, SliceEnd,
    VcpuParams, WorkConserving,
};
use crate::queue::KeyedQueue;
use crate::registry::{PolicyInfo, ScheduledBy};
use crate::spec::{Inconsistent, OptionInfo, OptionKind, Options};
use crate::time::Nanos;
use account::{Claim, PER_SLICE};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// What `credit` says of itself.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "credit",
    summary: "Xen credit: credits by VM share, boost on wake-up, caps",
    rules: &[
        "Every 30 ms credits (10 a millisecond of core) are divided among VMs by shares.",
        "Running burns credits; accounting makes a vCPU UNDER (credits left) or OVER.",
        "A vCPU that wakes while UNDER is BOOSTed until a tick finds it running.",
        "A vCPU runs for 30 ms; a waking one of higher priority preempts after `ratelimit`.",
        "A core whose best is OVER, or that is idle, steals one of strictly higher priority.",
        "A vCPU that saved more than 300 credits stops earning, and keeps half.",
        "A capped VM's vCPUs are parked while they are too far below zero.",
    ],
    source: "Xen xen/common/sched/credit.c (2026)",
    quirks: &[
        "Boost is for sleepers: a vCPU that uses its share without sleeping never gets it.",
        "If the running one has run less than 100 us, the rate limit is first looked at again after \
         100 us, whatever remains of it.",
        "With charge=tick whoever runs at the tick pays for it all: a guest that yields just before \
         the tick runs for nothing (fixed in Xen by charging time).",
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
            name: "tslice",
            kind: OptionKind::Time {
                min: Nanos::from_millis(1),
                max: Nanos::from_secs(1),
            },
            default: "30ms",
            help: "time slice and accounting period; a tick is a third of it",
        },
        OptionInfo {
            name: "charge",
            kind: OptionKind::Word(&["time", "tick"]),
            default: "time",
            help: "burn credits by time run, or (historic) a third of a slice at each tick",
        },
    ],
    scheduled_by: ScheduledBy::Policy,
    consistent: |options| {
        let (limit, slice) = (options.time("ratelimit"), options.time("tslice"));
        let usable = limit == Nanos::ZERO || limit >= Nanos::from_micros(100);
        if usable && limit <= slice {
            return Ok(());
        }
        Err(Inconsistent {
            option: "ratelimit",
            expected: format!("0, or at least 100 us and at most the time slice, {slice}"),
        })
    },
    build: |options, cores| Box::new(credit(options, cores)),
};

fn credit(options: &Options, cores: u16) -> Credit {
    Credit {
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

/// Run time below which the rate limit is looked at again after as long: the source's guard.
const MIN_TIMER: Nanos = Nanos::from_micros(100);

/// In rising order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Priority {
    Over,
    Under,
    Boost,
}

#[derive(Debug)]
struct Unit {
    domain: usize,
    credits: i64,
    /// Time run that does not make a whole credit yet.
    unburnt: Nanos,
    priority: Priority,
    active: bool,
    parked: bool,
    /// Runnable, but kept off the queues because it is parked.
    waiting_parked: bool,
    yielded: bool,
    picked: Nanos,
    on: Option<CoreId>,
    home: Option<CoreId>,
}

/// What the accounting of a unit leads to.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Settled {
    /// It stays where it is.
    InPlace,
    /// It runs on this core and is parked.
    Leaves(CoreId),
    /// It waits again, for this core.
    Unparked(CoreId),
}

#[derive(Debug)]
struct Domain {
    weight: i64,
    cap: Option<i64>,
    active: Vec<VcpuId>,
}

#[derive(Debug, Default)]
struct Core {
    /// In order of priority when last sorted, then of arrival.
    queue: KeyedQueue<(Reverse<Priority>, u64)>,
    running: Option<VcpuId>,
    recheck: Option<Nanos>,
}

#[derive(Debug)]
struct Credit {
    ratelimit: Nanos,
    tslice: Nanos,
    by_tick: bool,
    units: Vec<Unit>,
    domains: Vec<Domain>,
    /// Domains with active units, in the order in which accounting visits them.
    list: Vec<usize>,
    cores: Vec<Core>,
    /// When a rate limit has passed on a core.
    rechecks: BTreeSet<(Nanos, CoreId)>,
    balance: i64,
    queued: usize,
    /// Arrivals at queues, in steps of two.
    sequence: u64,
}

impl Credit {
    fn unit(&mut self, vcpu: VcpuId) -> &mut Unit {
        &mut self.units[vcpu.index()]
    }

    fn priority(&self, vcpu: VcpuId) -> Priority {
        self.units[vcpu.index()].priority
    }

    /// Behind all of equal or higher priority; one that yielded goes one place further, behind the
    /// first of lower priority, unless that one is the last.
    fn insert(&mut self, core: CoreId, vcpu: VcpuId) {
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

    fn take(&mut self, vcpu: VcpuId) {
        if let Some(core) = self.units[vcpu.index()].home
            && self.cores[core.index()].queue.remove(vcpu).is_some()
        {
            self.queued -= 1;
        }
        self.unit(vcpu).waiting_parked = false;
    }

    fn head(&self, core: usize) -> Option<VcpuId> {
        self.cores[core].queue.first().map(|(_, vcpu)| vcpu)
    }

    /// The order by the priorities of now, which accounting has changed.
    fn sort(&mut self, core: usize) {
        let queue = &mut self.cores[core].queue;
        let before: Vec<_> = std::iter::from_fn(|| queue.pop_first()).collect();
        for ((_, sequence), vcpu) in before {
            queue.insert(vcpu, (Reverse(self.units[vcpu.index()].priority), sequence));
        }
    }

    fn least_loaded(&self) -> CoreId {
        let load = |core: &Core| core.queue.len() + usize::from(core.running.is_some());
        let least = (0..self.cores.len()).min_by_key(|index| load(&self.cores[*index]));
        CoreId(u16::try_from(least.unwrap_or(0)).unwrap_or(0))
    }

    /// The first unit elsewhere of strictly higher priority, cores in order from the next one on.
    /// A queue whose head is no better is of no use.
    fn steal(&mut self, core: CoreId, above: Option<Priority>) -> Option<VcpuId> {
        let cores = self.cores.len();
        let mut others = (1..cores).map(|step| (core.index() + step) % cores);
        let found = others.find_map(|peer| {
            let head = self.head(peer)?;
            (Some(self.priority(head)) > above).then_some(head)
        })?;
        self.take(found);
        Some(found)
    }

    /// Whether a core that goes through its choice again would take somebody better from elsewhere:
    /// the running unit is OVER, and so is all that waits behind it.
    fn would_steal(&self, core: CoreId, running: VcpuId) -> bool {
        let best = self.priority(running);
        let mut peers = (0..self.cores.len()).filter(|peer| *peer != core.index());
        best == Priority::Over
            && peers.any(|peer| {
                self.head(peer)
                    .is_some_and(|head| self.priority(head) > best)
            })
    }

    fn activate(&mut self, vcpu: VcpuId) {
        let unit = self.unit(vcpu);
        if !unit.active {
            unit.active = true;
            let index = unit.domain;
            let domain = &mut self.domains[index];
            domain.active.push(vcpu);
            if domain.active.len() == 1 {
                self.list.push(index);
            }
        }
    }

    fn deactivate(&mut self, vcpu: VcpuId) {
        let unit = self.unit(vcpu);
        if std::mem::take(&mut unit.active) {
            let index = unit.domain;
            let domain = &mut self.domains[index];
            domain.active.retain(|active| *active != vcpu);
            if domain.active.is_empty() {
                self.list.retain(|listed| *listed != index);
            }
        }
    }

    /// Looks at the core again once its unit has run for the rate limit.
    fn recheck(&mut self, core: CoreId, at: Option<Nanos>) {
        if let Some(old) = std::mem::replace(&mut self.cores[core.index()].recheck, at) {
            self.rechecks.remove(&(old, core));
        }
        if let Some(at) = at {
            self.rechecks.insert((at, core));
        }
    }

    fn left(&mut self, core: CoreId, vcpu: VcpuId) {
        self.cores[core.index()].running = None;
        self.unit(vcpu).on = None;
        self.recheck(core, None);
    }

    /// Whether the head of the queue goes before the running unit when the core is scheduled anew:
    /// the running one goes behind its equals.
    fn head_goes_first(&self, core: CoreId, running: VcpuId) -> bool {
        let head = self.head(core.index());
        head.is_some_and(|head| self.priority(head) >= self.priority(running))
    }

    /// One unit's part of the accounting.
    fn settle(&mut self, vcpu: VcpuId, grant: &account::Grant) -> Settled {
        let unit = self.unit(vcpu);
        unit.credits += grant.each;
        if unit.credits < 0 {
            unit.priority = Priority::Over;
            let park = grant.park_below.is_some_and(|limit| unit.credits < limit);
            unit.credits = unit.credits.max(-PER_SLICE);
            if park && !unit.parked {
                unit.parked = true;
                return self.park(vcpu);
            }
            return Settled::InPlace;
        }
        unit.priority = Priority::Under;
        let unparked = std::mem::take(&mut unit.parked);
        if unit.credits > PER_SLICE {
            unit.credits /= 2;
            self.deactivate(vcpu);
        }
        let unit = self.unit(vcpu);
        if unparked && std::mem::take(&mut unit.waiting_parked) {
            let home = unit.home.unwrap_or(CoreId(0));
            self.insert(home, vcpu);
            return Settled::Unparked(home);
        }
        Settled::InPlace
    }

    fn park(&mut self, vcpu: VcpuId) -> Settled {
        if let Some(core) = self.units[vcpu.index()].on {
            return Settled::Leaves(core);
        }
        let queued = self.queued;
        self.take(vcpu);
        self.unit(vcpu).waiting_parked = self.queued < queued;
        Settled::InPlace
    }
}

impl Policy for Credit {
    fn clocks(&self) -> Clocks {
        Clocks {
            tick: Some(Nanos(self.tslice.0 / 3)),
            period: Some(self.tslice),
        }
    }

    fn divides(&self) -> Division {
        Division::Vms
    }

    fn declare(&mut self, _vcpu: VcpuId, params: &VcpuParams) -> Result<(), Refused> {
        let knows = "shares and a cap per VM";
        params.no_nice("credit", knows)?;
        params.no_slice("credit", knows)?;
        params.no_reservation("credit", knows)?;
        let domain = params.vm.index();
        let shares = i64::from(params.group_shares("credit")?);
        while self.domains.len() <= domain {
            self.domains.push(Domain {
                weight: 1,
                cap: None,
                active: Vec::new(),
            });
        }
        self.domains[domain].weight = shares;
        self.domains[domain].cap = params.cap.map(i64::from);
        self.units.push(Unit {
            domain,
            credits: 0,
            unburnt: Nanos::ZERO,
            priority: Priority::Under,
            active: false,
            parked: false,
            waiting_parked: false,
            yielded: false,
            picked: Nanos::ZERO,
            on: None,
            home: None,
        });
        Ok(())
    }

    fn enqueue(&mut self, _now: Nanos, vcpu: VcpuId, why: Enqueue) -> Placed {
        match why {
            Enqueue::Preempted(core, _) | Enqueue::Yield(core) => self.left(core, vcpu),
            Enqueue::New | Enqueue::Wake => {}
        }
        let home = self.units[vcpu.index()].home;
        let home = home.unwrap_or_else(|| self.least_loaded());
        let unit = self.unit(vcpu);
        unit.yielded = matches!(why, Enqueue::Yield(_));
        if unit.parked {
            unit.waiting_parked = true;
            unit.home = Some(home);
            return Placed(home);
        }
        if why == Enqueue::Wake && unit.priority == Priority::Under {
            unit.priority = Priority::Boost;
        }
        self.insert(home, vcpu);
        Placed(home)
    }

    fn remove(&mut self, _now: Nanos, vcpu: VcpuId) {
        self.take(vcpu);
        self.deactivate(vcpu);
    }

    fn pick(&mut self, now: Nanos, core: CoreId) -> Pick {
        if self.queued == 0 {
            return Pick::Idle;
        }
        let local = self.head(core.index());
        let best = local.map(|vcpu| self.priority(vcpu));
        let stolen = if best <= Some(Priority::Over) {
            self.steal(core, best)
        } else {
            None
        };
        let Some(vcpu) = stolen.or(local) else {
            return Pick::Idle;
        };
        self.take(vcpu);
        self.cores[core.index()].running = Some(vcpu);
        let unit = self.unit(vcpu);
        unit.on = Some(core);
        unit.home = Some(core);
        unit.picked = now;
        unit.yielded = false;
        Pick::Run(vcpu, Slice::For(self.tslice))
    }

    /// credits −= 10 · milliseconds run, the remainder carried in time.
    fn charge(&mut self, _now: Nanos, vcpu: VcpuId, ran: Nanos) {
        if self.by_tick {
            return;
        }
        let credit = Nanos(self.tslice.0 / PER_SLICE.unsigned_abs());
        let unit = self.unit(vcpu);
        let time = unit.unburnt + ran;
        unit.credits -= i64::try_from(time.0 / credit.0).unwrap_or(i64::MAX);
        unit.unburnt = Nanos(time.0 % credit.0);
        if time >= credit {
            self.activate(vcpu);
        }
    }

    fn preempts(&mut self, now: Nanos, core: CoreId, running: VcpuId, woken: VcpuId) -> Preempt {
        if self.priority(woken) <= self.priority(running) {
            return Preempt::Keep;
        }
        let ran = now.since(self.units[running.index()].picked);
        if ran >= self.ratelimit {
            return Preempt::Kick;
        }
        let wait = if ran < MIN_TIMER {
            MIN_TIMER
        } else {
            self.ratelimit - ran
        };
        self.recheck(core, Some(now + wait));
        Preempt::Keep
    }

    fn wants_timer(&self) -> Option<Nanos> {
        self.rechecks.first().map(|(at, _)| *at)
    }

    fn timer(&mut self, now: Nanos) -> Resched {
        let mut cores = Vec::new();
        while let Some((at, core)) = self.rechecks.first().copied().filter(|(at, _)| *at <= now) {
            self.rechecks.remove(&(at, core));
            self.cores[core.index()].recheck = None;
            let Some(running) = self.cores[core.index()].running else {
                continue;
            };
            let ran = now.since(self.units[running.index()].picked);
            if ran < self.ratelimit {
                self.recheck(core, Some(now + (self.ratelimit - ran)));
            } else if self.head_goes_first(core, running) {
                cores.push(core);
            }
        }
        Resched(cores)
    }

    fn slice_end(&mut self, _now: Nanos, core: CoreId, vcpu: VcpuId) -> SliceEnd {
        if self.head_goes_first(core, vcpu) || self.would_steal(core, vcpu) {
            SliceEnd::Kick
        } else {
            SliceEnd::Extend(Slice::For(self.tslice))
        }
    }

    fn tick(&mut self, _now: Nanos, _core: CoreId, vcpu: VcpuId) -> Preempt {
        let by_tick = self.by_tick;
        let unit = self.unit(vcpu);
        if unit.priority == Priority::Boost {
            unit.priority = Priority::Under;
        }
        if by_tick {
            unit.credits -= PER_SLICE / 3;
        }
        self.activate(vcpu);
        Preempt::Keep
    }

    fn periodic(&mut self, now: Nanos) -> Resched {
        let visited = self.list.clone();
        let claims: Vec<_> = visited
            .iter()
            .map(|index| &self.domains[*index])
            .map(Claim::of)
            .collect();
        let cores = i64::try_from(self.cores.len()).unwrap_or(1);
        let grants = account::divide(&claims, cores, self.balance);
        self.balance = 0;
        let (mut resched, mut unparked) = (Vec::new(), Vec::new());
        for (index, grant) in visited.into_iter().zip(&grants) {
            for vcpu in self.domains[index].active.clone() {
                match self.settle(vcpu, grant) {
                    Settled::InPlace => {}
                    Settled::Leaves(core) => resched.push(core),
                    Settled::Unparked(home) => unparked.push((home, vcpu)),
                }
                self.balance += self.units[vcpu.index()].credits;
            }
            if grant.to_head
                && let Some(at) = self.list.iter().position(|listed| *listed == index)
            {
                self.list.remove(at);
                self.list.insert(0, index);
            }
        }
        for core in 0..self.cores.len() {
            self.sort(core);
        }
        // An unparked unit competes like one that wakes, but without boost.
        for (home, vcpu) in unparked {
            if let Some(running) = self.cores[home.index()].running
                && self.preempts(now, home, running, vcpu) == Preempt::Kick
            {
                resched.push(home);
            }
        }
        Resched(resched)
    }

    fn block(&mut self, _now: Nanos, core: CoreId, vcpu: VcpuId, _on: Waits) {
        self.left(core, vcpu);
    }

    fn retire(&mut self, _now: Nanos, core: CoreId, vcpu: VcpuId) {
        self.left(core, vcpu);
        self.deactivate(vcpu);
    }

    fn retire_waiting(&mut self, _now: Nanos, vcpu: VcpuId) {
        self.deactivate(vcpu);
    }

    fn standing(&self, vcpu: VcpuId) -> Standing {
        Standing {
            boosted: self.priority(vcpu) == Priority::Boost,
            ..Standing::default()
        }
    }

    /// A parked vCPU waits although cores may be idle.
    fn conserving(&self) -> WorkConserving {
        if self.domains.iter().any(|domain| domain.cap.is_some()) {
            WorkConserving::No
        } else {
            WorkConserving::Yes
        }
    }
}

impl Claim {
    fn of(domain: &Domain) -> Self {
        let active = i64::try_from(domain.active.len()).unwrap_or(i64::MAX);
        Self {
            weight: domain.weight,
            cap: domain.cap,
            active,
        }
    }
}
