//! Behaviours of `credit` as a whole; its arithmetic is tested beside it.

use super::Credit;
use crate::event::EventKind;
use crate::ids::VcpuId;
use crate::policy::{Enqueue, Policy, VcpuParams};
use crate::registry;
use crate::testing::{Step, World, first_then, ms, plain, repeat, secs, shares, spin, us};
use crate::time::Nanos;

#[test]
fn two_vms_of_two_vcpus_get_a_third_and_two_thirds() {
    let of = |vm, weight| VcpuParams {
        siblings: 2,
        ..shares(vm, weight)
    };
    let vcpus = [of(0, 1), of(0, 1), of(1, 2), of(1, 2)];
    let vcpus = vcpus.into_iter().map(|params| (params, spin())).collect();
    let mut world = World::new("credit", 2, vcpus);
    world.run_until(secs(60));
    let first = (world.share(0) + world.share(1)) / 2.0;
    assert!((first - 1.0 / 3.0).abs() < 0.02, "{first}");
}

#[test]
fn a_capped_vm_gets_its_cap_and_no_more() {
    let capped = VcpuParams {
        cap: Some(25),
        ..plain(0)
    };
    let mut world = World::new("credit", 1, vec![(capped, spin()), (plain(1), spin())]);
    world.run_until(secs(60));
    assert!((world.share(0) - 0.25).abs() < 0.02, "{}", world.share(0));
    let mut alone = World::new("credit", 1, vec![(capped, spin())]);
    alone.run_until(secs(60));
    assert!((alone.share(0) - 0.25).abs() < 0.02, "{}", alone.share(0));
}

#[test]
fn a_vcpu_that_wakes_under_is_boosted_and_starts_after_the_rate_limit_at_most() {
    let sleeper = repeat(&[Step::Run(us(200)), Step::Sleep(us(9_700))]);
    let vcpus = vec![(plain(0), sleeper), (plain(1), spin()), (plain(2), spin())];
    let mut world = World::new("credit", 1, vcpus);
    world.run_until(secs(10));
    assert!(world.longest_wait(0) <= ms(1), "{}", world.longest_wait(0));
}

#[test]
fn the_rate_limit_protects_what_just_began_to_run() {
    // The hog runs from 0; the sleeper wakes 300 us later and waits for the other 700 us.
    let wakes = |at| first_then(&[Step::Sleep(at)], &[Step::Run(secs(100))]);
    let second = |at| {
        let vcpus = vec![(plain(0), wakes(at)), (plain(1), spin())];
        let mut world = World::new("credit", 1, vcpus);
        world.run_until(ms(20));
        world.switches(0)[2]
    };
    assert_eq!(second(us(300)), (ms(1), 0));
    // With 50 us the source looks after 100 us, then after the remaining 850 us.
    assert_eq!(second(us(50)), (ms(1), 0));
}

#[test]
fn charging_by_tick_is_cheated_by_a_guest_that_sleeps_at_the_tick_and_charging_by_time_is_not() {
    let share = |policy: &str| {
        // Runs from 0.2 ms after each tick to 0.3 ms before the next.
        let round = [Step::Run(us(9_500)), Step::Sleep(us(500))];
        let cheat = first_then(&[Step::Sleep(us(200))], &round);
        let vcpus = vec![(plain(0), cheat), (plain(1), spin())];
        let mut world = World::new(policy, 1, vcpus);
        world.run_until(secs(30));
        world.share(0)
    };
    let (tick, time) = (
        share("credit:charge=tick,ratelimit=0"),
        share("credit:ratelimit=0"),
    );
    assert!(tick > 0.85, "{tick}");
    assert!(time < 0.60, "{time}");
}

#[test]
fn a_slice_is_thirty_milliseconds_between_equals() {
    let mut world = World::new("credit", 1, vec![(plain(0), spin()), (plain(1), spin())]);
    world.run_until(secs(1));
    let lengths: Vec<_> = world
        .switches(0)
        .windows(2)
        .map(|w| w[1].0 - w[0].0)
        .collect();
    assert!(
        lengths.iter().all(|length| *length == ms(30)),
        "{lengths:?}"
    );
}

#[test]
fn a_weight_within_a_wider_vm_is_refused() {
    let params = VcpuParams {
        siblings: 2,
        weight: Some(3),
        ..plain(0)
    };
    let config = World::config("credit", 1, &[(params, spin())]);
    let refused = crate::dispatcher::Dispatcher::new(&config).expect_err("not understood");
    assert!(refused.to_string().contains("vcpu 0"), "{refused}");
}

#[test]
fn three_equals_on_two_cores_get_two_thirds_each() {
    let vcpus = (0..3).map(|vm| (plain(vm), spin())).collect();
    let mut world = World::new("credit", 2, vcpus);
    world.run_until(secs(30));
    for vcpu in 0..3 {
        let share = world.share(vcpu);
        assert!((share - 2.0 / 3.0).abs() < 0.04, "{vcpu}: {share}");
    }
}

#[test]
fn a_vcpu_that_is_unparked_does_not_take_the_core_from_its_equal() {
    let capped = VcpuParams {
        cap: Some(25),
        ..plain(0)
    };
    let mut world = World::new("credit", 1, vec![(capped, spin()), (plain(1), spin())]);
    world.run_until(secs(6));
    let period = |event: &&crate::event::Event| {
        let by_period = crate::event::PreemptReason::Period;
        event.kind == crate::event::EventKind::Preempted(crate::ids::CoreId(0), by_period)
    };
    // Only the capped one leaves at an accounting: when it is parked.
    let left: Vec<_> = world
        .events
        .iter()
        .filter(period)
        .map(|event| event.vcpu.0)
        .collect();
    assert!(left.iter().all(|vcpu| *vcpu == 0), "{left:?}");
}

#[test]
fn a_rate_limit_beyond_the_time_slice_is_refused() {
    for wrong in ["credit:ratelimit=500ms,tslice=10ms", "credit:ratelimit=1us"] {
        let config = World::config(wrong, 1, &[(plain(0), spin())]);
        assert!(
            crate::dispatcher::Dispatcher::new(&config).is_err(),
            "{wrong}"
        );
    }
}

/// The moments at which a vCPU's boost began (true) or ended (false).
fn boosts(world: &World, vcpu: u32) -> Vec<(Nanos, bool)> {
    let changes = world.events.iter().filter(|event| event.vcpu.0 == vcpu);
    changes
        .filter_map(|event| match event.kind {
            EventKind::Standing(standing) => Some((event.at, standing.boosted)),
            _ => None,
        })
        .collect()
}

#[test]
fn a_boost_ends_at_the_first_tick_that_finds_its_vcpu_running() {
    // It wakes at 13 ms, runs from then on, and is found by the tick at 20 ms.
    let sleeper = first_then(&[Step::Sleep(ms(13))], &[Step::Run(secs(100))]);
    let mut world = World::new("credit", 1, vec![(plain(0), sleeper), (plain(1), spin())]);
    world.run_until(ms(25));
    assert_eq!(boosts(&world, 0), [(ms(13), true), (ms(20), false)]);
}

#[test]
fn who_is_over_is_not_boosted_when_it_wakes() {
    let mut policy = credit(&[(plain(0), spin()), (plain(1), spin())]);
    policy.units[0].priority = super::Priority::Over;
    let _ = policy.enqueue(Nanos::ZERO, VcpuId(0), Enqueue::Wake);
    assert_eq!(policy.priority(VcpuId(0)), super::Priority::Over);
    policy.units[1].priority = super::Priority::Under;
    let _ = policy.enqueue(Nanos::ZERO, VcpuId(1), Enqueue::Wake);
    assert_eq!(policy.priority(VcpuId(1)), super::Priority::Boost);
}

#[test]
fn an_idle_vcpu_earns_until_it_has_saved_300_credits_and_then_keeps_half() {
    let mut policy = credit(&[(plain(0), spin()), (plain(1), spin())]);
    // Both are active; one burns nothing. 150 credits each in every accounting of one core.
    policy.activate(VcpuId(0));
    policy.activate(VcpuId(1));
    let mut saved = Vec::new();
    for period in 1..=4 {
        policy.charge(ms(30 * period), VcpuId(1), ms(30));
        let _ = policy.periodic(ms(30 * period));
        saved.push((policy.units[0].credits, policy.units[0].active));
    }
    let got: Vec<_> = saved.iter().map(|(credits, _)| *credits).collect();
    assert_eq!(saved[0], (150, true), "{got:?}");
    assert_eq!(saved[1], (300, true), "{got:?}");
    // More than 300: half is kept, and nothing is earned any more.
    assert!(!saved[2].1 && saved[2].0 <= 300, "{got:?}");
    assert_eq!(saved[3], saved[2], "{got:?}");
}

/// It is as one that sleeps for a moment: judged and paid like all others.
#[test]
fn one_that_is_taken_off_its_queue_and_placed_anew_goes_on_earning() {
    let mut policy = credit(&[(plain(0), spin()), (plain(1), spin())]);
    for vcpu in [0, 1].map(VcpuId) {
        policy.activate(vcpu);
        let _ = policy.enqueue(Nanos::ZERO, vcpu, Enqueue::New);
    }
    policy.units[0].priority = super::Priority::Over;
    policy.units[0].credits = -100;
    policy.remove(ms(1), VcpuId(0));
    let _ = policy.enqueue(ms(1), VcpuId(0), Enqueue::Wake);
    let _ = policy.periodic(ms(30));
    assert_eq!(policy.units[0].credits, 50);
    assert_eq!(policy.priority(VcpuId(0)), super::Priority::Under);
}

/// A policy on one core to which these vCPUs were declared.
fn credit(vcpus: &[(VcpuParams, crate::testing::Script)]) -> Credit {
    let (_, options) = registry::check(&"credit".parse().expect("a policy")).expect("understood");
    let mut policy = Credit::new(&options, 1);
    for (vcpu, (params, _)) in (0..).map(VcpuId).zip(vcpus) {
        policy.declare(vcpu, params).expect("understood");
    }
    policy
}
