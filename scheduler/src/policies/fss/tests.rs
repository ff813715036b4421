//! What the source material says of this policy, one claim a test: scheduling. Arithmetic is tested
//! beside `price.rs`.

use crate::dispatcher::{ConfigError, Dispatcher};
use crate::event::{EventKind, Standing};
use crate::ids::{CoreId, HostLockId, VcpuId};
use crate::input::KernelPriority::{Asked, NotAsked};
use crate::policy::VcpuParams;
use crate::testing::{
    FOREVER, Script, Step, World, first_then, ms, plain, repeat, secs, shares, spin, us,
};
use crate::time::Nanos;

const LOCK: HostLockId = HostLockId(0);

fn wide(vm: u16, siblings: u32, shares: u32) -> VcpuParams {
    VcpuParams {
        siblings,
        shares: Some(shares),
        ..plain(vm)
    }
}

/// Runs after the warm-up only: the share of each vCPU of the time of all cores.
fn shares_after(world: &mut World, warmup: u64, end: u64, cores: f64) -> Vec<f64> {
    world.run_until(secs(warmup));
    let before: Vec<_> = world.ids().map(|vcpu| world.ran(vcpu.0)).collect();
    world.run_until(secs(end));
    let whole = (end - warmup) as f64 * cores;
    let ran = |vcpu: VcpuId| world.ran(vcpu.0) - before[vcpu.index()];
    world.ids().map(|v| ran(v).as_secs_f64() / whole).collect()
}

fn near(got: f64, expected: f64, within: f64) -> bool {
    (got - expected).abs() <= within
}

/// The vCPU that catches the flag: it takes a host lock with a request, waits with it in the
/// hypervisor, gives it back, and goes on.
fn catches_flag_then(then: &[Step]) -> Script {
    let caught = [
        Step::Lock(LOCK, Asked),
        Step::HostWait(ms(1)),
        Step::Unlock(LOCK),
    ];
    first_then(&caught, then)
}

#[test]
fn two_equal_spinners_switch_every_quantum_of_11_ticks() {
    let mut world = World::new("fss", 1, vec![(plain(0), spin()), (plain(1), spin())]);
    world.run_until(ms(900));
    let switches = world.switches(0);
    let expected: Vec<_> = (0..9).map(|n| (ms(110 * n), (n % 2) as u32)).collect();
    assert_eq!(switches, expected);
}

#[test]
fn time_follows_shares_for_one_thread_a_project() {
    for variant in ["classic", "before", "after"] {
        let vcpus = (1..=3).map(|n| (shares(n, n.into()), spin())).collect();
        let mut world = World::new(&format!("fss:variant={variant}"), 1, vcpus);
        let got = shares_after(&mut world, 60, 600, 1.0);
        for (got, expected) in got.iter().zip([1.0 / 6.0, 2.0 / 6.0, 3.0 / 6.0]) {
            assert!(
                near(*got, expected, 0.01),
                "{variant}: {got}, not {expected}"
            );
        }
    }
}

#[test]
fn shares_of_a_project_without_runnable_threads_do_not_count() {
    let idle = first_then(
        &[Step::Run(ms(1)), Step::Sleep(secs(10_000))],
        &[Step::Run(ms(1))],
    );
    let vcpus = vec![
        (shares(0, 1), spin()),
        (shares(1, 2), spin()),
        (shares(2, 3), idle),
    ];
    let mut world = World::new("fss", 1, vcpus);
    let got = shares_after(&mut world, 60, 300, 1.0);
    assert!(near(got[0], 1.0 / 3.0, 0.01), "{got:?}");
    assert!(near(got[1], 2.0 / 3.0, 0.01), "{got:?}");
}

/// Two projects, so many threads each: the part of the first.
fn first_of_two(variant: &str, cores: u16, of: [(u32, u32); 2], script: &Script) -> f64 {
    let mut vcpus = Vec::new();
    for (vm, (shares, threads)) in (0..).zip(of) {
        vcpus.extend((0..threads).map(|_| (wide(vm, threads, shares), script.clone())));
    }
    let mut world = World::new(&format!("fss:variant={variant}"), cores, vcpus);
    let got = shares_after(&mut world, 60, 600, 1.0);
    let first: f64 = got.iter().take(of[0].1 as usize).sum();
    first / got.iter().sum::<f64>()
}

#[test]
fn with_several_threads_a_project_only_classic_keeps_to_shares() {
    for variant in ["before", "after"] {
        let got = first_of_two(variant, 1, [(1, 2), (3, 2)], &spin());
        assert!(near(got, 0.50, 0.01), "{variant}: {got}");
        let got = first_of_two(variant, 1, [(1, 3), (1, 1)], &spin());
        assert!(near(got, 0.75, 0.01), "{variant}: {got}");
        let got = first_of_two(variant, 4, [(1, 8), (3, 8)], &spin());
        assert!(near(got, 0.50, 0.01), "{variant}: {got}");
    }
    let got = first_of_two("classic", 1, [(1, 2), (3, 2)], &spin());
    assert!(near(got, 0.25, 0.01), "{got}");
    let got = first_of_two("classic", 1, [(1, 3), (1, 1)], &spin());
    assert!(near(got, 0.50, 0.01), "{got}");
    let got = first_of_two("classic", 4, [(1, 8), (3, 8)], &spin());
    assert!(near(got, 0.25, 0.01), "{got}");
}

#[test]
fn a_project_without_shares_gets_nothing_against_a_spinner() {
    let mut world = World::new(
        "fss",
        1,
        vec![(shares(0, 0), spin()), (shares(1, 1), spin())],
    );
    world.run_until(secs(20));
    // It was first to be admitted, and ran until the other one was.
    assert_eq!(world.ran(0), Nanos::ZERO);
    let mut alone = World::new("fss", 1, vec![(shares(0, 0), spin())]);
    alone.run_until(secs(1));
    assert_eq!(alone.ran(0), secs(1));
}

#[test]
fn who_wakes_in_the_tick_of_its_dispatch_goes_to_the_front_with_what_was_left() {
    // Both sleep 1 ms in the middle of a tick; B waits meanwhile at the same priority.
    let brief = first_then(
        &[
            Step::Run(ms(23)),
            Step::Sleep(ms(1)),
            Step::Run(ms(1)),
            Step::Sleep(ms(2)),
        ],
        &[FOREVER],
    );
    let mut world = World::new("fss", 2, vec![(plain(0), brief), (plain(1), spin())]);
    world.run_until(ms(26));
    // It slept at 23 ms, was dispatched at 24 ms (in the tick that began at 20 ms), slept at 25 ms.
    world.run_until(secs(1));
    let running = |at: Nanos| {
        let entered = world.events.iter().filter(|e| e.vcpu.0 == 0 && e.at == at);
        entered
            .filter(|e| matches!(e.kind, EventKind::Running(_)))
            .count()
    };
    assert_eq!(running(ms(24)), 1);
    assert_eq!(running(ms(27)), 1);
    // Woken anew at 24 ms (dispatched at 0, another tick): a fresh quantum of 11 ticks. Woken at
    // 27 ms, in the tick of its dispatch: what was left stays, so the quantum ends at 130 ms, the
    // eleventh tick after 24 ms, with none of the eleven given back at 27 ms.
    let preempted =
        |e: &&crate::event::Event| e.vcpu.0 == 0 && matches!(e.kind, EventKind::Preempted(..));
    let first = world
        .events
        .iter()
        .find(preempted)
        .expect("its quantum ends");
    assert_eq!(first.at, ms(130));
}

#[test]
fn one_that_wakes_in_another_tick_gets_a_fresh_quantum() {
    // 30 ms of work, then sleep across a tick: the quantum never ends.
    let sleeper = repeat(&[Step::Run(ms(95)), Step::Sleep(ms(15))]);
    let mut world = World::new("fss", 1, vec![(plain(0), sleeper)]);
    world.run_until(secs(5));
    let preempted = |e: &&crate::event::Event| matches!(e.kind, EventKind::Preempted(..));
    assert_eq!(world.events.iter().filter(preempted).count(), 0);
}

#[test]
fn a_flag_that_is_never_given_up_starves_the_other() {
    for variant in ["classic", "before"] {
        let vcpus = vec![
            (plain(0), catches_flag_then(&[FOREVER])),
            (plain(1), spin()),
        ];
        let mut world = World::new(&format!("fss:variant={variant}"), 1, vcpus);
        world.run_until(secs(60));
        // B runs for the millisecond that A waits with the lock, and never again.
        assert_eq!(world.ran(1), ms(1), "{variant}");
        assert_eq!(world.ran(0), secs(60) - ms(1), "{variant}");
        assert_eq!(world.switches(0).len(), 3, "{variant}");
    }
}

#[test]
fn without_the_flag_the_same_two_share_the_core() {
    for policy in [
        "fss:variant=after",
        "fss:kpri=off",
        "fss:variant=classic,kpri=off",
    ] {
        let vcpus = vec![
            (plain(0), catches_flag_then(&[FOREVER])),
            (plain(1), spin()),
        ];
        let mut world = World::new(policy, 1, vcpus);
        world.run_until(secs(60));
        assert!(
            near(world.share(0), 0.5, 0.01),
            "{policy}: {}",
            world.share(0)
        );
        assert!(
            world.longest_wait(1) <= ms(330),
            "{policy}: {}",
            world.longest_wait(1)
        );
    }
}

#[test]
fn the_fault_can_be_asked_for_in_the_fixed_variant() {
    let vcpus = vec![
        (plain(0), catches_flag_then(&[FOREVER])),
        (plain(1), spin()),
    ];
    let mut world = World::new("fss:kpri=on,quantum=110ms,variant=after", 1, vcpus);
    world.run_until(secs(5));
    assert!(world.longest_wait(1) >= secs(4));
}

#[test]
fn a_return_to_user_mode_clears_the_flag_and_the_other_runs() {
    let returns = catches_flag_then(&[Step::Run(secs(1)), Step::UserReturn]);
    let mut world = World::new("fss", 1, vec![(plain(0), returns), (plain(1), spin())]);
    world.run_until(secs(20));
    // A runs a second undisturbed; from its return on there is no flag and both share.
    assert!(
        near(world.longest_wait(1).as_secs_f64(), 1.0, 0.12),
        "{}",
        world.longest_wait(1)
    );
    assert!(world.share(1) > 0.4, "{}", world.share(1));
    let standings = world.events.iter().filter_map(|event| match event.kind {
        EventKind::Standing(standing) => Some((event.at, standing.kernel_priority)),
        _ => None,
    });
    let standings: Vec<_> = standings.collect();
    assert_eq!(
        standings,
        vec![(Nanos::ZERO, true), (secs(1) + ms(1), false)]
    );
}

#[test]
fn two_with_the_flag_do_not_slice() {
    let second = first_then(
        &[
            Step::Lock(HostLockId(1), Asked),
            Step::HostWait(ms(1)),
            Step::Unlock(HostLockId(1)),
        ],
        &[FOREVER],
    );
    let first = catches_flag_then(&[Step::Run(secs(3)), Step::Sleep(ms(1))]);
    let mut world = World::new("fss", 1, vec![(plain(0), first), (plain(1), second)]);
    world.run_until(secs(10));
    // The first runs until it sleeps without a request; then the second has the core for good.
    assert_eq!(world.ran(0), secs(3));
    assert_eq!(world.ran(1), secs(7) - ms(1));
}

#[test]
fn the_flag_outlives_the_lock_until_it_blocks_without_a_request() {
    let script = first_then(
        &[
            Step::Lock(LOCK, Asked),
            Step::HostWait(ms(1)),
            Step::Unlock(LOCK),
            Step::Run(ms(500)),
            Step::Sleep(ms(1)),
        ],
        &[FOREVER],
    );
    let mut world = World::new("fss", 1, vec![(plain(0), script), (plain(1), spin())]);
    let standing = |world: &World| {
        let last = world
            .events
            .iter()
            .rev()
            .find_map(|event| match event.kind {
                EventKind::Standing(standing) if event.vcpu == VcpuId(0) => Some(standing),
                _ => None,
            });
        last.unwrap_or(Standing::default()).kernel_priority
    };
    world.run_until(ms(400));
    assert!(standing(&world), "the lock was released, the flag stays");
    world.run_until(ms(501));
    assert!(!standing(&world), "it blocked without a request");
    world.run_until(secs(20));
    assert!(world.share(1) > 0.4, "{}", world.share(1));
}

#[test]
fn the_flag_is_caught_by_being_preempted_with_a_request() {
    // A holds the lock while its quantum ends: it comes back at once, for good.
    let holder = first_then(&[Step::Lock(LOCK, Asked)], &[FOREVER]);
    let mut world = World::new("fss", 1, vec![(plain(0), holder), (plain(1), spin())]);
    world.run_until(secs(10));
    assert_eq!(world.ran(0), secs(10));
    assert_eq!(world.core_of(0), Some(CoreId(0)));
}

#[test]
fn a_lock_without_a_request_gives_no_flag() {
    let holder = first_then(
        &[Step::Lock(LOCK, NotAsked), Step::HostWait(ms(1))],
        &[FOREVER],
    );
    let mut world = World::new("fss", 1, vec![(plain(0), holder), (plain(1), spin())]);
    world.run_until(secs(20));
    assert!(near(world.share(0), 0.5, 0.02), "{}", world.share(0));
}

#[test]
fn a_waiter_that_is_handed_the_lock_with_its_request_wakes_with_the_flag() {
    let owner = repeat(&[
        Step::Run(ms(1)),
        Step::Lock(LOCK, NotAsked),
        Step::HostWait(ms(50)),
        Step::Unlock(LOCK),
        FOREVER,
    ]);
    let waiter = first_then(&[Step::Run(ms(2)), Step::Lock(LOCK, Asked)], &[FOREVER]);
    let mut world = World::new("fss", 1, vec![(plain(0), owner), (plain(1), waiter)]);
    world.run_until(secs(10));
    assert!(world.ran(1) > secs(9), "{}", world.ran(1));
}

#[test]
fn a_thread_that_wakes_preempts_one_of_lower_priority() {
    let interactive = repeat(&[Step::Run(us(200)), Step::Sleep(ms(47))]);
    let mut world = World::new("fss", 1, vec![(plain(0), spin()), (plain(1), interactive)]);
    world.run_until(secs(5));
    world.events.clear();
    world.run_until(secs(60));
    // The spinner is at priority 1 by now, the other one near 59: nobody waits for a quantum.
    assert!(world.longest_wait(1) <= ms(10), "{}", world.longest_wait(1));
}

#[test]
fn parameters_that_fss_does_not_know_are_refused() {
    let refused = |params: VcpuParams| {
        let config = World::config("fss", 1, &[(params, spin())]);
        matches!(Dispatcher::new(&config), Err(ConfigError::Param { .. }))
    };
    let weight = Some(2);
    assert!(refused(VcpuParams {
        weight,
        siblings: 2,
        ..plain(0)
    }));
    assert!(refused(VcpuParams {
        slice: Some(ms(1)),
        ..plain(0)
    }));
    assert!(refused(VcpuParams {
        cap: Some(50),
        ..plain(0)
    }));
    assert!(refused(shares(0, 65_536)));
    assert!(!refused(VcpuParams { weight, ..plain(0) }));
    assert!(!refused(VcpuParams {
        nice: Some(-5),
        ..plain(0)
    }));
    let differing = [(wide(0, 2, 1), spin()), (wide(0, 2, 2), spin())];
    assert!(Dispatcher::new(&World::config("fss", 1, &differing)).is_err());
}

#[test]
fn a_quantum_that_is_no_whole_number_of_ticks_is_refused() {
    let error = |policy: &str| {
        let config = World::config(policy, 1, &[(plain(0), spin())]);
        Dispatcher::new(&config)
            .map(|_| ())
            .map_err(|error| error.to_string())
    };
    let message = error("fss:quantum=15ms").expect_err("15 ms are no ticks");
    assert!(
        message.contains("whole number of ticks of 10.0 ms"),
        "{message}"
    );
    assert_eq!(error("fss:quantum=15ms,tick=5ms"), Ok(()));
    assert!(error("fss:quantum=5ms").is_err());
    assert!(error("fss:kpri=maybe").is_err());
}
