//! What holds of every kind of lock, and in which order those that wait get it.

use super::LOCKS;
use super::model::{Moment, Next, Vm, shuffle};
use crate::lock::{Kind, State, Want};

#[test]
fn in_any_order_a_lock_has_one_holder_and_everybody_gets_it_in_the_end() {
    for kind in LOCKS {
        for seed in 0..300 {
            let mut vm = Vm::new(&[kind], 4);
            vm.hand_off = seed % 2 == 1;
            let mut holder = None;
            let program = |_| vec![(Want::Take, 0), (Want::Release, 0)];
            shuffle(&mut vm, seed, 20, program, |vm, me, want, moment| {
                let memory = vm.memory();
                match (want, moment) {
                    (Want::Take, Moment::Over) => {
                        assert_eq!(holder.replace(me), None, "{kind:?}, seed {seed}");
                        assert_eq!(memory.owner(0), Some(me), "{kind:?}, seed {seed}");
                        assert_eq!(memory.seen(me).held, 1, "{kind:?}, seed {seed}");
                    }
                    (Want::Release, Moment::Begins) => {
                        assert_eq!(holder.take(), Some(me), "{kind:?}, seed {seed}");
                    }
                    _ => {}
                }
            });
            for me in 0..4 {
                assert_eq!(vm.memory().seen(me), State::default(), "{kind:?}, {seed}");
            }
        }
    }
}

#[test]
fn locks_held_in_each_other_come_apart_again() {
    for inner in LOCKS {
        for seed in 0..100 {
            let mut vm = Vm::new(&[Kind::Mcs, inner, Kind::Mutex], 3);
            let program = |_| {
                let take = [0, 1, 2].map(|lock| (Want::Take, lock));
                let release = [1, 0, 2].map(|lock| (Want::Release, lock));
                [take, release].concat()
            };
            shuffle(&mut vm, seed, 10, program, |_, _, _, _| {});
        }
    }
}

/// The order in which the rest get a lock that vCPU 0 holds, if they come in order of their numbers.
fn order(vm: &mut Vm) -> Vec<u32> {
    let count = u32::try_from(vm.vcpus.len()).expect("few");
    assert_eq!(vm.operate(0, Want::Take, 0), Next::Idle);
    for me in 1..count {
        assert_ne!(vm.operate(me, Want::Take, 0), Next::Idle);
    }
    let (mut holder, mut order) = (0, Vec::new());
    while order.len() + 1 < vm.vcpus.len() {
        assert_eq!(vm.operate(holder, Want::Release, 0), Next::Idle);
        // The last comer looks first.
        let next = (1..count)
            .rev()
            .find(|me| !order.contains(me) && *me != holder && vm.go_on(*me) == Next::Idle);
        holder = next.expect("somebody gets it");
        order.push(holder);
    }
    order
}

#[test]
fn a_ticket_lock_an_mcs_lock_and_a_hand_off_mutex_go_to_who_came_first() {
    for kind in [Kind::Ticket, Kind::Mcs, Kind::MutexHandOff] {
        assert_eq!(order(&mut Vm::new(&[kind], 4)), [1, 2, 3], "{kind:?}");
    }
    assert_eq!(order(&mut Vm::new(&[Kind::TestAndSet], 4)), [3, 2, 1]);
}

/// A waiter and how it waits.
#[derive(Clone, Copy, Debug)]
struct Waiter {
    want: Want,
    /// How many wait before it.
    before: u32,
    /// It has spun for as long as it meant to, and sleeps.
    halted: bool,
}

/// vCPU 3 waits behind this waiter, which has no core, and the lock is free. The answer is whether the waiter is said
/// to be in line; none if waiters for such a lock only sleep.
fn line_that_stands(kind: Kind, waiter: Waiter) -> Option<(Vm, bool)> {
    let mut vm = Vm::new(&[kind], 5);
    assert_eq!(vm.operate(0, Want::Take, 0), Next::Idle);
    let it = waiter.before + 1;
    for me in (1..=it).chain([3]) {
        let want = if me == it { waiter.want } else { Want::Take };
        vm.begin(me, want, 0);
        let next = vm.go_on_in_time(me);
        if !matches!(next, Next::Look(_)) && !waiter.halted {
            assert_eq!(kind, Kind::MutexHandOff, "it sleeps");
            return None;
        }
        if me == it && waiter.halted {
            assert_eq!(vm.go_on(me), Next::Sleep, "{kind:?}");
        }
    }
    let in_line = vm.memory().in_line(vm.memory().seen(it));
    vm.set_core(it, false);
    for owner in 0..it {
        assert_eq!(vm.operate(owner, Want::Release, 0), Next::Idle);
        assert!(owner + 1 == it || vm.go_on(owner + 1) == Next::Idle);
    }
    Some((vm, in_line))
}

const FIRST: Waiter = Waiter {
    want: Want::Take,
    before: 0,
    halted: false,
};

const SECOND: Waiter = Waiter { before: 1, ..FIRST };

const READER: Waiter = Waiter {
    want: Want::Read,
    ..FIRST
};

const HALTED: Waiter = Waiter {
    halted: true,
    ..FIRST
};

#[test]
fn nobody_behind_a_waiter_in_line_passes_it_and_behind_any_other_everybody_does() {
    let spinners = LOCKS.map(|kind| [(kind, FIRST), (kind, SECOND)]);
    let special = [(Kind::ReadWrite, READER), (Kind::Pv, HALTED)];
    for (kind, waiter) in spinners.into_iter().flatten().chain(special) {
        let Some((mut vm, in_line)) = line_that_stands(kind, waiter) else {
            continue;
        };
        let passes = vm.go_on(3) == Next::Idle;
        assert_eq!(passes, !in_line, "{kind:?}, {waiter:?}");
        assert_eq!(in_line, kind.keeps_places());
    }
}

#[test]
fn a_comer_takes_a_free_lock_before_a_line_unless_it_has_to_queue_or_is_kept_off() {
    let comer_takes = |kind, waiter, want| {
        let (mut vm, _) = line_that_stands(kind, waiter).expect("it spins");
        vm.operate(4, want, 0) == Next::Idle
    };
    for waiter in [FIRST, SECOND] {
        for kind in [Kind::Ticket, Kind::Mcs] {
            assert!(
                !comer_takes(kind, waiter, Want::Take),
                "{kind:?}, {waiter:?}"
            );
        }
        for kind in [Kind::Pv, Kind::ReadWrite] {
            // The first keeps it off, once it has had a core as the first.
            let takes = comer_takes(kind, waiter, Want::Take);
            assert_eq!(takes, waiter.before > 0, "{kind:?}, {waiter:?}");
        }
    }
    assert!(comer_takes(Kind::Pv, HALTED, Want::Take));
    for want in [Want::Read, Want::Take] {
        assert!(comer_takes(Kind::ReadWrite, READER, want), "{want:?}");
    }
}

#[test]
fn a_waiter_to_whom_a_lock_was_handed_is_its_owner_before_it_knows() {
    for kind in [Kind::Ticket, Kind::Mcs, Kind::MutexHandOff] {
        let mut vm = Vm::new(&[kind], 3);
        assert_eq!(vm.operate(0, Want::Take, 0), Next::Idle);
        for me in [1, 2] {
            let _ = vm.operate(me, Want::Take, 0);
            assert_eq!(vm.memory().seen(me).waits_for, Some(0), "{kind:?}");
        }
        assert_eq!(vm.memory().owner(0), Some(0), "{kind:?}");
        let _ = vm.operate(0, Want::Release, 0);
        let memory = vm.memory();
        assert_eq!(memory.owner(0), Some(1), "{kind:?}");
        assert_eq!((memory.seen(1).held, memory.seen(1).waits_for), (1, None));
        assert_eq!((memory.state(1).held, memory.seen(2).held), (0, 0));
        assert_eq!(vm.go_on(1), Next::Idle);
        assert_eq!(vm.memory().state(1).held, 1, "{kind:?}");
    }
}
