//! What the source material says of this policy, one claim a test: scheduling. Arithmetic is tested
//! beside what computes it.

use crate::dispatcher::Dispatcher;
use crate::event::EventKind;
use crate::ids::VcpuId;
use crate::policy::VcpuParams;
use crate::testing::{
    FOREVER, Script, Step, World, answers, first_then, ms, nice, plain, repeat, secs, spin, us,
};
use crate::time::Nanos;

const TICK: Nanos = Nanos(7_874_015);
const SLICE: Nanos = Nanos(12 * 7_874_015);

/// From each wake-up after `from` to the run that follows.
fn waits(world: &World, vcpu: u32, from: Nanos) -> Vec<Nanos> {
    let mut since = None;
    let mut waits = Vec::new();
    for event in world.events.iter().filter(|event| event.vcpu.0 == vcpu) {
        match event.kind {
            EventKind::Woken(_) if event.at >= from => since = Some(event.at),
            EventKind::Running(_) => waits.extend(since.take().map(|since| event.at - since)),
            _ => {}
        }
    }
    assert!(!waits.is_empty());
    waits
}

#[test]
fn two_hogs_alternate_every_slice_of_94_5_ms() {
    let mut world = World::new("ule", 1, vec![(plain(0), spin()), (plain(1), spin())]);
    world.run_until(secs(30));
    let times: Vec<_> = world.switches(0).iter().map(|(at, _)| *at).collect();
    // A new thread has the least slice.
    assert_eq!(times[1], Nanos(2 * TICK.get()));
    let lengths: Vec<_> = times[2..].windows(2).map(|w| w[1] - w[0]).collect();
    let whole = lengths.iter().filter(|length| **length == SLICE).count();
    assert!(
        whole * 10 >= lengths.len() * 9,
        "{whole} of {}",
        lengths.len()
    );
    assert!((world.share(0) - 0.5).abs() < 0.02, "{}", world.share(0));
}

#[test]
fn an_interactive_wake_up_replaces_a_hog_in_the_guest_at_once_and_one_in_the_hypervisor_after_it() {
    let call = [Step::Exit, Step::Run(ms(5)), Step::Resume];
    let cases = [
        (repeat(&[FOREVER]), Nanos::ZERO, Nanos::ZERO),
        // Work of 5 ms at a time, entered anew at once: it waits for the end of one.
        (repeat(&call), Nanos(1), ms(5)),
    ];
    for (hog, least, most) in cases {
        let vcpus = vec![(plain(0), hog), (plain(1), answers())];
        let mut world = World::new("ule:interrupt-threads=off", 1, vcpus);
        for n in 0..40 {
            world.device(ms(1_000) + us(n * 10_700), 1);
        }
        world.run_until(ms(1_600));
        let waits = waits(&world, 1, secs(1));
        let longest = waits.iter().max().copied().unwrap_or_default();
        assert!((least..=most).contains(&longest), "{longest}");
    }
}

/// A hog on core 0, one on core 1 that raises an interrupt at the third every so often.
fn across(hog: VcpuParams, hog_does: Script, every: Nanos, third: Script) -> World {
    let raises = repeat(&[Step::Run(every), Step::Interrupt(VcpuId(2))]);
    let vcpus = vec![(hog, hog_does), (plain(1), raises), (plain(2), third)];
    let policy = "ule:interrupt-threads=off,balance=off,affinity=0";
    let mut world = World::new(policy, 2, vcpus);
    world.run_until(secs(4));
    world
}

#[test]
fn an_interactive_wake_up_preempts_a_hog_on_another_core_even_in_the_hypervisor() {
    let hog = first_then(&[Step::Run(ms(50)), Step::Exit], &[FOREVER]);
    let world = across(plain(0), hog, ms(7), answers());
    let waits = waits(&world, 2, secs(1));
    assert!(waits.iter().all(|wait| *wait == Nanos::ZERO), "{waits:?}");
    let elsewhere = world
        .switches(1)
        .iter()
        .filter(|(at, _)| *at > secs(1))
        .count();
    assert_eq!(elsewhere, 0);
}

#[test]
fn a_batch_wake_up_on_another_core_is_not_told_there_and_waits_for_the_slice_end() {
    let batch = repeat(&[Step::Halt, Step::Run(ms(40))]);
    let world = across(nice(0, 15), spin(), ms(57), batch);
    let waits = waits(&world, 2, secs(1));
    let longest = waits.iter().max().copied().unwrap_or_default();
    assert!(longest > ms(8) && longest <= SLICE, "{longest}");
}

#[test]
fn a_better_batch_thread_that_its_own_timer_wakes_replaces_a_worse_one_at_once() {
    let batch = repeat(&[Step::Run(ms(40)), Step::Sleep(ms(17))]);
    let vcpus = vec![(nice(0, 15), spin()), (plain(1), batch)];
    let mut world = World::new("ule", 1, vcpus);
    world.run_until(secs(4));
    let waits = waits(&world, 1, secs(1));
    assert!(waits.iter().all(|wait| *wait == Nanos::ZERO), "{waits:?}");
}

#[test]
fn a_hog_of_nice_19_still_runs_beside_better_ones() {
    let mut vcpus = vec![(nice(0, 19), spin())];
    vcpus.extend((1..5).map(|vm| (nice(vm, -10), spin())));
    let mut world = World::new("ule", 1, vcpus);
    world.run_until(secs(60));
    assert!(world.ran(0) > secs(1), "{}", world.ran(0));
    assert!(world.longest_wait(0) < secs(3), "{}", world.longest_wait(0));
    assert!(world.share(0) < world.share(1));
}

#[test]
fn an_interactive_vcpu_waits_for_nobody_among_hogs() {
    let interactive = repeat(&[Step::Run(ms(1)), Step::Sleep(ms(9))]);
    let mut vcpus = vec![(plain(0), interactive)];
    vcpus.extend((1..5).map(|vm| (plain(vm), spin())));
    let mut world = World::new("ule", 1, vcpus);
    world.run_until(secs(5));
    let waits = waits(&world, 0, secs(1));
    assert!(waits.iter().all(|wait| *wait == Nanos::ZERO), "{waits:?}");
}

#[test]
fn the_fault_of_2004_does_not_depend_on_the_scheduler() {
    for (deferred, started) in [("off", us(2_030)), ("on", ms(6))] {
        let call = first_then(
            &[
                Step::Sleep(ms(1)),
                Step::Run(ms(1)),
                Step::Critical(1),
                Step::Run(us(30)),
                Step::Critical(0),
                Step::Run(us(3_970)),
                Step::UserReturn,
            ],
            &[FOREVER],
        );
        let vcpus = vec![(plain(0), call), (plain(1), answers())];
        let mut world = World::new(&format!("ule:deferred={deferred}"), 1, vcpus);
        world.device(us(2_010), 1);
        world.run_until(ms(7));
        assert_eq!(waits(&world, 1, ms(2)), [started - us(2_010)], "{deferred}");
    }
}

#[test]
fn three_hogs_on_two_cores_are_evened_out_and_without_balance_are_not() {
    let world = |policy: &str| {
        let vcpus = (0..3).map(|vm| (plain(vm), spin())).collect();
        let mut world = World::new(policy, 2, vcpus);
        world.run_until(secs(200));
        world
    };
    let even = world("ule");
    for vcpu in 0..3 {
        assert!(
            (even.share(vcpu) - 2.0 / 3.0).abs() < 0.08,
            "{}",
            even.share(vcpu)
        );
    }
    let alone = world("ule:balance=off");
    let most = (0..3).map(|vcpu| alone.share(vcpu)).fold(0.0, f64::max);
    assert!(most > 0.99, "{most}");
}

#[test]
fn a_core_with_nothing_to_do_takes_a_thread_from_another() {
    // Both cores have two; those of core 1 leave for a while.
    let now_and_then = repeat(&[Step::Run(ms(20)), Step::Sleep(ms(500))]);
    let vcpus = vec![
        (plain(0), spin()),
        (plain(1), now_and_then.clone()),
        (plain(2), spin()),
        (plain(3), now_and_then),
    ];
    let ran = |policy: &str| {
        let mut world = World::new(policy, 2, vcpus.clone());
        world.run_until(secs(10));
        world.share(0) + world.share(2)
    };
    assert!(ran("ule") > 1.85, "{}", ran("ule"));
    assert!(ran("ule:steal=off,balance=off") < 1.5);
}

#[test]
fn the_same_seed_balances_at_the_same_instants_and_another_at_others() {
    let switches = |policy: &str| {
        let vcpus = (0..3).map(|vm| (plain(vm), spin())).collect();
        let mut world = World::new(policy, 2, vcpus);
        world.run_until(secs(20));
        world.switches(0)
    };
    assert_eq!(switches("ule:seed=7"), switches("ule:seed=7"));
    assert_ne!(switches("ule:seed=7"), switches("ule:seed=8"));
}

#[test]
fn weights_and_caps_are_refused() {
    let weight = VcpuParams {
        weight: Some(2),
        ..plain(0)
    };
    let cap = VcpuParams {
        cap: Some(50),
        ..plain(0)
    };
    for params in [weight, cap] {
        let config = World::config("ule", 1, &[(params, spin())]);
        let refused = Dispatcher::new(&config).expect_err("refused").to_string();
        assert!(refused.contains("nice"), "{refused}");
    }
}
