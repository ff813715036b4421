//! `rtds`: Xen's real-time deferrable server.
//!
//! 1. Every vCPU has a reservation: a budget of run time in each period. Its deadline is the end of the
//!    current period.
//! 2. The vCPU with the earliest deadline runs, on any core (global EDF).
//! 3. Running uses budget. It is kept while the vCPU waits or sleeps within its period (deferrable).
//! 4. At the end of a period the budget is full again and the deadline is one period later; after a
//!    long sleep the periods missed are skipped.
//! 5. Without budget a vCPU waits for its next period. With `extratime=on` it goes on instead, at a
//!    lower priority level: a level is a whole budget used within the period.
//! 6. A vCPU that becomes runnable preempts the running one with the latest deadline of the lowest
//!    level, if that is behind it and no core is idle.
//!
//! Source: Xen `xen/common/sched/rt.c`, from general knowledge and its documentation: default period
//! 10 ms, default budget 4 ms, event-driven replenishment.

use crate::event::Waits;
use crate::heap::KeyedHeap;
use crate::ids::{CoreId, VcpuId};
use crate::policy::{
    Enqueue, Pick, Placed, Policy, Preempt, Refused, Resched, Slice, SliceEnd, VcpuParams,
    WorkConserving,
};
use crate::queue::KeyedQueue;
use crate::registry::{PolicyInfo, ScheduledBy};
use crate::spec::{Inconsistent, OptionInfo, OptionKind, SWITCH};
use crate::time::Nanos;

/// What `rtds` says of itself.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "rtds",
    summary: "Xen's real-time deferrable server: budget and period, global EDF",
    rules: &[
        "Every vCPU has a budget of run time in each period; its deadline is the period's end.",
        "The vCPU with the earliest deadline runs, on any core.",
        "Budget is kept while the vCPU waits or sleeps within its period.",
        "At the end of a period the budget is full again.",
        "Without budget a vCPU waits for its next period; with `extratime=on` it goes on at a lower \
         priority level.",
        "A vCPU that becomes runnable preempts the one with the latest deadline, if that is later.",
    ],
    source: "Xen xen/common/sched/rt.c, from general knowledge",
    quirks: &[
        "With extratime=off a core stays idle although vCPUs wait, once their budgets are used up.",
        "Reservations are not checked for feasibility: more than the cores have can be promised.",
    ],
    options: &[
        OptionInfo {
            name: "period",
            kind: OptionKind::Time {
                min: Nanos::from_micros(100),
                max: Nanos::from_secs(10),
            },
            default: "10ms",
            help: "period of a vCPU that gives none of its own",
        },
        OptionInfo {
            name: "budget",
            kind: OptionKind::Time {
                min: Nanos::from_micros(10),
                max: Nanos::from_secs(10),
            },
            default: "4ms",
            help: "budget of a vCPU that gives none of its own",
        },
        OptionInfo {
            name: "extratime",
            kind: SWITCH,
            default: "on",
            help: "whether a vCPU may go on without budget when nobody with budget waits",
        },
    ],
    scheduled_by: ScheduledBy::Policy,
    consistent: |options| {
        if options.time("budget") <= options.time("period") {
            return Ok(());
        }
        Err(Inconsistent {
            option: "budget",
            expected: format!("at most the period, {}", options.time("period")),
        })
    },
    build: |options, cores| {
        Box::new(Rtds {
            period: options.time("period"),
            budget: options.time("budget"),
            extratime: options.on("extratime"),
            servers: Vec::new(),
            queue: KeyedQueue::default(),
            replenish: KeyedHeap::default(),
            placed: 0,
            running: vec![None; usize::from(cores)],
        })
    },
};

/// Whole budgets used within the period, then the deadline: the lesser goes first.
type Urgency = (u32, Nanos);

#[derive(Debug)]
struct Server {
    period: Nanos,
    budget: Nanos,
    left: Nanos,
    level: u32,
    deadline: Nanos,
    /// Runnable without budget.
    depleted: bool,
    home: CoreId,
}

#[derive(Debug)]
struct Rtds {
    period: Nanos,
    budget: Nanos,
    extratime: bool,
    servers: Vec<Server>,
    queue: KeyedQueue<Urgency>,
    /// Runnable vCPUs by the end of their period, and among equals in the order in which they came.
    replenish: KeyedHeap<(Nanos, u64)>,
    /// How many came.
    placed: u64,
    running: Vec<Option<VcpuId>>,
}

impl Server {
    /// The period in which `now` lies, with a full budget, if the old one is over.
    fn renew(&mut self, now: Nanos) {
        if now < self.deadline {
            return;
        }
        let missed = now.since(self.deadline).0 / self.period.0 + 1;
        self.deadline += Nanos(missed * self.period.0);
        self.left = self.budget;
        self.level = 0;
    }
}

impl Rtds {
    fn urgency(&self, vcpu: VcpuId) -> Urgency {
        let server = &self.servers[vcpu.index()];
        (server.level, server.deadline)
    }

    /// Queues a runnable vCPU, or notes that it must wait for budget.
    fn place(&mut self, vcpu: VcpuId) {
        let urgency = self.urgency(vcpu);
        let server = &mut self.servers[vcpu.index()];
        server.depleted = server.left == Nanos::ZERO;
        if !server.depleted {
            self.queue.insert(vcpu, urgency);
        }
        self.replenish_at(vcpu, urgency.1);
    }

    /// A runnable vCPU is to be told of the end of its period.
    fn replenish_at(&mut self, vcpu: VcpuId, deadline: Nanos) {
        self.placed += 1;
        self.replenish.insert(vcpu.0, (deadline, self.placed));
    }

    fn behind(&self, running: VcpuId, waiting: Urgency) -> bool {
        waiting < self.urgency(running)
    }

    /// An idle core, the vCPU's last one first; else the core whose vCPU is least urgent.
    fn tickle(&self, vcpu: VcpuId) -> CoreId {
        let home = self.servers[vcpu.index()].home;
        if self.running[home.index()].is_none() {
            return home;
        }
        let least = |index: &usize| {
            self.running[*index].map_or((u32::MAX, Nanos::MAX), |vcpu| self.urgency(vcpu))
        };
        // Of equals the first: `max_by_key` keeps the last, so the order is turned round.
        let core = (0..self.running.len()).rev().max_by_key(least).unwrap_or(0);
        CoreId(u16::try_from(core).unwrap_or(0))
    }

    /// The cores that waiting vCPUs should have, beyond those that are idle: the most urgent waiting one
    /// is set against the least urgent running one, and so on.
    fn overtaken(&self) -> Vec<CoreId> {
        let idle = self.running.iter().filter(|vcpu| vcpu.is_none()).count();
        let busy = (0..).map(CoreId).zip(&self.running);
        let mut busy: Vec<_> = busy
            .filter_map(|(core, vcpu)| vcpu.map(|vcpu| (self.urgency(vcpu), core)))
            .collect();
        busy.sort_unstable_by(|a, b| b.cmp(a));
        let waiting = self.queue.iter().skip(idle).map(|(urgency, _)| urgency);
        let pairs = busy.into_iter().zip(waiting);
        let overtaken = pairs.take_while(|((running, _), waiting)| waiting < running);
        overtaken.map(|((_, core), _)| core).collect()
    }

    fn left(&mut self, core: CoreId) {
        self.running[core.index()] = None;
    }

    fn forget(&mut self, vcpu: VcpuId) {
        self.queue.remove(vcpu);
        self.replenish.remove(vcpu.0);
        self.servers[vcpu.index()].depleted = false;
    }
}

impl Policy for Rtds {
    fn declare(&mut self, _vcpu: VcpuId, params: &VcpuParams) -> Result<(), Refused> {
        let knows = "period and budget";
        params.refuse_nice("rtds", knows)?;
        params.refuse_slice("rtds", knows)?;
        params.refuse_cap("rtds", knows)?;
        params.refuse_weights("rtds", knows)?;
        let period = params
            .period
            .unwrap_or(self.period)
            .max(Nanos::from_micros(10));
        let budget = params
            .budget
            .unwrap_or(self.budget)
            .min(period)
            .max(Nanos(1));
        self.servers.push(Server {
            period,
            budget,
            left: budget,
            level: 0,
            deadline: Nanos::ZERO,
            depleted: false,
            home: CoreId(0),
        });
        Ok(())
    }

    fn enqueue(&mut self, now: Nanos, vcpu: VcpuId, why: Enqueue) -> Placed {
        if let Enqueue::Preempted(core, _) | Enqueue::Yield(core) = why {
            self.left(core);
        }
        self.servers[vcpu.index()].renew(now);
        self.place(vcpu);
        Placed(self.tickle(vcpu))
    }

    fn remove(&mut self, _now: Nanos, vcpu: VcpuId) {
        self.forget(vcpu);
    }

    /// One without budget is asked to go again at once.
    fn take(&mut self, _now: Nanos, core: CoreId, vcpu: VcpuId) -> Slice {
        self.queue.remove(vcpu);
        self.running[core.index()] = Some(vcpu);
        let server = &mut self.servers[vcpu.index()];
        server.depleted = false;
        server.home = core;
        Slice::For(server.left.max(Nanos(1)))
    }

    fn pick(&mut self, now: Nanos, core: CoreId) -> Pick {
        let Some((_, vcpu)) = self.queue.pop_first() else {
            return Pick::Idle;
        };
        Pick::Run(vcpu, self.take(now, core, vcpu))
    }

    fn charge(&mut self, _now: Nanos, vcpu: VcpuId, ran: Nanos) {
        let extratime = self.extratime;
        let server = &mut self.servers[vcpu.index()];
        server.left -= ran;
        if server.left == Nanos::ZERO && extratime {
            server.level += 1;
            server.left = server.budget;
        }
    }

    fn preempts(&mut self, _now: Nanos, _core: CoreId, running: VcpuId, woken: VcpuId) -> Preempt {
        if !self.servers[woken.index()].depleted && self.behind(running, self.urgency(woken)) {
            Preempt::Kick
        } else {
            Preempt::Keep
        }
    }

    fn slice_end(&mut self, _now: Nanos, _core: CoreId, vcpu: VcpuId) -> SliceEnd {
        let left = self.servers[vcpu.index()].left;
        let overtaken = self
            .queue
            .first()
            .is_some_and(|(first, _)| self.behind(vcpu, first));
        if left == Nanos::ZERO || overtaken {
            SliceEnd::Kick
        } else {
            SliceEnd::Extend(Slice::For(left))
        }
    }

    fn wants_timer(&self) -> Option<Nanos> {
        self.replenish.first().map(|((at, _), _)| at)
    }

    /// Periods have ended: full budgets, new deadlines.
    fn timer(&mut self, now: Nanos) -> Resched {
        while let Some(((at, _), vcpu)) = self.replenish.first()
            && at <= now
        {
            let vcpu = VcpuId(vcpu);
            self.servers[vcpu.index()].renew(now);
            let (_, deadline) = self.urgency(vcpu);
            if self.running.contains(&Some(vcpu)) {
                self.replenish_at(vcpu, deadline);
            } else {
                self.place(vcpu);
            }
        }
        Resched(self.overtaken())
    }

    fn block(&mut self, _now: Nanos, core: CoreId, vcpu: VcpuId, _on: Waits) {
        self.left(core);
        self.forget(vcpu);
    }

    fn retire(&mut self, _now: Nanos, core: CoreId, vcpu: VcpuId) {
        self.left(core);
        self.forget(vcpu);
    }

    fn rank(&self, vcpu: VcpuId) -> Option<String> {
        let server = &self.servers[vcpu.index()];
        Some(format!(
            "{} of its budget left, level {}",
            server.left, server.level
        ))
    }

    fn conserving(&self) -> WorkConserving {
        if self.extratime {
            WorkConserving::Yes
        } else {
            WorkConserving::No
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Step, World, ms, plain, repeat, secs, spin, us};

    fn reserved(vm: u16, budget: Nanos, period: Nanos) -> VcpuParams {
        VcpuParams {
            budget: Some(budget),
            period: Some(period),
            ..plain(vm)
        }
    }

    #[test]
    fn without_extra_time_a_vcpu_gets_its_budget_in_every_period_and_no_more() {
        let vcpus = vec![
            (reserved(0, ms(2), ms(10)), spin()),
            (reserved(1, ms(3), ms(30)), spin()),
        ];
        let mut world = World::new("rtds:extratime=off", 1, vcpus);
        world.run_until(secs(3));
        assert!((world.share(0) - 0.2).abs() < 0.002, "{}", world.share(0));
        assert!((world.share(1) - 0.1).abs() < 0.002, "{}", world.share(1));
        assert!(world.longest_wait(0) <= ms(8), "{}", world.longest_wait(0));
    }

    #[test]
    fn with_extra_time_what_is_left_over_is_used_and_reservations_still_hold() {
        let vcpus = vec![
            (reserved(0, ms(2), ms(10)), spin()),
            (reserved(1, ms(6), ms(10)), spin()),
        ];
        let mut world = World::new("rtds", 1, vcpus);
        world.run_until(secs(3));
        let (first, second) = (world.share(0), world.share(1));
        assert!((first + second - 1.0).abs() < 1e-6, "{first} {second}");
        assert!(first >= 0.199 && second >= 0.599, "{first} {second}");
    }

    #[test]
    fn the_earliest_deadline_goes_first_so_a_feasible_set_misses_none() {
        // Utilisation 2/5 + 4/7 = 0.971: EDF meets every deadline.
        let job = |work, period: Nanos| repeat(&[Step::Run(work), Step::Sleep(period - work)]);
        let vcpus = vec![
            (reserved(0, ms(2), ms(5)), job(us(1_990), ms(5))),
            (reserved(1, ms(4), ms(7)), spin()),
        ];
        let mut world = World::new("rtds:extratime=off", 1, vcpus);
        world.run_until(secs(7));
        assert!(
            (world.share(1) - 4.0 / 7.0).abs() < 0.002,
            "{}",
            world.share(1)
        );
        assert!(world.longest_wait(0) <= ms(3), "{}", world.longest_wait(0));
    }

    #[test]
    fn budget_is_kept_while_a_vcpu_sleeps_within_its_period() {
        let late = repeat(&[
            Step::Sleep(ms(5)),
            Step::Run(us(3_990)),
            Step::Sleep(us(1_010)),
        ]);
        let vcpus = vec![
            (reserved(0, ms(4), ms(10)), late),
            (reserved(1, ms(50), ms(100)), spin()),
        ];
        let mut world = World::new("rtds:extratime=off", 1, vcpus);
        world.run_until(secs(2));
        assert!((world.share(0) - 0.399).abs() < 0.002, "{}", world.share(0));
        assert!(world.longest_wait(0) < us(100), "{}", world.longest_wait(0));
    }

    #[test]
    fn a_budget_longer_than_the_period_is_refused() {
        let config = World::config("rtds:period=5ms,budget=6ms", 1, &[(plain(0), spin())]);
        let wrong = crate::dispatcher::Dispatcher::new(&config).expect_err("inconsistent");
        assert!(wrong.to_string().contains("at most the period"), "{wrong}");
    }

    #[test]
    fn a_replenished_vcpu_takes_an_idle_core_and_disturbs_nobody() {
        let vcpus = vec![
            (reserved(0, ms(9), ms(100)), spin()),
            (reserved(1, ms(2), ms(10)), spin()),
        ];
        let mut world = World::new("rtds:extratime=off", 2, vcpus);
        world.run_until(secs(1));
        // The first one's deadline is later whenever the second is replenished.
        let kicked = |event: &&crate::event::Event| {
            let by_period = crate::event::PreemptReason::Period;
            event.vcpu == VcpuId(0)
                && matches!(event.kind, crate::event::EventKind::Kicked(_, why) if why == by_period)
        };
        assert_eq!(world.events.iter().filter(kicked).count(), 0);
    }

    #[test]
    fn one_replenished_vcpu_takes_one_core() {
        let mut policy = Rtds {
            period: ms(10),
            budget: ms(4),
            extratime: true,
            servers: Vec::new(),
            queue: KeyedQueue::default(),
            replenish: KeyedHeap::default(),
            placed: 0,
            running: vec![None; 4],
        };
        for vcpu in (0..5).map(VcpuId) {
            let period = if vcpu.0 == 4 { ms(10) } else { ms(100) };
            policy
                .declare(vcpu, &reserved(0, ms(4), period))
                .expect("understood");
            let _ = policy.enqueue(Nanos::ZERO, vcpu, Enqueue::New);
        }
        // The fifth has the earliest deadline and waits; the others run.
        policy.queue.remove(VcpuId(4));
        for core in (0..4).map(CoreId) {
            let _ = policy.pick(Nanos::ZERO, core);
        }
        let urgency = policy.urgency(VcpuId(4));
        policy.queue.insert(VcpuId(4), urgency);
        assert_eq!(policy.overtaken().len(), 1);
    }
}
