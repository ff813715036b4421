//! What the source material says of this policy, one claim a test: scheduling. Arithmetic is tested
//! beside `estcpu.rs`.

use crate::dispatcher::Dispatcher;
use crate::event::EventKind;
use crate::ids::VcpuId;
use crate::policy::VcpuParams;
use crate::testing::{
    FOREVER, Script, Step, World, answers, first_then, ms, nice, plain, repeat, secs, spin, us,
};
use crate::time::Nanos;

/// A statistics tick at 127 Hz, and a slice of twelve.
const TICK: Nanos = Nanos(7_874_015);
const SLICE: Nanos = Nanos(12 * 7_874_015);

/// When the vCPU first ran from that instant on.
fn first_run(world: &World, vcpu: u32, from: Nanos) -> Option<Nanos> {
    let switches = world.switches(0);
    let found = switches
        .iter()
        .find(|(at, who)| *who == vcpu && *at >= from);
    found.map(|(at, _)| *at)
}

#[test]
fn two_hogs_alternate_every_slice_of_94_5_ms() {
    let mut world = World::new("4bsd", 1, vec![(plain(0), spin()), (plain(1), spin())]);
    world.run_until(secs(60));
    let times: Vec<_> = world.switches(0).iter().map(|(at, _)| *at).collect();
    // Both begin with a slice of one tick, as a forked thread does.
    assert_eq!(times[1..3], [TICK, Nanos(2 * TICK.get())]);
    let lengths: Vec<_> = times[2..].windows(2).map(|w| w[1] - w[0]).collect();
    assert!(lengths.iter().all(|length| length.get() % SLICE.get() == 0));
    let whole = lengths.iter().filter(|length| **length == SLICE).count();
    assert!(
        whole * 10 >= lengths.len() * 9,
        "{whole} of {}",
        lengths.len()
    );
    assert!((world.share(0) - 0.5).abs() < 0.02, "{}", world.share(0));
}

#[test]
fn a_smaller_nice_value_gets_more() {
    let vcpus = vec![(nice(0, 0), spin()), (nice(1, 10), spin())];
    let mut world = World::new("4bsd", 1, vcpus);
    world.run_until(secs(60));
    let (first, second) = (world.share(0), world.share(1));
    assert!(first > second + 0.1 && second > 0.05, "{first} {second}");
}

/// A system call of 5 ms from 1 ms on, with a nested critical section of 30 us from 2 ms on.
fn call_with_section() -> Script {
    let steps = [
        Step::Sleep(ms(1)),
        Step::Run(ms(1)),
        Step::Critical(1),
        Step::Critical(2),
        Step::Run(us(30)),
        Step::Critical(1),
        Step::Critical(0),
        Step::Run(us(3_970)),
        Step::UserReturn,
    ];
    first_then(&steps, &[FOREVER])
}

#[test]
fn an_interrupt_in_a_critical_section_waits_for_its_end_and_in_2004_for_the_end_of_the_call() {
    for (deferred, started) in [("off", us(2_030)), ("on", ms(6))] {
        let vcpus = vec![(plain(0), call_with_section()), (plain(1), answers())];
        let mut world = World::new(&format!("4bsd:deferred={deferred}"), 1, vcpus);
        world.device(us(2_010), 1);
        world.run_until(ms(7));
        assert_eq!(first_run(&world, 1, us(2_010)), Some(started), "{deferred}");
    }
}

#[test]
fn outside_a_critical_section_an_interrupt_starts_at_once_either_way() {
    for deferred in ["off", "on"] {
        let vcpus = vec![(plain(0), call_with_section()), (plain(1), answers())];
        let mut world = World::new(&format!("4bsd:deferred={deferred}"), 1, vcpus);
        world.device(us(2_500), 1);
        world.run_until(ms(7));
        assert_eq!(
            first_run(&world, 1, us(2_010)),
            Some(us(2_500)),
            "{deferred}"
        );
    }
}

/// In a critical section for 950 us of each millisecond, from `from` on, without end.
fn sections(from: Nanos) -> Script {
    let cycle = [
        Step::Critical(1),
        Step::Run(us(950)),
        Step::Critical(0),
        Step::Run(us(50)),
    ];
    first_then(&[Step::Sleep(from)], &cycle)
}

#[test]
fn a_remembered_interrupt_is_let_through_by_a_clock_interrupt_outside_a_section() {
    // Sections end 30 us before each whole millisecond: the tick at 10 ms falls between two.
    let vcpus = vec![(plain(0), sections(us(1_020))), (plain(1), answers())];
    let mut world = World::new("4bsd:deferred=on", 1, vcpus);
    world.device(us(3_500), 1);
    world.run_until(ms(30));
    assert_eq!(first_run(&world, 1, us(3_500)), Some(ms(10)));
    // In the midst of a section the clock interrupt cannot switch either.
    let vcpus = vec![(plain(0), sections(us(1_500))), (plain(1), answers())];
    let mut world = World::new("4bsd:deferred=on", 1, vcpus);
    world.device(us(3_700), 1);
    world.run_until(ms(45));
    assert_eq!(first_run(&world, 1, us(3_700)), None);
}

#[test]
fn another_interrupt_that_can_be_switched_to_at_once_ends_the_wait_too() {
    let vcpus = vec![
        (plain(0), sections(us(1_500))),
        (plain(1), answers()),
        (plain(2), answers()),
    ];
    let mut world = World::new("4bsd:deferred=on", 1, vcpus);
    world.device(us(3_700), 1);
    // Sections of this one end at 450 us past the millisecond.
    world.device(us(5_470), 2);
    world.run_until(ms(8));
    assert_eq!(first_run(&world, 1, us(3_700)), Some(us(5_470)));
    assert_eq!(first_run(&world, 2, us(3_700)), Some(us(5_570)));
}

/// Waits for a device, then runs 1 ms in the kernel and goes on in user mode.
fn woken_in_kernel() -> Script {
    let steps = [Step::HostWait(ms(5)), Step::Run(ms(1)), Step::UserReturn];
    first_then(&steps, &[FOREVER])
}

#[test]
fn who_becomes_ready_behind_a_kernel_priority_waits_for_the_end_of_the_slice() {
    for userret in ["number-restored", "sticky-kernel-priority"] {
        // Ready at 5.5 ms: worse than the kernel priority of a device's wait, better than user mode.
        let late = first_then(&[Step::Sleep(us(5_500))], &[FOREVER]);
        let vcpus = vec![(plain(0), woken_in_kernel()), (plain(1), late)];
        let mut world = World::new(&format!("4bsd:userret={userret}"), 1, vcpus);
        world.run_until(ms(200));
        // The slice began at 5 ms; its twelfth tick comes at 94.5 ms, long after the return at 6 ms.
        assert_eq!(first_run(&world, 1, us(5_500)), Some(SLICE), "{userret}");
    }
}

#[test]
fn a_wake_up_after_the_return_is_compared_with_the_restored_number_and_not_with_the_sticky_one() {
    for (userret, started) in [
        ("number-restored", ms(8)),
        ("sticky-kernel-priority", SLICE),
    ] {
        let late = first_then(&[Step::Sleep(ms(8))], &[FOREVER]);
        let vcpus = vec![(plain(0), woken_in_kernel()), (plain(1), late)];
        let mut world = World::new(&format!("4bsd:userret={userret}"), 1, vcpus);
        world.run_until(ms(200));
        assert_eq!(first_run(&world, 1, ms(8)), Some(started), "{userret}");
    }
}

/// In the hypervisor from 1 ms to 6 ms.
fn in_hypervisor() -> Script {
    let steps = [
        Step::Run(ms(1)),
        Step::Exit,
        Step::Run(ms(5)),
        Step::Resume,
        Step::Run(ms(1)),
        Step::UserReturn,
    ];
    first_then(&steps, &[FOREVER])
}

#[test]
fn who_wakes_from_a_kernel_sleep_preempts_nobody_in_the_kernel_but_asks_for_an_ast() {
    let cases = [
        ("4bsd", ms(6)),
        ("4bsd:full-preemption=on", ms(3)),
        ("4bsd:guest=kernel-strict", ms(7)),
    ];
    for (policy, started) in cases {
        // The hog comes second, so that the sleeper is asleep when the first millisecond begins.
        let sleeper = repeat(&[Step::Sleep(ms(3)), FOREVER]);
        let vcpus = vec![(plain(0), sleeper), (plain(1), in_hypervisor())];
        let mut world = World::new(policy, 1, vcpus);
        world.run_until(us(7_500));
        assert_eq!(first_run(&world, 0, ms(1)), Some(started), "{policy}");
    }
}

#[test]
fn an_interrupts_thread_preempts_in_the_kernel_too() {
    let vcpus = vec![(plain(0), answers()), (plain(1), in_hypervisor())];
    let mut world = World::new("4bsd", 1, vcpus);
    world.device(ms(3), 0);
    world.run_until(ms(4));
    assert_eq!(first_run(&world, 0, ms(1)), Some(ms(3)));
}

/// Waits once, then spins and never returns to user mode.
fn once_woken() -> Script {
    first_then(&[Step::HostWait(ms(5))], &[FOREVER])
}

#[test]
fn a_kernel_priority_ends_with_the_slice_unless_nobody_looks_at_the_ast() {
    let world = |policy: &str| {
        // Ready at 6 ms, with a worse kernel priority.
        let late = first_then(&[Step::Sleep(ms(6))], &[FOREVER]);
        let vcpus = vec![(plain(0), once_woken()), (plain(1), late)];
        let mut world = World::new(policy, 1, vcpus);
        world.run_until(secs(5));
        world
    };
    let looked = world("4bsd");
    assert!(looked.longest_wait(1) <= Nanos(3 * SLICE.get()));
    let strict = world("4bsd:guest=kernel-strict");
    assert!(
        strict.longest_wait(1) > secs(4),
        "{}",
        strict.longest_wait(1)
    );
}

#[test]
fn if_entering_the_guest_is_a_return_to_user_mode_the_kernel_priority_ends_there() {
    // Woken at 5 ms before the hog, it is compared with the next sleeper as user mode at 6 ms.
    let late = first_then(&[Step::Sleep(ms(6))], &[FOREVER]);
    let vcpus = vec![(plain(0), once_woken()), (plain(1), late)];
    let mut world = World::new("4bsd:guest=user", 1, vcpus);
    world.run_until(ms(7));
    assert_eq!(first_run(&world, 1, ms(6)), Some(ms(6)));
}

#[test]
fn the_slices_of_the_older_releases_end_at_100_ms_or_the_tick_after() {
    let switches = |model: &str| {
        let vcpus = vec![(plain(0), spin()), (plain(1), spin())];
        let mut world = World::new(&format!("4bsd:quantum-model={model}"), 1, vcpus);
        world.run_until(ms(450));
        world
            .switches(0)
            .iter()
            .map(|(at, _)| *at)
            .collect::<Vec<_>>()
    };
    let whole: Vec<_> = (0..5).map(|n| ms(100 * n)).collect();
    assert_eq!(switches("roundrobin"), whole);
    let ticks: Vec<_> = (0..5).map(|n| Nanos(13 * n * TICK.get())).collect();
    assert_eq!(switches("elapsed"), ticks);
}

#[test]
fn a_whole_sleep_of_n_seconds_is_forgiven_n_minus_1_times() {
    // Walks come at whole seconds: one that sleeps from just after one until just after the fifth.
    let mut policy = super::FourBsd::new(&options("4bsd"), 1);
    use crate::policy::{Enqueue, Policy};
    let (vcpu, core) = (VcpuId(0), crate::ids::CoreId(0));
    policy.declare(vcpu, &plain(0)).expect("nothing asked for");
    let _placed = policy.enqueue(Nanos::ZERO, vcpu, Enqueue::New);
    let _picked = policy.pick(Nanos::ZERO, core);
    policy.threads[0].estcpu = 295;
    policy.load = super::estcpu::SCALE;
    policy.block(ms(100), core, vcpu, crate::event::Waits::Sleep);
    for second in 1..=4 {
        let _nobody = policy.periodic(secs(second));
    }
    // The load average is left alone until the fifth walk.
    policy.load_in = 2;
    let _nobody = policy.periodic(secs(5));
    let _placed = policy.enqueue(us(5_100_000), vcpu, Enqueue::Wake);
    assert_eq!(policy.threads[0].estcpu, 57);
    assert_eq!(policy.threads[0].priority.user(), 147);
}

fn options(policy: &str) -> crate::spec::Options {
    let spec = policy.parse().expect("a policy string");
    crate::registry::check(&spec).expect("understood").1
}

#[test]
fn a_remembered_preemption_is_told_as_such() {
    let vcpus = vec![(plain(0), call_with_section()), (plain(1), answers())];
    let mut world = World::new("4bsd:deferred=on", 1, vcpus);
    world.device(us(2_010), 1);
    world.run_until(ms(7));
    let owed = |event: &&crate::event::Event| matches!(event.kind, EventKind::Owed(..));
    let events: Vec<_> = world.events.iter().filter(owed).collect();
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0].at, us(2_010));
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
        let config = World::config("4bsd", 1, &[(params, spin())]);
        let refused = Dispatcher::new(&config).expect_err("refused").to_string();
        assert!(refused.contains("nice"), "{refused}");
    }
}
