//! A policy that breaks a rule is named, and the run goes on.

use super::{A, B, CORE, Desk, Fault, Manner, park, run};
use crate::dispatcher::{Dispatcher, Violation};
use crate::event::EventKind;
use crate::input::{Input, Timer};
use crate::testing::{Script, Step, World, first_then, ms, plain, repeat, secs, us};
use crate::time::Nanos;

fn broken(fault: Fault) -> Manner {
    Manner {
        fault: Some(fault),
        ..Manner::default()
    }
}

/// A and B take turns whatever the policy does; the rule that it broke.
fn turns_under(fault: Fault) -> Violation {
    let mut desk = Desk::running(2, broken(fault));
    for turn in 1..11 {
        let (on, next) = if turn % 2 == 1 { (A, B) } else { (B, A) };
        let effects = desk.tell(ms(turn), Input::Yield { vcpu: on });
        assert!(
            effects.ends_with(&[park(on), run(next)]),
            "{fault:?}: {effects:?}"
        );
        desk.enter(ms(turn), next);
    }
    let report = desk
        .dispatcher
        .violations()
        .first()
        .expect("it is reported");
    assert_eq!(report.policy, "rr");
    assert!(report.dump.contains("vcpu 0"), "{}", report.dump);
    assert!(report.dump.contains("core 0"), "{}", report.dump);
    assert!(desk.dispatcher.violation_count() >= 10);
    assert!(
        desk.dispatcher.violations().len() <= 8,
        "the first ones are kept"
    );
    report.violation
}

#[test]
fn one_that_picks_a_vcpu_twice() {
    let mut desk = Desk::on_cores(2, 2, broken(Fault::PicksTheSameAgain));
    assert_eq!(desk.tell(Nanos::ZERO, Input::Admit { vcpu: A }), [run(A)]);
    // A is on core 0 and still on the queue of the policy, which picks it for core 1.
    let core = crate::ids::CoreId(1);
    let effects = desk.tell(Nanos::ZERO, Input::Admit { vcpu: B });
    assert_eq!(effects, [crate::effect::Effect::Run { core, vcpu: B }]);
    let report = &desk.dispatcher.violations()[0];
    assert_eq!(report.violation, Violation::PickedNotReady);
}

#[test]
fn one_that_picks_a_vcpu_that_is_not() {
    assert_eq!(
        turns_under(Fault::PicksOneThatIsNot),
        Violation::PickedNotReady
    );
}

#[test]
fn one_that_leaves_a_core_idle() {
    assert_eq!(turns_under(Fault::StaysIdle), Violation::IdleWhileReady);
}

#[test]
fn one_that_places_a_vcpu_nowhere() {
    assert_eq!(turns_under(Fault::PlacesNowhere), Violation::NoSuchCore);
}

#[test]
fn one_that_gives_no_slice() {
    assert_eq!(turns_under(Fault::GivesNoSlice), Violation::EmptySlice);
    // Time goes on in steps of a length that can be borne.
    let mut desk = Desk::running(1, broken(Fault::GivesNoSlice));
    let slice = Timer::Slice(CORE);
    assert_eq!(desk.due(ms(10), slice), [super::arm(slice, ms(20))]);
}

#[test]
fn books_that_do_not_agree() {
    let mut desk = Desk::running(2, Manner::default());
    desk.dispatcher.cores[CORE.index()].charged += Nanos(1);
    desk.tell(ms(1), Input::Yield { vcpu: A });
    assert!(desk.said(EventKind::Violation(Violation::ChargeMismatch as u16)));
}

/// Scripts in which everything happens.
fn busy() -> Vec<(crate::policy::VcpuParams, Script)> {
    use super::LOCK;
    use crate::input::KernelPriority::{Asked, NotAsked};
    let working = |run: u64, sleep: u64| repeat(&[Step::Run(us(run)), Step::Sleep(us(sleep))]);
    let locking = |priority| {
        repeat(&[
            Step::Run(us(300)),
            Step::Lock(LOCK, priority),
            Step::HostWait(us(700)),
            Step::Run(us(90)),
            Step::Unlock(LOCK),
            Step::UserReturn,
        ])
    };
    let halting = first_then(&[Step::Run(us(10))], &[Step::Halt, Step::Run(us(333))]);
    let waking = repeat(&[
        Step::Run(us(470)),
        Step::Interrupt(crate::ids::VcpuId(4)),
        Step::Yield,
    ]);
    let ending = first_then(&[Step::Run(ms(40)), Step::Retire], &[Step::Halt]);
    let scripts = [
        working(900, 400),
        working(2_500, 10_000),
        locking(Asked),
        locking(NotAsked),
        halting,
        waking,
        ending,
    ];
    (0..)
        .zip(scripts)
        .map(|(vm, script)| (plain(vm), script))
        .collect()
}

#[test]
fn a_recorded_run_replayed_gives_the_same_effects_and_events() {
    for info in crate::registry::POLICIES {
        for cores in [1, 3] {
            let mut world = World::new(info.name, cores, busy());
            world.run_until(secs(1));
            let config = World::config(info.name, cores, &busy());
            let mut fresh = Dispatcher::new(&config).expect("understood");
            let mut out = crate::dispatcher::Output::default();
            for (at, input) in &world.inputs {
                fresh.handle(*at, *input, &mut out);
            }
            assert!(world.inputs.len() > 1_000, "{}", info.name);
            assert_eq!(out.effects, world.effects, "{}", info.name);
            assert_eq!(out.events, world.events, "{}", info.name);
            assert_eq!(
                fresh.violation_count(),
                0,
                "{}: {:?}",
                info.name,
                fresh.violations()
            );
        }
    }
}

#[test]
fn a_broken_policy_cannot_stop_a_whole_run() {
    for fault in [
        Fault::PicksTheSameAgain,
        Fault::PicksOneThatIsNot,
        Fault::StaysIdle,
        Fault::PlacesNowhere,
        Fault::GivesNoSlice,
    ] {
        let spy = super::Spy {
            manner: broken(fault),
            queue: std::collections::VecDeque::new(),
            told: std::sync::Arc::default(),
        };
        let mut world = World::with_policy(Box::new(spy), 2, busy());
        world.run_until(secs(1));
        for vcpu in world.ids() {
            assert!(world.ran(vcpu.0) > ms(1), "{fault:?}: {vcpu}");
        }
        assert!(world.dispatcher.violation_count() > 0, "{fault:?}");
    }
}
