//! The longest waits of a run: who did not get on, because of what, from when to when.
//!
//! A vCPU waits for a core while it is ready and has not entered one; for a host lock from asking for
//! it to having it or being handed it; for a guest lock from its guest's saying so to its saying that
//! it waits no more, be it spinning, preempted or asleep. If it was woken to take a mutex and found it
//! taken again it waits on, and that is one wait. Idling is no wait; a wait in the hypervisor
//! (a device, a page) counts only from a length on at which guests complain.

use super::scene::{Scene, State};
use stealtime_scheduler::event::{Event, EventKind, Waits};
use stealtime_scheduler::ids::{GuestLockId, HostLockId, VcpuId};
use stealtime_scheduler::input::Mark;
use stealtime_scheduler::registry::ScheduledBy;

/// From this length on a wait in the hypervisor is told: guests report a stalled CPU after seconds.
const STALL_NS: u64 = 1_000_000_000;

/// What a vCPU waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum On {
    Core,
    HostLock(HostLockId),
    GuestLock(GuestLockId),
    Hypervisor,
}

/// A wait, as far as it lies in the measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wait {
    pub(super) vcpu: VcpuId,
    pub(super) on: On,
    pub(super) from: u64,
    pub(super) to: u64,
    /// It came to its end.
    pub(super) ended: bool,
}

impl Wait {
    pub(super) const fn length(&self) -> u64 {
        self.to.saturating_sub(self.from)
    }
}

/// Waits of one vCPU that go on.
#[derive(Clone, Copy, Debug, Default)]
struct Open {
    core: Option<u64>,
    /// For a host lock, or in the hypervisor.
    host: Option<(On, u64)>,
    guest: Option<(GuestLockId, u64)>,
    /// A wait for a mutex that ended with a wake-up: it goes on if the mutex is found taken.
    woken: Option<(On, u64, u64)>,
}

/// Finds the longest waits.
#[derive(Debug)]
pub(super) struct Finder {
    open: Vec<Open>,
    /// The longest of each vCPU that is asked about, the longest first.
    found: Vec<Option<Vec<Wait>>>,
    each: usize,
    scheduled_by: ScheduledBy,
    start: u64,
    end: Option<u64>,
    now: u64,
}

impl Finder {
    /// Looks at these vCPUs, and keeps so many waits of each.
    pub(super) fn new(vcpus: &[bool], each: usize, scheduled_by: ScheduledBy) -> Self {
        let asked = |asked: &bool| asked.then(Vec::new);
        Self {
            open: vec![Open::default(); vcpus.len()],
            found: vcpus.iter().map(asked).collect(),
            each,
            scheduled_by,
            start: 0,
            end: None,
            now: 0,
        }
    }

    /// Takes note of an event. `before` is the scene before it.
    pub(super) fn event(&mut self, event: &Event, before: &Scene) {
        if self.end.is_some() {
            return;
        }
        self.now = self.now.max(event.at.0);
        let vcpu = event.vcpu;
        match event.kind {
            EventKind::Mark(Mark::MeasureStart) => self.restart(),
            EventKind::Mark(Mark::MeasureEnd) => self.close(),
            _ if vcpu.index() >= self.open.len() => {}
            EventKind::Admitted | EventKind::Preempted(..) | EventKind::Yielded(_) => {
                self.ready(vcpu);
            }
            EventKind::Woken(_) => self.woken(vcpu),
            EventKind::Running(_) => self.runs(vcpu, before),
            EventKind::Blocked(on) => self.blocked(vcpu, on),
            EventKind::Locks { waits_for, .. } => self.guest(vcpu, waits_for),
            EventKind::Retired(_) => self.retired(vcpu),
            EventKind::HostDelay(delay) if self.scheduled_by == ScheduledBy::Host => {
                let from = self.now.saturating_sub(delay.0);
                self.found(vcpu, On::Core, from, true);
            }
            _ => {}
        }
    }

    /// All waits found, the longest first; among equals the first to begin, then the first vCPU.
    pub(super) fn finish(mut self) -> Vec<Wait> {
        self.close();
        let mut all: Vec<_> = self.found.into_iter().flatten().flatten().collect();
        all.sort_by_key(|wait| (std::cmp::Reverse(wait.length()), wait.from, wait.vcpu));
        all
    }

    fn restart(&mut self) {
        self.start = self.now;
        for found in self.found.iter_mut().flatten() {
            found.clear();
        }
    }

    /// What goes on at the end of the measurement has not ended.
    fn close(&mut self) {
        if self.end.is_some() {
            return;
        }
        for index in 0..self.open.len() {
            self.retired(VcpuId(u32::try_from(index).unwrap_or(u32::MAX)));
        }
        self.end = Some(self.now);
    }

    fn found(&mut self, vcpu: VcpuId, on: On, from: u64, ended: bool) {
        let (from, to) = (from.max(self.start), self.now);
        self.keep(Wait {
            vcpu,
            on,
            from,
            to,
            ended,
        });
    }

    fn keep(&mut self, wait: Wait) {
        let least = if wait.on == On::Hypervisor {
            STALL_NS
        } else {
            1
        };
        let Some(Some(found)) = self.found.get_mut(wait.vcpu.index()) else {
            return;
        };
        if wait.length() < least {
            return;
        }
        let place = found.partition_point(|other| other.length() >= wait.length());
        if place < self.each {
            found.insert(place, wait);
            found.truncate(self.each);
        }
    }

    fn ready(&mut self, vcpu: VcpuId) {
        let now = self.now;
        self.open[vcpu.index()].core.get_or_insert(now);
    }

    fn woken(&mut self, vcpu: VcpuId) {
        let now = self.now;
        let open = &mut self.open[vcpu.index()];
        open.woken = open.host.take().map(|(on, from)| (on, from, now));
        self.ready(vcpu);
    }

    /// It has what it was woken for.
    fn settle(&mut self, vcpu: VcpuId) {
        if let Some((on, from, to)) = self.open[vcpu.index()].woken.take() {
            self.keep(Wait {
                vcpu,
                on,
                from: from.max(self.start),
                to,
                ended: true,
            });
        }
    }

    fn runs(&mut self, vcpu: VcpuId, before: &Scene) {
        self.settle(vcpu);
        if let Some(from) = self.open[vcpu.index()].core.take() {
            self.found(vcpu, On::Core, from, true);
        }
        // Asleep for a guest lock, and its guest never said so in its own page.
        let spins = before.vcpus.get(vcpu.index()).and_then(|vcpu| vcpu.wants);
        if spins.is_none() {
            self.guest(vcpu, None);
        }
    }

    fn blocked(&mut self, vcpu: VcpuId, on: Waits) {
        let now = self.now;
        let open = &mut self.open[vcpu.index()];
        // It was woken, and has not run.
        open.core = None;
        let on = match on {
            Waits::HostLock(lock, _) => On::HostLock(lock),
            Waits::Host => On::Hypervisor,
            Waits::GuestLock(lock) => {
                open.guest.get_or_insert((lock, now));
                return;
            }
            Waits::Idle | Waits::Sleep => return,
        };
        let again = open.woken.take_if(|(woken, ..)| *woken == on);
        open.host = Some((on, again.map_or(now, |(_, from, _)| from)));
        self.settle(vcpu);
    }

    fn guest(&mut self, vcpu: VcpuId, waits_for: Option<GuestLockId>) {
        let now = self.now;
        let open = &mut self.open[vcpu.index()];
        if let Some((lock, from)) = open.guest.take_if(|(lock, _)| Some(*lock) != waits_for) {
            self.found(vcpu, On::GuestLock(lock), from, true);
        }
        if let Some(lock) = waits_for {
            self.open[vcpu.index()].guest.get_or_insert((lock, now));
        }
    }

    fn retired(&mut self, vcpu: VcpuId) {
        self.settle(vcpu);
        let Open {
            core, host, guest, ..
        } = std::mem::take(&mut self.open[vcpu.index()]);
        if let Some(from) = core {
            self.found(vcpu, On::Core, from, false);
        }
        if let Some((on, from)) = host {
            self.found(vcpu, on, from, false);
        }
        if let Some((lock, from)) = guest {
            self.found(vcpu, On::GuestLock(lock), from, false);
        }
    }
}

/// Whether the vCPU is in a wait of this kind.
pub(super) fn is_in(state: State, on: On) -> bool {
    match (on, state) {
        (On::Core, State::Ready(_) | State::Granted(_))
        | (On::Hypervisor, State::Blocked(Waits::Host))
        | (On::GuestLock(_), _) => true,
        (On::HostLock(lock), State::Blocked(Waits::HostLock(wanted, _))) => lock == wanted,
        _ => false,
    }
}
