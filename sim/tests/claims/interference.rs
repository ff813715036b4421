//! What the host takes: as much as is said, told as such, and nothing on the core goes on meanwhile.

use crate::ledger::{State, check, events, total, when};
use crate::plans::{Done, Setup, forever, run, simulate, sleep, spin};
use stealtime_guest::op::{Length, Step};
use stealtime_scheduler::event::EventKind;
use stealtime_scheduler::ids::VcpuId;
use stealtime_scheduler::input::{ExitReason, Input};
use stealtime_scheduler::time::Nanos;
use stealtime_sim::cost::{CostModel, Theft};
use stealtime_workloads::run::{Entry, LockKind, Plan};

const END: Nanos = Nanos::from_secs(1);
/// A tenth of every core.
const OFTEN: Theft = Theft {
    length: Nanos(100_000),
    every: Nanos(1_000_000),
    told: true,
};
/// The same, with thefts that all are gaps in the eyes of a guest.
const LONGER: Theft = Theft {
    length: Nanos(300_000),
    every: Nanos(3_000_000),
    told: true,
};

fn costs(interference: &[Theft]) -> CostModel {
    CostModel {
        interference: interference.to_vec(),
        ..CostModel::free()
    }
}

fn done(plan: &Plan, costs: &CostModel) -> Done {
    let done = simulate(plan, costs);
    check(&done, plan.warmup + plan.duration);
    done
}

/// What a vCPU was told to have lost.
fn told(done: &Done, who: u32) -> u64 {
    let lost = events(done).filter_map(|event| match event.kind {
        EventKind::HostDelay(delay) if event.vcpu == VcpuId(who) => Some(delay.get()),
        _ => None,
    });
    lost.sum()
}

#[test]
fn who_computes_alone_loses_as_much_as_said_and_is_told_all_of_it() {
    let plan = Setup::new("eevdf").vm(&[]).vcpu(&spin()).build();
    let without = done(&plan, &costs(&[])).outcome.guests[0].progress_ns;
    let done = done(&plan, &costs(&[LONGER]));
    let guest = &done.outcome.guests[0];
    let lost = without - guest.progress_ns;
    // 333 thefts are expected, with a standard deviation of 18.
    let part = lost as f64 / END.get() as f64;
    assert!((part - 0.1).abs() < 0.02, "{part}");
    assert_eq!(told(&done, 0), lost);
    assert_eq!(done.outcome.quality.host_interference_ns, lost);
    // The guest has seen them itself: there is no other reason for a gap.
    assert_eq!(guest.gap_total_ns, lost);
    assert!((270..400).contains(&guest.gaps), "{}", guest.gaps);
}

#[test]
fn a_theft_that_falls_into_the_timer_threads_work_is_a_gap_like_any_other() {
    let plan = Setup::new("rr:quantum=1ms").vm(&[]).vcpu(&spin()).build();
    let costs = CostModel {
        timer_work: Nanos(100_000),
        ..costs(&[LONGER])
    };
    let done = done(&plan, &costs);
    let guest = &done.outcome.guests[0];
    // The timer thread alone makes none: a guest does not count what is that short.
    assert!(guest.gap_total_ns >= told(&done, 0));
    assert!((250..350).contains(&guest.gaps), "{}", guest.gaps);
}

#[test]
fn who_never_leaves_its_core_is_told_every_100_ms() {
    let plan = Setup::new("rr:quantum=10s").vm(&[]).vcpu(&spin()).build();
    let done = done(&plan, &costs(&[LONGER]));
    let delays = when(&done, |kind| matches!(kind, EventKind::HostDelay(_)));
    let expected = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10].map(|n| Nanos::from_millis(100 * n));
    assert_eq!(delays, expected.map(|at| (at, VcpuId(0))));
}

#[test]
fn who_spins_for_a_lock_goes_on_while_the_core_of_its_holder_is_taken() {
    const HELD: u64 = 500_000_000;
    let holder = [Step::Lock(0), run(HELD), Step::Unlock(0)];
    let waiter = [run(1_000_000), Step::Lock(0), Step::Unlock(0)];
    for kind in [LockKind::TestAndSet, LockKind::Ticket, LockKind::Mcs] {
        for seed in 1..4 {
            let setup = Setup::new("eevdf").cores(2).seed(seed).vm(&[kind]);
            let plan = setup.vcpu(&holder).vcpu(&waiter).build();
            let spun = |done: &Done| done.outcome.guests[1].lock_spin_ns;
            let alone = spun(&done(&plan, &costs(&[])));
            assert!(alone.abs_diff(HELD) < 2_000_000, "{alone}");
            let done = done(&plan, &costs(&[LONGER]));
            let (of_holder, of_waiter) = (told(&done, 0), told(&done, 1));
            assert!(of_holder > 20_000_000 && of_holder != of_waiter);
            // It spins for as long as the holder is held up, but for what is taken of its own core meanwhile. That core
            // may be taken when the lock becomes free: then it finds out later.
            let retired = when(&done, |kind| matches!(kind, EventKind::Retired(_)));
            let found_out = retired[1].0.since(retired[0].0).get();
            let expected = alone + of_holder + found_out - of_waiter;
            let spun = spun(&done);
            assert!(
                spun.abs_diff(expected) < 20,
                "{kind:?}, seed {seed}: {spun}, {expected}"
            );
        }
    }
}

#[test]
fn nothing_is_told_where_nothing_is_taken() {
    let plan = Setup::new("eevdf")
        .vm(&[])
        .vcpu(&spin())
        .vcpu(&forever(&[sleep(300_000), run(200_000)]))
        .build();
    let done = done(&plan, &costs(&[]));
    let delays = done
        .entries
        .iter()
        .filter(|entry| matches!(entry, Entry::Input(_, Input::HostDelay { .. })));
    assert_eq!(delays.count(), 0);
    assert_eq!(done.outcome.quality.host_interference_ns, 0);
}

#[test]
fn the_seed_says_what_is_taken() {
    let setup = Setup::new("eevdf").vm(&[]).vcpu(&spin()).vcpu(&spin());
    let costs = costs(&[OFTEN]);
    let once = done(&setup.clone().seed(1).build(), &costs);
    assert!(once.entries == done(&setup.clone().seed(1).build(), &costs).entries);
    assert!(once.entries != done(&setup.seed(2).build(), &costs).entries);
}

#[test]
fn every_core_loses_as_much_by_itself() {
    let setup = Setup::new("eevdf")
        .cores(2)
        .vm(&[])
        .vcpu(&spin())
        .vcpu(&spin());
    let done = done(&setup.build(), &costs(&[OFTEN]));
    let lost = [told(&done, 0), told(&done, 1)];
    for lost in lost {
        let part = lost as f64 / END.get() as f64;
        assert!((part - 0.1).abs() < 0.013, "{part}");
    }
    assert_ne!(lost[0], lost[1]);
}

/// From each kick until the vCPU has given its core back.
fn kicks(done: &Done) -> Vec<u64> {
    let kicked = when(done, |kind| matches!(kind, EventKind::Kicked(..)));
    let left = when(done, |kind| matches!(kind, EventKind::Preempted(..)));
    let pairs = kicked.iter().zip(&left);
    pairs
        .map(|((from, _), (to, _))| to.since(*from).0)
        .collect()
}

#[test]
fn a_kick_that_comes_while_the_core_is_taken_arrives_afterwards() {
    let plan = Setup::new("rr:quantum=100us")
        .vm(&[])
        .vcpu(&spin())
        .vcpu(&spin())
        .build();
    let kick = Nanos(2_000);
    let with = |interference: &[Theft]| CostModel {
        kick,
        ..costs(interference)
    };
    let undisturbed = kicks(&done(&plan, &with(&[])));
    assert!(undisturbed.iter().all(|length| *length == kick.get()));
    let done = done(&plan, &with(&[LONGER]));
    let kicks = kicks(&done);
    assert!(kicks.iter().all(|length| *length >= kick.get()));
    let late = kicks.iter().filter(|length| **length > kick.get());
    // Slices are shorter than thefts: each of about 300 has the end of one in it.
    assert!(late.count() > 200, "{kicks:?}");
    let longest = kicks.iter().max().expect("kicks");
    assert!(*longest > 100_000 && *longest < 2_000_000, "{longest}");
    let progress: u64 = done.outcome.guests.iter().map(|g| g.progress_ns).sum();
    let lost = told(&done, 0) + told(&done, 1);
    assert!(progress + lost <= END.get(), "{progress} and {lost}");
}

#[test]
fn hypervisor_work_takes_as_much_longer_as_is_taken() {
    let work = 700_000;
    let steps = forever(&[run(10_000), Step::Hypervisor(Length::Fixed(work))]);
    let plan = Setup::new("eevdf")
        .vm(&[])
        .vcpu(&steps)
        .vcpu(&spin())
        .build();
    let done = simulate(&plan, &costs(&[OFTEN]));
    let spans = check(&done, END);
    let lost = told(&done, 0);
    // Ten milliseconds at least are lost in half a second of it.
    assert!(lost > 10_000_000, "{lost}");
    // What is done is done: rounds by progress, the hypervisor's time by rounds.
    let rounds = done.outcome.guests[0].progress_ns / 10_000;
    let busy = total(&spans, 0, State::Hypervisor) + total(&spans, 0, State::Run);
    let round = work + 10_000;
    assert!(
        rounds * round + lost <= busy + round,
        "{rounds}, {lost} of {busy}"
    );
    // But for the round that is under way and single nanoseconds of ops.
    let expected = (rounds + 1) * (round + 10) + lost;
    assert!(busy <= expected, "{rounds}, {lost} of {busy}");
}

#[test]
fn a_core_that_is_granted_while_it_is_taken_is_had_afterwards() {
    let steps = forever(&[sleep(500_000), run(1_000)]);
    let plan = Setup::new("eevdf").vm(&[]).vcpu(&steps).build();
    let theft = Theft {
        length: Nanos(400_000),
        every: Nanos(2_000_000),
        told: true,
    };
    let done = done(&plan, &costs(&[theft]));
    let woken = when(&done, |kind| matches!(kind, EventKind::Woken(_)));
    let called = |kind: &EventKind| matches!(kind, EventKind::Exited(ExitReason::Call));
    let ends = when(&done, called);
    // The first call precedes the first wake-up.
    let stays = woken.iter().zip(&ends[1..]);
    let lengths: Vec<_> = stays
        .map(|((from, _), (to, _))| to.since(*from).0)
        .collect();
    let disturbed = lengths.iter().filter(|length| **length > 10_000).count();
    // Nearly all thefts begin while it sleeps: the core is taken for a fifth of the time.
    let part = disturbed as f64 / lengths.len() as f64;
    assert!((0.1..0.3).contains(&part), "{part}");
    // What it waits for the core is told of it, and no more.
    let waited: u64 = lengths.iter().map(|length| length - 1_002).sum();
    assert!(told(&done, 0).abs_diff(waited) < 1_000_000, "{waited}");
}

#[test]
fn what_the_host_does_not_tell_of_takes_as_long_and_no_report_knows_it() {
    let plan = Setup::new("rr").vm(&[]).vcpu(&spin()).build();
    let untold = Theft {
        told: false,
        ..OFTEN
    };
    let [known, unknown] = [OFTEN, untold].map(|theft| done(&plan, &costs(&[theft])));
    let done = |done: &Done| done.outcome.guests[0].progress_ns;
    assert_eq!(done(&known), done(&unknown));
    assert!(done(&known) < END.0 * 95 / 100);
    assert!(told(&known, 0) > END.0 / 20);
    assert_eq!(told(&unknown, 0), 0);
}

#[test]
fn a_timer_thread_on_a_core_that_is_taken_serves_its_timers_afterwards() {
    let steps = forever(&[sleep(500_000), run(1_000)]);
    let setup = Setup::new("eevdf").cores(2).vm(&[]);
    let plan = setup.vcpu(&steps).vcpu(&spin()).build();
    let theft = Theft {
        length: Nanos(400_000),
        every: Nanos(2_000_000),
        told: true,
    };
    let latest = |timer_work| {
        let costs = CostModel {
            timer_work: Nanos(timer_work),
            ..costs(&[theft])
        };
        let done = done(&plan, &costs);
        let woken = when(&done, |kind| matches!(kind, EventKind::Woken(_)));
        let asleep = when(&done, |kind| matches!(kind, EventKind::Blocked(_)));
        let sleeps = asleep.iter().zip(&woken);
        let lengths = sleeps.map(|((from, _), (to, _))| to.since(*from).0);
        lengths.max().expect("it sleeps")
    };
    assert!(latest(0) < 501_000, "{}", latest(0));
    assert!(latest(1_000) > 700_000, "{}", latest(1_000));
}

#[test]
fn what_is_taken_before_the_measurement_does_not_count() {
    let plan = Setup::new("eevdf")
        .warmup(Nanos::from_millis(900))
        .duration(Nanos::from_millis(100))
        .vm(&[])
        .vcpu(&spin())
        .build();
    let done = done(&plan, &costs(&[OFTEN]));
    let counted = done.outcome.quality.host_interference_ns;
    let guest = &done.outcome.guests[0];
    assert_eq!(counted, plan.duration.get() - guest.progress_ns);
    assert!(counted < 20_000_000, "{counted}");
    assert!(told(&done, 0) > 70_000_000, "{}", told(&done, 0));
}
