//! The collector on hand-written events, and on any events whatever.

use super::{Account, Collector, Stop};
use crate::testing::{Tape, plan};
use proptest::prelude::{
    Just, ProptestConfig, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest,
};
use stealtime_scheduler::event::{
    Event, EventKind, PreemptReason, Standing, Until, Waits, WakeSource,
};
use stealtime_scheduler::ids::{CoreId, HostLockId, VcpuId};
use stealtime_scheduler::input::{ExitReason, Mark, RetireReason};
use stealtime_scheduler::time::Nanos;

const C0: CoreId = CoreId(0);

/// run, hypervisor, ready, co-stopped, blocked, idle.
fn times(account: &Account) -> [u64; 6] {
    let t = account.figures.times;
    [t.run, t.hypervisor, t.ready, t.costopped, t.blocked, t.idle]
}

fn sum(account: &Account) -> u64 {
    times(account).iter().sum()
}

#[test]
fn time_goes_to_the_state_that_the_vcpu_is_in() {
    let mut tape = Tape::new(&plan("rr", 1, 1));
    tape.at(10, 0, EventKind::Admitted);
    tape.at(15, 0, EventKind::Granted(C0));
    tape.at(20, 0, EventKind::Running(C0)); // ready 10, idle before 10
    tape.at(50, 0, EventKind::Exited(ExitReason::Call)); // run 30
    tape.at(57, 0, EventKind::Resumed); // hypervisor 7
    tape.at(60, 0, EventKind::Exited(ExitReason::Halt)); // run 3
    tape.at(61, 0, EventKind::Blocked(Waits::Host)); // hypervisor 1
    tape.at(71, 0, EventKind::Woken(WakeSource::Timer)); // blocked 10
    tape.at(75, 0, EventKind::Running(C0)); // ready 4
    tape.at(76, 0, EventKind::Blocked(Waits::Sleep)); // run 1
    tape.at(96, 0, EventKind::Retired(RetireReason::Finished)); // idle 20
    tape.at(100, 0, EventKind::Mark(Mark::MeasureEnd)); // idle 4
    tape.at(200, 0, EventKind::Admitted); // after the end: counts for nothing
    let collector = tape.collector;
    let account = &collector.accounts[0];
    assert_eq!(times(account), [34, 8, 14, 0, 10, 34]);
    assert_eq!(collector.measured(), (0, 100));
    assert_eq!(collector.events, 13);
    let wakeup = account.figures.wakeup.report();
    assert_eq!((wakeup.count, wakeup.max, wakeup.max_at_ns), (1, 4, 71));
    let delay = account.figures.run_delay.report();
    assert_eq!((delay.count, delay.max, delay.max_at_ns), (2, 10, 10));
    assert_eq!(account.figures.longest, (10, 10, false));
    assert_eq!(account.figures.exits[ExitReason::Call as usize], 1);
}

#[test]
fn time_held_back_for_siblings_is_told_apart_from_time_ready_but_is_one_wait() {
    let mut tape = Tape::new(&plan("rr", 1, 1));
    let costopped = |costopped| {
        EventKind::Standing(Standing {
            costopped,
            ..Standing::default()
        })
    };
    tape.at(0, 0, EventKind::Admitted);
    tape.at(0, 0, EventKind::Running(C0));
    tape.at(30, 0, costopped(true)); // on its way off the core it still runs
    tape.at(32, 0, EventKind::Preempted(C0, PreemptReason::Period)); // run 32
    tape.at(40, 0, costopped(false)); // co-stopped 8
    tape.at(45, 0, EventKind::Running(C0)); // ready 5
    tape.at(46, 0, EventKind::Blocked(Waits::Sleep)); // run 1
    tape.at(50, 0, costopped(true)); // idle all the same
    tape.at(60, 0, EventKind::Woken(WakeSource::Timer)); // idle 14
    tape.at(63, 0, EventKind::Mark(Mark::MeasureEnd)); // co-stopped 3
    let account = &tape.collector.accounts[0];
    assert_eq!(times(account), [33, 0, 5, 11, 0, 14]);
    let delay = account.figures.run_delay.report();
    assert_eq!((delay.count, delay.max, delay.max_at_ns), (2, 13, 32));
    assert_eq!(account.figures.preempted, 13);
}

#[test]
fn the_start_of_the_measurement_resets_figures_and_keeps_states() {
    let mut tape = Tape::new(&plan("rr", 2, 1));
    tape.at(0, 0, EventKind::Admitted);
    tape.at(0, 0, EventKind::Running(C0));
    tape.at(0, 1, EventKind::Admitted);
    tape.at(40, 0, EventKind::Mark(Mark::MeasureStart));
    tape.at(90, 0, EventKind::Preempted(C0, PreemptReason::SliceEnd));
    tape.at(90, 1, EventKind::Running(C0));
    tape.at(140, 0, EventKind::Mark(Mark::MeasureEnd));
    let collector = &mut tape.collector;
    assert_eq!(times(&collector.accounts[0]), [50, 0, 50, 0, 0, 0]);
    assert_eq!(times(&collector.accounts[1]), [50, 0, 50, 0, 0, 0]);
    // The wait from 0 to 90 counts from 40; the unfinished one counts as a wait, but not as a delay
    // that ended.
    assert_eq!(collector.accounts[1].figures.longest, (50, 40, false));
    assert_eq!(collector.accounts[1].figures.run_delay.report().max, 50);
    assert_eq!(collector.accounts[0].figures.longest, (50, 90, true));
    assert_eq!(collector.accounts[0].figures.run_delay.report().count, 0);
    assert!((collector.entitled(0) - 50.0).abs() < 1e-9);
    assert!((collector.entitled(1) - 50.0).abs() < 1e-9);
}

#[test]
fn preemptions_are_counted_by_reason_and_those_in_a_guest_lock_apart() {
    let mut tape = Tape::new(&plan("rr", 1, 1));
    let locks = |held| EventKind::Locks {
        held,
        critical: 0,
        waits_for: None,
        in_line: false,
    };
    tape.at(0, 0, EventKind::Admitted);
    for (at, held, why) in [
        (1, 0, PreemptReason::SliceEnd),
        (2, 1, PreemptReason::Wakeup),
        (3, 0, PreemptReason::Wakeup),
        (5, 1, PreemptReason::LockWait),
    ] {
        tape.at(at, 0, EventKind::Running(C0));
        tape.at(at, 0, locks(held));
        tape.at(at, 0, EventKind::Kicked(C0, why));
        tape.at(at + 1, 0, EventKind::Preempted(C0, why));
    }
    tape.at(
        9,
        0,
        EventKind::Migrated {
            from: C0,
            to: CoreId(1),
        },
    );
    tape.collector.close();
    let collector = tape.collector;
    let figures = &collector.accounts[0].figures;
    assert_eq!(figures.preemptions, [1, 2, 0, 0, 0, 1, 0]);
    assert_eq!(
        (
            figures.preemptions_in_lock,
            figures.kicks,
            figures.migrations
        ),
        (1, 4, 1)
    );
    assert_eq!(
        (collector.kick.report().count, collector.kick.report().max),
        (4, 1)
    );
}

#[test]
fn the_hosts_delay_is_waiting_under_the_host_and_interference_under_a_policy() {
    let mut tape = Tape::new(&plan("host", 1, 1));
    tape.at(0, 0, EventKind::Admitted);
    tape.at(0, 0, EventKind::Granted(C0));
    tape.at(5, 0, EventKind::Running(C0));
    tape.at(100, 0, EventKind::HostDelay(Nanos(45))); // 5 of it are the entry, booked as ready
    tape.at(200, 0, EventKind::HostDelay(Nanos(1_000_000))); // more than it ran
    tape.at(300, 0, EventKind::Mark(Mark::MeasureEnd));
    let account = &tape.collector.accounts[0];
    assert_eq!(times(account), [100, 0, 200, 0, 0, 0]);
    assert_eq!(account.figures.run_delay.report().count, 3);
    assert_eq!(account.figures.longest.0, 155);

    let mut tape = Tape::new(&plan("rr", 1, 1));
    tape.at(0, 0, EventKind::Admitted);
    tape.at(0, 0, EventKind::Running(C0));
    tape.at(100, 0, EventKind::HostDelay(Nanos(40)));
    tape.collector.close();
    let account = &tape.collector.accounts[0];
    assert_eq!(times(account), [100, 0, 0, 0, 0, 0]);
    assert_eq!(account.figures.host_delay, 40);
}

#[test]
fn what_the_host_delayed_before_the_measurement_does_not_count() {
    for (policy, ready, interference) in [("host", 30, 0), ("rr", 0, 30)] {
        let mut tape = Tape::new(&plan(policy, 1, 1));
        tape.at(0, 0, EventKind::Admitted);
        tape.at(0, 0, EventKind::Running(C0));
        tape.at(100, 0, EventKind::Mark(Mark::MeasureStart));
        tape.at(130, 0, EventKind::HostDelay(Nanos(90))); // 60 at least were before the start
        tape.at(200, 0, EventKind::Mark(Mark::MeasureEnd));
        let worst = tape.collector.worst().map(|(wait, _)| (wait.from, wait.to));
        assert_eq!(worst, (ready > 0).then_some((100, 130)), "{policy}");
        let account = &tape.collector.accounts[0];
        assert_eq!(times(account), [100 - ready, 0, ready, 0, 0, 0]);
        let longest = if ready > 0 {
            (30, 100, false)
        } else {
            (0, 0, false)
        };
        assert_eq!(account.figures.longest, longest);
        assert_eq!(account.figures.host_delay, interference);
    }
}

#[test]
fn a_core_asked_back_before_it_was_entered_is_no_slow_stop_for_the_rest_of_the_run() {
    let why = PreemptReason::Wakeup;
    let left = [
        EventKind::Preempted(C0, why),
        EventKind::Blocked(Waits::Host),
        EventKind::Retired(RetireReason::Finished),
    ];
    for left in left {
        let mut tape = Tape::new(&plan("rr", 1, 1));
        tape.at(0, 0, EventKind::Admitted);
        tape.at(0, 0, EventKind::Granted(C0));
        tape.at(10, 0, EventKind::Owed(C0, why, Until::UserReturn));
        tape.at(20, 0, EventKind::Kicked(C0, why));
        tape.at(25, 0, EventKind::Owed(C0, why, Until::UserReturn));
        tape.at(30, 0, left);
        tape.at(900, 0, EventKind::Running(C0));
        tape.at(1_000, 0, EventKind::Mark(Mark::MeasureEnd));
        let account = &tape.collector.accounts[0];
        assert_eq!(tape.collector.slowest_stop(), None, "{left:?}");
        assert_eq!(tape.collector.kick.report().count, 0, "{left:?}");
        assert_eq!(account.deferrals.during(30, 1_000), None, "{left:?}");
    }
}

#[test]
fn a_core_asked_back_before_it_was_entered_and_left_later_is_timed() {
    let mut tape = Tape::new(&plan("rr", 1, 1));
    tape.at(0, 0, EventKind::Admitted);
    tape.at(0, 0, EventKind::Granted(C0));
    tape.at(20, 0, EventKind::Kicked(C0, PreemptReason::Wakeup));
    tape.at(30, 0, EventKind::Running(C0));
    tape.at(45, 0, EventKind::Preempted(C0, PreemptReason::Wakeup));
    tape.at(100, 0, EventKind::Mark(Mark::MeasureEnd));
    let stop = tape.collector.slowest_stop();
    let (vcpu, asked, left) = (0, 20, 45);
    assert_eq!(stop, Some(Stop { vcpu, asked, left }));
    assert_eq!(tape.collector.kick.report().max, 25);
}

#[test]
fn a_core_asked_back_during_the_warm_up_is_timed_from_the_start_of_the_measurement() {
    let mut tape = Tape::new(&plan("rr", 1, 1));
    tape.at(0, 0, EventKind::Admitted);
    tape.at(0, 0, EventKind::Running(C0));
    tape.at(20, 0, EventKind::Kicked(C0, PreemptReason::Wakeup));
    tape.at(100, 0, EventKind::Mark(Mark::MeasureStart));
    tape.at(110, 0, EventKind::Preempted(C0, PreemptReason::Wakeup));
    tape.at(200, 0, EventKind::Mark(Mark::MeasureEnd));
    let stop = tape.collector.slowest_stop();
    let (vcpu, asked, left) = (0, 100, 110);
    assert_eq!(stop, Some(Stop { vcpu, asked, left }));
    let kick = tape.collector.kick.report();
    assert_eq!((kick.count, kick.max, kick.max_at_ns), (1, 10, 100));
}

#[test]
fn a_kernel_priority_is_known_with_the_lock_it_came_from() {
    let mut tape = Tape::new(&plan("fss", 2, 1));
    let priority = |kernel_priority| {
        EventKind::Standing(Standing {
            kernel_priority,
            ..Standing::default()
        })
    };
    tape.at(0, 0, EventKind::Admitted);
    tape.at(0, 0, EventKind::Running(C0));
    tape.at(0, 1, EventKind::Admitted);
    tape.at(10, 0, EventKind::HostLockTaken(HostLockId(3)));
    tape.at(10, 0, priority(true));
    tape.at(12, 0, EventKind::HostLockReleased(HostLockId(3)));
    tape.at(500, 0, EventKind::Mark(Mark::MeasureEnd));
    let collector = &mut tape.collector;
    let (wait, meanwhile) = collector.worst().expect("one waited");
    assert_eq!(
        (wait.vcpu, wait.from, wait.to, wait.ended),
        (1, 0, 500, false)
    );
    assert_eq!(meanwhile.occupants[0].on_core, 500);
    assert_eq!(meanwhile.occupants[0].at_kernel_priority, 490);
    assert_eq!(collector.accounts[0].figures.kernel_priority, 490);
    let (episode, common) = collector.accounts[0]
        .priorities
        .during(0, 500)
        .expect("it had one");
    assert_eq!(
        (episode.since, episode.lock, episode.released),
        (10, Some(HostLockId(3)), Some(12))
    );
    assert_eq!((episode.user_returns, common), (0, 490));
}

/// Any event, legal or not.
fn any_kind() -> impl Strategy<Value = EventKind> {
    let core = (0_u16..6).prop_map(CoreId);
    let why = prop_oneof![Just(PreemptReason::SliceEnd), Just(PreemptReason::Tick)];
    let waits = prop_oneof![
        Just(Waits::Idle),
        Just(Waits::Sleep),
        Just(Waits::Host),
        Just(Waits::HostLock(HostLockId(1), VcpuId(9))),
    ];
    prop_oneof![
        Just(EventKind::Admitted),
        Just(EventKind::Retired(RetireReason::Fault)),
        Just(EventKind::Woken(WakeSource::Timer)),
        core.clone().prop_map(EventKind::Granted),
        core.clone().prop_map(EventKind::Running),
        core.clone().prop_map(EventKind::Running),
        Just(EventKind::Exited(ExitReason::Call)),
        Just(EventKind::Resumed),
        (core.clone(), why.clone()).prop_map(|(c, w)| EventKind::Kicked(c, w)),
        (core.clone(), why.clone()).prop_map(|(c, w)| EventKind::Preempted(c, w)),
        (core.clone(), why).prop_map(|(c, w)| EventKind::Owed(c, w, Until::UserReturn)),
        core.prop_map(EventKind::Yielded),
        waits.prop_map(EventKind::Blocked),
        (0_u16..3).prop_map(|l| EventKind::HostLockTaken(HostLockId(l))),
        (0_u16..3).prop_map(|l| EventKind::HostLockReleased(HostLockId(l))),
        (any::<bool>(), any::<bool>()).prop_map(|(kernel_priority, costopped)| {
            EventKind::Standing(Standing {
                kernel_priority,
                costopped,
                ..Standing::default()
            })
        }),
        (0_u64..2_000).prop_map(|d| EventKind::HostDelay(Nanos(d))),
        Just(EventKind::UserReturn),
        Just(EventKind::Violation(7)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn whatever_comes_the_states_sum_to_the_time_measured(
        hosted: bool,
        cores in 1_usize..4,
        start in 0_usize..200,
        events in proptest::collection::vec((0_u64..500, 0_u32..6, any_kind()), 1..300),
    ) {
        let mut collector = Collector::new(&plan(if hosted { "host" } else { "rr" }, 5, cores));
        let (mut now, mut runnable) = (0, 0.0);
        for (place, (passed, vcpu, kind)) in events.into_iter().enumerate() {
            now += passed;
            if place == start {
                let kind = EventKind::Mark(Mark::MeasureStart);
                collector.event(&Event { at: Nanos(now), vcpu: VcpuId(0), kind });
            }
            // vCPU 5 does not exist.
            collector.event(&Event { at: Nanos(now), vcpu: VcpuId(vcpu), kind });
        }
        collector.close();
        let (from, to) = collector.measured();
        prop_assert_eq!(to, now);
        for vcpu in 0..5 {
            let entitled = collector.entitled(vcpu);
            runnable += entitled;
            let account = &collector.accounts[vcpu];
            let figures = &account.figures;
            prop_assert_eq!(sum(account), to - from);
            let waited = figures.times.ready + figures.times.costopped;
            prop_assert!(figures.longest.0 <= waited);
            prop_assert!(figures.longest.0 == 0 || figures.longest.1 >= from);
            prop_assert!(figures.run_delay.report().max <= figures.longest.0);
            prop_assert!(figures.wakeup.report().count <= figures.run_delay.report().count);
            let t = figures.times;
            prop_assert!(entitled <= (t.run + t.hypervisor + waited) as f64 + 1e-3);
            prop_assert!(figures.kernel_priority <= t.run + t.hypervisor + t.ready);
        }
        prop_assert!(runnable <= (to - from) as f64 * cores as f64 + 1e-3);
        if let Some(stop) = collector.slowest_stop() {
            prop_assert!(from <= stop.asked && stop.left <= to);
        }
        if let Some((wait, meanwhile)) = collector.worst() {
            prop_assert!(wait.from >= from);
            let longest = collector.accounts.iter().map(|a| a.figures.longest.0).max();
            prop_assert_eq!(Some(wait.to - wait.from), longest.filter(|l| *l > 0).or(Some(0)));
            prop_assert!(meanwhile.known_from >= wait.from);
        }
    }
}
