//! The queues of a core, and what passes between cores.
//!
//! Without knowledge of caches all cores are one group.
//!
//! ```text
//! slice = S = ⌊stathz / 10⌋ ticks, with n other runnable threads on the core:
//!         n ≤ 1: S;  n ≥ 6: ⌊S / 6⌋;  else ⌊S / n⌋
//! ```
//!
//! Stealing takes from the core with the greatest load, of at least two: the first of the better queue,
//! else the second of the calendar. (A core that is idle itself, with somebody on the way to it, is not
//! spared: no core stays idle while anybody waits.) The balancer moves one thread from the greatest
//! load to the least while they differ; a core gives or gets, and gives once. Of equals the first core
//! counts.

use super::calendar::Calendar;
use super::state::{Home, Ule};
use crate::ids::{CoreId, VcpuId};
use crate::policies::freebsd::bands::Band;
use crate::policies::freebsd::runq::{RunQueue, list_of};
use crate::time::Nanos;
use std::cmp::Reverse;

/// The least load of a core from which is taken.
const WORTH_TAKING: u32 = 2;

/// What a core has.
#[derive(Debug, Default)]
pub(super) struct Queues {
    /// All that is better than batch.
    better: RunQueue,
    calendar: Calendar,
    /// Runnable threads, the running one with them.
    pub(super) load: u32,
    /// The same without those of interrupts.
    pub(super) plain: u32,
}

/// Which end of its list a thread goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// Preempted.
    First,
    /// Everybody else.
    Last,
}

impl Queues {
    pub(super) fn push(&mut self, vcpu: VcpuId, priority: u8, batch: Band, end: End) {
        match (priority < batch.first, end) {
            (true, End::First) => self.better.push_front(vcpu, list_of(priority)),
            (true, End::Last) => self.better.push_back(vcpu, list_of(priority)),
            (false, End::First) => self.calendar.add_first(vcpu),
            (false, End::Last) => self.calendar.add(vcpu, batch, priority),
        }
    }

    pub(super) fn take(&mut self, vcpu: VcpuId) {
        if self.better.remove(vcpu).is_none() {
            self.calendar.take(vcpu);
        }
    }

    /// Who is next.
    pub(super) fn first(&self) -> Option<VcpuId> {
        self.better.first().or_else(|| self.calendar.first())
    }

    fn for_others(&self) -> Option<VcpuId> {
        self.better.first().or_else(|| self.calendar.second())
    }

    pub(super) const fn waiting(&self) -> usize {
        self.better.len() + self.calendar.len()
    }

    /// A statistics tick on this core.
    pub(super) const fn tick(&mut self) {
        self.calendar.tick();
    }
}

/// Ticks of a slice with so many runnable threads on the core, itself included.
pub(super) fn slice(full: u32, runnable: u32) -> u32 {
    match runnable.saturating_sub(1) {
        0 | 1 => full,
        others @ 2..=5 => (full / others).max(1),
        _ => least_slice(full),
    }
}

/// The shortest slice.
pub(super) fn least_slice(full: u32) -> u32 {
    (full / 6).max(1)
}

impl Ule {
    fn cores(&self) -> impl Iterator<Item = CoreId> + use<> {
        (0..u16::try_from(self.queues.len()).unwrap_or(u16::MAX)).map(CoreId)
    }

    fn load(&self, core: CoreId) -> u32 {
        self.queues[core.index()].load
    }

    /// The best priority on a core, running or waiting.
    fn best(&self, core: CoreId) -> u8 {
        let running = self.seats.on(core);
        let waiting = self.queues[core.index()].first();
        let both = running.into_iter().chain(waiting);
        both.map(|vcpu| self.priority(vcpu))
            .min()
            .unwrap_or(u8::MAX)
    }

    /// Where a thread that becomes runnable goes.
    pub(super) fn place(&self, now: u64, vcpu: VcpuId) -> CoreId {
        let thread = &self.threads[vcpu.index()];
        let last = thread.core;
        let priority = self.priority(vcpu);
        let recent = now.saturating_sub(thread.ran_at) < self.affinity.max(1);
        let wins = |core: CoreId| self.best(core) > priority;
        if recent && self.affinity > 0 && wins(last) {
            return last;
        }
        let rank = |core: &CoreId| (!wins(*core), self.load(*core), *core != last, core.0);
        self.cores().min_by_key(rank).unwrap_or(last)
    }

    /// Counts a thread where it is runnable.
    pub(super) fn counts(&mut self, vcpu: VcpuId, core: CoreId) {
        let plain = u32::from(!self.threads[vcpu.index()].priority.interrupt());
        self.uncounts(vcpu);
        let queues = &mut self.queues[core.index()];
        queues.load += 1;
        queues.plain += plain;
        let thread = self.thread(vcpu);
        thread.core = core;
        thread.home = Home::Counted { plain };
    }

    /// It is no longer runnable there.
    pub(super) fn uncounts(&mut self, vcpu: VcpuId) {
        let thread = self.thread(vcpu);
        let core = thread.core;
        if let Home::Counted { plain } = std::mem::replace(&mut thread.home, Home::Nowhere) {
            let queues = &mut self.queues[core.index()];
            queues.load -= 1;
            queues.plain -= plain;
        }
    }

    pub(super) fn push(&mut self, vcpu: VcpuId, core: CoreId, end: End) {
        let (priority, batch) = (self.priority(vcpu), self.split.batch);
        self.queues[core.index()].push(vcpu, priority, batch, end);
    }

    /// Takes a queued thread from one core to another, at the tail of its list there.
    fn transfer(&mut self, vcpu: VcpuId, to: CoreId) {
        let from = self.threads[vcpu.index()].core;
        self.queues[from.index()].take(vcpu);
        self.counts(vcpu, to);
        self.push(vcpu, to, End::Last);
    }

    /// An idle core takes a thread from another.
    pub(super) fn steal(&mut self, idle: CoreId) -> Option<VcpuId> {
        let waiting = |core: &CoreId| self.queues[core.index()].waiting() > 0;
        let rank = |core: &CoreId| {
            let load = self.load(*core);
            (load >= WORTH_TAKING, load, Reverse(core.0))
        };
        let victim = self.cores().filter(waiting).max_by_key(rank)?;
        let vcpu = self.queues[victim.index()].for_others()?;
        self.transfer(vcpu, idle);
        Some(vcpu)
    }

    /// Evens out the loads; the cores that got somebody who preempts there.
    pub(super) fn even_out(&mut self) -> Vec<CoreId> {
        let mut told = Vec::new();
        let mut left: Vec<_> = self.cores().collect();
        while let Some(most) = left
            .iter()
            .copied()
            .max_by_key(|core| (self.load(*core), Reverse(core.0)))
        {
            left.retain(|core| *core != most);
            let Some(least) = self.cores().min_by_key(|core| (self.load(*core), core.0)) else {
                break;
            };
            if self.load(most) <= self.load(least) {
                break;
            }
            match self.queues[most.index()].for_others() {
                Some(vcpu) => {
                    self.transfer(vcpu, least);
                    left.retain(|core| *core != least);
                    let running = self.seats.on(least).map(|on| self.priority(on));
                    if running.is_some_and(|on| self.reaches(self.priority(vcpu), on, true)) {
                        told.push(least);
                    }
                }
                // Only its running thread: that one chooses anew when it is next switched off.
                None => {
                    if let Some(running) = self.seats.on(most) {
                        self.thread(running).chooses = true;
                    }
                }
            }
        }
        told
    }

    /// When the balancer comes next: half a second to one and a half from now.
    pub(super) fn next_balance(&mut self, now: Nanos) -> Nanos {
        let second = 1_000_000_000;
        now + Nanos(second / 2 + self.random.u64(0..second))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_shrinks_with_the_number_of_runnable_threads() {
        let slices: Vec<_> = (1..=8).map(|runnable| slice(12, runnable)).collect();
        assert_eq!(slices, [12, 12, 6, 4, 3, 2, 2, 2]);
    }
}
