//! Behaviours of `relaxed`, each by the words of the material it follows.

use crate::dispatcher::{ConfigError, Dispatcher};
use crate::event::EventKind;
use crate::ids::{HostLockId, VcpuId};
use crate::input::{HostMode, KernelPriority};
use crate::policy::VcpuParams;
use crate::testing::{
    FOREVER, Script, Step, World, first_then, ms, plain, repeat, secs, shares, spin, spinners, us,
    vms,
};
use crate::time::Nanos;

/// When the vCPU was stopped and released.
fn stops(world: &World, vcpu: u32) -> Vec<(Nanos, bool)> {
    let of = world.events.iter().filter(|event| event.vcpu.0 == vcpu);
    let changes = of.filter_map(|event| match event.kind {
        EventKind::Standing(standing) => Some((event.at, standing.costopped)),
        _ => None,
    });
    changes.collect()
}

#[test]
fn a_vcpu_that_runs_alone_is_stopped_at_the_poll_that_sees_4_ms_and_released_3_ms_later() {
    let mut world = World::new("relaxed", 1, vms(&[&spinners(2)]));
    world.run_until(ms(10));
    assert_eq!(stops(&world, 0), [(ms(4), true), (ms(7), false)]);
    assert_eq!(world.switches(0), [(ms(0), 0), (ms(4), 1)]);
    assert_eq!(stops(&world, 1), []);
    // 7 ms against 4 are no more than 3 ms ahead, at the next poll they are.
    world.run_until(ms(12));
    assert_eq!(stops(&world, 1), [(ms(12), true)]);
}

#[test]
fn if_3_ms_are_enough_it_is_stopped_at_the_poll_that_sees_3_ms() {
    let mut world = World::new("relaxed:compare=at-least", 1, vms(&[&spinners(2)]));
    world.run_until(ms(5));
    assert_eq!(stops(&world, 0), [(ms(3), true), (ms(5), false)]);
}

#[test]
fn a_halted_sibling_stops_nobody() {
    let scripts = [spin(), repeat(&[Step::Halt])];
    let mut world = World::new("relaxed", 2, vms(&[&scripts]));
    world.run_until(secs(2));
    assert_eq!(stops(&world, 0), []);
    assert_eq!(stops(&world, 1), []);
}

#[test]
fn who_wakes_from_a_halt_is_no_laggard() {
    // It sleeps for a second while its sibling waits for a core half of the time.
    let late = first_then(&[Step::Sleep(ms(1_001))], &[FOREVER]);
    let mut world = World::new("relaxed", 2, vms(&[&[spin(), late], &spinners(2)]));
    world.run_until(ms(1_001));
    assert_eq!(stops(&world, 0), []);
    world.run_until(ms(1_004));
    assert_eq!(stops(&world, 0), [], "the other was brought up to it");
}

#[test]
fn who_was_halted_for_long_is_stopped_until_a_sibling_with_half_a_core_has_caught_up() {
    // By then its sibling has run for 250 ms, and it has made 500 ms of progress.
    let late = first_then(&[Step::Sleep(ms(500))], &[FOREVER]);
    let mut world = World::new("relaxed", 1, vms(&[&[spin(), late], &spinners(1)]));
    world.run_until(secs(2));
    let stops = stops(&world, 1);
    let [(stopped, true), (released, false), ..] = stops[..] else {
        panic!("{stops:?}");
    };
    assert!(stopped >= ms(500) && stopped <= ms(510), "{stopped}");
    let length = released.since(stopped);
    assert!(length > ms(300) && length < ms(700), "{length}");
}

#[test]
fn a_limit_of_0_stops_nobody() {
    let mut world = World::new("relaxed:costop=0", 1, vms(&[&spinners(4)]));
    world.run_until(secs(4));
    for vcpu in 0..4 {
        assert_eq!(stops(&world, vcpu), []);
        assert_eq!(world.ran(vcpu), secs(1));
    }
}

#[test]
fn the_core_of_one_that_is_stopped_goes_to_its_laggard_whoever_else_waits() {
    // The other VM's vCPU has used less: by the fair queue alone it would be next.
    let scripts: [&[Script]; 2] = [&spinners(2), &[spin()]];
    let mut world = World::new("relaxed", 1, vms(&scripts));
    world.run_until(ms(4));
    assert_eq!(world.switches(0), [(ms(0), 0), (ms(4), 1)]);
    let mut without = World::new("relaxed:costop=0", 1, vms(&scripts));
    without.run_until(ms(201));
    assert_eq!(without.switches(0), [(ms(0), 0), (ms(200), 1)]);
}

#[test]
fn skew_may_be_set_against_the_mean() {
    // One that runs against three that wait: after t ms it is t ahead of the slowest, and t − t/4 ahead
    // of the mean.
    let first_stop = |policy: &str| {
        let mut world = World::new(policy, 1, vms(&[&spinners(4)]));
        world.run_until(ms(50));
        stops(&world, 0)[0]
    };
    assert_eq!(first_stop("relaxed"), (ms(4), true));
    assert_eq!(first_stop("relaxed:skew=mean"), (ms(5), true));
}

#[test]
fn work_of_the_hypervisor_is_no_progress() {
    let exits = [
        Step::Run(us(500)),
        Step::Exit,
        Step::Run(us(500)),
        Step::Resume,
    ];
    let scripts = [repeat(&exits), spin()];
    let mut world = World::new("relaxed", 2, vms(&[&scripts]));
    world.run_until(ms(8));
    // Both are on a core all the time; one is in its guest for half of it.
    assert_eq!(stops(&world, 1), [(ms(7), true)]);
}

#[test]
fn who_waits_for_a_host_lock_of_one_that_is_ahead_does_not_stop_it() {
    let (lock, asked) = (HostLockId(1), KernelPriority::NotAsked);
    let take = Step::Acquire(lock, HostMode::Mutex, asked);
    let holder = first_then(&[take, Step::Run(ms(50)), Step::Unlock(lock)], &[FOREVER]);
    let waiter = first_then(&[Step::Run(us(100)), take], &[FOREVER]);
    let mut world = World::new("relaxed", 2, vms(&[&[holder, waiter]]));
    world.run_until(ms(49));
    assert_eq!(stops(&world, 0), []);
    // It has the lock, and catches up.
    world.run_until(secs(1));
    assert!(world.ran(0) > ms(900) && world.ran(1) > ms(900));
}

#[test]
fn four_and_two_on_four_cores_use_all_of_them() {
    let mut world = World::new("relaxed", 4, vms(&[&spinners(4), &spinners(2)]));
    world.run_until(secs(20));
    assert!(world.used(4) > 0.999, "{}", world.used(4));
    let of = |vcpus: std::ops::Range<u32>| vcpus.map(|vcpu| world.share(vcpu)).sum::<f64>();
    assert!((of(0..4) - 2.0).abs() < 0.05 && (of(4..6) - 2.0).abs() < 0.05);
    // And yet no vCPU of the wide one is ever more than 4 ms and a bit ahead of another.
    let wide: Vec<_> = (0..4).map(|vcpu| world.ran(vcpu)).collect();
    let apart = *wide.iter().max().expect("four") - *wide.iter().min().expect("four");
    assert!(apart <= ms(5), "{apart}");
}

#[test]
fn the_strict_scheduler_of_esx_2_wastes_half_of_every_second_turn() {
    let mut vcpus = vms(&[&spinners(4), &spinners(2)]);
    // As much for each vCPU, as is the vendor's default.
    for (params, _) in &mut vcpus {
        params.shares = Some(params.siblings);
    }
    let mut world = World::new("relaxed:generation=esx2", 4, vcpus);
    world.run_until(secs(20));
    // A turn of the wide VM goes on for a few milliseconds after the first of its vCPUs had to leave.
    let used = world.used(4);
    assert!((used - 0.75).abs() < 0.02, "{used}");
    let wide: Vec<_> = (0..4).map(|vcpu| world.share(vcpu)).collect();
    assert!(
        wide.iter().all(|share| (share - 0.5).abs() < 0.03),
        "{wide:?}"
    );
    assert_eq!(world.dispatcher.violation_count(), 0);
}

#[test]
fn under_esx_2_the_vcpus_of_a_vm_start_at_one_instant() {
    let scripts: [&[Script]; 2] = [&spinners(4), &spinners(2)];
    let mut world = World::new("relaxed:generation=esx2", 4, vms(&scripts));
    world.run_until(secs(5));
    let starts = |vcpu: u32| {
        let released = stops(&world, vcpu).into_iter();
        let released = released.filter(|(_, costopped)| !costopped);
        released.map(|(at, _)| at).collect::<Vec<_>>()
    };
    assert!(starts(0).len() > 5);
    for vcpu in 0..4 {
        assert_eq!(starts(vcpu), starts(0));
        for at in starts(vcpu) {
            let runs = |event: &&crate::event::Event| {
                event.vcpu == VcpuId(vcpu) && matches!(event.kind, EventKind::Running(_))
            };
            assert!(world.events.iter().filter(runs).any(|event| event.at == at));
        }
    }
}

#[test]
fn a_strict_vm_that_is_wider_than_the_machine_starts_when_all_cores_are_idle() {
    let scripts: [&[Script]; 2] = [&spinners(3), &spinners(1)];
    let mut world = World::new("relaxed:generation=esx2", 2, vms(&scripts));
    world.run_until(secs(10));
    for vcpu in 0..4 {
        assert!(
            world.longest_wait(vcpu) < secs(1),
            "{}",
            world.longest_wait(vcpu)
        );
    }
}

#[test]
fn time_follows_the_shares_of_vms_whatever_their_width() {
    let mut vcpus = vms(&[&spinners(3), &spinners(1)]);
    vcpus[3].0.shares = Some(3);
    let mut world = World::new("relaxed", 1, vcpus);
    world.run_until(secs(20));
    assert!((world.share(3) - 0.75).abs() < 0.02, "{}", world.share(3));
}

#[test]
fn who_wakes_takes_the_place_of_one_that_is_ahead_by_the_lead() {
    let brief = repeat(&[Step::Run(us(100)), Step::Sleep(ms(10))]);
    let vcpus = vec![(plain(0), brief), (plain(1), spin()), (plain(2), spin())];
    let mut world = World::new("relaxed", 1, vcpus);
    // It takes the place of one that ran, although at first the other spinner had less than it.
    world.run_until(secs(1));
    assert_eq!(world.longest_wait(0), Nanos::ZERO);
}

#[test]
fn options_that_do_not_fit_together_are_refused() {
    let refused = |policy: &str, params: VcpuParams| {
        Dispatcher::new(&World::config(policy, 1, &[(params, spin())]))
    };
    for wrong in [
        "relaxed:costart=3ms",
        "relaxed:poll=10ms",
        "relaxed:costop=1ms",
    ] {
        let answer = refused(wrong, plain(0));
        assert!(matches!(answer, Err(ConfigError::Policy(_))), "{wrong}");
    }
    assert!(refused("relaxed:costop=0,costart=5ms", plain(0)).is_ok());
    assert!(refused("relaxed", shares(0, 0)).is_err());
}
