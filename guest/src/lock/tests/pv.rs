//! Paravirtual locks: who halts, who is kicked, and when a comer may steal.

use super::model::{Next, Vm};
use crate::lock::{Kind, Want};
use core::sync::atomic::Ordering;

#[test]
fn a_paravirtual_lock_is_stolen_only_while_nobody_spins_as_the_first_of_its_queue() {
    let mut vm = Vm::new(&[Kind::Pv], 4);
    vm.own.locks[0].size.store(1_000, Ordering::Relaxed);
    let _ = vm.operate(0, Want::Take, 0);
    vm.begin(1, Want::Take, 0);
    assert!(matches!(vm.go_on_in_time(1), Next::Look(_)), "it spins");
    let _ = vm.operate(0, Want::Release, 0);
    vm.begin(2, Want::Take, 0);
    assert_ne!(vm.go_on_in_time(2), Next::Idle, "no stealing");
    assert_eq!(vm.memory().owner(0), Some(1), "it is the first one's");
    assert_eq!(vm.go_on_in_time(1), Next::Idle);
    // The first halts: until it is kicked, a comer may steal.
    assert_eq!(vm.go_on(2), Next::Sleep);
    assert_eq!(vm.operate(1, Want::Release, 0), Next::Idle);
    assert_eq!(vm.operate(3, Want::Take, 0), Next::Idle, "stolen");
}

#[test]
fn a_halted_first_of_the_queue_is_kicked_once_at_the_release() {
    let mut vm = Vm::new(&[Kind::Pv], 3);
    vm.own.locks[0].size.store(1_000, Ordering::Relaxed);
    let _ = vm.operate(0, Want::Take, 0);
    assert_eq!(
        vm.operate(1, Want::Take, 0),
        Next::Sleep,
        "it spun long enough"
    );
    vm.begin(2, Want::Take, 0);
    assert_eq!(vm.go_on_in_time(2), Next::Sleep, "behind one that halted");
    assert_eq!(vm.wakes, 0);
    let _ = vm.operate(0, Want::Release, 0);
    assert_eq!((vm.wakes, vm.vcpus[1].woken), (1, true));
    // It takes the lock and makes the next one the first: no kick before it releases.
    assert_eq!(vm.go_on(1), Next::Idle);
    assert_eq!((vm.wakes, vm.vcpus[2].woken), (1, false));
    let _ = vm.operate(1, Want::Release, 0);
    assert_eq!((vm.wakes, vm.go_on(2)), (2, Next::Idle));
    let _ = vm.operate(2, Want::Release, 0);
    assert_eq!(vm.wakes, 2);
}

#[test]
fn a_waiter_behind_one_without_a_core_halts_at_once() {
    let mut vm = Vm::new(&[Kind::Pv], 3);
    vm.own.locks[0].size.store(1_000, Ordering::Relaxed);
    let _ = vm.operate(0, Want::Take, 0);
    for me in [1, 2] {
        vm.begin(me, Want::Take, 0);
        assert!(matches!(vm.go_on_in_time(me), Next::Look(_)));
    }
    vm.set_core(1, false);
    assert_eq!(vm.go_on_in_time(2), Next::Sleep);
    assert!(vm.vcpus[2].spun < 1_000);
}
