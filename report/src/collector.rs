//! Computes every figure of a report from the events of a run, while it goes on.
//!
//! Nothing else goes in: not the driver's word, not the policy's state, so both backends are measured
//! alike. An event costs the same whatever the length of the run, and no more than the logarithm of
//! the number of vCPUs.
//!
//! # What counts
//! Figures count between the marks `MeasureStart` and `MeasureEnd`. At the start all figures are set
//! to zero while all states stay; a wait that began earlier counts from the start. If a mark is
//! missing (the run was ended early), figures count from the first event, or up to the last.
//!
//! # Policies that leave scheduling to the host
//! There the dispatcher sees every vCPU on a core of its own. The host's word on how long a thread
//! waited (`HostDelay`) moves that time from running to ready, and counts as one wait, so lengths of
//! waits are upper bounds: the sum of the host's waits between two readings. Under all other policies
//! it is interference from outside and moves nothing.

mod account;
mod circles;
mod fluid;
mod stall;
mod standing;
#[cfg(test)]
mod tests;
mod timeline;

pub(crate) use account::{Account, PREEMPT_REASONS};
pub(crate) use circles::{Link, Wanted};
pub(crate) use standing::{Deferral, Priority};
pub(crate) use timeline::{Meanwhile, Occupancy, Wait};

use crate::latency::Latency;
use account::{Begin, State, Waiting};
use circles::Circles;
use fluid::Fluid;
use stealtime_scheduler::event::{Event, EventKind, PreemptReason, Standing, Until, Waits};
use stealtime_scheduler::ids::{CoreId, HostLockId};
use stealtime_scheduler::input::{ExitReason, Mark};
use stealtime_scheduler::policy::{Division, VcpuParams};
use stealtime_scheduler::registry::{self, ScheduledBy};
use stealtime_workloads::run::{Entry, Observer, Plan};
use timeline::Timeline;

/// Listens to a run and keeps its figures.
#[derive(Debug)]
pub struct Collector {
    pub(crate) scheduled_by: ScheduledBy,
    pub(crate) cores: usize,
    pub(crate) accounts: Vec<Account>,
    fluid: Fluid,
    timeline: Timeline,
    /// Who waits for each other's locks.
    pub(crate) circles: Circles,
    now: u64,
    pub(crate) started: Option<u64>,
    pub(crate) ended: Option<u64>,
    pub(crate) events: u64,
    pub(crate) violations: u64,
    /// From asking for a core back to its being left.
    pub(crate) kick: Latency,
    slowest_stop: Option<Stop>,
}

/// A vCPU's leaving of its core after it was asked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stop {
    pub(crate) vcpu: usize,
    pub(crate) asked: u64,
    /// When it left, or the end of the run.
    pub(crate) left: u64,
}

impl Collector {
    /// A collector for a run of this plan.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        let params: Vec<VcpuParams> = plan.vcpus.iter().map(|vcpu| vcpu.params).collect();
        let cores = plan.cores.len();
        let (scheduled_by, division) = registry::check(&plan.policy).map_or(
            (ScheduledBy::Policy, Division::Vcpus),
            |(info, options)| {
                let policy = (info.build)(&options, u16::try_from(cores).unwrap_or(u16::MAX));
                (info.scheduled_by, policy.divides())
            },
        );
        Self {
            scheduled_by,
            cores,
            accounts: params.iter().map(|_| Account::new(params.len())).collect(),
            fluid: Fluid::new(cores, division, &params),
            timeline: Timeline::new(cores),
            circles: Circles::new(params.len()),
            now: 0,
            started: None,
            ended: None,
            events: 0,
            violations: 0,
            kick: Latency::new(0),
            slowest_stop: None,
        }
    }

    /// Takes note of one event.
    pub fn event(&mut self, event: &Event) {
        self.events += 1;
        if self.ended.is_some() {
            return;
        }
        self.now = self.now.max(event.at.0);
        match event.kind {
            EventKind::Mark(Mark::MeasureStart) => self.start(),
            EventKind::Mark(Mark::MeasureEnd) => self.close(),
            EventKind::Violation(_) => self.violations += 1,
            kind if event.vcpu.index() < self.accounts.len() => {
                self.of_vcpu(event.vcpu.index(), kind);
            }
            _ => {}
        }
    }

    /// Ends the measurement at the last event, if no mark has ended it.
    pub(crate) fn close(&mut self) {
        if self.ended.is_some() {
            return;
        }
        let at = self.now;
        for vcpu in 0..self.accounts.len() {
            self.accounts[vcpu].advance(at);
            self.end_wait(vcpu, false);
            let from = self.started.unwrap_or(0);
            self.accounts[vcpu].stalls.end(at, from, false);
            let account = &self.accounts[vcpu];
            if let Some(asked) = account.kicked.filter(|_| account.state.on_core()) {
                self.stopped(vcpu, asked);
            }
        }
        self.ended = Some(at);
    }

    /// From when to when figures count.
    pub(crate) fn measured(&self) -> (u64, u64) {
        (self.started.unwrap_or(0), self.ended.unwrap_or(self.now))
    }

    /// Core nanoseconds that the vCPU was entitled to while figures counted.
    pub(crate) fn entitled(&mut self, vcpu: usize) -> f64 {
        self.fluid.entitled(self.now, vcpu)
    }

    /// The longest wait of all, and who had the cores meanwhile.
    pub(crate) fn worst(&mut self) -> Option<(Wait, Meanwhile)> {
        self.timeline.worst()
    }

    fn start(&mut self) {
        let vcpus = self.accounts.len();
        for account in &mut self.accounts {
            account.restart(self.now, vcpus);
        }
        self.fluid.reset(self.now);
        self.timeline.reset();
        self.kick.clear();
        self.slowest_stop = None;
        self.violations = 0;
        self.started = Some(self.now);
    }

    fn of_vcpu(&mut self, vcpu: usize, kind: EventKind) {
        self.circles.note(self.now, vcpu, kind);
        match kind {
            EventKind::Admitted => self.wait(vcpu, Begin::Willing),
            EventKind::Woken(_) => self.wait(vcpu, Begin::Woken),
            EventKind::Granted(_) => {
                if let Some(waiting) = &mut self.accounts[vcpu].waiting {
                    waiting.granted = Some(self.now);
                }
            }
            EventKind::Running(core) => self.running(vcpu, core),
            EventKind::Exited(why) => self.exited(vcpu, why),
            EventKind::Resumed => {
                if self.accounts[vcpu].state == State::Hypervisor {
                    self.enter_state(vcpu, State::Run);
                }
            }
            EventKind::Preempted(_, why) => self.preempted(vcpu, why),
            EventKind::Yielded(_) => {
                self.accounts[vcpu].figures.yields += 1;
                self.leave_core(vcpu);
                self.wait(vcpu, Begin::Willing);
            }
            EventKind::Blocked(waits) => self.blocked(vcpu, waits),
            EventKind::Retired(_) => {
                self.leave_core(vcpu);
                self.end_wait(vcpu, false);
                self.enter_state(vcpu, State::Idle);
            }
            EventKind::HostDelay(delay) => self.host_delay(vcpu, delay.0),
            kind => self.circumstance(vcpu, kind),
        }
    }

    /// What does not change a vCPU's state, but counts or explains.
    fn circumstance(&mut self, vcpu: usize, kind: EventKind) {
        let now = self.now;
        let account = &mut self.accounts[vcpu];
        match kind {
            EventKind::Kicked(..) => {
                account.figures.kicks += 1;
                account.kicked.get_or_insert(now);
                account.deferrals.end(now);
            }
            EventKind::Owed(_, _, moment) => {
                // It may have been asked for the core already, and is left alone for now after all.
                account.kicked = None;
                account.deferrals.begin(deferral(now, moment));
            }
            EventKind::Migrated { .. } => account.figures.migrations += 1,
            EventKind::UserReturn => {
                account.figures.user_returns += 1;
                if let Some(priority) = account.priorities.current() {
                    priority.user_returns += 1;
                }
            }
            EventKind::Locks { held, .. } => account.guest_locks = held,
            EventKind::HostLockTaken(lock) => {
                account.host_locks.retain(|held| *held != lock);
                account.host_locks.push(lock);
            }
            EventKind::HostLockReleased(lock) => released(account, now, lock),
            EventKind::Standing(standing) => self.standing(vcpu, standing),
            _ => {}
        }
    }

    fn enter_state(&mut self, vcpu: usize, state: State) {
        let account = &mut self.accounts[vcpu];
        account.advance(self.now);
        account
            .stalls
            .end(self.now, self.started.unwrap_or(0), true);
        account.state = state;
        self.fluid.set(self.now, vcpu, state.runnable());
    }

    /// It is runnable and waits for a core from now on, unless it does so already.
    fn wait(&mut self, vcpu: usize, why: Begin) {
        self.enter_state(vcpu, self.accounts[vcpu].waits_in());
        self.accounts[vcpu].waiting.get_or_insert(Waiting {
            since: self.now,
            why,
            granted: None,
        });
    }

    fn end_wait(&mut self, vcpu: usize, entered: bool) {
        let from = self.started.unwrap_or(0);
        let wait = self.accounts[vcpu].end_wait(vcpu, self.now, from, entered);
        if let Some(wait) = wait {
            self.timeline.waited(wait);
        }
    }

    fn running(&mut self, vcpu: usize, core: CoreId) {
        // A core that was asked back before it was entered is left only after it.
        if self.accounts[vcpu].state.on_core() {
            self.leave_core(vcpu);
        }
        let waiting = &self.accounts[vcpu].waiting;
        let granted = waiting.as_ref().and_then(|waiting| waiting.granted);
        self.enter_state(vcpu, State::Run);
        self.end_wait(vcpu, true);
        self.accounts[vcpu].core = core.index();
        if self.scheduled_by == ScheduledBy::Policy {
            let priority = self.accounts[vcpu].at_kernel_priority;
            let granted = granted.unwrap_or(self.now);
            self.timeline
                .arrive(granted, self.now, core.index(), vcpu, priority);
        }
    }

    fn leave_core(&mut self, vcpu: usize) {
        let account = &mut self.accounts[vcpu];
        account.deferrals.end(self.now);
        let (core, kicked) = (account.core, account.kicked.take());
        // A core that was asked back and never entered was left at once.
        if !account.state.on_core() {
            return;
        }
        if let Some(asked) = kicked {
            self.kick.record(self.now.saturating_sub(asked), asked);
            self.stopped(vcpu, asked);
        }
        if self.scheduled_by == ScheduledBy::Policy {
            self.timeline.leave(self.now, core);
        }
    }

    fn stopped(&mut self, vcpu: usize, asked: u64) {
        let left = self.now;
        let slowest = self.slowest_stop.map_or(0, |stop| stop.left - stop.asked);
        if left.saturating_sub(asked) > slowest {
            self.slowest_stop = Some(Stop { vcpu, asked, left });
        }
    }

    /// The stop that took longest from the asking to the leaving.
    pub(crate) const fn slowest_stop(&self) -> Option<Stop> {
        self.slowest_stop
    }

    fn exited(&mut self, vcpu: usize, why: ExitReason) {
        self.accounts[vcpu].figures.exits[why as usize] += 1;
        if self.accounts[vcpu].state == State::Run {
            self.enter_state(vcpu, State::Hypervisor);
        }
    }

    fn preempted(&mut self, vcpu: usize, why: PreemptReason) {
        let account = &mut self.accounts[vcpu];
        account.figures.preemptions[why as usize] += 1;
        // Who waits for a lock itself and leaves to lend its turn keeps nobody waiting by it.
        if account.guest_locks > 0 && why != PreemptReason::LockWait {
            account.figures.preemptions_in_lock += 1;
        }
        self.leave_core(vcpu);
        self.wait(vcpu, Begin::Preempted);
    }

    fn blocked(&mut self, vcpu: usize, waits: Waits) {
        self.leave_core(vcpu);
        self.end_wait(vcpu, false);
        let state = match waits {
            Waits::Idle | Waits::Sleep => State::Idle,
            Waits::Host | Waits::HostLock(..) | Waits::GuestLock(_) => State::Blocked,
        };
        self.enter_state(vcpu, state);
        // In a guest's own lock it waits for its guest, not for the hypervisor.
        if matches!(waits, Waits::Host | Waits::HostLock(..)) {
            self.accounts[vcpu].stalls.begin(self.now, waits);
        }
    }

    fn standing(&mut self, vcpu: usize, standing: Standing) {
        let now = self.now;
        let account = &mut self.accounts[vcpu];
        account.advance(now);
        account.at_kernel_priority = standing.kernel_priority;
        account.hold_back(standing.costopped);
        if standing.kernel_priority {
            account.priorities.begin(Priority {
                since: now,
                until: None,
                lock: account.host_locks.last().copied(),
                released: None,
                user_returns: 0,
            });
        } else {
            account.priorities.end(now);
        }
        if account.state.on_core() && self.scheduled_by == ScheduledBy::Policy {
            let core = account.core;
            self.timeline.change(now, core, standing.kernel_priority);
        }
    }

    fn host_delay(&mut self, vcpu: usize, delay: u64) {
        let account = &mut self.accounts[vcpu];
        if self.scheduled_by == ScheduledBy::Policy {
            // It may have waited the first part before the measurement.
            let measured = self.now - self.started.unwrap_or(0);
            account.figures.host_delay += delay.min(measured);
            return;
        }
        account.advance(self.now);
        let moved = account.move_to_ready(delay);
        if moved > 0 {
            // Not before the measurement: no more is moved than it ran since.
            let from = self.now.saturating_sub(moved);
            account.figures.run_delay.record(moved, from);
            account.note_longest(moved, from, true);
            self.timeline.waited(Wait {
                vcpu,
                from,
                to: self.now,
                ended: true,
                granted_for: moved,
            });
        }
    }
}

impl Observer for Collector {
    fn entries(&mut self, entries: &[Entry]) {
        for entry in entries {
            if let Entry::Event(event) = entry {
                self.event(event);
            }
        }
    }
}

const fn deferral(since: u64, moment: Until) -> Deferral {
    Deferral {
        since,
        until: None,
        moment,
    }
}

fn released(account: &mut Account, now: u64, lock: HostLockId) {
    account.host_locks.retain(|held| *held != lock);
    if let Some(priority) = account.priorities.current()
        && priority.lock == Some(lock)
    {
        priority.released.get_or_insert(now);
    }
}
