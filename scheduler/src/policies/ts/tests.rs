//! What the source material says of this policy, one claim a test. The tables are tested beside
//! `table.rs`.

use super::table::Table;
use super::threads::Ts;
use super::{INFO, Policy};
use crate::dispatcher::{ConfigError, Dispatcher};
use crate::event::{PreemptReason, Waits};
use crate::ids::{CoreId, HostLockId, VcpuId};
use crate::input::KernelPriority::Asked;
use crate::policy::{Enqueue, KernelRequest, Preempt, VcpuParams};
use crate::spec::Options;
use crate::testing::{FOREVER, Step, World, first_then, ms, nice, plain, repeat, secs, spin};
use crate::time::Nanos;

const A: VcpuId = VcpuId(0);
const CORE: CoreId = CoreId(0);

/// A policy with one thread of this nice value, on its core in this row.
fn alone(options: &str, nice: i8, row: u8) -> Ts {
    let named = format!("ts{options}").parse().expect("options");
    let options = Options::check(&named, INFO.options).expect("known");
    let mut ts = Ts::new(&options, 1);
    ts.add(nice);
    let thread = ts.thread(A);
    thread.row = row;
    thread.priority = thread.user();
    thread.left = Table::Default.row(row).quantum;
    let _ = ts.enqueue(Nanos::ZERO, A, Enqueue::New);
    let _ = ts.pick(Nanos::ZERO, CORE);
    ts
}

/// Ticks until it is asked to leave, and the row that it is in then.
fn falls(ts: &mut Ts) -> (u32, u8) {
    let mut ticks = 1;
    while ts.tick(Nanos::ZERO, CORE, A) == Preempt::Keep {
        ticks += 1;
    }
    preempt(ts);
    let _ = ts.pick(Nanos::ZERO, CORE);
    (ticks, ts.thread(A).row)
}

fn preempt(ts: &mut Ts) {
    let why = Enqueue::Preempted(CORE, PreemptReason::Tick);
    let _ = ts.enqueue(Nanos::ZERO, A, why);
}

fn sleep(ts: &mut Ts) -> u8 {
    ts.block(Nanos::ZERO, CORE, A, Waits::Sleep);
    ts.thread(A).row
}

fn wake(ts: &mut Ts) -> u8 {
    let _ = ts.enqueue(ms(5), A, Enqueue::Wake);
    let _ = ts.pick(ms(5), CORE);
    ts.thread(A).row
}

fn second(ts: &mut Ts) {
    let _ = ts.periodic(secs(1));
}

#[test]
fn a_spinner_falls_to_row_0_in_480_ms() {
    let mut ts = alone("", 0, 29);
    let falls: Vec<_> = (0..4).map(|_| falls(&mut ts)).collect();
    assert_eq!(falls, [(12, 19), (16, 9), (20, 0), (20, 0)]);
}

#[test]
fn a_second_in_the_queue_raises_and_the_way_down_again_costs_440_ms() {
    let mut ts = alone("", 0, 0);
    preempt(&mut ts);
    second(&mut ts);
    assert_eq!((ts.thread(A).row, ts.thread(A).priority), (50, 50));
    let _ = ts.pick(secs(1), CORE);
    let falls: Vec<_> = (0..5).map(|_| falls(&mut ts)).collect();
    assert_eq!(falls, [(4, 40), (4, 30), (8, 20), (12, 10), (16, 0)]);
}

#[test]
fn a_second_on_the_core_raises_at_the_next_return_to_user_mode_without_any_sleep() {
    let mut ts = alone("", 0, 0);
    second(&mut ts);
    assert_eq!((ts.thread(A).row, ts.thread(A).waited), (0, 1));
    let _ = ts.user_return(secs(1), CORE, A);
    assert_eq!((ts.thread(A).row, ts.thread(A).waited), (50, 0));
    assert_eq!(falls(&mut ts), (4, 40));
}

#[test]
fn a_sleeper_rises_to_52_after_a_second_and_to_58_after_another() {
    let mut ts = alone("", 0, 29);
    assert_eq!(sleep(&mut ts), 29);
    assert_eq!(wake(&mut ts), 29);
    second(&mut ts);
    assert_eq!(sleep(&mut ts), 52);
    assert_eq!(wake(&mut ts), 52);
    // The wait counts asleep too.
    let _ = sleep(&mut ts);
    second(&mut ts);
    assert_eq!(wake(&mut ts), 58);
}

#[test]
fn sleep_alone_gives_back_no_quantum() {
    let mut ts = alone("", 0, 29);
    for _ in 0..5 {
        assert_eq!(ts.tick(Nanos::ZERO, CORE, A), Preempt::Keep);
    }
    let _ = (sleep(&mut ts), wake(&mut ts));
    assert_eq!(falls(&mut ts), (7, 19));
}

#[test]
fn at_priority_59_nobody_rises_and_the_quantum_is_20_ms() {
    let mut ts = alone("", 0, 59);
    preempt(&mut ts);
    (0..1_000).for_each(|_| second(&mut ts));
    assert_eq!((ts.thread(A).row, ts.thread(A).waited), (59, 1_000));
    let _ = ts.pick(secs(1), CORE);
    assert_eq!(falls(&mut ts), (2, 49));
}

#[test]
fn the_quantum_is_that_of_the_row_whatever_the_offset() {
    let mut ts = alone("", -7, 45);
    assert_eq!(ts.thread(A).priority, 59);
    assert_eq!(falls(&mut ts), (4, 35));
    let thread = ts.thread(A);
    assert_eq!((thread.offset, thread.priority), (21, 56));
    let offset = |nice| alone("", nice, 29).thread(A).offset;
    assert_eq!([-20, 0, 19].map(offset), [60, 0, -57]);
}

#[test]
fn the_flag_stops_the_quantum_and_the_rise_until_a_return_to_user_mode() {
    let mut ts = alone("", 0, 29);
    ts.kernel_priority(Nanos::ZERO, A, KernelRequest::Begin);
    preempt(&mut ts);
    let _ = ts.pick(Nanos::ZERO, CORE);
    ts.kernel_priority(Nanos::ZERO, A, KernelRequest::End);
    assert_eq!(ts.thread(A).priority, 60);
    for _ in 0..100 {
        assert_eq!(ts.tick(Nanos::ZERO, CORE, A), Preempt::Keep);
    }
    second(&mut ts);
    assert_eq!(ts.thread(A).row, 29);
    let _ = ts.user_return(secs(1), CORE, A);
    assert_eq!((ts.thread(A).flag, ts.thread(A).priority), (false, 52));
}

#[test]
fn a_flag_that_is_never_given_up_starves_the_other_before_11909_and_not_after() {
    let caught = [
        Step::Lock(HostLockId(0), Asked),
        Step::HostWait(ms(1)),
        Step::Unlock(HostLockId(0)),
    ];
    let world = |policy: &str| {
        let catches = first_then(&caught, &[FOREVER]);
        let mut world = World::new(policy, 1, vec![(plain(0), catches), (plain(1), spin())]);
        world.run_until(secs(60));
        world
    };
    assert_eq!(world("ts").ran(1), ms(1));
    assert_eq!(world("ts:variant=after,kpri=on").ran(1), ms(1));
    for policy in ["ts:variant=after", "ts:kpri=off"] {
        let world = world(policy);
        assert!((0.4..0.6).contains(&world.share(1)), "{}", world.share(1));
    }
}

#[test]
fn two_spinners_in_user_mode_share_and_one_that_never_returns_has_less() {
    let returns = repeat(&[Step::Run(ms(1)), Step::UserReturn]);
    let first = |script| {
        let vcpus = vec![(plain(0), script), (plain(1), returns.clone())];
        let mut world = World::new("ts", 1, vcpus);
        world.run_until(secs(60));
        world.share(0)
    };
    let both = first(returns.clone());
    assert!((0.40..=0.60).contains(&both), "{both}");
    let never = first(spin());
    assert!(never < 0.5 && never > 0.3, "{never}");
}

#[test]
fn who_is_nicer_gets_less_and_still_something() {
    let vcpus = vec![(nice(0, 0), spin()), (nice(1, 10), spin())];
    let mut world = World::new("ts", 1, vcpus);
    world.run_until(secs(60));
    let share = world.share(1);
    assert!((0.05..0.45).contains(&share), "{share}");
}

#[test]
fn one_that_sleeps_much_goes_before_a_spinner() {
    let interactive = repeat(&[Step::Run(ms(1)), Step::Sleep(ms(47))]);
    let vcpus = vec![(plain(0), spin()), (plain(1), interactive)];
    let mut world = World::new("ts", 1, vcpus);
    world.run_until(secs(5));
    world.events.clear();
    world.run_until(secs(60));
    let wait = world.longest_wait(1);
    assert!(wait <= ms(41), "{wait}");
}

#[test]
fn what_ts_does_not_know_is_refused() {
    let refused = |params: VcpuParams| {
        let config = World::config("ts", 1, &[(params, spin())]);
        matches!(Dispatcher::new(&config), Err(ConfigError::Param { .. }))
    };
    let two = Some(2);
    let wrong = [
        VcpuParams {
            weight: two,
            ..plain(0)
        },
        VcpuParams {
            shares: two,
            ..plain(0)
        },
        VcpuParams {
            cap: Some(50),
            ..plain(0)
        },
        VcpuParams {
            slice: Some(ms(1)),
            ..plain(0)
        },
        VcpuParams {
            period: Some(ms(1)),
            ..plain(0)
        },
    ];
    for params in wrong {
        assert!(refused(params), "{params:?}");
    }
    assert!(!refused(nice(0, -20)));
}
