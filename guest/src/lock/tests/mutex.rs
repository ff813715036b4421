//! Mutexes: who spins, who sleeps, and to whom they are handed on.

use super::model::{Moment, Next, Vm, shuffle};
use crate::lock::sleepers::{self, For};
use crate::lock::{Kind, PASSED_OVER, Spin, Want};
use core::sync::atomic::Ordering;

#[test]
fn a_mutex_is_spun_for_while_its_owner_runs_and_slept_for_when_it_does_not() {
    let mut vm = Vm::new(&[Kind::Mutex], 3);
    let _ = vm.operate(0, Want::Take, 0);
    let watches = |vcpu| {
        Next::Look(Spin {
            until: None,
            while_runs: Some(vcpu),
        })
    };
    assert_eq!(vm.operate(1, Want::Take, 0), watches(0), "the owner runs");
    assert_eq!(vm.operate(2, Want::Take, 0), watches(1), "behind vCPU 1");
    vm.set_core(1, false);
    assert_eq!(vm.go_on(2), Next::Sleep, "the one before it is gone");
    vm.set_core(1, true);
    vm.set_core(0, false);
    assert_eq!(vm.go_on(1), Next::Sleep, "the owner is gone");
    vm.set_core(0, true);
    assert_eq!(vm.operate(0, Want::Release, 0), Next::Idle);
    assert_eq!(
        (vm.wakes, vm.vcpus[2].woken),
        (1, true),
        "the first sleeper"
    );
    // An owner that runs again is not spun for by one that sleeps already: it must be woken.
    assert!(!vm.may_step(1));
}

/// One that comes or spins may be quicker, but all that sleep go on only when this one has.
#[test]
fn the_sleeper_that_is_woken_for_a_mutex_counts_as_the_next_owner_and_as_holding_nothing() {
    let mut vm = Vm::new(&[Kind::Mutex], 4);
    let _ = vm.operate(0, Want::Take, 0);
    vm.set_core(0, false);
    assert_eq!(vm.operate(2, Want::Take, 0), Next::Sleep);
    assert_eq!(vm.operate(1, Want::Take, 0), Next::Sleep);
    vm.set_core(0, true);
    let _ = vm.operate(0, Want::Release, 0);
    assert_eq!(vm.memory().owner(0), Some(2), "it came first");
    let seen = vm.memory().seen(2);
    assert_eq!((seen.held, seen.waits_for), (0, Some(0)));
    assert_eq!(vm.operate(3, Want::Take, 0), Next::Idle, "stolen");
    assert_eq!(vm.memory().owner(0), Some(3));
    let _ = vm.operate(3, Want::Release, 0);
    assert_eq!(vm.go_on(2), Next::Idle);
    assert_eq!(vm.memory().owner(0), Some(2), "it has it");
    let _ = vm.operate(2, Want::Release, 0);
    assert_eq!(vm.go_on(1), Next::Idle);
    let _ = vm.operate(1, Want::Release, 0);
    assert_eq!(vm.memory().owner(0), None, "nobody sleeps");
}

#[test]
fn stealers_win_at_most_until_the_first_sleeper_woke_once_in_vain() {
    let mut vm = Vm::new(&[Kind::Mutex], 3);
    let _ = vm.operate(0, Want::Take, 0);
    vm.set_core(0, false);
    assert_eq!(vm.operate(1, Want::Take, 0), Next::Sleep);
    vm.set_core(0, true);
    let _ = vm.operate(0, Want::Release, 0);
    assert_eq!(vm.operate(2, Want::Take, 0), Next::Idle, "stolen");
    assert!(
        matches!(vm.go_on(1), Next::Look(_)),
        "it asks for a hand-over"
    );
    let _ = vm.operate(2, Want::Release, 0);
    assert_eq!(vm.memory().owner(0), Some(1));
    assert_ne!(vm.operate(2, Want::Take, 0), Next::Idle, "no second time");
    assert_eq!(vm.go_on(1), Next::Idle);
}

#[test]
fn a_mutex_that_is_handed_on_goes_to_who_lends_its_turn_before_who_came_first() {
    for (kind, hand_off) in [(Kind::MutexHandOff, false), (Kind::Mutex, true)] {
        let mut vm = Vm::new(&[kind], 4);
        vm.hand_off = hand_off;
        let _ = vm.operate(0, Want::Take, 0);
        for me in 1..4 {
            assert_eq!(vm.operate(me, Want::Take, 0), Next::Sleep, "nobody spins");
        }
        vm.own.nodes[0].donor.store(2 + 1, Ordering::Relaxed);
        let _ = vm.operate(0, Want::Release, 0);
        assert_eq!(vm.memory().owner(0), Some(2));
        assert_eq!(vm.go_on(2), Next::Idle);
        // Its own donor waits for nothing: the first.
        vm.own.nodes[2].donor.store(1, Ordering::Relaxed);
        let _ = vm.operate(2, Want::Release, 0);
        assert_eq!(vm.memory().owner(0), Some(1));
    }
}

#[test]
fn the_first_sleeper_is_passed_over_so_often_and_then_gets_the_mutex() {
    let mut vm = Vm::new(&[Kind::MutexHandOff], 4);
    let _ = vm.operate(0, Want::Take, 0);
    for me in 1..4 {
        assert_eq!(vm.operate(me, Want::Take, 0), Next::Sleep);
    }
    // vCPUs 0 and 3 lend each other their turns, so that it goes to and fro between them.
    vm.own.nodes[0].donor.store(3 + 1, Ordering::Relaxed);
    vm.own.nodes[3].donor.store(1, Ordering::Relaxed);
    let mut holder = 0;
    for _ in 0..PASSED_OVER {
        let next = 3 - holder;
        let _ = vm.operate(holder, Want::Release, 0);
        assert_eq!(vm.memory().owner(0), Some(next));
        assert_eq!(vm.go_on(next), Next::Idle);
        assert_eq!(vm.operate(holder, Want::Take, 0), Next::Sleep);
        holder = next;
    }
    let _ = vm.operate(holder, Want::Release, 0);
    assert_eq!(vm.memory().owner(0), Some(1));
    assert_eq!(vm.go_on(1), Next::Idle);
    // vCPU 2 is the first now: nobody has passed it over yet.
    let lends = 3 - holder;
    vm.own.nodes[1].donor.store(lends + 1, Ordering::Relaxed);
    let _ = vm.operate(1, Want::Release, 0);
    assert_eq!(vm.memory().owner(0), Some(lends));
}

#[test]
fn in_any_order_no_first_sleeper_is_passed_over_more_often() {
    let first = |vm: &Vm| sleepers::first(vm.memory(), For::Lock(0));
    let mut most = 0;
    for seed in 0..300 {
        let mut vm = Vm::new(&[Kind::MutexHandOff], 5);
        let (mut waits, mut passed) = (None, [0; 5]);
        let program = |_| vec![(Want::Take, 0), (Want::Release, 0)];
        shuffle(&mut vm, seed, 40, program, |vm, me, want, moment| {
            match (want, moment) {
                (Want::Release, Moment::Begins) => {
                    // The last in line lends its turn: the least fair that a host can be.
                    let last = (0..5)
                        .rev()
                        .find(|vcpu| vm.vcpus[*vcpu].next == Next::Sleep);
                    let mark = last.map_or(0, |last| u32::try_from(last).expect("few") + 1);
                    vm.own.nodes[me as usize]
                        .donor
                        .store(mark, Ordering::Relaxed);
                    // Who is still about to sleep may find the mutex free or taken by a comer.
                    waits = first(vm).filter(|first| vm.vcpus[*first as usize].next == Next::Sleep);
                }
                (Want::Take, Moment::Over) => {
                    passed[me as usize] = 0;
                    if let Some(waits) = waits.filter(|waits| *waits != me) {
                        passed[waits as usize] += 1;
                        most = most.max(passed[waits as usize]);
                        assert!(passed[waits as usize] <= PASSED_OVER, "seed {seed}");
                    }
                }
                _ => {}
            }
        });
    }
    assert_eq!(most, PASSED_OVER, "the bound is reached");
}

#[test]
fn a_mutex_without_sleepers_is_taken_and_released_without_waking_anybody() {
    for kind in [Kind::Mutex, Kind::MutexHandOff] {
        let mut vm = Vm::new(&[kind], 2);
        for _ in 0..3 {
            assert_eq!(vm.operate(0, Want::Take, 0), Next::Idle);
            assert_eq!(vm.operate(0, Want::Release, 0), Next::Idle);
        }
        assert_eq!(vm.wakes, 0);
    }
}
