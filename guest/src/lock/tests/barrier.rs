//! Barriers: nobody passes before all have come.

use super::model::{Moment, Vm, shuffle};
use crate::lock::{Kind, Want};
use core::sync::atomic::Ordering;

#[test]
fn in_any_order_a_barrier_lets_all_pass_together_round_after_round() {
    for seed in 0..300 {
        let mut vm = Vm::new(&[Kind::Barrier], 4);
        vm.own.locks[0].size.store(4, Ordering::Relaxed);
        let (mut come, mut gone) = (0, 0);
        shuffle(
            &mut vm,
            seed,
            20,
            |_| vec![(Want::Meet, 0)],
            |_, _, _, moment| match moment {
                Moment::Begins => come += 1,
                Moment::Over => {
                    gone += 1;
                    assert!((gone + 3) / 4 * 4 <= come, "seed {seed}: {gone} of {come}");
                }
            },
        );
        assert_eq!((come, gone), (80, 80));
    }
}
