//! What threads that share a core cost each other: loading, handling, parking, the timer thread.

use crate::ledger::{State, check, events, total, when};
use crate::plans::{Done, Setup, forever, run, simulate, sleep, spin};
use stealtime_guest::op::Step;
use stealtime_scheduler::event::EventKind;
use stealtime_scheduler::ids::VcpuId;
use stealtime_scheduler::input::Input;
use stealtime_scheduler::time::Nanos;
use stealtime_sim::cost::CostModel;
use stealtime_workloads::run::Entry;

const END: Nanos = Nanos::from_secs(1);

/// Nothing costs anything but what is set.
fn costs(set: impl FnOnce(&mut CostModel)) -> CostModel {
    let mut costs = CostModel::free();
    set(&mut costs);
    costs
}

#[test]
fn the_first_entry_of_a_stay_loads_and_each_call_is_handled() {
    let costs = costs(|costs| {
        costs.load = Nanos(1_000);
        costs.handling = Nanos(300);
    });
    let calls = [Step::Exit, Step::Exit, Step::Exit];
    let plan = Setup::new("eevdf").vm(&[]).vcpu(&calls).build();
    let done = simulate(&plan, &costs);
    let spans = check(&done, END);
    let exits = when(&done, |kind| matches!(kind, EventKind::Exited(_)));
    // An op is 1 ns. The fourth call is the program's end, which nobody comes back from.
    let expected = [1_001, 1_302, 1_603, 1_904].map(|at| (Nanos(at), VcpuId(0)));
    assert_eq!(exits, expected);
    assert_eq!(total(&spans, 0, State::Hypervisor), 3 * 300);
}

#[test]
fn a_call_that_may_cost_the_core_takes_longer() {
    let costs = costs(|costs| costs.leaving = Nanos(200));
    let calls = [Step::Exit, sleep(10_000), Step::Exit];
    let plan = Setup::new("eevdf").vm(&[]).vcpu(&calls).build();
    let done = simulate(&plan, &costs);
    check(&done, END);
    let exits = when(&done, |kind| matches!(kind, EventKind::Exited(_)));
    // The sleep, and the end of the program.
    let expected = [1, 202, 10_203, 10_404].map(|at| (Nanos(at), VcpuId(0)));
    assert_eq!(exits, expected);
}

#[test]
fn whose_own_call_wakes_one_that_goes_first_leaves_when_the_call_is_handled() {
    let costs = costs(|costs| {
        costs.handling = Nanos(300);
        costs.leaving = Nanos(200);
    });
    let raise = Step::Interrupt {
        vcpu: 0,
        vector: 0x40,
    };
    let plan = Setup::new("cfs")
        .vm(&[])
        .vcpu(&forever(&[Step::WaitInterrupt]))
        .vcpu(&forever(&[run(20_000_000), raise]))
        .build();
    let done = simulate(&plan, &costs);
    check(&done, END);
    let of_waker = |times: Vec<(Nanos, VcpuId)>| {
        let own = times.into_iter().filter(|(_, vcpu)| *vcpu == VcpuId(1));
        own.map(|(at, _)| at).collect::<Vec<_>>()
    };
    let kicked = of_waker(when(&done, |kind| matches!(kind, EventKind::Kicked(..))));
    let left = of_waker(when(&done, |kind| matches!(kind, EventKind::Preempted(..))));
    assert!(left.len() > 40, "{left:?}");
    for (kicked, left) in kicked.iter().zip(&left) {
        assert_eq!(left.since(*kicked), Nanos(500));
    }
}

/// From each event of one kind to the next `Running` of this vCPU, in nanoseconds.
fn until_running(done: &Done, from: impl Fn(&EventKind) -> bool, who: VcpuId) -> Vec<u64> {
    let mut since = None;
    let mut lengths = Vec::new();
    for event in events(done) {
        if from(&event.kind) {
            since = Some(event.at);
        } else if matches!(event.kind, EventKind::Running(_)) && event.vcpu == who {
            lengths.extend(since.take().map(|since: Nanos| event.at.since(since).0));
        }
    }
    lengths
}

fn hand_overs(spinners: usize) -> Done {
    let costs = costs(|costs| {
        costs.switch_same_core = Nanos(100);
        costs.park = Nanos(70);
        costs.kick = Nanos(1_000);
    });
    let sleeper = forever(&[sleep(20_000_000), run(10_000)]);
    let mut setup = Setup::new("cfs").vm(&[]).vcpu(&sleeper);
    for _ in 0..spinners {
        setup = setup.vcpu(&spin());
    }
    let done = simulate(&setup.build(), &costs);
    check(&done, END);
    done
}

#[test]
fn who_wakes_overtakes_the_thread_that_makes_room_and_who_blocks_parks_first() {
    let done = hand_overs(1);
    let woken = |kind: &EventKind| matches!(kind, EventKind::Woken(_));
    let wakes = until_running(&done, woken, VcpuId(0));
    assert!(wakes.len() > 40, "{wakes:?}");
    // The kick and the switch: the spinner's thread has not parked yet.
    assert_eq!(wakes, vec![1_100; wakes.len()]);
    let blocked = |kind: &EventKind| matches!(kind, EventKind::Blocked(_));
    let back = until_running(&done, blocked, VcpuId(1));
    // The first time the core was idle, or never ran it before.
    assert!(back[1..].iter().all(|length| *length == 170), "{back:?}");
}

#[test]
fn a_thread_that_was_overtaken_and_does_not_get_the_core_back_parks_at_the_next_kick() {
    let done = hand_overs(2);
    let kicked = |kind: &EventKind| matches!(kind, EventKind::Kicked(..));
    let stopped = |kind: &EventKind| matches!(kind, EventKind::Preempted(..));
    let (kicks, stops) = (when(&done, kicked), when(&done, stopped));
    let lengths: Vec<_> = kicks
        .iter()
        .zip(&stops)
        .map(|((from, _), (to, _))| to.since(*from).0)
        .collect();
    assert!(lengths.iter().all(|length| [1_000, 1_070].contains(length)));
    assert!(lengths.contains(&1_070), "{lengths:?}");
    assert!(lengths.contains(&1_000), "{lengths:?}");
}

#[test]
fn a_timer_thread_without_a_core_of_its_own_takes_the_guests_time() {
    let spinner = Setup::new("eevdf").vm(&[]).vcpu(&spin()).build();
    let progress = |work, wake| {
        let costs = costs(|costs| {
            costs.timer_work = Nanos(work);
            costs.timer_wake = Nanos(wake);
        });
        let done = simulate(&spinner, &costs);
        check(&done, END);
        let due = |entry: &&Entry| matches!(entry, Entry::Input(_, Input::TimerDue { .. }));
        let timers = done.entries.iter().filter(due).count() as u64;
        (done.outcome.guests[0].progress_ns, timers)
    };
    let (alone, timers) = progress(0, 0);
    assert!(timers > 100);
    // Every slice that ends and is renewed, and the first one, for which the timer thread must be woken.
    assert_eq!(progress(1_000, 0), (alone - timers * 1_000, timers));
    assert_eq!(progress(1_000, 70), (alone - timers * 1_000 - 70, timers));
}

#[test]
fn a_timer_that_was_taken_out_wakes_the_timer_thread_all_the_same() {
    // The sleeper's stay ends the spinner's slice, for whose end the timer thread still wakes.
    let plan = Setup::new("eevdf:slice=10ms")
        .vm(&[])
        .vcpu(&spin())
        .vcpu(&forever(&[sleep(100_000_000), run(10_000)]));
    let progress = |wake| {
        let costs = costs(|costs| costs.timer_wake = Nanos(wake));
        let done = simulate(&plan.clone().build(), &costs);
        check(&done, END);
        done.outcome.guests[0].progress_ns
    };
    let lost = progress(0) - progress(10);
    // At least the first arming and one for each of the sleeper's stays.
    assert!(lost >= 10 * 10, "{lost}");
}
