//! The dispatcher of illumos: queues, placement, stealing and preemption for `fss` and `ts`.
//!
//! 1. Every core has a queue with a list for each priority. Priorities at and above the
//!    kernel-preemption threshold wait in one queue for all cores instead.
//! 2. A thread that becomes runnable joins the queue of its last core if that is warm: it comes from
//!    there just now, or left it at most `rechoose` ago. Otherwise the cores are searched, beginning
//!    with its last, for the one whose running or best waiting thread is worst; an idle one with an
//!    empty queue ends the search.
//! 3. At the back of a list the queues are balanced. With n threads of its priority there (two fewer
//!    counted at priority 16 and above, unless the class asks for matching), n > 0, and fewer than n
//!    on the next core, it goes to the next core. At the front nothing is balanced.
//! 4. A core takes from the queue for all if that has the best or an equal priority, then the first
//!    of its own best list. With neither it steals.
//! 5. It steals from the core where the best priority waits, the nearest among equals, and there the
//!    first of the best list that is not protected. A thread below priority 60 is protected for
//!    `nosteal` if it last ran on that core and the thief shares no cache with it. If all are, the
//!    core stays idle and looks again when the first becomes free: meanwhile, and only then, the
//!    policy is not work-conserving.
//! 6. A better thread takes the core as soon as the guest can be interrupted. While the hypervisor
//!    works on behalf of what runs there, it waits for guest entry, unless its priority is at or above
//!    the threshold.
//!
//! The threads of a core's own queue that are equal in priority to what runs there wait. A switch is a
//! single instant here, so nobody can steal in the midst of one. All threads are unbound.
//!
//! Source: illumos `disp/disp.c`, `disp/cmt.c`, by their behaviour.

mod class;
mod lists;
mod options;
#[cfg(test)]
mod tests;
mod turnstile;

use crate::event::Until;
use crate::ids::{CoreId, VcpuId};
use crate::policy::{Mode, Preempt, Resched, WorkConserving};
use crate::spec::Options;
use crate::time::Nanos;
pub(super) use class::{Class, LISTS, Member};
pub(super) use lists::End;
use lists::Lists;
pub(super) use options::{
    CACHE, CROWD, KERNEL_PREEMPTS, NOSTEAL, QUIRKS, RECHOOSE, RULES, TURNSTILE, TURNSTILE_RULES,
};
pub(super) use turnstile::Turnstiles;

/// The priority of those that have the kernel-priority flag, and the first that is not time-sharing.
pub(super) const KERNEL: u8 = 60;

/// At and above this priority, queues of a class that does not ask for matching may differ.
const MATCHED_BELOW: u8 = 16;
/// By how much they may differ.
const MAY_DIFFER: i64 = 2;

/// Whether a class asks for queues of equal length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Matching {
    Asked,
    NotAsked,
}

#[derive(Debug)]
struct Seat {
    /// Its dispatch priority.
    priority: u8,
    last: Option<CoreId>,
    /// When it left its last core.
    left: Nanos,
    /// Since when it is queued.
    since: Nanos,
    /// The hypervisor works on its behalf.
    kernel: bool,
}

/// The cores with their queues.
#[derive(Debug)]
pub(super) struct Dispatch {
    lists: Lists,
    seats: Vec<Seat>,
    running: Vec<Option<VcpuId>>,
    /// When an idle core looks again for somebody to steal.
    retry: Vec<Option<Nanos>>,
    matching: Matching,
    rechoose: Nanos,
    nosteal: Nanos,
    /// Cores that share a cache, by number.
    cache: usize,
    /// The kernel-preemption threshold.
    threshold: u8,
}

impl Dispatch {
    pub(super) fn new(options: &Options, cores: u16, matching: Matching) -> Self {
        let cores = usize::from(cores);
        let cache = usize::try_from(options.int(CACHE.name)).unwrap_or(0);
        Self {
            lists: Lists::new(cores + 1),
            seats: Vec::new(),
            running: vec![None; cores],
            retry: vec![None; cores],
            matching,
            rechoose: options.time(RECHOOSE.name),
            nosteal: options.time(NOSTEAL.name),
            cache: if cache == 0 { cores } else { cache },
            threshold: u8::try_from(options.int(KERNEL_PREEMPTS.name)).unwrap_or(u8::MAX),
        }
    }

    /// One more thread, in order of id.
    pub(super) fn add(&mut self, priority: u8) {
        self.lists.add();
        self.seats.push(Seat {
            priority,
            last: None,
            left: Nanos::ZERO,
            since: Nanos::ZERO,
            kernel: false,
        });
    }

    /// The queue for all cores together.
    fn common(&self) -> usize {
        self.running.len()
    }

    /// Queues a thread that is on no core; the answer is the core to consider it for.
    pub(super) fn put(&mut self, now: Nanos, vcpu: VcpuId, priority: u8, end: End) -> CoreId {
        self.seats[vcpu.index()].since = now;
        self.seats[vcpu.index()].priority = priority;
        let chosen = self.choose(now, vcpu);
        let (queue, home) = if priority >= self.threshold {
            (self.common(), chosen)
        } else if end == End::Back {
            let home = self.balance(chosen, priority);
            (home, home)
        } else {
            (chosen, chosen)
        };
        self.lists.push(queue, priority, vcpu, end);
        core_id(home)
    }

    /// Its last core if that is warm, else the core where the least is going on.
    fn choose(&self, now: Nanos, vcpu: VcpuId) -> usize {
        let seat = &self.seats[vcpu.index()];
        match seat.last {
            Some(last) if now - seat.left <= self.rechoose => last.index(),
            last => self.least_busy(last.map_or(0, CoreId::index)),
        }
    }

    /// The core with the least best priority, running or waiting; the first on the way from `start`
    /// among equals.
    fn least_busy(&self, start: usize) -> usize {
        let mut least: Option<(Option<u8>, usize)> = None;
        for core in self.outward(start) {
            let running = self.running[core].map(|vcpu| self.seats[vcpu.index()].priority);
            let level = running.max(self.lists.best(core));
            if level.is_none() {
                return core;
            }
            if least.is_none_or(|(other, _)| level < other) {
                least = Some((level, core));
            }
        }
        least.map_or(0, |(_, core)| core)
    }

    /// All cores by distance: those that share a cache first, then the others.
    fn outward(&self, start: usize) -> impl Iterator<Item = usize> {
        let (cores, cache) = (self.running.len(), self.cache);
        let near = move |core: &usize| core / cache == start / cache;
        let around = move || (0..cores).map(move |step| (start + step) % cores);
        let far = around().filter(move |core| !near(core));
        around().filter(near).chain(far)
    }

    fn balance(&self, core: usize, priority: u8) -> usize {
        let mut waiting = self.lists.len(core, priority);
        if priority >= MATCHED_BELOW && self.matching == Matching::NotAsked {
            waiting -= MAY_DIFFER;
        }
        let next = (core + 1) % self.running.len();
        if waiting > 0 && self.lists.len(next, priority) < waiting {
            next
        } else {
            core
        }
    }

    /// Takes a thread off its queue; whether it was on one.
    pub(super) fn remove(&mut self, vcpu: VcpuId) -> bool {
        let queued = self.lists.remove(vcpu);
        if self.apart() && self.lists.waiting() == 0 {
            self.retry.fill(None);
        }
        queued
    }

    /// Gives a thread another priority. One that is queued goes to the back of its new list.
    pub(super) fn change(&mut self, now: Nanos, vcpu: VcpuId, priority: u8) {
        if self.remove(vcpu) {
            self.put(now, vcpu, priority, End::Back);
        } else {
            self.seats[vcpu.index()].priority = priority;
        }
    }

    pub(super) fn priority(&self, vcpu: VcpuId) -> u8 {
        self.seats[vcpu.index()].priority
    }

    pub(super) fn queued(&self, vcpu: VcpuId) -> bool {
        self.lists.place(vcpu).is_some()
    }

    /// Who runs next on the core, if anybody may.
    pub(super) fn pick(&mut self, now: Nanos, core: CoreId) -> Option<VcpuId> {
        self.retry[core.index()] = None;
        let (own, common) = (
            self.lists.best(core.index()),
            self.lists.best(self.common()),
        );
        let vcpu = match (own, common) {
            (None, None) => self.steal(now, core)?,
            (Some(own), common) if common.is_none_or(|common| common < own) => {
                self.lists.on(core.index(), own).next()?
            }
            (_, common) => self.lists.on(self.common(), common?).next()?,
        };
        self.take(core, vcpu);
        Some(vcpu)
    }

    /// Takes a thread off its queue and gives it the core.
    pub(super) fn take(&mut self, core: CoreId, vcpu: VcpuId) {
        self.retry[core.index()] = None;
        self.remove(vcpu);
        self.seats[vcpu.index()].last = Some(core);
        self.running[core.index()] = Some(vcpu);
    }

    /// Whether there are cores that share no cache: only then anybody is protected.
    const fn apart(&self) -> bool {
        self.cache < self.retry.len()
    }

    fn steal(&mut self, now: Nanos, thief: CoreId) -> Option<VcpuId> {
        let mut victim: Option<(u8, usize)> = None;
        for core in self.outward(thief.index()) {
            let best = self.lists.best(core);
            if let Some(best) = best.filter(|best| victim.is_none_or(|(other, _)| *best > other)) {
                victim = Some((best, core));
            }
        }
        let (priority, core) = victim?;
        let mut retry: Option<Nanos> = None;
        for vcpu in self.lists.on(core, priority) {
            match self.protected_until(vcpu, core, thief) {
                Some(until) if until > now => {
                    retry = Some(retry.map_or(until, |other| other.min(until)));
                }
                _ => return Some(vcpu),
            }
        }
        self.retry[thief.index()] = retry;
        None
    }

    /// Until when the thread is not to be stolen from the core, if it is protected at all.
    fn protected_until(&self, vcpu: VcpuId, core: usize, thief: CoreId) -> Option<Nanos> {
        let seat = &self.seats[vcpu.index()];
        let near = core / self.cache == thief.index() / self.cache;
        let warm = seat.last == Some(core_id(core));
        (seat.priority < KERNEL && warm && !near).then(|| seat.since + self.nosteal)
    }

    /// The thread has left its core.
    pub(super) fn leave(&mut self, now: Nanos, vcpu: VcpuId, core: CoreId) {
        if self.running[core.index()] == Some(vcpu) {
            self.running[core.index()] = None;
            self.seats[vcpu.index()].left = now;
        }
    }

    /// The thread has begun to run guest code.
    pub(super) fn entered(&mut self, vcpu: VcpuId) {
        self.seats[vcpu.index()].kernel = false;
    }

    pub(super) fn mode(&mut self, vcpu: VcpuId, mode: Mode) {
        self.seats[vcpu.index()].kernel = mode == Mode::Hypervisor;
    }

    /// Whether `woken`, just queued, takes the core from `running`.
    pub(super) fn preempts(&self, running: VcpuId, woken: VcpuId) -> Preempt {
        let priority = self.priority(woken);
        if priority > self.priority(running) {
            self.demand(running, priority)
        } else {
            Preempt::Keep
        }
    }

    /// How a core is asked for, for somebody of this priority.
    fn demand(&self, running: VcpuId, priority: u8) -> Preempt {
        if self.seats[running.index()].kernel && priority < self.threshold {
            Preempt::Defer(Until::GuestEntry)
        } else {
            Preempt::Kick
        }
    }

    /// The best priority that waits for the core.
    fn best_for(&self, core: CoreId) -> Option<u8> {
        let own = self.lists.best(core.index());
        own.max(self.lists.best(self.common()))
    }

    /// Whether somebody better than the thread on the core waits there.
    pub(super) fn outranked(&self, core: CoreId, running: VcpuId) -> bool {
        let best = self.best_for(core);
        best.is_some_and(|best| best > self.priority(running))
    }

    /// The thread on the core is to give it up.
    pub(super) fn surrender(&self, core: CoreId, running: VcpuId) -> Preempt {
        self.demand(running, self.best_for(core).unwrap_or(0))
    }

    /// The cores where somebody better waits. One core for the queue of all: the least busy.
    pub(super) fn outranked_cores(&self) -> Resched {
        let ranks = |(core, running): (usize, &Option<VcpuId>)| {
            running.map(|running| (self.priority(running), core))
        };
        let ranks: Vec<_> = self.running.iter().enumerate().filter_map(ranks).collect();
        let least = ranks.iter().min().map(|(_, core)| *core);
        let outranked = ranks.iter().filter(|(priority, core)| {
            let common = self.lists.best(self.common());
            let common = common.filter(|_| least == Some(*core));
            self.lists.best(*core).max(common) > Some(*priority)
        });
        Resched(outranked.map(|(_, core)| core_id(*core)).collect())
    }

    /// The cores, among those where these wait or run, where somebody better waits.
    pub(super) fn outranked_by(&self, vcpus: &[VcpuId]) -> Resched {
        let core = |vcpu: &VcpuId| match self.lists.place(*vcpu) {
            Some((queue, _)) if queue < self.running.len() => Some(core_id(queue)),
            _ => self.seats[vcpu.index()].last,
        };
        let outranked = |core: &CoreId| {
            let running = self.running[core.index()];
            running.is_some_and(|running| self.outranked(*core, running))
        };
        Resched(vcpus.iter().filter_map(core).filter(outranked).collect())
    }

    /// When an idle core looks again for somebody to steal.
    pub(super) fn wants_timer(&self) -> Option<Nanos> {
        if self.apart() {
            self.retry.iter().flatten().min().copied()
        } else {
            None
        }
    }

    /// The protection of somebody is over: idle cores are about to pick.
    pub(super) fn timer(&mut self, now: Nanos) {
        for retry in &mut self.retry {
            retry.take_if(|at| *at <= now);
        }
    }

    /// Not while a core is idle because all that wait are protected.
    pub(super) fn conserving(&self) -> WorkConserving {
        if self.wants_timer().is_none() {
            WorkConserving::Yes
        } else {
            WorkConserving::No
        }
    }
}

fn core_id(core: usize) -> CoreId {
    CoreId(u16::try_from(core).unwrap_or(u16::MAX))
}
