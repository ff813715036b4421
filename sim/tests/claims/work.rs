//! Work in guest and hypervisor, and kicks that come between.

use crate::ledger::{State, check, events, total, when};
use crate::plans::{Setup, forever, run, simulate, spin};
use stealtime_guest::op::{HostMode, Length, Step};
use stealtime_scheduler::event::{EventKind, Waits, WakeSource};
use stealtime_scheduler::ids::VcpuId;
use stealtime_scheduler::input::{ExitReason, RetireReason};
use stealtime_scheduler::time::Nanos;
use stealtime_sim::cost::CostModel;

const END: Nanos = Nanos::from_secs(1);

#[test]
fn hypervisor_work_that_is_interrupted_by_kicks_is_done_in_full_and_not_twice() {
    let work = Step::Hypervisor(Length::Fixed(35_000_000));
    let plan = Setup::new("rr:quantum=10ms")
        .vm(&[])
        .vcpu(&[work, run(1_000)])
        .vm(&[])
        .vcpu(&spin())
        .build();
    let done = simulate(&plan, &CostModel::bare_hardware());
    let spans = check(&done, END);
    assert_eq!(total(&spans, 0, State::Hypervisor), 35_000_000);
    let kicks = when(&done, |kind| matches!(kind, EventKind::Preempted(..)));
    let own = kicks.iter().filter(|(_, vcpu)| *vcpu == VcpuId(0)).count();
    assert_eq!(own, 3, "35 ms in quanta of 10 ms");
    assert_eq!(done.outcome.guests[0].progress_ns, 1_000);
}

#[test]
fn guest_work_that_is_interrupted_by_kicks_is_done_in_full_and_not_twice() {
    let plan = Setup::new("rr:quantum=10ms")
        .vm(&[])
        .vcpu(&[run(123_456_789)])
        .vm(&[])
        .vcpu(&spin())
        .build();
    let done = simulate(&plan, &CostModel::bare_hardware());
    check(&done, END);
    assert_eq!(done.outcome.guests[0].progress_ns, 123_456_789);
    let retired = when(&done, |kind| {
        *kind == EventKind::Retired(RetireReason::Finished)
    });
    assert_eq!(retired.len(), 1);
}

#[test]
fn a_kick_is_overtaken_by_a_halt_that_comes_first() {
    // The slice ends 1 us before the guest halts; the kick would arrive 2 us after.
    let costs = CostModel {
        timer: Nanos::ZERO,
        ..CostModel::bare_hardware()
    };
    let length = 10_000_000 - costs.entry.0 - costs.op.0 - costs.op.0 - costs.halt_exit.0 + 1_000;
    let plan = Setup::new("rr:quantum=10ms")
        .vm(&[])
        .vcpu(&[run(length), Step::WaitInterrupt])
        .vm(&[])
        .vcpu(&spin())
        .build();
    let done = simulate(&plan, &costs);
    check(&done, END);
    let of_first: Vec<_> = events(&done)
        .filter(|event| event.vcpu == VcpuId(0))
        .map(|event| event.kind)
        .collect();
    let kicked = of_first
        .iter()
        .position(|kind| matches!(kind, EventKind::Kicked(..)));
    let after = &of_first[kicked.expect("its slice ended") + 1..];
    assert_eq!(after[0], EventKind::Exited(ExitReason::Halt));
    assert_eq!(after[1], EventKind::Blocked(Waits::Idle));
}

#[test]
fn a_vcpu_that_comes_to_another_core_pays_for_its_migration() {
    // vCPU 2 comes to core 0 while vCPU 0 sleeps; core 1 is free again when vCPU 0 wakes.
    let costs = CostModel::bare_hardware();
    let plan = Setup::new("rr:quantum=1s")
        .cores(2)
        .vm(&[])
        .vcpu(&[
            run(1_000_000),
            Step::Sleep(Length::Fixed(5_000_000)),
            run(1_000_000),
        ])
        .vcpu(&[run(4_000_000)])
        .vcpu(&spin())
        .start(Nanos::from_millis(2))
        .build();
    let done = simulate(&plan, &costs);
    check(&done, END);
    let last = |wanted: fn(&EventKind) -> bool| {
        let mut all = when(&done, wanted).into_iter().rev();
        all.find(|(_, vcpu)| *vcpu == VcpuId(0))
            .expect("it happens")
            .0
    };
    let migrated = last(|kind| matches!(kind, EventKind::Migrated { .. }));
    let running = last(|kind| matches!(kind, EventKind::Running(_)));
    assert_eq!(
        running,
        migrated + costs.switch_other_core + costs.migration
    );
}

#[test]
fn a_yield_lets_the_other_run_at_once() {
    let turn = forever(&[run(1_000_000), Step::Yield]);
    let plan = Setup::new("rr:quantum=1s")
        .vm(&[])
        .vcpu(&turn)
        .vm(&[])
        .vcpu(&turn)
        .build();
    let done = simulate(&plan, &CostModel::free());
    let spans = check(&done, END);
    let yields = when(&done, |kind| matches!(kind, EventKind::Yielded(_)));
    assert!(yields.len() > 990, "{}", yields.len());
    let alternate = yields.windows(2).all(|pair| pair[0].1 != pair[1].1);
    assert!(alternate);
    let apart = total(&spans, 0, State::Run).abs_diff(total(&spans, 1, State::Run));
    assert!(apart <= 1_000_010, "{apart}");
}

#[test]
fn a_host_lock_is_handed_to_the_waiter_and_waiting_for_it_is_no_idling() {
    let lock = |kernel_priority| Step::HostLock {
        lock: 0,
        kernel_priority,
    };
    let holder = [
        lock(false),
        Step::Sleep(Length::Fixed(5_000_000)),
        Step::HostUnlock(0),
        run(1),
    ];
    let waiter = [run(1_000), lock(false), run(1), Step::HostUnlock(0)];
    let plan = Setup::new("rr")
        .host_locks(1)
        .vm(&[])
        .vcpu(&holder)
        .vm(&[])
        .vcpu(&waiter)
        .build();
    let done = simulate(&plan, &CostModel::bare_hardware());
    check(&done, END);
    let taken = when(&done, |kind| matches!(kind, EventKind::HostLockTaken(_)));
    assert_eq!(taken.iter().map(|t| t.1.0).collect::<Vec<_>>(), [0, 1]);
    let waited = when(&done, |kind| {
        matches!(kind, EventKind::Blocked(Waits::HostLock(..)))
    });
    assert_eq!(waited.len(), 1);
    assert!(taken[1].0.since(waited[0].0) > Nanos::from_millis(4));
}

#[test]
fn a_released_mutex_wakes_all_that_wait_and_who_finds_it_taken_waits_again() {
    let lock = Step::HostAcquire {
        lock: 0,
        mode: HostMode::Mutex,
        kernel_priority: false,
    };
    let holder = [
        lock,
        Step::Sleep(Length::Fixed(5_000_000)),
        Step::HostUnlock(0),
        run(1),
    ];
    let waiter = [
        run(1_000),
        lock,
        Step::Sleep(Length::Fixed(1_000_000)),
        Step::HostUnlock(0),
    ];
    let mut setup = Setup::new("ts").host_locks(1).vm(&[]).vcpu(&holder);
    for _ in 0..2 {
        setup = setup.vm(&[]).vcpu(&waiter);
    }
    let done = simulate(&setup.build(), &CostModel::bare_hardware());
    check(&done, END);
    let taken = when(&done, |kind| matches!(kind, EventKind::HostLockTaken(_)));
    assert_eq!(taken.len(), 3);
    let waits = when(&done, |kind| {
        matches!(kind, EventKind::Blocked(Waits::HostLock(..)))
    });
    let woken = when(&done, |kind| {
        matches!(kind, EventKind::Woken(WakeSource::HostLock(_)))
    });
    // Both are woken by the first release; one of them waits again and is woken by the second.
    assert_eq!((waits.len(), woken.len()), (3, 3));
    assert_eq!(woken[0].0, woken[1].0);
}

#[test]
fn the_latency_of_a_request_contains_the_wait_for_the_core() {
    let request = [Step::RequestBegin, run(1_000_000), Step::RequestEnd];
    let plan = Setup::new("rr:quantum=10ms")
        .vm(&[])
        .vcpu(&forever(&request))
        .vm(&[])
        .vcpu(&spin())
        .build();
    let done = simulate(&plan, &CostModel::free());
    check(&done, END);
    let guest = &done.outcome.guests[0];
    assert!((480..=520).contains(&guest.requests), "{}", guest.requests);
    assert_eq!(
        guest
            .request_hist
            .iter()
            .map(|n| u64::from(*n))
            .sum::<u64>(),
        guest.requests
    );
    assert!(
        (11_000_000..11_100_000).contains(&guest.request_max_ns),
        "{}",
        guest.request_max_ns
    );
}
