//! Behaviours of `credit2`.

use super::{Credit2, INIT};
use crate::ids::{CoreId, VcpuId};
use crate::policy::{Enqueue, Pick, Policy, Slice, VcpuParams};
use crate::testing::{Step, World, ms, plain, repeat, secs, shares, spin, us};
use crate::time::Nanos;

/// A policy with so many queued vCPUs of VMs of their own, each with one share but the last.
fn queued(credits: &[i64], last: u32) -> Credit2 {
    let mut policy = Credit2::new(ms(1), 1, 16);
    for index in 0..credits.len() {
        let vm = u16::try_from(index).expect("few");
        let given = if index + 1 == credits.len() { last } else { 1 };
        let vcpu = VcpuId(u32::from(vm));
        policy
            .declare(vcpu, &shares(vm, given))
            .expect("understood");
    }
    for (index, credit) in credits.iter().enumerate() {
        policy.units[index].credit = *credit;
        let vcpu = VcpuId(u32::try_from(index).expect("few"));
        let _ = policy.enqueue(Nanos::ZERO, vcpu, Enqueue::New);
    }
    policy
}

#[test]
fn a_vcpu_of_half_the_weight_burns_two_for_one() {
    let mut policy = queued(&[INIT, INIT], 2);
    policy.charge(ms(1), VcpuId(0), ms(1));
    policy.charge(ms(1), VcpuId(1), ms(1));
    assert_eq!(policy.credit(VcpuId(0)), INIT - 2_000_000);
    assert_eq!(policy.credit(VcpuId(1)), INIT - 1_000_000);
}

#[test]
fn the_first_of_two_equals_runs_for_the_rate_limit() {
    let mut policy = queued(&[INIT, INIT], 1);
    let first = policy.pick(Nanos::ZERO, CoreId(0));
    assert_eq!(first, Pick::Run(VcpuId(0), Slice::For(ms(1))));
}

#[test]
fn a_reset_gives_everybody_ten_milliseconds_and_clips_the_savers() {
    // The chosen one has −0.3 ms, another waits with −2 ms, a third sleeps with 4 ms.
    let mut policy = queued(&[-300_000, -2_000_000, 4_000_000], 1);
    policy.runqueues[0].queue.remove(VcpuId(2));
    let _ = policy.pick(Nanos::ZERO, CoreId(0));
    let credits: Vec<_> = (0..3).map(|vcpu| policy.credit(VcpuId(vcpu))).collect();
    assert_eq!(credits, [9_700_000, 8_000_000, 10_500_000]);
}

#[test]
fn a_reset_for_one_at_the_floor_gives_twice_as_much() {
    let mut policy = queued(&[-10_000_000], 1);
    let _ = policy.pick(Nanos::ZERO, CoreId(0));
    assert_eq!(policy.credit(VcpuId(0)), 10_000_000);
}

#[test]
fn shares_of_one_and_two_get_a_third_and_two_thirds() {
    let mut world = World::new(
        "credit2",
        1,
        vec![(shares(0, 1), spin()), (shares(1, 2), spin())],
    );
    world.run_until(secs(30));
    assert!(
        (world.share(0) - 1.0 / 3.0).abs() < 0.005,
        "{}",
        world.share(0)
    );
}

#[test]
fn a_cap_of_30_per_cent_runs_3_ms_of_every_10() {
    let capped = VcpuParams {
        cap: Some(30),
        ..plain(0)
    };
    let mut world = World::new("credit2", 1, vec![(capped, spin())]);
    world.run_until(secs(10));
    assert!((world.share(0) - 0.3).abs() < 0.001, "{}", world.share(0));
    assert_eq!(world.longest_wait(0), ms(7));
}

#[test]
fn a_sleeper_is_ahead_when_it_wakes_and_waits_for_the_rate_limit_at_most() {
    let sleeper = repeat(&[Step::Run(us(200)), Step::Sleep(us(9_550))]);
    let vcpus = vec![(plain(0), sleeper), (plain(1), spin()), (plain(2), spin())];
    let mut world = World::new("credit2", 1, vcpus);
    world.run_until(secs(10));
    assert!(world.longest_wait(0) <= ms(1), "{}", world.longest_wait(0));
}

#[test]
fn three_equals_on_two_cores_get_two_thirds_each() {
    let vcpus = (0..3).map(|vm| (plain(vm), spin())).collect();
    let mut world = World::new("credit2", 2, vcpus);
    world.run_until(secs(30));
    for vcpu in 0..3 {
        assert!(
            (world.share(vcpu) - 2.0 / 3.0).abs() < 0.02,
            "{}",
            world.share(vcpu)
        );
    }
}

#[test]
fn a_run_queue_that_has_lost_vcpus_is_filled_up_from_the_other() {
    // Placed alternately: two of the first core's three leave after a second.
    let leaves = || repeat(&[Step::Run(ms(300)), Step::Retire]);
    let mut vcpus: Vec<_> = (0..6).map(|vm| (plain(vm), spin())).collect();
    vcpus[0].1 = leaves();
    vcpus[2].1 = leaves();
    let mut world = World::new("credit2:runqueue=core", 2, vcpus);
    world.run_until(secs(60));
    for vcpu in [1, 3, 4, 5] {
        let share = world.share(vcpu);
        assert!((share - 0.5).abs() < 0.06, "{vcpu}: {share}");
    }
}

#[test]
fn one_from_another_core_must_be_further_ahead_also_when_the_core_is_given_anew() {
    let mut policy = Credit2::new(ms(1), 2, 16);
    for vcpu in (0..3).map(VcpuId) {
        policy.declare(vcpu, &plain(0)).expect("understood");
    }
    // Core 0's own are at 1.0 ms (displaced) and 1.1 ms, one from core 1 is at 1.3 ms.
    let why = crate::event::PreemptReason::SliceEnd;
    for (vcpu, credit, home) in [(0, 1_000_000, 0), (1, 1_100_000, 0), (2, 1_300_000, 1)] {
        let _ = policy.enqueue(Nanos::ZERO, VcpuId(vcpu), Enqueue::New);
        policy.runqueues[0].queue.remove(VcpuId(vcpu));
        policy.units[vcpu as usize].credit = credit;
        policy.units[vcpu as usize].home = Some(CoreId(home));
        let _ = policy.enqueue(Nanos::ZERO, VcpuId(vcpu), Enqueue::Wake);
    }
    policy.runqueues[0].queue.remove(VcpuId(0));
    let _ = policy.enqueue(Nanos::ZERO, VcpuId(0), Enqueue::Preempted(CoreId(0), why));
    let picked = policy.pick(Nanos::ZERO, CoreId(0));
    assert!(matches!(picked, Pick::Run(VcpuId(1), _)), "{picked:?}");
}

#[test]
fn what_a_sleeping_vcpu_has_drawn_is_for_its_sibling_and_the_cap_holds() {
    let capped = VcpuParams {
        siblings: 2,
        cap: Some(100),
        ..plain(0)
    };
    let naps = repeat(&[Step::Run(ms(1)), Step::Sleep(ms(11))]);
    let mut world = World::new("credit2", 2, vec![(capped, naps), (capped, spin())]);
    world.run_until(secs(12));
    let both = world.share(0) + world.share(1);
    assert!((both - 1.0).abs() < 0.02, "{both}");
}
