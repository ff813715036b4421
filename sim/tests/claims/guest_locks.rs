//! Guest locks: who spins, for how long, and who gets the lock.

use crate::ledger::{check, events};
use crate::plans::{Done, Setup, forever, run, simulate, sleep};
use stealtime_guest::op::{Length, Step};
use stealtime_scheduler::event::EventKind;
use stealtime_scheduler::ids::VcpuId;
use stealtime_scheduler::time::Nanos;
use stealtime_sim::cost::CostModel;
use stealtime_workloads::run::{LockKind, Plan};

const END: Nanos = Nanos::from_secs(1);
const MS: u64 = 1_000_000;

/// A vCPU takes the lock and is preempted in the midst of it; two others come for the lock.
fn preempted_holder(kind: LockKind) -> Plan {
    let comes = |after: u64| [run(after), Step::Lock(0), run(1_000), Step::Unlock(0)];
    Setup::new("rr:quantum=10ms")
        .vm(&[kind])
        .vcpu(&[Step::Lock(0), run(15 * MS), Step::Unlock(0), run(MS)])
        .vcpu(&comes(MS))
        .vcpu(&comes(2 * MS))
        .build()
}

#[test]
fn while_a_holder_is_off_its_core_others_spin_their_quanta_away() {
    for kind in [LockKind::TestAndSet, LockKind::Ticket] {
        let done = simulate(&preempted_holder(kind), &CostModel::free());
        check(&done, END);
        let spun = |vcpu: usize| done.outcome.guests[vcpu].lock_spin_ns;
        // Each comes when it first runs, spins to the end of its quantum, and once more, if its turn
        // comes before the holder's has ended.
        assert!(
            (8 * MS..10 * MS).contains(&spun(1)),
            "{kind:?}: {}",
            spun(1)
        );
        assert!((7 * MS..9 * MS).contains(&spun(2)), "{kind:?}: {}", spun(2));
        assert_eq!(spun(0), 0);
        let taken: Vec<_> = done
            .outcome
            .guests
            .iter()
            .map(|g| g.lock_acquisitions)
            .collect();
        assert_eq!(taken, [1, 1, 1]);
    }
}

#[test]
fn the_dispatcher_knows_who_holds_and_who_waits_when_it_decides() {
    let done = simulate(&preempted_holder(LockKind::Ticket), &CostModel::free());
    let mut known = [(0, false); 3];
    let mut preempted_in_lock = 0;
    let mut preempted_waiting = 0;
    for event in events(&done) {
        let of = &mut known[event.vcpu.index()];
        match event.kind {
            EventKind::Locks {
                held, waits_for, ..
            } => *of = (held, waits_for.is_some()),
            EventKind::Preempted(..) => {
                preempted_in_lock += u32::from(of.0 > 0);
                preempted_waiting += u32::from(of.1);
            }
            _ => {}
        }
    }
    assert_eq!((preempted_in_lock, preempted_waiting), (1, 2));
}

/// The order in which a VM's vCPUs come to hold its only lock, as the dispatcher is told.
fn holders(done: &Done) -> Vec<u32> {
    let mut held = vec![0; done.outcome.guests.len()];
    let mut order = Vec::new();
    for event in events(done) {
        if let EventKind::Locks { held: now, .. } = event.kind {
            let before = std::mem::replace(&mut held[event.vcpu.index()], now);
            if now > before {
                order.push(event.vcpu.0);
            }
        }
    }
    order
}

#[test]
fn a_ticket_lock_is_taken_in_the_order_of_asking_and_stops_at_a_waiter_off_its_core() {
    // vCPU 1 asks first, then 2. On one core 2 can only have it when 1 has had it, although 2 runs
    // before 1 does when the lock is released.
    let done = simulate(&preempted_holder(LockKind::Ticket), &CostModel::free());
    assert_eq!(holders(&done), [0, 1, 2]);
}

#[test]
fn on_three_cores_contenders_lose_only_the_time_of_the_others_sections() {
    let contender = forever(&[Step::Lock(0), run(10_000), Step::Unlock(0), run(1_000)]);
    for kind in [LockKind::TestAndSet, LockKind::Ticket] {
        let plan = Setup::new("rr")
            .cores(3)
            .vm(&[kind])
            .vcpu(&contender)
            .vcpu(&contender)
            .vcpu(&contender)
            .build();
        let done = simulate(&plan, &CostModel::free());
        check(&done, END);
        let all: u64 = done
            .outcome
            .guests
            .iter()
            .map(|g| g.lock_acquisitions)
            .sum();
        // The lock is never free: sections of 10,000 ns and two ops each.
        assert!((99_900..=100_000).contains(&all), "{kind:?}: {all}");
        let each: Vec<_> = done
            .outcome
            .guests
            .iter()
            .map(|g| g.lock_acquisitions)
            .collect();
        let spread = each.iter().max().unwrap_or(&0) - each.iter().min().unwrap_or(&0);
        assert!(spread <= 1, "{kind:?}: {each:?}");
    }
}

#[test]
fn a_test_and_set_lock_is_free_for_a_newcomer_while_the_waiters_are_off_core() {
    // vCPU 0 holds the lock for 12 ms. vCPU 1 comes for it and spins out its quantum. When vCPU 0 is
    // back and has released the lock, it takes it anew at once: vCPU 1 is off core.
    let holder = [
        Step::Lock(0),
        run(12 * MS),
        Step::Unlock(0),
        Step::Lock(0),
        run(1_000),
        Step::Unlock(0),
    ];
    let waiter = [Step::Lock(0), run(1_000), Step::Unlock(0)];
    let spun = |kind| {
        let plan = Setup::new("rr:quantum=10ms")
            .vm(&[kind])
            .vcpu(&holder)
            .vcpu(&waiter);
        let done = simulate(&plan.build(), &CostModel::free());
        check(&done, END);
        done.outcome
            .guests
            .iter()
            .map(|g| g.lock_spin_ns)
            .collect::<Vec<_>>()
    };
    let [holder_spun, waiter_spun] = spun(LockKind::TestAndSet)[..] else {
        panic!("two vCPUs");
    };
    assert_eq!(holder_spun, 0);
    assert!((9 * MS..11 * MS).contains(&waiter_spun), "{waiter_spun}");
    // A ticket lock is vCPU 1's by then, so vCPU 0 has to spin out its quantum.
    assert!(spun(LockKind::Ticket)[0] > 7 * MS);
}

#[test]
fn time_in_critical_sections_is_told_when_something_is_decided() {
    let critical = [
        Step::CriticalEnter,
        run(15 * MS),
        Step::CriticalLeave,
        sleep(MS),
    ];
    let plan = Setup::new("rr:quantum=10ms")
        .vm(&[])
        .vcpu(&critical)
        .vcpu(&[Step::Run(Length::Fixed(40 * MS))])
        .build();
    let done = simulate(&plan, &CostModel::free());
    check(&done, END);
    let depths: Vec<_> = events(&done)
        .filter_map(|event| match event.kind {
            EventKind::Locks { critical, .. } if event.vcpu == VcpuId(0) => Some(critical),
            _ => None,
        })
        .collect();
    assert_eq!(depths, [1, 0]);
}
