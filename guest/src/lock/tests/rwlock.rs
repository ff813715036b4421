//! Reader-writer locks: readers share, writers do not, and neither starves.

use super::model::{Moment, Next, Vm, shuffle};
use crate::lock::{Kind, Want};

#[test]
fn readers_share_a_lock_and_a_waiting_writer_keeps_new_ones_off() {
    let mut vm = Vm::new(&[Kind::ReadWrite], 5);
    for me in [0, 1] {
        assert_eq!(vm.operate(me, Want::Read, 0), Next::Idle);
        assert_eq!(vm.memory().seen(me).held, 1);
    }
    assert_eq!(vm.memory().owner(0), None, "readers are not known");
    assert_ne!(vm.operate(2, Want::Take, 0), Next::Idle);
    assert_ne!(
        vm.operate(3, Want::Read, 0),
        Next::Idle,
        "behind the writer"
    );
    let _ = vm.operate(0, Want::Release, 0);
    assert_ne!(vm.go_on(2), Next::Idle, "one reader is left");
    let _ = vm.operate(1, Want::Release, 0);
    assert_eq!(vm.go_on(2), Next::Idle);
    assert_eq!(vm.memory().owner(0), Some(2));
    assert_ne!(vm.go_on(3), Next::Idle);
    let _ = vm.operate(2, Want::Release, 0);
    assert_eq!(vm.go_on(3), Next::Idle);
    assert_eq!(vm.operate(4, Want::Read, 0), Next::Idle);
}

#[test]
fn in_any_order_readers_and_writers_exclude_each_other() {
    for seed in 0..300 {
        let mut vm = Vm::new(&[Kind::ReadWrite], 5);
        let take = |me| if me < 3 { Want::Read } else { Want::Take };
        let program = |me| vec![(take(me), 0), (Want::Release, 0)];
        let mut inside = 0;
        shuffle(&mut vm, seed, 20, program, |_, me, want, moment| {
            let weight = if me < 3 { 1 } else { 100 };
            match (want, moment) {
                (Want::Read | Want::Take, Moment::Over) => {
                    assert!(inside == 0 || (me < 3 && inside < 100), "seed {seed}");
                    inside += weight;
                }
                (Want::Release, Moment::Begins) => inside -= weight,
                _ => {}
            }
        });
    }
}
