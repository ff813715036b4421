//! Halts, interrupts and timers.

use crate::ledger::{State, check, events, total, when};
use crate::plans::{Done, Setup, forever, run, simulate, sleep, spin};
use stealtime_guest::op::{Misdeed, Step};
use stealtime_scheduler::event::EventKind;
use stealtime_scheduler::ids::VcpuId;
use stealtime_scheduler::input::{ExitReason, Input};
use stealtime_scheduler::time::Nanos;
use stealtime_sim::cost::{CostModel, Theft};
use stealtime_workloads::run::{Entry, LockKind};

const END: Nanos = Nanos::from_secs(1);

fn raise(vcpu: u32) -> Step {
    Step::Interrupt { vcpu, vector: 0x40 }
}

#[test]
fn two_vcpus_that_wake_each_other_do_so_in_the_time_that_the_costs_say() {
    let costs = CostModel::bare_hardware();
    let plan = Setup::new("rr")
        .cores(2)
        .vm(&[])
        .vcpu(&forever(&[raise(1), Step::WaitInterrupt]))
        .vm(&[])
        .vcpu(&forever(&[Step::WaitInterrupt, raise(0)]))
        .build();
    let done = simulate(&plan, &costs);
    check(&done, END);
    let raised = when(&done, |kind| {
        matches!(kind, EventKind::InterruptRaised { .. })
    });
    // A grant across cores, an entry with an interrupt, the op that raises the next, its exit.
    let leg = costs.switch_other_core.0
        + costs.entry.0
        + costs.injection.0
        + costs.handler.0
        + costs.op.0
        + costs.exit.0;
    let begun = raised[2].0.0;
    for (turn, (at, to)) in raised[2..].iter().enumerate() {
        assert_eq!(at.0, begun + leg * turn as u64);
        assert_eq!(*to, raised[turn % 2].1);
    }
    let taken: u64 = done
        .outcome
        .guests
        .iter()
        .map(|guest| guest.interrupts)
        .sum();
    assert!(
        raised.len() as u64 - taken <= 1,
        "{} and {taken}",
        raised.len()
    );
    assert!(taken > 100_000, "{taken}");
}

#[test]
fn an_interrupt_at_running_guest_code_is_taken_after_a_kick_and_the_guest_goes_on() {
    let costs = CostModel {
        handler: Nanos(300),
        ..CostModel::bare_hardware()
    };
    let plan = Setup::new("rr")
        .cores(2)
        .vm(&[])
        .vcpu(&forever(&[sleep(1_000_000), raise(1)]))
        .vm(&[])
        .vcpu(&spin())
        .build();
    let done = simulate(&plan, &costs);
    let spans = check(&done, END);
    let at_spinner = |wanted: fn(&EventKind) -> bool| {
        let mut all = when(&done, wanted);
        all.retain(|(_, to)| *to == VcpuId(1));
        all
    };
    let raised = at_spinner(|kind| matches!(kind, EventKind::InterruptRaised { .. }));
    let handled: Vec<_> = events(&done)
        .filter(|event| matches!(event.kind, EventKind::InterruptsTaken { .. }))
        .collect();
    assert!(raised.len() > 900, "{}", raised.len());
    let taken = done.outcome.guests[1].interrupts;
    assert_eq!(handled.len() as u64, taken);
    for (raised, handled) in raised.iter().zip(&handled) {
        let after = costs.kick + costs.entry + costs.injection;
        assert_eq!(handled.happened(), raised.0 + after);
        assert!(handled.at > handled.happened(), "known at the next exit");
    }
    assert_eq!(total(&spans, 1, State::Blocked), 0);
    let lost = END.0 - done.outcome.guests[1].progress_ns;
    let each = costs.entry.0 + costs.injection.0 + costs.handler.0;
    assert_eq!(
        lost,
        costs.switch_other_core.0 + costs.entry.0 + costs.op.0 + each * taken
    );
}

/// Kicks come well before entries are done.
fn slow_entries() -> CostModel {
    CostModel {
        entry: Nanos(100_000),
        kick: Nanos(2_000),
        ..CostModel::free()
    }
}

#[test]
fn an_interrupt_whose_entry_a_kick_ends_is_handled_with_the_next_one() {
    let costs = slow_entries();
    // Two raise the same one, sooner or later within each other's entries.
    let plan = Setup::new("rr")
        .cores(3)
        .vm(&[])
        .vcpu(&forever(&[sleep(1_000_000), raise(1)]))
        .vcpu(&spin())
        .vcpu(&forever(&[sleep(1_009_000), raise(1)]))
        .build();
    let done = simulate(&plan, &costs);
    check(&done, END);
    let (mut raised, mut since, mut told, mut broken_off) = (0, Nanos::ZERO, 0, 0);
    for entry in &done.entries {
        match *entry {
            Entry::Input(now, Input::Interrupt { .. }) => {
                broken_off += u64::from(now.since(since) < costs.entry);
                (raised, since) = (raised + 1, now);
            }
            Entry::Input(now, Input::InterruptsTaken { at, .. }) => {
                assert!(at <= now, "{at} is told at {now}");
                told += 1;
            }
            _ => {}
        }
    }
    // Two that are handled together are one to the guest.
    assert_eq!(done.outcome.guests[1].interrupts, told);
    assert!(broken_off > 20, "{broken_off}");
    assert!(
        told.abs_diff(raised - broken_off) <= 1,
        "{told} of {raised}, {broken_off}"
    );
}

#[test]
fn an_entry_that_a_kick_ends_after_the_warm_up_takes_back_nothing_that_counted_in_it() {
    let costs = slow_entries();
    // Entered at 1102 us with the first, and once more at 1152 us, because of the second.
    let plan = Setup::new("rr")
        .cores(3)
        .warmup(Nanos::from_micros(1_120))
        .vm(&[])
        .vcpu(&spin())
        .vcpu(&[raise(0)])
        .start(Nanos::from_micros(1_000))
        .vcpu(&[raise(0)])
        .start(Nanos::from_micros(1_050))
        .build();
    let done = simulate(&plan, &costs);
    let kicked = |kind: &EventKind| *kind == EventKind::Exited(ExitReason::Kick);
    let kicks: Vec<_> = when(&done, kicked).into_iter().map(|(at, _)| at).collect();
    assert!(
        kicks[0] < plan.warmup && plan.warmup < kicks[1],
        "{kicks:?}"
    );
    assert!(kicks[1].since(kicks[0]) < costs.entry, "{kicks:?}");
    assert_eq!(done.outcome.guests[0].interrupts, 1);
}

#[test]
fn an_interrupt_of_the_last_stay_is_known_at_its_end_however_it_ends() {
    let then = |step| vec![Step::WaitInterrupt, step];
    let spins = [then(run(1)), spin()].concat();
    let idle = vec![Step::WaitInterrupt];
    let fails = vec![run(5_000_000), Step::Fault(Misdeed::TripleFault)];
    for (steps, sibling) in [
        (spins.clone(), idle.clone()),
        (spins, fails),
        (idle.clone(), idle.clone()),
        (then(Step::Fault(Misdeed::TripleFault)), idle.clone()),
        (then(Step::Fault(Misdeed::BadMemory)), idle.clone()),
        (then(Step::RequestEnd), idle.clone()),
        (then(Step::Unlock(0)), idle),
    ] {
        let plan = Setup::new("rr")
            .cores(3)
            .vm(&[LockKind::Mutex])
            .vcpu(&steps)
            .vcpu(&sibling)
            .vm(&[])
            .vcpu(&[run(1_000_000), raise(0)])
            .build();
        let done = simulate(&plan, &CostModel::bare_hardware());
        check(&done, END);
        let of_it = events(&done).filter(|event| event.vcpu == VcpuId(0));
        let handled = of_it
            .map(|event| event.kind)
            .take_while(|kind| !matches!(kind, EventKind::Retired(_)))
            .filter(|kind| matches!(kind, EventKind::InterruptsTaken { .. }));
        assert_eq!(handled.count(), 1, "{steps:?}");
    }
}

/// Of each entry with an interrupt after which vCPU 0 left the guest: from its beginning until the handler ran, and
/// from then until it left.
fn handlers(done: &Done) -> Vec<(u64, u64)> {
    let mut entered = Nanos::ZERO;
    let mut exited = None;
    let mut found = Vec::new();
    for event in events(done).filter(|event| event.vcpu == VcpuId(0)) {
        match event.kind {
            EventKind::Running(_) | EventKind::Resumed => entered = event.at,
            EventKind::Exited(_) => exited = Some(event.at),
            EventKind::InterruptsTaken { at } if exited == Some(event.at) => {
                found.push((at.since(entered).0, event.at.since(at).0));
            }
            _ => {}
        }
    }
    found
}

#[test]
fn an_interrupt_is_handled_later_by_what_is_taken_of_the_core_during_the_entry() {
    const ENTRY: u64 = 200_000;
    const WORK: u64 = 7_000;
    let taken_by_timers = CostModel {
        entry: Nanos(ENTRY),
        timer_work: Nanos(WORK),
        ..CostModel::free()
    };
    let taken_by_host = CostModel {
        timer_work: Nanos::ZERO,
        interference: vec![Theft {
            length: Nanos(90_000),
            every: Nanos(1_000_000),
            told: true,
        }],
        ..taken_by_timers.clone()
    };
    // vCPU 0 calls at once after its handler. The timers of vCPU 2 are served on its core.
    let plan = Setup::new("rr")
        .cores(3)
        .vm(&[])
        .vcpu(&forever(&[Step::WaitInterrupt, Step::Exit]))
        .vcpu(&forever(&[run(1_000_000), raise(0)]))
        .vcpu(&forever(&[sleep(130_000), run(1_000)]))
        .build();
    for (costs, least) in [(&taken_by_timers, WORK), (&taken_by_host, 1)] {
        let done = simulate(&plan, costs);
        check(&done, END);
        let handlers = handlers(&done);
        let late = handlers.iter().filter(|(after, _)| *after >= ENTRY + least);
        let late = late.count();
        assert!(late > 100, "{late} of {}", handlers.len());
        assert!(handlers.iter().all(|(after, _)| *after >= ENTRY));
        // What was taken came before the handler: the one or two ops after it take what they always do.
        let late = handlers.iter().find(|(_, left)| *left > 2);
        assert_eq!(late, None);
    }
}

#[test]
fn a_signal_for_an_interrupt_that_was_taken_meanwhile_does_not_disturb_the_guest() {
    // vCPU 1 exits every 2 us, so it takes each interrupt before its signal arrives.
    let plan = Setup::new("rr:quantum=1s")
        .cores(2)
        .vm(&[])
        .vcpu(&forever(&[run(50_000), raise(1)]))
        .vm(&[])
        .vcpu(&forever(&[run(400), Step::Exit]))
        .build();
    let done = simulate(&plan, &CostModel::bare_hardware());
    check(&done, END);
    assert!(done.outcome.guests[1].interrupts > 10_000);
    assert!(when(&done, |kind| *kind == EventKind::Exited(ExitReason::Kick)).is_empty());
}

#[test]
fn a_guest_that_is_interrupted_again_before_it_gets_anywhere_sees_one_gap() {
    let costs = CostModel {
        entry: Nanos::from_micros(100),
        kick: Nanos::from_micros(10),
        ..CostModel::bare_hardware()
    };
    let mut setup = Setup::new("rr:quantum=1s").cores(6).vm(&[]).vcpu(&spin());
    for sender in 0..5 {
        let start = Nanos::from_micros(1_000 + 50 * sender);
        setup = setup.vcpu(&[raise(0)]).start(start);
    }
    let done = simulate(&setup.build(), &costs);
    check(&done, END);
    let raised = when(&done, |kind| {
        matches!(kind, EventKind::InterruptRaised { .. })
    });
    let [(first, _), .., (last, _)] = raised[..] else {
        panic!("{raised:?}");
    };
    let guest = &done.outcome.guests[0];
    // No entry but the last gets as far as its handler.
    assert_eq!(guest.interrupts, 1);
    assert_eq!(guest.gaps, 1);
    assert_eq!(
        Nanos(guest.gap_total_ns),
        last.since(first) + costs.entry + costs.injection + costs.handler
    );
}

#[test]
fn a_vector_that_waits_already_is_taken_once() {
    let plan = Setup::new("rr")
        .vm(&[])
        .vcpu(&[raise(1), raise(1), run(1_000), raise(1)])
        .vm(&[])
        .vcpu(&[Step::WaitInterrupt, Step::End])
        .build();
    let done = simulate(&plan, &CostModel::bare_hardware());
    check(&done, END);
    assert_eq!(done.outcome.guests[1].interrupts, 1);
}

#[test]
fn an_interrupt_that_came_before_the_wait_ends_it_at_once() {
    let plan = Setup::new("rr")
        .vm(&[])
        .vcpu(&[raise(0), Step::WaitInterrupt, run(5_000)])
        .build();
    let done = simulate(&plan, &CostModel::bare_hardware());
    check(&done, END);
    assert!(when(&done, |kind| matches!(kind, EventKind::Blocked(_))).is_empty());
    assert_eq!(done.outcome.guests[0].progress_ns, 5_000);
}

#[test]
fn a_periodic_timer_raises_its_interrupt_at_every_period_without_drift() {
    let costs = CostModel::bare_hardware();
    let arm = Step::Periodic {
        period: 1_000_000,
        vector: 0x41,
    };
    let mut steps = vec![arm];
    steps.extend(forever(&[Step::WaitInterrupt, run(100_000)]));
    let plan = Setup::new("rr").vm(&[]).vcpu(&steps).build();
    let done = simulate(&plan, &costs);
    check(&done, END);
    let raised = when(&done, |kind| {
        matches!(kind, EventKind::InterruptRaised { .. })
    });
    assert!(raised.len() >= 999);
    for pair in raised.windows(2) {
        assert_eq!(pair[1].0.since(pair[0].0), Nanos::from_millis(1));
    }
    assert_eq!(done.outcome.guests[0].interrupts, raised.len() as u64);
}

#[test]
fn a_sleep_lasts_as_long_as_it_says_and_interrupts_do_not_end_it() {
    let costs = CostModel::bare_hardware();
    let plan = Setup::new("rr")
        .cores(2)
        .vm(&[])
        .vcpu(&[sleep(5_000_000)])
        .vm(&[])
        .vcpu(&forever(&[run(1_000_000), raise(0)]))
        .build();
    let done = simulate(&plan, &costs);
    check(&done, END);
    let of_sleeper = |wanted: fn(&EventKind) -> bool| {
        let mut all = when(&done, wanted);
        all.retain(|(_, vcpu)| *vcpu == VcpuId(0));
        all
    };
    let slept = of_sleeper(|kind| matches!(kind, EventKind::Blocked(_)));
    let woke = of_sleeper(|kind| matches!(kind, EventKind::Woken(_)));
    assert_eq!(slept.len(), 1);
    assert_eq!(
        woke[0].0.since(slept[0].0),
        Nanos::from_millis(5) + costs.timer
    );
    assert_eq!(done.outcome.guests[0].interrupts, 1);
}
