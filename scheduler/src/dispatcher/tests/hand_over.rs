//! Cores change hands: grants, kicks, slices, clocks.

use super::{A, B, CORE, Desk, Manner, arm, cancel, kick, park, run};
use crate::dispatcher::{Config, ConfigError, Dispatcher};
use crate::effect::Effect;
use crate::event::{EventKind, PreemptReason, Until};
use crate::ids::{CoreId, VcpuId};
use crate::input::{BlockOn, Input, Timer};
use crate::policy::{Preempt, Slice};
use crate::testing::{ms, plain};
use crate::time::Nanos;

const SLICE: Timer = Timer::Slice(CORE);

#[test]
fn an_idle_core_is_granted_at_once_and_the_slice_begins_on_arrival() {
    let mut desk = Desk::new(2, Manner::default());
    assert_eq!(desk.tell(Nanos::ZERO, Input::Admit { vcpu: A }), [run(A)]);
    assert_eq!(desk.tell(ms(1), Input::Admit { vcpu: B }), []);
    assert_eq!(desk.enter(ms(2), A), [arm(SLICE, ms(12))]);
    assert_eq!(desk.dispatcher.on_core(CORE), Some(A));
    assert_eq!(desk.dispatcher.ready(), 1);
}

#[test]
fn nobody_gets_a_core_before_the_one_on_it_has_stopped() {
    let mut desk = Desk::running(2, Manner::default());
    assert_eq!(desk.due(ms(10), SLICE), [kick(A)]);
    assert_eq!(desk.dispatcher.on_core(CORE), Some(A));
    assert_eq!(desk.stopped(ms(11), A), [park(A), run(B)]);
    assert_eq!(desk.dispatcher.on_core(CORE), Some(B));
    let told = desk.told();
    assert!(
        told.contains(&"charge vcpu 0 10.0 ms".to_owned()),
        "{told:?}"
    );
    assert!(
        told.contains(&"charge vcpu 0 1.00 ms".to_owned()),
        "{told:?}"
    );
}

#[test]
fn one_that_is_picked_again_is_not_parked() {
    let mut desk = Desk::running(1, Manner::default());
    assert_eq!(
        desk.tell(ms(3), Input::Yield { vcpu: A }),
        [cancel(SLICE), run(A)]
    );
}

#[test]
fn a_core_is_asked_back_once() {
    let manner = Manner {
        preempts: Preempt::Kick,
        ..Manner::default()
    };
    let mut desk = Desk::running(1, manner);
    let kicks = |effects: Vec<Effect>| effects.iter().filter(|e| **e == kick(A)).count();
    assert_eq!(kicks(desk.due(ms(100), Timer::Period)), 1);
    assert_eq!(kicks(desk.due(ms(200), Timer::Period)), 0);
    assert_eq!(kicks(desk.stopped(ms(201), A)), 0);
}

#[test]
fn a_kick_that_is_overtaken_by_a_block_counts_for_nothing() {
    let mut desk = Desk::running(2, Manner::default());
    assert_eq!(desk.due(ms(10), SLICE), [kick(A)]);
    let on = BlockOn::Idle;
    assert_eq!(
        desk.tell(ms(10), Input::Block { vcpu: A, on }),
        [park(A), run(B)]
    );
    // The late acknowledgement finds A asleep and B on the core.
    assert_eq!(desk.stopped(ms(10), A), []);
    assert_eq!(desk.dispatcher.on_core(CORE), Some(B));
    desk.enter(ms(10), B);
    assert_eq!(desk.stopped(ms(11), B), [], "nobody asked B for the core");
}

#[test]
fn one_on_its_way_to_the_core_can_be_stopped() {
    let mut desk = Desk::new(2, Manner::default());
    desk.tell(Nanos::ZERO, Input::Admit { vcpu: A });
    desk.tell(Nanos::ZERO, Input::Admit { vcpu: B });
    assert_eq!(desk.due(ms(100), Timer::Period), [kick(A)]);
    assert_eq!(desk.stopped(ms(100), A), [park(A), run(B)]);
    assert!(desk.told().iter().all(|call| !call.starts_with("charge")));
}

#[test]
fn an_acknowledgement_from_another_core_counts_for_nothing() {
    let mut desk = Desk::on_cores(2, 3, Manner::default());
    for vcpu in 0..3 {
        desk.tell(Nanos::ZERO, Input::Admit { vcpu: VcpuId(vcpu) });
    }
    desk.enter(Nanos::ZERO, A);
    assert_eq!(desk.due(ms(10), SLICE), [kick(A)]);
    let wrong = Input::Stopped {
        core: CoreId(1),
        vcpu: A,
    };
    assert_eq!(desk.tell(ms(10), wrong), []);
    assert_eq!(desk.dispatcher.on_core(CORE), Some(A));
}

#[test]
fn a_slice_timer_that_is_early_or_cancelled_counts_for_nothing() {
    let mut desk = Desk::running(2, Manner::default());
    assert_eq!(desk.due(ms(9), SLICE), []);
    assert_eq!(desk.due(ms(10), SLICE), [kick(A)]);
    assert_eq!(desk.due(ms(10), SLICE), [], "told twice");
    desk.stopped(ms(10), A);
    assert_eq!(desk.due(ms(30), SLICE), [], "B has not arrived");
}

#[test]
fn one_alone_goes_on_for_another_slice() {
    let mut desk = Desk::running(1, Manner::default());
    assert_eq!(desk.due(ms(10), SLICE), [arm(SLICE, ms(20))]);
}

#[test]
fn an_open_slice_arms_no_timer() {
    let manner = Manner {
        slice: Slice::Open,
        ..Manner::default()
    };
    let mut desk = Desk::new(1, manner);
    desk.tell(Nanos::ZERO, Input::Admit { vcpu: A });
    assert_eq!(desk.enter(Nanos::ZERO, A), []);
}

#[test]
fn a_deferred_preemption_is_carried_out_at_its_moment() {
    for (until, moment) in [
        (Until::CriticalExit, Input::CriticalLeft { vcpu: A }),
        (Until::UserReturn, Input::UserReturn { vcpu: A }),
    ] {
        let manner = Manner {
            preempts: Preempt::Defer(until),
            ..Manner::default()
        };
        let mut desk = Desk::running(2, manner);
        let owed = Effect::Owe {
            core: CORE,
            vcpu: A,
        };
        desk.tell(ms(1), Input::Yield { vcpu: A });
        desk.enter(ms(1), B);
        desk.tell(
            ms(2),
            Input::Block {
                vcpu: B,
                on: BlockOn::Idle,
            },
        );
        desk.enter(ms(2), A);
        let wake = Input::Interrupt {
            to: B,
            vector: 32,
            from: None,
        };
        let effects = desk.tell(ms(3), wake);
        assert_eq!(effects.contains(&owed), until == Until::CriticalExit);
        assert!(!effects.contains(&kick(A)));
        assert!(desk.said(EventKind::Owed(CORE, PreemptReason::Wakeup, until)));
        assert_eq!(desk.tell(ms(4), moment), [kick(A)]);
    }
}

#[test]
fn a_preemption_that_waits_for_the_guest_is_carried_out_when_a_granted_one_enters_it() {
    let until = Until::GuestEntry;
    let manner = Manner {
        preempts: Preempt::Defer(until),
        ..Manner::default()
    };
    let mut desk = Desk::running(2, manner);
    desk.tell(ms(1), Input::Yield { vcpu: A });
    desk.enter(ms(1), B);
    let on = BlockOn::Idle;
    assert!(
        desk.tell(ms(2), Input::Block { vcpu: B, on })
            .contains(&run(A))
    );
    // B wakes when A has the core already and is not in its guest yet.
    let wake = Input::Interrupt {
        to: B,
        vector: 32,
        from: None,
    };
    assert!(!desk.tell(ms(3), wake).contains(&kick(A)));
    assert!(desk.said(EventKind::Owed(CORE, PreemptReason::Wakeup, until)));
    assert!(desk.enter(ms(4), A).contains(&kick(A)));
}

#[test]
fn ticks_keep_their_phase_and_stop_when_all_cores_are_idle() {
    let mut desk = Desk::new(1, Manner::default());
    desk.tell(ms(3), Input::Admit { vcpu: A });
    assert!(desk.out.effects.contains(&arm(Timer::Tick, ms(10))));
    desk.enter(ms(3), A);
    // Told late, the next one comes where it belongs.
    desk.due(ms(17), Timer::Tick);
    assert!(desk.out.effects.contains(&arm(Timer::Tick, ms(20))));
    assert!(desk.told().contains(&"tick vcpu 0 at 17.0 ms".to_owned()));
    desk.tell(
        ms(18),
        Input::Block {
            vcpu: A,
            on: BlockOn::Idle,
        },
    );
    desk.due(ms(20), Timer::Tick);
    assert!(
        !desk
            .out
            .effects
            .iter()
            .any(|e| matches!(e, Effect::Arm { .. }))
    );
}

#[test]
fn all_on_cores_are_charged_before_the_period_is_told() {
    let mut desk = Desk::running(1, Manner::default());
    desk.told();
    desk.due(ms(100), Timer::Period);
    assert_eq!(desk.told(), ["charge vcpu 0 100 ms", "period at 100 ms"]);
}

#[test]
fn a_time_before_the_last_input_is_taken_as_that() {
    let mut desk = Desk::running(1, Manner::default());
    desk.due(ms(10), SLICE);
    desk.tell(ms(4), Input::Yield { vcpu: A });
    assert!(desk.out.events.iter().all(|event| event.at == ms(10)));
}

#[test]
fn a_run_needs_cores_and_vcpus_and_a_policy_that_exists() {
    let config = |policy: &str, cores, vcpus| Config {
        policy: policy.parse().expect("well formed"),
        cores,
        host_locks: 0,
        vcpus: (0..vcpus).map(plain).collect(),
    };
    let error = |config: Config| Dispatcher::new(&config).map(|_| ()).expect_err("no run");
    assert_eq!(error(config("rr", 0, 1)), ConfigError::None("core"));
    assert_eq!(error(config("rr", 1, 0)), ConfigError::None("vCPU"));
    let unknown = error(config("no-such", 1, 1)).to_string();
    assert!(
        unknown.contains("no-such") && unknown.contains("fss"),
        "{unknown}"
    );
    let option = error(config("rr:quantun=1ms", 1, 1)).to_string();
    assert!(
        option.contains("quantun") && option.contains("quantum"),
        "{option}"
    );
}
