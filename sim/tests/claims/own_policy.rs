//! Policies that are not in the registry: what the driver does that no shipped policy asks for, and
//! what becomes of a run whose policy fails.

use crate::ledger::{check, events, when};
use crate::plans::{Done, Keep, Setup, forever, run, sleep, spin};
use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use stealtime_guest::op::{Length, Step};
use stealtime_scheduler::dispatcher::Dispatcher;
use stealtime_scheduler::event::{EventKind, Until, Waits};
use stealtime_scheduler::ids::{CoreId, VcpuId};
use stealtime_scheduler::input::GuestLocks;
use stealtime_scheduler::policies;
use stealtime_scheduler::policy::{
    Enqueue, Pick, Placed, Policy, Preempt, Refused, Slice, SliceEnd, VcpuParams,
};
use stealtime_scheduler::time::Nanos;
use stealtime_sim::SimBackend;
use stealtime_sim::cost::CostModel;
use stealtime_workloads::run::Plan;

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
}

impl Policy for Polite {
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
        self.insists.then_some(Nanos::ZERO)
    }
}

fn simulate_under(policy: Polite, plan: &Plan) -> Done {
    let config = plan.config();
    let dispatcher =
        Dispatcher::with_policy(&config, &policies::rr::INFO, Box::new(policy), config.cores)
            .expect("it refuses nothing");
    let mut keep = Keep::default();
    let outcome = SimBackend::new(CostModel::bare_hardware())
        .run_under(plan, dispatcher, &AtomicBool::new(false), &mut keep)
        .expect("the plan can be run");
    Done {
        entries: keep.0,
        outcome,
    }
}

#[test]
fn a_preemption_owed_to_a_critical_section_comes_when_the_guest_leaves_it() {
    // vCPU 1 wakes at about 1 ms, when vCPU 0 is in its critical section for 3 ms more.
    let critical = [Step::CriticalEnter, run(4_000_000), Step::CriticalLeave];
    let steps = [&critical[..], &spin()].concat();
    let plan = Setup::new("rr")
        .vm(&[])
        .vcpu(&[sleep(1_000_000), run(1_000)])
        .vm(&[])
        .vcpu(&steps)
        .build();
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
    assert!(done.outcome.interrupted);
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
