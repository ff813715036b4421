//! A run as a reproduction's figures see it: the plan, the report, and every event.

use super::distribution::Distribution;
use super::host::{self, LateTimers};
use super::inversion::Inversion;
use super::stopwatch::Stopwatch;
use super::traffic::Traffic;
use std::cell::OnceCell;
use stealtime_report::Report;
use stealtime_report::model::VcpuReport;
use stealtime_scheduler::event::{Event, EventKind, Waits};
use stealtime_scheduler::ids::{HostLockId, VcpuId};
use stealtime_scheduler::input::{Mark, RetireReason};
use stealtime_scheduler::time::Nanos;
use stealtime_workloads::run::{Entry, Observer, Plan};

/// Keeps every event of a run, and how late timers were.
#[derive(Default, Debug)]
pub(super) struct Trace {
    events: Vec<Event>,
    timers: LateTimers,
}

impl Observer for Trace {
    fn entries(&mut self, entries: &[Entry]) {
        for entry in entries {
            if let Entry::Event(event) = entry {
                self.events.push(*event);
            }
            self.timers.entry(entry);
        }
    }
}

/// A run that is over.
#[derive(Debug)]
pub(super) struct Run<'a> {
    /// What was run.
    pub(super) plan: &'a Plan,
    /// What the report says.
    pub(super) report: &'a Report,
    /// All events, of the warm-up and of the end too.
    events: &'a [Event],
    until_end: &'a [Event],
    timers: &'a LateTimers,
    /// When the measured time began, and when it ended.
    measured: (Nanos, Nanos),
    /// Followed when it is first asked for.
    traffic: OnceCell<Traffic>,
}

/// What a vCPU is about, as far as user and system time go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Doing {
    Guest,
    Hypervisor,
    Nothing,
}

impl<'a> Run<'a> {
    pub(super) fn new(plan: &'a Plan, report: &'a Report, trace: &'a Trace) -> Self {
        let events = &trace.events[..];
        let mark = |wanted: Mark| {
            let mut events = events.iter();
            events.position(|e| e.kind == EventKind::Mark(wanted))
        };
        let (start, end) = (mark(Mark::MeasureStart), mark(Mark::MeasureEnd));
        let until_end = end.map_or(events, |end| &events[..=end]);
        Self {
            plan,
            report,
            events,
            until_end,
            timers: &trace.timers,
            measured: (
                start.map_or(Nanos::ZERO, |start| events[start].at),
                until_end.last().map_or(Nanos::ZERO, |last| last.at),
            ),
            traffic: OnceCell::new(),
        }
    }

    /// When the measured time began, and when it ended.
    pub(super) const fn span(&self) -> (Nanos, Nanos) {
        self.measured
    }

    /// What cores and run queues did.
    pub(super) fn traffic(&self) -> &Traffic {
        self.traffic.get_or_init(|| self.follow())
    }

    /// The events up to the mark that ends the measured time, of the warm-up too. At that instant the run is taken
    /// down: what follows the mark at the same time, wake-ups for locks of those that are gone say, is none
    /// of its doing.
    pub(super) const fn until_end(&self) -> &'a [Event] {
        self.until_end
    }

    /// The events of the measured time.
    fn events(&self) -> impl Iterator<Item = &'a Event> {
        let from = self.measured.0;
        let all = self.until_end.iter();
        all.filter(move |event| from <= event.at)
    }

    /// Whether something that began and ended then did so within the measured time.
    fn has_all_of(&self, since: Nanos, until: Nanos) -> bool {
        self.measured.0 <= since && until <= self.measured.1
    }

    /// The vCPUs whose name (`VM/vCPU`) begins so, by number.
    pub(super) fn vcpus(&self, prefix: &str) -> Vec<VcpuId> {
        let all = (0..).map(VcpuId).take(self.plan.vcpus.len());
        all.filter(|vcpu| self.plan.vcpu_name(*vcpu).starts_with(prefix))
            .collect()
    }

    /// The first of them.
    fn vcpu(&self, prefix: &str) -> Option<VcpuId> {
        self.vcpus(prefix).first().copied()
    }

    /// What the report says of them.
    pub(super) fn reports(&self, prefix: &str) -> Vec<&'a VcpuReport> {
        let rows = &self.report.vcpus;
        let all = self.vcpus(prefix).into_iter();
        all.filter_map(|vcpu| rows.get(vcpu.index())).collect()
    }

    /// How long the measured time was.
    pub(super) fn length(&self) -> Nanos {
        self.measured.1.since(self.measured.0)
    }

    /// Starvations of these vCPUs: the longest wait for a core of each.
    pub(super) fn starvations(&self, prefix: &str) -> Vec<f64> {
        let rows = self.reports(prefix).into_iter();
        rows.map(|row| row.longest_starvation_ns as f64).collect()
    }

    /// From an interrupt's being raised at this vCPU until it takes it, less what the host took. One
    /// that comes while another waits is taken with it and not counted; the first that comes after that one was
    /// handled, though the handling is told later, is the next.
    pub(super) fn handled(&self, prefix: &str) -> Distribution {
        let Some(vcpu) = self.vcpu(prefix) else {
            return Distribution::default();
        };
        let watch = Stopwatch::new(host::taken(self.events), Vec::new());
        let (mut waiting, mut lengths) = (Vec::new(), Vec::new());
        for event in self.events.iter().filter(|event| event.vcpu == vcpu) {
            match event.kind {
                EventKind::InterruptRaised { .. } => waiting.push(event.at),
                EventKind::InterruptsTaken { at } => {
                    let taken = waiting.partition_point(|raised| *raised <= at);
                    let first = waiting.drain(..taken).next();
                    let first = first.filter(|raised| self.has_all_of(*raised, at));
                    lengths.extend(first.and_then(|raised| watch.between(raised, at)));
                }
                _ => {}
            }
        }
        Distribution::new(lengths)
    }

    /// From an interrupt that `client` raises at `server` until `client` takes the answer, an interrupt
    /// that `server` raises at it; less what the host took, from threads and from `server`'s timers.
    pub(super) fn round_trips(&self, client: &str, server: &str) -> Distribution {
        let (Some(client), Some(server)) = (self.vcpu(client), self.vcpu(server)) else {
            return Distribution::default();
        };
        let watch = Stopwatch::new(host::taken(self.events), self.timers.of(server));
        // When the request was raised, and when the answer.
        let (mut request, mut answer) = (None, None);
        let mut lengths = Vec::new();
        for event in self.events {
            match event.kind {
                EventKind::InterruptRaised { from, .. } => {
                    if (event.vcpu, from) == (server, Some(client)) {
                        (request, answer) = (Some(event.at), None);
                    } else if (event.vcpu, from) == (client, Some(server)) {
                        answer = answer.or(Some(event.at));
                    }
                }
                // What it took before the answer was raised is something else, told with it or before.
                EventKind::InterruptsTaken { at }
                    if event.vcpu == client && answer.is_some_and(|raised| raised <= at) =>
                {
                    let begun = request.filter(|since| self.has_all_of(*since, at));
                    lengths.extend(begun.and_then(|since| watch.between(since, at)));
                    (request, answer) = (None, None);
                }
                _ => {}
            }
        }
        Distribution::new(lengths)
    }

    /// For how long those of these vCPUs have waited for this host lock that wait for it at the end of the measured
    /// time. None if there is no such lock.
    pub(super) fn waits_at_end(&self, prefix: &str, lock: &str) -> Option<Vec<Nanos>> {
        let lock = self.host_lock(lock)?;
        let mut since = vec![None; self.plan.vcpus.len()];
        for event in self.until_end {
            if let Some(since) = since.get_mut(event.vcpu.index()) {
                match event.kind {
                    EventKind::Blocked(Waits::HostLock(id, _)) if id == lock => {
                        *since = Some(event.at);
                    }
                    EventKind::Blocked(_) | EventKind::Woken(_) => *since = None,
                    _ => {}
                }
            }
        }
        let waiting = self.vcpus(prefix).into_iter();
        let waiting = waiting.filter_map(|vcpu| since[vcpu.index()]);
        Some(waiting.map(|since| self.measured.1.since(since)).collect())
    }

    /// When the last of these vCPUs ended its program, since the measured time began. None if one of
    /// them did not.
    pub(super) fn elapsed(&self, prefix: &str) -> Option<Nanos> {
        let vcpus = self.vcpus(prefix);
        let finished = EventKind::Retired(RetireReason::Finished);
        let ends = self.events().filter(|event| event.kind == finished);
        let ends: Vec<_> = ends.filter(|event| vcpus.contains(&event.vcpu)).collect();
        let last = ends.iter().map(|event| event.at).max()?;
        (ends.len() == vcpus.len()).then(|| last.since(self.measured.0))
    }

    /// Time in guest code, and time of the hypervisor's work, of all vCPUs together until this long
    /// after the measured time began: user and sys.
    pub(super) fn user_and_sys(&self, until: Nanos) -> (Nanos, Nanos) {
        let (from, to) = (self.measured.0, self.measured.0 + until);
        let mut doing = vec![(Doing::Nothing, from); self.plan.vcpus.len()];
        let (mut user, mut sys) = (Nanos::ZERO, Nanos::ZERO);
        let mut count = |what: Doing, since: Nanos, now: Nanos| {
            let length = now.min(to).since(since.clamp(from, to));
            match what {
                Doing::Guest => user += length,
                Doing::Hypervisor => sys += length,
                Doing::Nothing => {}
            }
        };
        let events = self.until_end.iter();
        for event in events.take_while(|event| event.at <= to) {
            let next = match event.kind {
                EventKind::Running(_) | EventKind::Resumed => Doing::Guest,
                EventKind::Exited(_) => Doing::Hypervisor,
                EventKind::Preempted(..)
                | EventKind::Yielded(_)
                | EventKind::YieldedTo(_)
                | EventKind::Blocked(_)
                | EventKind::Retired(_) => Doing::Nothing,
                _ => continue,
            };
            if let Some((what, since)) = doing.get_mut(event.vcpu.index()) {
                if event.at > from {
                    count(*what, *since, event.at);
                }
                (*what, *since) = (next, event.at.max(from));
            }
        }
        for (what, since) in doing {
            count(what, since, to);
        }
        (user, sys)
    }

    /// The number of a host lock.
    fn host_lock(&self, name: &str) -> Option<HostLockId> {
        let locks = &self.plan.host_locks;
        let place = locks.iter().position(|known| known == name)?;
        u16::try_from(place).ok().map(HostLockId)
    }

    /// Priority inversions: times during which an owner of this host lock was ready and without a core
    /// while somebody waited for it.
    pub(super) fn inversions(&self, lock: &str) -> Option<Distribution> {
        let (from, to) = self.measured;
        let mut watch = Inversion::new(self.host_lock(lock)?);
        for event in self.until_end {
            watch.event(event);
        }
        let counted = watch.until(to).into_iter().filter(|(_, end)| *end > from);
        let lengths = counted.map(|(since, end)| end.since(since.max(from)).get());
        Some(Distribution::new(lengths.collect()))
    }

    /// Deadlines of the measured time that were missed: interrupts of `card` at which `player` was not
    /// back waiting for the host lock `buffer`; and how many deadlines there were.
    pub(super) fn underruns(&self, card: &str, player: &str, buffer: &str) -> Option<(u64, u64)> {
        let (card, player) = (self.vcpu(card)?, self.vcpu(player)?);
        let lock = self.host_lock(buffer)?;
        let (mut waits, mut missed, mut all) = (false, 0, 0);
        for event in self.until_end {
            match event.kind {
                EventKind::InterruptRaised { .. }
                    if event.vcpu == card && event.at > self.measured.0 =>
                {
                    all += 1;
                    missed += u64::from(!waits);
                }
                EventKind::Blocked(Waits::HostLock(on, _)) if event.vcpu == player => {
                    waits = on == lock;
                }
                EventKind::Woken(_) if event.vcpu == player => waits = false,
                _ => {}
            }
        }
        (all > 0).then_some((missed, all))
    }
}

#[cfg(test)]
#[path = "measured_tests.rs"]
mod tests;
