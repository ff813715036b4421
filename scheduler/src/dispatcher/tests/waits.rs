//! Sleeping, halting, waking.

use super::{A, B, CORE, Desk, Manner, arm, cancel, park, run};
use crate::effect::Effect;
use crate::event::{EventKind, Waits, WakeSource};
use crate::ids::VcpuId;
use crate::input::{BlockOn, Input, Timer};
use crate::testing::ms;
use crate::time::Nanos;

const SLICE: Timer = Timer::Slice(CORE);
const WAKE: Timer = Timer::Wake(A);

fn block(vcpu: VcpuId, on: BlockOn) -> Input {
    Input::Block { vcpu, on }
}

fn interrupt(to: VcpuId) -> Input {
    Input::Interrupt {
        to,
        vector: 40,
        from: Some(B),
    }
}

fn inject(vcpu: VcpuId) -> Effect {
    Effect::Inject { vcpu, vector: 40 }
}

#[test]
fn a_sleeper_wakes_when_its_own_timer_is_due_and_not_before() {
    let mut desk = Desk::running(1, Manner::default());
    let asleep = desk.tell(ms(1), block(A, BlockOn::Sleep(ms(5))));
    assert_eq!(asleep, [arm(WAKE, ms(5)), cancel(SLICE), park(A)]);
    assert_eq!(desk.due(ms(4), WAKE), []);
    assert_eq!(desk.due(ms(5), WAKE), [run(A)]);
    assert!(desk.said(EventKind::Woken(WakeSource::Timer)));
    assert_eq!(desk.due(ms(6), WAKE), [], "told twice");
}

#[test]
fn an_interrupt_does_not_end_a_sleep_but_waits() {
    let mut desk = Desk::running(1, Manner::default());
    desk.tell(ms(1), block(A, BlockOn::Sleep(ms(5))));
    assert_eq!(desk.tell(ms(2), interrupt(A)), [inject(A)]);
    assert_eq!(desk.dispatcher.on_core(CORE), None);
}

#[test]
fn an_interrupt_wakes_one_that_halts() {
    let mut desk = Desk::running(1, Manner::default());
    assert_eq!(
        desk.tell(ms(1), block(A, BlockOn::Idle)),
        [cancel(SLICE), park(A)]
    );
    assert_eq!(desk.tell(ms(2), interrupt(A)), [inject(A), run(A)]);
    assert!(desk.said(EventKind::Woken(WakeSource::Interrupt(Some(B)))));
}

#[test]
fn one_with_an_interrupt_waiting_does_not_halt() {
    let mut desk = Desk::running(1, Manner::default());
    assert_eq!(desk.tell(ms(1), interrupt(A)), [inject(A)]);
    assert_eq!(desk.tell(ms(1), block(A, BlockOn::Idle)), []);
    assert_eq!(desk.dispatcher.on_core(CORE), Some(A));
    desk.tell(
        ms(2),
        Input::InterruptsTaken {
            vcpu: A,
            at: ms(2),
            more: false,
        },
    );
    assert_eq!(
        desk.tell(ms(2), block(A, BlockOn::Idle)),
        [cancel(SLICE), park(A)]
    );
}

#[test]
fn an_interrupt_is_handled_after_it_was_raised_and_before_it_is_told_whatever_the_guests_clock_says()
 {
    let taken = |at, more| Input::InterruptsTaken { vcpu: A, at, more };
    let handled = |desk: &Desk, at| desk.said(EventKind::InterruptsTaken { at });
    let mut desk = Desk::running(1, Manner::default());
    desk.tell(ms(3), interrupt(A));
    desk.tell(ms(4), interrupt(A));
    desk.tell(ms(6), taken(ms(2), true));
    assert!(handled(&desk, ms(3)));
    desk.tell(ms(7), taken(ms(5), true));
    assert!(handled(&desk, ms(5)));
    desk.tell(ms(8), taken(ms(2), false));
    assert!(handled(&desk, ms(5)));
    desk.tell(ms(9), interrupt(A));
    desk.tell(ms(9), taken(ms(10), false));
    assert!(handled(&desk, ms(9)));
    desk.tell(ms(11), interrupt(A));
    desk.tell(ms(12), taken(ms(8), false));
    assert!(handled(&desk, ms(11)));
}

#[test]
fn a_wait_that_is_over_already_does_not_block() {
    let mut desk = Desk::running(1, Manner::default());
    for on in [BlockOn::Sleep(ms(2)), BlockOn::Host(ms(1))] {
        assert_eq!(desk.tell(ms(2), block(A, on)), []);
    }
    assert_eq!(desk.dispatcher.on_core(CORE), Some(A));
}

#[test]
fn one_that_is_on_no_core_cannot_begin_to_wait() {
    let mut desk = Desk::running(2, Manner::default());
    assert_eq!(desk.tell(ms(1), block(B, BlockOn::Sleep(ms(5)))), []);
    assert_eq!(desk.dispatcher.ready(), 1);
    assert_eq!(desk.due(ms(5), Timer::Wake(B)), []);
}

#[test]
fn an_interrupt_at_nobody_is_lost_without_harm() {
    let mut desk = Desk::running(1, Manner::default());
    assert_eq!(desk.tell(ms(1), interrupt(VcpuId(77))), []);
    desk.retire(ms(1), A);
    assert_eq!(desk.tell(ms(2), interrupt(A)), []);
    let mut unborn = Desk::new(1, Manner::default());
    assert_eq!(unborn.tell(ms(2), interrupt(A)), []);
}

#[test]
fn a_periodic_timer_keeps_its_phase_and_can_be_disarmed() {
    let mut desk = Desk::running(1, Manner::default());
    let (vcpu, vector, timer) = (A, 50, Timer::Periodic(A));
    let period = |period| Input::ArmPeriodic {
        vcpu,
        period,
        vector,
    };
    assert_eq!(desk.tell(ms(2), period(ms(4))), [arm(timer, ms(6))]);
    // Told 5 ms late: one period was missed, the phase stays.
    let late = desk.due(ms(11), timer);
    assert_eq!(late, [arm(timer, ms(14)), Effect::Inject { vcpu, vector }]);
    assert_eq!(desk.tell(ms(12), period(Nanos::ZERO)), [cancel(timer)]);
    assert_eq!(desk.due(ms(14), timer), []);
}

#[test]
fn a_wait_in_the_hypervisor_is_told_as_such() {
    let mut desk = Desk::running(1, Manner::default());
    desk.tell(ms(1), block(A, BlockOn::Host(ms(9))));
    assert!(desk.said(EventKind::Blocked(Waits::Host)));
    assert_eq!(desk.due(ms(9), WAKE), [run(A)]);
}
