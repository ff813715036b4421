//! Channels: what goes in comes out, and who waits does so without the mutex.

use super::model::{Moment, Next, Vm, shuffle};
use crate::lock::{Kind, Step, Want};
use core::sync::atomic::Ordering;

#[test]
fn in_any_order_what_goes_into_a_channel_comes_out_of_it() {
    for guard in [Kind::Mutex, Kind::MutexHandOff] {
        for seed in 0..300 {
            let mut vm = Vm::new(&[Kind::Channel, guard], 5);
            // Two that send three messages a round, three that receive two.
            let program = |me| match me {
                0 | 1 => vec![(Want::Send, 0); 3],
                _ => vec![(Want::Receive, 0); 2],
            };
            let mut inside = 0i32;
            shuffle(&mut vm, seed, 10, program, |_, _, want, moment| {
                if moment == Moment::Over {
                    inside += if want == Want::Send { 1 } else { -1 };
                }
            });
            assert_eq!(inside, 0);
            assert_eq!(vm.own.locks[0].count.load(Ordering::Relaxed), 0);
        }
    }
}

#[test]
fn who_waits_for_the_other_end_of_a_channel_sleeps_without_its_mutex() {
    let mut vm = Vm::new(&[Kind::Channel, Kind::Mutex], 2);
    assert_eq!(vm.operate(0, Want::Receive, 0), Next::Sleep);
    assert_eq!(
        (vm.memory().seen(0).waits_for, vm.memory().seen(0).held),
        (Some(0), 0)
    );
    assert_eq!((vm.memory().owner(0), vm.memory().owner(1)), (None, None));
    // The first message wakes the receiver; two fit, the third has to wait.
    assert_eq!(vm.operate(1, Want::Send, 0), Next::Idle);
    assert_eq!(vm.wakes, 1);
    assert_eq!(vm.operate(1, Want::Send, 0), Next::Idle);
    assert_eq!(vm.operate(1, Want::Send, 0), Next::Sleep);
    assert_eq!(vm.go_on(0), Next::Idle);
    assert_eq!((vm.wakes, vm.go_on(1)), (2, Next::Idle));
}

#[test]
fn a_message_is_copied_with_the_mutex_held_and_a_wait_copies_nothing() {
    let mut vm = Vm::new(&[Kind::Channel, Kind::Mutex], 2);
    vm.own.locks[0].copy_ns.store(300, Ordering::Relaxed);
    vm.begin(0, Want::Receive, 0);
    while vm.may_step(0) {
        assert_ne!(vm.step(0), Step::Work(300));
    }
    vm.begin(1, Want::Send, 0);
    while vm.step(1) != Step::Work(300) {}
    assert_eq!(
        (vm.memory().owner(1), vm.memory().seen(1).held),
        (Some(1), 1)
    );
    assert_eq!(vm.go_on(1), Next::Idle);
}
