//! Leaving for good, from every state.

use super::{A, B, CORE, Desk, Manner, arm, cancel, park, run};
use crate::event::EventKind;
use crate::input::{BlockOn, Input, RetireReason, Timer};
use crate::testing::ms;
use crate::time::Nanos;

const GONE: EventKind = EventKind::Retired(RetireReason::Fault);

#[test]
fn from_a_core_which_goes_to_the_next() {
    let mut desk = Desk::running(2, Manner::default());
    let slice = Timer::Slice(CORE);
    assert_eq!(desk.retire(ms(3), A), [cancel(slice), park(A), run(B)]);
    assert!(desk.said(GONE));
    let told = desk.told();
    assert!(
        told.ends_with(&["charge vcpu 0 3.00 ms".into(), "retire vcpu 0".into()]),
        "{told:?}"
    );
}

#[test]
fn on_the_way_to_a_core_which_goes_to_the_next() {
    let mut desk = Desk::new(2, Manner::default());
    desk.tell(Nanos::ZERO, Input::Admit { vcpu: A });
    desk.tell(Nanos::ZERO, Input::Admit { vcpu: B });
    assert_eq!(desk.retire(ms(1), A), [park(A), run(B)]);
    assert_eq!(desk.enter(ms(2), A), [], "too late");
    assert_eq!(desk.dispatcher.on_core(CORE), Some(B));
}

#[test]
fn from_the_run_queue() {
    let mut desk = Desk::running(2, Manner::default());
    assert_eq!(desk.retire(ms(3), B), []);
    let told = desk.told();
    let told: Vec<_> = told.iter().rev().take(2).collect();
    assert_eq!(told, ["retire waiting vcpu 1", "remove vcpu 1"]);
    assert_eq!(desk.dispatcher.ready(), 0);
    let slice = Timer::Slice(CORE);
    assert_eq!(desk.due(ms(10), slice), [arm(slice, ms(20))], "A is alone");
}

#[test]
fn from_a_sleep_with_its_timers() {
    let mut desk = Desk::running(1, Manner::default());
    let (vcpu, period, vector) = (A, ms(4), 50);
    desk.tell(
        ms(1),
        Input::ArmPeriodic {
            vcpu,
            period,
            vector,
        },
    );
    desk.tell(
        ms(1),
        Input::Block {
            vcpu,
            on: BlockOn::Sleep(ms(9)),
        },
    );
    let timers = [cancel(Timer::Wake(A)), cancel(Timer::Periodic(A))];
    assert_eq!(desk.retire(ms(2), A), timers);
    assert_eq!(
        desk.told().last().map(String::as_str),
        Some("retire waiting vcpu 0")
    );
    for timer in [Timer::Wake(A), Timer::Periodic(A)] {
        assert_eq!(desk.due(ms(9), timer), []);
    }
}

#[test]
fn before_it_was_admitted() {
    let mut desk = Desk::new(2, Manner::default());
    assert_eq!(desk.retire(ms(1), A), []);
    assert_eq!(desk.tell(ms(2), Input::Admit { vcpu: A }), []);
    assert_eq!(desk.dispatcher.ready(), 0);
    assert!(desk.told().is_empty());
}

#[test]
fn once_only() {
    let mut desk = Desk::running(1, Manner::default());
    desk.retire(ms(1), A);
    assert_eq!(desk.retire(ms(2), A), []);
    assert!(desk.out.events.is_empty());
}

#[test]
fn with_a_kick_on_its_way() {
    let mut desk = Desk::running(2, Manner::default());
    desk.due(ms(10), Timer::Slice(CORE));
    assert_eq!(desk.retire(ms(10), A), [park(A), run(B)]);
    assert_eq!(desk.stopped(ms(11), A), []);
    desk.enter(ms(11), B);
    assert_eq!(desk.stopped(ms(12), B), [], "the kick was A's");
}
