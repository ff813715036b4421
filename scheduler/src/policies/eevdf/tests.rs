//! What the source material says of this policy, one claim a test.

use super::entity::{Entity, Request};
use super::queue::{Features, Queues};
use super::usual_slice;
use crate::dispatcher::{ConfigError, Dispatcher};
use crate::event::EventKind;
use crate::ids::{CoreId, VcpuId};
use crate::policy::VcpuParams;
use crate::testing::{Script, Step, World, first_then, ms, nice, plain, repeat, secs, spin, us};
use crate::time::Nanos;
use proptest::prelude::*;

const CORE: CoreId = CoreId(0);
const SLICE: i64 = 2_800_000;
const MS: i64 = 1_000_000;
const A: VcpuId = VcpuId(0);
const B: VcpuId = VcpuId(1);

const ALL: Features = Features {
    run_to_parity: true,
    delay_dequeue: true,
    place_lag: true,
    preempt_short: true,
};

/// One core with vCPUs of these weights, on no queue.
fn queues(weights: &[i64]) -> Queues {
    let mut queues = Queues::new(1, ALL, us(700), ms(4));
    for weight in weights {
        queues.add(Entity::new(*weight, SLICE));
    }
    queues
}

fn join(queues: &mut Queues, vcpu: VcpuId) {
    queues.place(CORE, vcpu, Request::Whole);
    queues.put(CORE, vcpu);
}

/// The vCPU is picked and runs for so long.
fn run(queues: &mut Queues, vcpu: VcpuId, time: Nanos) {
    queues.take(CORE, vcpu);
    queues.set_current(CORE, vcpu);
    queues.charge(CORE, vcpu, Nanos::ZERO, time);
}

fn lag(queues: &Queues, vcpu: VcpuId) -> i64 {
    queues.average(CORE) - queues.entities[vcpu.index()].virtual_time
}

/// Sleeps for a moment first, so that all start alike: placed as wakers, not as newcomers.
fn late_spin() -> Script {
    first_then(&[Step::Sleep(ms(1))], &[Step::Run(secs(1_000_000))])
}

fn weight(vm: u16, weight: u32) -> VcpuParams {
    VcpuParams {
        weight: Some(weight),
        ..plain(vm)
    }
}

fn with_slice(vm: u16, slice: Nanos) -> VcpuParams {
    VcpuParams {
        slice: Some(slice),
        ..plain(vm)
    }
}

fn near(got: f64, expected: f64, within: f64) -> bool {
    (got - expected).abs() <= within
}

#[test]
fn two_equal_spinners_switch_after_every_slice() {
    let vcpus = vec![(plain(0), late_spin()), (plain(1), late_spin())];
    let mut world = World::new("eevdf:slice=2.8ms", 1, vcpus);
    world.run_until(ms(15));
    let after_sleep = world.switches(0);
    let after_sleep: Vec<_> = after_sleep.iter().filter(|(at, _)| *at >= ms(1)).collect();
    let expected: Vec<_> = (0..6u32)
        .map(|n| (ms(1) + us(2_800 * u64::from(n)), n % 2))
        .collect();
    assert_eq!(after_sleep, expected.iter().collect::<Vec<_>>());
}

#[test]
fn after_a_slice_the_one_on_the_core_is_no_longer_eligible() {
    let mut queues = queues(&[1024, 1024]);
    join(&mut queues, A);
    join(&mut queues, B);
    run(&mut queues, A, us(2_800));
    assert_eq!(queues.average(CORE), 1_400_000);
    assert_eq!(lag(&queues, A), -1_400_000);
    assert!(!queues.eligible(CORE, A));
    assert_eq!(queues.best(CORE), Some(B));
}

#[test]
fn nice_5_gets_24_7_per_cent_beside_nice_0() {
    let vcpus = vec![(nice(0, 0), spin()), (nice(1, 5), spin())];
    let mut world = World::new("eevdf:slice=2.8ms", 1, vcpus);
    world.run_until(secs(10));
    assert!(near(world.share(0), 0.753, 0.001), "{}", world.share(0));
    assert!(near(world.share(1), 0.247, 0.001), "{}", world.share(1));
    assert_eq!(Entity::new(335, SLICE).virtual_slice(), 8_558_805);
    // It runs a slice at a time, every 11.35 ms on average.
    let turns: Vec<_> = world
        .switches(0)
        .into_iter()
        .filter(|(_, v)| *v == 1)
        .collect();
    let (first, last) = (turns[0].0, turns[turns.len() - 1].0);
    let every = (last - first).as_secs_f64() * 1e3 / (turns.len() - 1) as f64;
    assert!(near(every, 11.35, 0.05), "{every} ms");
}

#[test]
fn time_follows_weights() {
    for (weights, expected) in [
        ([4, 2, 2], [0.50, 0.25, 0.25]),
        ([1, 2, 4], [1.0 / 7.0, 2.0 / 7.0, 4.0 / 7.0]),
        ([1, 10_000, 1], [0.0001, 0.9998, 0.0001]),
    ] {
        let vcpus = (0..).zip(weights).map(|(vm, w)| (weight(vm, w), spin()));
        let mut world = World::new("eevdf", 1, vcpus.collect());
        world.run_until(secs(20));
        for (vcpu, expected) in (0..).zip(expected) {
            let got = world.share(vcpu);
            assert!(
                near(got, expected, 0.0003),
                "{weights:?}: {got}, not {expected}"
            );
        }
    }
}

#[test]
fn a_newcomer_has_the_lag_it_left_with_once_it_has_joined() {
    let mut queues = queues(&[1024, 1024, 1024]);
    join(&mut queues, A);
    join(&mut queues, B);
    let before = queues.average(CORE);
    queues.entity(VcpuId(2)).lag = MS;
    join(&mut queues, VcpuId(2));
    assert_eq!(queues.entities[2].virtual_time, before - 3 * MS / 2);
    assert_eq!(queues.average(CORE), before - MS / 2);
    assert_eq!(lag(&queues, VcpuId(2)), MS);
}

#[test]
fn lag_is_bounded_by_two_slices_or_a_tick() {
    let bound = |weight, slice| {
        let mut queues = Queues::new(1, ALL, us(700), ms(4));
        queues.add(Entity::new(weight, slice));
        queues.add(Entity::new(1024, SLICE));
        join(&mut queues, A);
        join(&mut queues, B);
        run(&mut queues, B, secs(1));
        let most = queues.clamped_lag(CORE, A);
        queues.clear_current(CORE, B);
        queues.put(CORE, B);
        run(&mut queues, A, secs(3));
        assert_eq!(queues.clamped_lag(CORE, A), -most);
        most
    };
    assert_eq!(bound(1024, SLICE), 5_600_000);
    assert_eq!(bound(1024, 700_000), 4_000_000);
    assert_eq!(bound(512, SLICE), 11_200_000);
}

#[test]
fn a_sleeper_in_debt_stays_queued_until_the_average_has_come_to_it() {
    let mut queues = queues(&[1024, 1024]);
    join(&mut queues, A);
    join(&mut queues, B);
    run(&mut queues, A, us(2_800));
    queues.sleep(CORE, A);
    assert!(queues.entities[0].delayed && queues.entities[0].queued);
    run(&mut queues, B, us(1_000));
    assert_eq!(queues.best_awake(CORE), Some(B));
    assert!(
        queues.entities[0].delayed,
        "the average is at 1.9 ms, not at 2.8"
    );
    queues.charge(CORE, B, Nanos::ZERO, us(1_800));
    assert_eq!(queues.best(CORE), Some(A), "first of equals, asleep");
    assert_eq!(queues.best_awake(CORE), Some(B));
    assert!(!queues.entities[0].queued && !queues.entities[0].delayed);
    assert_eq!(queues.entities[0].lag, 0);
}

#[test]
fn a_sleeper_in_debt_that_wakes_early_still_owes_the_rest() {
    let mut queues = queues(&[1024, 1024]);
    join(&mut queues, A);
    join(&mut queues, B);
    run(&mut queues, A, us(2_800));
    queues.sleep(CORE, A);
    run(&mut queues, B, us(1_000));
    queues.wake_delayed(CORE, A);
    assert_eq!(lag(&queues, A), -900_000);
    assert_eq!(queues.cores[0].runnable, 1);
}

#[test]
fn a_sleeper_on_the_queue_gains_no_credit() {
    let mut queues = queues(&[1024, 1024]);
    join(&mut queues, A);
    join(&mut queues, B);
    run(&mut queues, A, us(2_800));
    queues.sleep(CORE, A);
    run(&mut queues, B, ms(50));
    queues.wake_delayed(CORE, A);
    assert_eq!(lag(&queues, A), 0);
}

#[test]
fn a_sleeper_in_credit_leaves_with_it() {
    let mut queues = queues(&[1024, 1024]);
    join(&mut queues, A);
    join(&mut queues, B);
    run(&mut queues, A, ms(1));
    queues.clear_current(CORE, A);
    queues.put(CORE, A);
    run(&mut queues, B, us(400));
    queues.sleep(CORE, B);
    assert!(!queues.entities[1].queued);
    assert_eq!(queues.entities[1].lag, 300_000);
}

#[test]
fn without_delayed_dequeue_a_sleeper_leaves_with_its_debt() {
    let vcpus = |policy: &str| {
        let napper = first_then(
            &[Step::Run(us(2_800)), Step::Sleep(ms(1))],
            &[Step::Run(secs(9))],
        );
        let vcpus = vec![(plain(0), napper), (plain(1), late_spin())];
        let mut world = World::new(policy, 1, vcpus);
        world.run_until(secs(1));
        world.dispatcher.violation_count()
    };
    assert_eq!(vcpus("eevdf:delay-dequeue=off"), 0);
    let features = Features {
        delay_dequeue: false,
        ..ALL
    };
    let mut queues = Queues::new(1, features, us(700), ms(4));
    queues.add(Entity::new(1024, SLICE));
    queues.add(Entity::new(1024, SLICE));
    join(&mut queues, A);
    join(&mut queues, B);
    run(&mut queues, A, us(2_800));
    queues.sleep(CORE, A);
    assert!(!queues.entities[0].queued);
    assert_eq!(queues.entities[0].lag, -1_400_000);
}

#[test]
fn a_long_sleeper_gains_at_most_its_bounded_lag() {
    let mut queues = queues(&[1024, 1024]);
    join(&mut queues, A);
    join(&mut queues, B);
    run(&mut queues, A, ms(100));
    queues.clear_current(CORE, A);
    queues.put(CORE, A);
    // B leaves in great credit, without having run.
    queues.take(CORE, B);
    queues.set_current(CORE, B);
    queues.sleep(CORE, B);
    assert_eq!(queues.entities[1].lag, 5_600_000);
    let before = queues.average(CORE);
    join(&mut queues, B);
    assert_eq!(before - queues.entities[1].virtual_time, 2 * 5_600_000);
    assert_eq!(lag(&queues, B), 5_600_000);
}

#[derive(Clone, Copy)]
enum First {
    Waker,
    Spinner,
}

/// A spinner with a slice of 2.8 ms and one that wakes at 51 ms: how long that one waits.
fn wait_of_waker(policy: &str, slice: Nanos, first: First) -> Nanos {
    let waker = first_then(
        &[Step::Sleep(ms(51)), Step::Run(us(50))],
        &[Step::Sleep(secs(1_000))],
    );
    let spinner = (with_slice(1, us(2_800)), spin());
    let waker = (with_slice(0, slice), waker);
    // The first to come falls asleep alone, owed nothing; the second has waited before that.
    let (vcpus, waker) = match first {
        First::Waker => (vec![waker, spinner], A),
        First::Spinner => (vec![spinner, waker], B),
    };
    let mut world = World::new(policy, 1, vcpus);
    world.run_until(secs(1));
    let time = |wanted: fn(&EventKind) -> bool| {
        let mut of_waker = world
            .events
            .iter()
            .rev()
            .filter(|event| event.vcpu == waker);
        of_waker
            .find(|event| wanted(&event.kind))
            .expect("it woke and ran")
            .at
    };
    let woken = time(|kind| matches!(kind, EventKind::Woken(_)));
    time(|kind| matches!(kind, EventKind::Running(_))) - woken
}

#[test]
fn a_short_slice_preempts_at_once_and_a_usual_one_waits_for_the_end_of_protection() {
    assert_eq!(wait_of_waker("eevdf", us(100), First::Waker), Nanos::ZERO);
    let usual = wait_of_waker("eevdf", us(2_800), First::Waker);
    assert!(usual > Nanos::ZERO && usual <= us(2_800), "{usual}");
    let off = wait_of_waker("eevdf:preempt-short=off", us(100), First::Waker);
    assert!(off > Nanos::ZERO, "{off}");
}

#[test]
fn one_that_is_owed_time_preempts_because_the_other_is_no_longer_eligible() {
    let wait = wait_of_waker("eevdf", us(2_800), First::Spinner);
    assert_eq!(wait, Nanos::ZERO);
    let wait = wait_of_waker("eevdf:place-lag=off", us(2_800), First::Spinner);
    assert!(wait > Nanos::ZERO, "{wait}");
}

#[test]
fn without_run_to_parity_a_switch_comes_after_0_7_ms() {
    let vcpus = || vec![(plain(0), late_spin()), (plain(1), late_spin())];
    let mut world = World::new("eevdf:slice=2.8ms,run-to-parity=off", 1, vcpus());
    world.run_until(ms(20));
    let switches = world.switches(0);
    let stays = switches.windows(2).filter(|pair| pair[0].0 >= ms(1));
    let shortest = stays.map(|pair| pair[1].0 - pair[0].0).min();
    assert_eq!(shortest, Some(us(700)));
}

#[test]
fn with_a_tick_a_request_of_2_8_ms_ends_at_4_ms() {
    let vcpus = vec![(plain(0), spin()), (plain(1), spin())];
    let mut world = World::new("eevdf:slice=2.8ms,tick=4ms", 1, vcpus);
    world.run_until(ms(100));
    let switches = world.switches(0);
    assert!(switches.len() > 10, "{switches:?}");
    for (at, _) in &switches {
        assert_eq!(at.get() % ms(4).get(), 0, "{at}");
    }
    assert!(near(world.share(0), 0.5, 0.05), "{}", world.share(0));
}

#[test]
fn the_usual_slice_grows_with_the_logarithm_of_the_cores() {
    let slices: Vec<_> = [1, 2, 3, 4, 8, 64].map(usual_slice).to_vec();
    let expected = [700, 1_400, 1_400, 2_100, 2_800, 2_800].map(us);
    assert_eq!(slices, expected);
}

#[test]
fn who_yields_forfeits_the_rest_of_its_request() {
    let polite = repeat(&[Step::Run(us(100)), Step::Yield]);
    let vcpus = vec![(plain(0), polite), (plain(1), spin())];
    let mut world = World::new("eevdf:slice=2.8ms", 1, vcpus);
    world.run_until(secs(2));
    assert!(world.share(0) < 0.06, "{}", world.share(0));
    assert!(world.share(1) > 0.94, "{}", world.share(1));
    let alone = repeat(&[Step::Run(us(100)), Step::Yield]);
    let mut world = World::new("eevdf", 1, vec![(plain(0), alone)]);
    world.run_until(secs(1));
    assert_eq!(world.ran(0), secs(1), "nobody to yield to");
}

#[test]
fn three_spinners_on_two_cores_get_two_thirds_each() {
    for policy in [
        "eevdf",
        "eevdf:slice=4ms",
        "eevdf:tick=4ms",
        "eevdf:slice=16ms",
    ] {
        let vcpus = (0..3).map(|vm| (plain(vm), spin())).collect();
        let mut world = World::new(policy, 2, vcpus);
        world.run_until(secs(4));
        for vcpu in 0..3 {
            let got = world.share(vcpu);
            assert!(near(got, 2.0 / 3.0, 0.02), "{policy}, {vcpu}: {got}");
        }
    }
}

#[test]
fn uneven_weights_are_spread_over_cores_by_weight() {
    let vcpus = vec![
        (weight(0, 2), spin()),
        (weight(1, 1), spin()),
        (weight(2, 1), spin()),
    ];
    let mut world = World::new("eevdf", 2, vcpus);
    world.run_until(secs(4));
    for (vcpu, expected) in [1.0, 0.5, 0.5].into_iter().enumerate() {
        let got = world.share(u32::try_from(vcpu).expect("few"));
        assert!(near(got, expected, 0.02), "{vcpu}: {got}");
    }
}

#[test]
fn an_idle_core_pulls_from_the_longest_queue() {
    // All four start on their own; two of them end, and their cores take from the others.
    let brief = first_then(&[Step::Run(ms(10)), Step::Retire], &[Step::Retire]);
    let mut vcpus: Vec<_> = (0..4).map(|vm| (plain(vm), spin())).collect();
    vcpus.extend([(plain(4), brief.clone()), (plain(5), brief)]);
    let mut world = World::new("eevdf", 4, vcpus);
    world.run_until(secs(2));
    let spun: Nanos = (0..4).map(|vcpu| world.ran(vcpu)).sum();
    assert_eq!(spun, secs(8) - ms(20));
    assert_eq!(world.dispatcher.violation_count(), 0);
}

#[test]
fn parameters_that_eevdf_does_not_know_are_refused() {
    let refused = |params: VcpuParams| {
        let config = World::config("eevdf", 1, &[(params, spin())]);
        matches!(Dispatcher::new(&config), Err(ConfigError::Param { .. }))
    };
    assert!(refused(VcpuParams {
        weight: Some(2),
        ..nice(0, 1)
    }));
    assert!(refused(with_slice(0, us(99))));
    assert!(refused(VcpuParams {
        shares: Some(2),
        siblings: 2,
        ..plain(0)
    }));
    assert!(refused(VcpuParams {
        budget: Some(ms(1)),
        ..plain(0)
    }));
    assert!(!refused(VcpuParams {
        shares: Some(2),
        ..plain(0)
    }));
    assert!(!refused(with_slice(0, ms(1))));
    for wrong in [
        "eevdf:slice=50us",
        "eevdf:tick=never",
        "eevdf:run-to-parity=1",
        "eevdf:slcie=1ms",
    ] {
        assert!(Dispatcher::new(&World::config(wrong, 1, &[(plain(0), spin())])).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn service_differs_from_the_ideal_by_less_than_two_slices(
        vcpus in prop::collection::vec((1u32..=16, 200u64..=6_000), 2..=6),
    ) {
        let spinners = (0..).zip(&vcpus).map(|(vm, (w, slice))| {
            let params = VcpuParams { slice: Some(us(*slice)), ..weight(vm, *w) };
            (params, spin())
        });
        let mut world = World::new("eevdf", 1, spinners.collect());
        let whole: f64 = vcpus.iter().map(|(weight, _)| f64::from(*weight)).sum();
        let longest = vcpus.iter().map(|(_, slice)| *slice).max().unwrap_or(0) as f64 / 1e6;
        for instant in 1..=400 {
            world.run_until(us(1_777 * instant));
            for (vcpu, (weight, _)) in (0..).zip(&vcpus) {
                let ideal = world.now.as_secs_f64() * f64::from(*weight) / whole;
                let off = (world.ran(vcpu).as_secs_f64() - ideal).abs();
                prop_assert!(off <= 2.0 * longest, "{vcpu} is {off} s off at {}", world.now);
            }
        }
    }
}
