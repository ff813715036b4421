//! Ticket locks whose waiters lose their cores: native ones wait, preemptable ones lose patience.

use super::model::{Next, Vm};
use crate::lock::{Kind, Want};
use core::sync::atomic::Ordering;

#[test]
fn patience_with_a_preempted_waiter_ends_after_a_unit_for_each_one_before() {
    let mut vm = Vm::new(&[Kind::PreemptableTicket], 4);
    vm.own.locks[0].size.store(1_000, Ordering::Relaxed);
    let _ = vm.operate(0, Want::Take, 0);
    let until = |next| match next {
        Next::Look(spin) => spin.until,
        other => panic!("{other:?}"),
    };
    for me in 1..4 {
        vm.begin(me, Want::Take, 0);
        let patience = until(vm.go_on_in_time(me));
        assert_eq!(patience, Some(1_000 * u64::from(me)));
    }
    // vCPU 1, whose turn comes, has no core. Of the others, 2 has one before it from now on.
    vm.set_core(1, false);
    vm.vcpus[2].spun = 500;
    let _ = vm.operate(0, Want::Release, 0);
    assert_eq!(until(vm.go_on_in_time(2)), Some(1_500));
    assert_eq!(until(vm.go_on_in_time(3)), Some(2_000));
    assert_eq!(vm.go_on(2), Next::Idle, "it takes the lock out of its turn");
    assert_eq!(vm.vcpus[2].spun, 1_500);
    // vCPU 1 is back, waits for the owner only, and is not passed over a second time.
    vm.set_core(1, true);
    assert_eq!(until(vm.go_on(1)), None);
    let _ = vm.operate(2, Want::Release, 0);
    assert_eq!(vm.go_on(1), Next::Idle);
}

#[test]
fn a_native_ticket_lock_waits_for_the_preempted_one() {
    let mut vm = Vm::new(&[Kind::Ticket], 3);
    for me in 0..3 {
        let _ = vm.operate(me, Want::Take, 0);
    }
    vm.set_core(1, false);
    let _ = vm.operate(0, Want::Release, 0);
    assert!(matches!(vm.go_on(2), Next::Look(_)));
    vm.set_core(1, true);
    assert_eq!(vm.go_on(1), Next::Idle);
}
