//! Policies that are not in the registry: what the driver does that no shipped policy asks for, and
//! what becomes of a run whose policy fails.

use crate::ledger::{check, events, when};
use crate::plans::{Done, Keep, Setup, forever, run, sleep, spin};
use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use stealtime_guest::op::{Length, Step};
use stealtime_scheduler::dispatcher::{Dispatcher, Violation};
use stealtime_scheduler::event::{EventKind, Until, Waits};
use stealtime_scheduler::ids::{CoreId, VcpuId};
use stealtime_scheduler::input::{GuestLocks, Input, Timer};
use stealtime_scheduler::policies;
use stealtime_scheduler::policy::{
    Clocks, Enqueue, Pick, Placed, Policy, Preempt, Refused, Resched, Slice, SliceEnd, VcpuParams,
};
use stealtime_scheduler::time::Nanos;
use stealtime_sim::SimBackend;
use stealtime_sim::cost::{CostModel, Theft};
use stealtime_workloads::run::{Entry, Plan};

/// First come, first served on core 0; who wakes goes first, but not into a critical section.
#[derive(Debug, Default)]
struct Polite {
    queue: VecDeque<VcpuId>,
    locks: Vec<GuestLocks>,
    picks: u32,
    /// The last one that was queued woke.
    woke: bool,
    /// Who wakes waits until the other is about to enter its guest.
    at_entry: bool,
    /// Fails at this pick.
    fails_at: Option<u32>,
    /// Always wants its timer at once.
    insists: bool,
    /// Its clocks, all three, strike together: once in so long.
    beat: Option<Nanos>,
    /// How often its timer has come.
    beats: u64,
}

impl Policy for Polite {
    fn clocks(&self) -> Clocks {
        Clocks {
            tick: self.beat,
            period: self.beat,
        }
    }

    fn declare(&mut self, _vcpu: VcpuId, _params: &VcpuParams) -> Result<(), Refused> {
        self.locks.push(GuestLocks::default());
        Ok(())
    }

    fn enqueue(&mut self, _now: Nanos, vcpu: VcpuId, why: Enqueue) -> Placed {
        self.woke = why == Enqueue::Wake;
        if self.woke {
            self.queue.push_front(vcpu);
        } else {
            self.queue.push_back(vcpu);
        }
        Placed(CoreId(0))
    }

    fn remove(&mut self, _now: Nanos, vcpu: VcpuId) {
        self.queue.retain(|queued| *queued != vcpu);
    }

    fn pick(&mut self, _now: Nanos, _core: CoreId) -> Pick {
        self.picks += 1;
        assert_ne!(Some(self.picks), self.fails_at, "out of ideas");
        match self.queue.pop_front() {
            Some(vcpu) => Pick::Run(vcpu, Slice::Open),
            None => Pick::Idle,
        }
    }

    fn charge(&mut self, _now: Nanos, _vcpu: VcpuId, _ran: Nanos) {}

    fn preempts(&mut self, _now: Nanos, _core: CoreId, running: VcpuId, _woken: VcpuId) -> Preempt {
        if !self.woke {
            Preempt::Keep
        } else if self.at_entry {
            Preempt::Defer(Until::GuestEntry)
        } else if self.locks[running.index()].critical > 0 {
            Preempt::Defer(Until::CriticalExit)
        } else {
            Preempt::Kick
        }
    }

    fn slice_end(&mut self, _now: Nanos, _core: CoreId, _vcpu: VcpuId) -> SliceEnd {
        SliceEnd::Extend(Slice::Open)
    }

    fn block(&mut self, _now: Nanos, _core: CoreId, _vcpu: VcpuId, _on: Waits) {}

    fn retire(&mut self, _now: Nanos, _core: CoreId, _vcpu: VcpuId) {}

    fn locks(&mut self, _now: Nanos, vcpu: VcpuId, locks: GuestLocks) {
        self.locks[vcpu.index()] = locks;
    }

    fn wants_timer(&self) -> Option<Nanos> {
        let next = |beat: Nanos| Nanos(beat.get() * (self.beats + 1));
        self.insists.then_some(Nanos::ZERO).or(self.beat.map(next))
    }

    fn timer(&mut self, _now: Nanos) -> Resched {
        self.beats += 1;
        Resched::default()
    }
}

fn simulate_under(policy: Polite, plan: &Plan) -> Done {
    simulate_with(policy, plan, CostModel::bare_hardware())
}

fn simulate_with(policy: Polite, plan: &Plan, costs: CostModel) -> Done {
    let config = plan.config();
    let dispatcher =
        Dispatcher::with_policy(&config, &policies::rr::INFO, Box::new(policy), config.cores)
            .expect("it refuses nothing");
    let mut keep = Keep::default();
    let outcome = SimBackend::new(costs)
        .run_under(plan, dispatcher, &AtomicBool::new(false), &mut keep)
        .expect("the plan can be run");
    Done {
        entries: keep.0,
        outcome,
    }
}

/// vCPU 0 wakes at about 1 ms, when vCPU 1 is in its critical section for 3 ms more.
fn woken_in_a_critical_section() -> Plan {
    let critical = [Step::CriticalEnter, run(4_000_000), Step::CriticalLeave];
    let steps = [&critical[..], &spin()].concat();
    Setup::new("rr")
        .vm(&[])
        .vcpu(&[sleep(1_000_000), run(1_000)])
        .vm(&[])
        .vcpu(&steps)
        .build()
}

#[test]
fn a_preemption_owed_to_a_critical_section_comes_when_the_guest_leaves_it() {
    let plan = woken_in_a_critical_section();
    let done = simulate_under(Polite::default(), &plan);
    check(&done, Nanos::from_secs(1));
    let of_critical: Vec<_> = events(&done)
        .filter(|event| event.vcpu == VcpuId(1))
        .collect();
    let find = |wanted: fn(&EventKind) -> bool| {
        let found = of_critical.iter().find(|event| wanted(&event.kind));
        found.expect("it happens").at
    };
    let owed = find(|kind| matches!(kind, EventKind::Owed(_, _, Until::CriticalExit)));
    let kicked = find(|kind| matches!(kind, EventKind::Kicked(..)));
    let preempted = find(|kind| matches!(kind, EventKind::Preempted(..)));
    assert!((1_000_000..1_100_000).contains(&owed.0), "{owed}");
    assert!((4_000_000..4_100_000).contains(&kicked.0), "{kicked}");
    // The guest told by a call, so nobody has to be signalled.
    assert_eq!(preempted, kicked);
}

#[test]
fn who_leaves_a_critical_section_is_asked_for_its_core_before_it_pays_for_leaving_it() {
    let costs = CostModel {
        leaving: Nanos(200),
        interference: vec![Theft {
            length: Nanos(100_000),
            every: Nanos(500_000),
            told: true,
        }],
        ..CostModel::bare_hardware()
    };
    let plan = woken_in_a_critical_section();
    let done = simulate_with(Polite::default(), &plan, costs.clone());
    check(&done, Nanos::from_secs(1));
    let inputs = done.entries.iter().filter_map(|entry| match *entry {
        Entry::Input(_, Input::Locks { .. }) => None,
        Entry::Input(at, input) => Some((at, input)),
        _ => None,
    });
    let vcpu = VcpuId(1);
    let of_stay: Vec<_> = inputs
        .skip_while(|(_, input)| !matches!(input, Input::Entered { vcpu: who, .. } if *who == vcpu))
        .skip_while(|(_, input)| !matches!(input, Input::Exited { vcpu: who, .. } if *who == vcpu))
        .take(4)
        .collect();
    // What the host took is told with the end of the stay, not with the word that may bring it about.
    let [
        (at, Input::Exited { .. }),
        (left, Input::CriticalLeft { .. }),
        (_, Input::HostDelay { delay, .. }),
        (stopped, Input::Stopped { .. }),
    ] = of_stay[..]
    else {
        panic!("{of_stay:?}");
    };
    assert_eq!((at, stopped), (left, left + costs.leaving));
    let running = when(&done, |kind| matches!(kind, EventKind::Running(_)));
    let entered = running.iter().find(|(_, who)| *who == vcpu);
    let ran = at.since(entered.expect("it runs").0).since(delay);
    // An entry, three ops, and an exit that costs no more than others.
    let ops = Nanos(3 * costs.op.get() + 4_000_000);
    assert_eq!(ran, costs.entry + ops + costs.exit);
}

#[test]
fn a_preemption_that_was_owed_is_forgotten_when_the_core_is_given_up() {
    // vCPU 1 sleeps within its critical section, which lets vCPU 0 run anyway.
    let steps = [
        Step::CriticalEnter,
        run(2_000_000),
        sleep(1_000_000),
        run(1_000),
        Step::CriticalLeave,
    ];
    let plan = Setup::new("rr")
        .vm(&[])
        .vcpu(&[sleep(1_000_000), run(1_000)])
        .vm(&[])
        .vcpu(&[&steps[..], &spin()].concat())
        .build();
    let done = simulate_under(Polite::default(), &plan);
    check(&done, Nanos::from_secs(1));
    assert!(!when(&done, |kind| matches!(kind, EventKind::Owed(..))).is_empty());
    let mut exits = when(&done, |kind| matches!(kind, EventKind::Exited(_)));
    exits.retain(|(_, vcpu)| *vcpu == VcpuId(1));
    assert_eq!(exits.len(), 1, "only to sleep");
}

#[test]
fn a_preemption_owed_to_hypervisor_work_comes_before_guest_code_runs_again() {
    let work = Step::Hypervisor(Length::Fixed(4_000_000));
    let plan = Setup::new("rr")
        .vm(&[])
        .vcpu(&[sleep(1_000_000), run(1_000)])
        .vm(&[])
        .vcpu(&[&[work][..], &spin()].concat())
        .build();
    let policy = Polite {
        at_entry: true,
        ..Polite::default()
    };
    let done = simulate_under(policy, &plan);
    check(&done, Nanos::from_secs(1));
    let of_worker = |wanted: fn(&EventKind) -> bool| {
        let mut all = when(&done, wanted);
        all.retain(|(_, vcpu)| *vcpu == VcpuId(1));
        all[0].0
    };
    let owed = of_worker(|kind| matches!(kind, EventKind::Owed(_, _, Until::GuestEntry)));
    let resumed = of_worker(|kind| *kind == EventKind::Resumed);
    assert!(resumed.since(owed) > Nanos::from_millis(2));
    assert_eq!(
        of_worker(|kind| matches!(kind, EventKind::Preempted(..))),
        resumed
    );
    assert_eq!(done.outcome.guests[0].progress_ns, 1_000);
}

#[test]
fn outside_of_critical_sections_a_wake_up_preempts_after_the_kick() {
    let plan = Setup::new("rr")
        .vm(&[])
        .vcpu(&forever(&[sleep(1_000_000), run(1_000)]))
        .vm(&[])
        .vcpu(&spin())
        .build();
    let done = simulate_under(Polite::default(), &plan);
    check(&done, Nanos::from_secs(1));
    let woken = when(&done, |kind| matches!(kind, EventKind::Woken(_)));
    let preempted = when(&done, |kind| matches!(kind, EventKind::Preempted(..)));
    assert!(preempted.len() > 900);
    let kick = CostModel::bare_hardware().kick;
    for (woken, preempted) in woken.iter().zip(&preempted) {
        assert_eq!(preempted.0, woken.0 + kick);
    }
}

#[test]
fn a_policy_that_panics_ends_the_run_and_what_was_measured_is_kept() {
    let turn = forever(&[run(1_000_000), Step::Yield]);
    let plan = Setup::new("rr")
        .vm(&[])
        .vcpu(&turn)
        .vm(&[])
        .vcpu(&turn)
        .build();
    let policy = Polite {
        fails_at: Some(100),
        ..Polite::default()
    };
    let done = simulate_under(policy, &plan);
    assert!(!done.outcome.interrupted, "that is the user's word");
    assert_eq!(done.outcome.violation_count, 1);
    assert_eq!(done.outcome.violations[0].violation, Violation::Failed);
    let notes = done.outcome.quality.notes.join("\n");
    assert!(
        notes.contains("rr") && notes.contains("out of ideas"),
        "{notes}"
    );
    let progress: u64 = done
        .outcome
        .guests
        .iter()
        .map(|guest| guest.progress_ns)
        .sum();
    assert!(progress >= 97_000_000, "{progress}");
}

#[test]
fn a_policy_that_always_wants_to_be_called_at_once_cannot_hold_time_still() {
    let plan = Setup::new("rr")
        .duration(Nanos::from_micros(20))
        .vm(&[])
        .vcpu(&spin())
        .build();
    let policy = Polite {
        insists: true,
        ..Polite::default()
    };
    let done = simulate_under(policy, &plan);
    check(&done, Nanos::from_micros(20));
}

#[test]
fn clocks_that_are_due_at_one_instant_come_in_their_order_in_every_cost_model() {
    let chancy = CostModel {
        timer_spread: Nanos(5_000),
        ..CostModel::free()
    };
    for costs in [CostModel::free(), CostModel::bare_hardware(), chancy] {
        let plan = Setup::new("rr").vm(&[]).vcpu(&spin()).build();
        let policy = Polite {
            beat: Some(Nanos::from_millis(1)),
            ..Polite::default()
        };
        let done = simulate_with(policy, &plan, costs.clone());
        let strikes: Vec<_> = done
            .entries
            .iter()
            .filter_map(|entry| match *entry {
                Entry::Input(at, Input::TimerDue { timer }) => Some((at, timer)),
                _ => None,
            })
            .collect();
        assert!(strikes.len() > 3 * 990, "{}", strikes.len());
        for (beat, strikes) in (1..).zip(strikes.chunks_exact(3)) {
            let (tick, _) = strikes[0];
            let least = Nanos::from_millis(beat) + costs.timer;
            assert!(tick >= least, "{tick}");
            assert!(tick == least || costs.timer_spread > Nanos::ZERO, "{tick}");
            let expected = [
                (tick, Timer::Tick),
                (tick + Nanos(1), Timer::Period),
                (tick + Nanos(2), Timer::Policy),
            ];
            assert_eq!(strikes, expected);
        }
    }
}
