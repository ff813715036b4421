//! What the cores and the run queues of a run did: how often cores changed hands and why, how long
//! queues were, and how long cores idled.
//!
//! Counted over the measured time. A core that was granted is not idle, though its vCPU has not
//! arrived; a queue's length is that of [`Queues`], donors that wait for a lock included.

use super::measured::Run;
use stealtime_scheduler::event::{Event, EventKind, Queues, Waits};
use stealtime_scheduler::ids::{CoreId, VcpuId};
use stealtime_scheduler::time::Nanos;

/// What is shown over time has so many steps.
const STEPS: usize = 12;
/// Each of this length, or shorter if the run is too short for that.
const STEP: Nanos = Nanos::from_millis(1);

/// The mean length of each core's queue, step by step, from the middle of the measured time on.
#[derive(Clone, PartialEq, Default, Debug)]
pub(super) struct QueuesOverTime {
    /// How long a step is.
    pub(super) step: Nanos,
    /// The lengths, for each core.
    pub(super) cores: Vec<Vec<f64>>,
}

/// Counts and times of a run. Core times are in nanoseconds, summed over cores.
#[derive(Clone, Default, Debug)]
pub(super) struct Traffic {
    /// Cores granted to somebody.
    pub(super) switches: u64,
    /// Waits for a guest lock, asleep.
    pub(super) sleeps: u64,
    /// Cores asked back.
    pub(super) kicks: u64,
    /// Grants of a core other than the vCPU's last.
    pub(super) migrations: u64,
    /// Turns used by another than whose they are.
    pub(super) loans: u64,
    /// Sleepers put on a queue, to lend their turns.
    pub(super) donors: u64,
    length: u64,
    idle: u64,
    stranded: u64,
    fullest: u64,
    queued: u64,
    cores: usize,
    step: u64,
    /// Of each core, by step: lengths of its queue times nanoseconds.
    steps: Vec<Vec<u64>>,
}

impl Traffic {
    /// The part of all core time in which nobody had the core.
    pub(super) fn idle(&self) -> Option<f64> {
        part(self.idle, self.length * self.cores as u64)
    }

    /// The part of the time in which a core idled though somebody who could run was queued at another.
    pub(super) fn stranded(&self) -> Option<f64> {
        part(self.stranded, self.length)
    }

    /// The length of the longest queue, mean over time.
    pub(super) fn fullest(&self) -> Option<f64> {
        part(self.fullest, self.length)
    }

    /// The length of a queue, mean over time and cores.
    pub(super) fn queue(&self) -> Option<f64> {
        part(self.queued, self.length * self.cores as u64)
    }

    /// The time in which somebody had a core, in core nanoseconds.
    pub(super) fn busy(&self) -> f64 {
        (self.length * self.cores as u64).saturating_sub(self.idle) as f64
    }

    /// The mean length of each core's queue over time.
    pub(super) fn over_time(&self) -> QueuesOverTime {
        let mean = |sum: &u64| *sum as f64 / self.step as f64;
        let core = |sums: &Vec<u64>| sums.iter().map(mean).collect();
        QueuesOverTime {
            step: Nanos(self.step),
            cores: self.steps.iter().map(core).collect(),
        }
    }
}

fn part(of: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| of as f64 / all as f64)
}

/// Follows a run.
struct Watch {
    queues: Queues,
    on: Vec<Option<CoreId>>,
    asleep: Vec<bool>,
    busy: usize,
    /// Whether somebody has the core, for each core.
    taken: Vec<bool>,
    /// How many are queued at each core and could run.
    could_run: Vec<usize>,
    now: u64,
    from: u64,
    to: u64,
    sums: Traffic,
}

impl Watch {
    /// The time up to `at` passed as things stand.
    fn advance(&mut self, at: Nanos) {
        let (since, until) = (self.now.max(self.from), at.get().min(self.to));
        self.now = self.now.max(at.get());
        let Some(time) = until.checked_sub(since).filter(|time| *time > 0) else {
            return;
        };
        let idle = self.sums.cores.saturating_sub(self.busy);
        self.sums.idle += idle as u64 * time;
        if self.strands() {
            self.sums.stranded += time;
        }
        let lengths = self.queues.lengths();
        self.sums.fullest += lengths.iter().copied().max().unwrap_or(0) as u64 * time;
        self.sums.queued += lengths.iter().sum::<usize>() as u64 * time;
        let (step, middle) = (self.sums.step, self.from + self.sums.length / 2);
        if until <= middle || since >= middle + step * STEPS as u64 {
            return;
        }
        for (sums, length) in self.sums.steps.iter_mut().zip(lengths) {
            for (number, sum) in (0..).zip(sums.iter_mut()) {
                let begin = middle + number * step;
                let within = until.min(begin + step).saturating_sub(since.max(begin));
                *sum += *length as u64 * within;
            }
        }
    }

    fn event(&mut self, event: &Event) {
        self.advance(event.at);
        if (self.from..=self.to).contains(&event.at.get()) {
            self.count(event.kind, event.vcpu);
        }
        let donor = match event.kind {
            EventKind::Borrows { donor, .. } => Some(donor),
            _ => None,
        };
        let concerned = [Some(event.vcpu), donor];
        self.recount(concerned, |count| *count -= 1);
        self.queues.event(event);
        self.moved(event);
        self.recount(concerned, |count| *count += 1);
    }

    /// Changes the count at the queue of each of these that could run.
    fn recount(&mut self, vcpus: [Option<VcpuId>; 2], change: fn(&mut usize)) {
        for vcpu in vcpus.into_iter().flatten() {
            if let Some(core) = self.waits_at(vcpu) {
                change(&mut self.could_run[core.index()]);
            }
        }
    }

    /// At which core it is queued, if it could run.
    fn waits_at(&self, vcpu: VcpuId) -> Option<CoreId> {
        let core = self.queues.of(vcpu)?;
        (!self.asleep[vcpu.index()] && core.index() < self.could_run.len()).then_some(core)
    }

    /// Whether a core idles while somebody who could run is queued at another.
    fn strands(&self) -> bool {
        let all: usize = self.could_run.iter().sum();
        let mut cores = self.taken.iter().zip(&self.could_run);
        cores.any(|(taken, here)| !taken && all > *here)
    }

    fn count(&mut self, kind: EventKind, vcpu: VcpuId) {
        let sums = &mut self.sums;
        match kind {
            EventKind::Granted(_) => sums.switches += 1,
            EventKind::Blocked(Waits::GuestLock(_)) => sums.sleeps += 1,
            EventKind::Kicked(..) => sums.kicks += 1,
            EventKind::Migrated { .. } => sums.migrations += 1,
            EventKind::Borrows { .. } => sums.loans += 1,
            EventKind::Placed(_) if self.asleep[vcpu.index()] => sums.donors += 1,
            _ => {}
        }
    }

    /// Who has a core, and who sleeps.
    fn moved(&mut self, event: &Event) {
        let vcpu = event.vcpu.index();
        match event.kind {
            EventKind::Granted(core) if self.on[vcpu].is_none() => {
                self.on[vcpu] = Some(core);
                self.busy += 1;
                self.set_taken(core, true);
            }
            EventKind::Preempted(..)
            | EventKind::Yielded(_)
            | EventKind::Blocked(_)
            | EventKind::Retired(_) => {
                if let Some(core) = self.on[vcpu].take() {
                    self.busy -= 1;
                    self.set_taken(core, false);
                }
                if matches!(event.kind, EventKind::Blocked(_)) {
                    self.asleep[vcpu] = true;
                }
            }
            EventKind::Woken(_) => self.asleep[vcpu] = false,
            _ => {}
        }
    }

    fn set_taken(&mut self, core: CoreId, taken: bool) {
        if let Some(there) = self.taken.get_mut(core.index()) {
            *there = taken;
        }
    }
}

impl Run<'_> {
    /// Follows the whole run. Under the host's own scheduler every vCPU has a core of its own, and
    /// nothing is queued.
    pub(super) fn follow(&self) -> Traffic {
        let (vcpus, cores) = (self.plan.vcpus.len(), self.plan.cores.len());
        let (from, to) = self.span();
        let mut watch = Watch {
            queues: Queues::new(vcpus, cores),
            on: vec![None; vcpus],
            asleep: vec![false; vcpus],
            busy: 0,
            taken: vec![false; cores],
            could_run: vec![0; cores],
            now: 0,
            from: from.get(),
            to: to.get(),
            sums: Traffic {
                cores,
                length: to.since(from).get(),
                step: STEP
                    .get()
                    .min(to.since(from).get() / (2 * STEPS as u64))
                    .max(1),
                steps: vec![vec![0; STEPS]; cores],
                ..Traffic::default()
            },
        };
        for event in self.until_end() {
            if event.vcpu.index() < vcpus {
                watch.event(event);
            }
        }
        watch.advance(to);
        watch.sums
    }
}

#[cfg(test)]
mod tests {
    use super::super::measured::{Run, Trace};
    use super::*;
    use stealtime_report::{Collector, Report};
    use stealtime_scheduler::event::{PreemptReason, WakeSource};
    use stealtime_scheduler::ids::GuestLockId;
    use stealtime_scheduler::input::Mark;
    use stealtime_workloads::run::{Entry, Observer, Outcome};
    use stealtime_workloads::scenario::{Overrides, Scenario};

    const LOCK: GuestLockId = GuestLockId(0);

    /// The traffic of so many vCPUs on two cores that do this.
    fn after(events: &[(u64, u32, EventKind)]) -> Traffic {
        let scenario = Scenario::load("pileup").expect("embedded");
        let plan = scenario.plan(&Overrides::default()).expect("in order");
        assert_eq!(plan.cores.len(), 2);
        let mut trace = Trace::default();
        for (at, vcpu, kind) in events {
            let (at, vcpu, kind) = (Nanos(*at), VcpuId(*vcpu), *kind);
            trace.entries(&[Entry::Event(Event { at, vcpu, kind })]);
        }
        let report = Report::build(&plan, "sim", Collector::new(&plan), &Outcome::default());
        Run::new(&plan, &report, &trace).follow()
    }

    #[test]
    fn a_core_that_idles_beside_a_queue_of_those_that_could_run_is_time_lost() {
        let (one, two) = (CoreId(0), CoreId(1));
        let slept = EventKind::Blocked(Waits::GuestLock(LOCK));
        let traffic = after(&[
            (0, 0, EventKind::Mark(Mark::MeasureStart)),
            (0, 0, EventKind::Placed(one)),
            (0, 0, EventKind::Granted(one)),
            (0, 1, EventKind::Placed(one)),
            // 100 ns: 0 has a core, 1 is queued there, the other core idles.
            (100, 1, EventKind::Granted(two)),
            // 100 ns: nobody is queued, no core idles.
            (200, 1, slept),
            (200, 1, EventKind::Placed(one)),
            // 200 ns: 1 is queued to lend its turn only.
            (400, 0, EventKind::Mark(Mark::MeasureEnd)),
        ]);
        assert_eq!(traffic.stranded(), Some(100.0 / 400.0));
        assert_eq!(traffic.idle(), Some(300.0 / 800.0));
        assert_eq!(traffic.fullest(), Some(300.0 / 400.0));
        assert_eq!(traffic.queue(), Some(300.0 / 800.0));
        assert_eq!(
            (traffic.switches, traffic.sleeps, traffic.donors),
            (2, 1, 1)
        );
        let expected = QueuesOverTime {
            step: Nanos(16),
            cores: vec![vec![1.0; STEPS], vec![0.0; STEPS]],
        };
        assert_eq!(traffic.over_time(), expected, "from 200 ns on");
    }

    #[test]
    fn a_donor_that_wakes_could_run_where_it_is_queued() {
        let core = CoreId(0);
        let slept = EventKind::Blocked(Waits::GuestLock(LOCK));
        let why = PreemptReason::SliceEnd;
        let traffic = after(&[
            (0, 0, EventKind::Mark(Mark::MeasureStart)),
            (0, 0, EventKind::Granted(core)),
            (0, 1, slept),
            (0, 1, EventKind::Placed(core)),
            (50, 1, EventKind::Woken(WakeSource::GuestLock(VcpuId(0)))),
            (80, 0, EventKind::Preempted(core, why)),
            (80, 1, EventKind::Granted(core)),
            (100, 0, EventKind::Mark(Mark::MeasureEnd)),
        ]);
        assert_eq!(traffic.stranded(), Some(50.0 / 100.0));
        assert_eq!(traffic.fullest(), Some(1.0));
    }

    #[test]
    fn who_is_queued_at_the_core_that_idles_is_not_stranded() {
        let traffic = after(&[
            (0, 0, EventKind::Mark(Mark::MeasureStart)),
            (0, 0, EventKind::Granted(CoreId(0))),
            // 60 ns: the core that idles is the one where it is queued.
            (0, 1, EventKind::Woken(WakeSource::Timer)),
            (0, 1, EventKind::Placed(CoreId(1))),
            // 40 ns: now it is queued at the other.
            (60, 1, EventKind::Placed(CoreId(0))),
            (100, 0, EventKind::Mark(Mark::MeasureEnd)),
        ]);
        assert_eq!(traffic.stranded(), Some(40.0 / 100.0));
        assert_eq!(traffic.idle(), Some(0.5));
    }
}
