//! Timers that are late by chance: never early, by the seed alone, and as late on average as is said.

use crate::ledger::check;
use crate::plans::{Done, Setup, forever, run, simulate, sleep};
use stealtime_scheduler::ids::VcpuId;
use stealtime_scheduler::input::{BlockOn, Input, Timer};
use stealtime_scheduler::time::Nanos;
use stealtime_sim::cost::CostModel;
use stealtime_workloads::run::Entry;

const END: Nanos = Nanos::from_secs(1);
const TIMER: u64 = 1_000;
const SPREAD: u64 = 5_000;

/// One that sleeps again and again, alone on its core.
fn sleeper(seed: u64) -> Done {
    let costs = CostModel {
        timer: Nanos(TIMER),
        timer_spread: Nanos(SPREAD),
        ..CostModel::free()
    };
    let steps = forever(&[run(1_000), sleep(500_000)]);
    let plan = Setup::new("rr").seed(seed).vm(&[]).vcpu(&steps).build();
    let done = simulate(&plan, &costs);
    check(&done, END);
    done
}

/// How late each end of sleep was reported, in nanoseconds.
fn lateness(done: &Done) -> Vec<u64> {
    let due = Timer::Wake(VcpuId(0));
    let mut wanted = None;
    let mut late = Vec::new();
    for entry in &done.entries {
        match *entry {
            Entry::Input(_, Input::Block { on, .. }) => {
                let BlockOn::Sleep(until) = on else { continue };
                wanted = Some(until);
            }
            Entry::Input(at, Input::TimerDue { timer }) if timer == due => {
                let wanted = wanted.take().expect("it sleeps");
                assert!(at >= wanted, "{at} is before {wanted}");
                late.push(at.since(wanted).0);
            }
            _ => {}
        }
    }
    late
}

#[test]
fn no_timer_is_less_late_than_it_costs_and_the_rest_is_as_much_as_said_on_average() {
    let late = lateness(&sleeper(1));
    assert!(late.len() > 1_500, "{}", late.len());
    assert!(late.iter().all(|late| *late >= TIMER), "{late:?}");
    let mean = late.iter().sum::<u64>() as f64 / late.len() as f64;
    let expected = (TIMER + SPREAD) as f64;
    // Three standard errors of so many, and more.
    assert!((mean / expected - 1.0).abs() < 0.1, "{mean}");
    // Exponential: as many beyond thrice the mean as one in 20.
    let far = late.iter().filter(|late| **late > TIMER + 3 * SPREAD);
    let part = far.count() as f64 / late.len() as f64;
    assert!((0.03..0.07).contains(&part), "{part}");
}

#[test]
fn the_seed_says_how_late() {
    let once = sleeper(1);
    assert!(once.entries == sleeper(1).entries);
    assert!(lateness(&once) != lateness(&sleeper(2)));
}

#[test]
fn clocks_that_are_due_together_are_late_together_and_keep_their_order() {
    let costs = CostModel {
        timer: Nanos(TIMER),
        timer_spread: Nanos(SPREAD),
        ..CostModel::free()
    };
    // A tick every 10 ms, and once a second the accounts.
    let plan = Setup::new("fss:tick=10ms")
        .duration(Nanos::from_secs(20))
        .vm(&[])
        .vcpu(&forever(&[run(1_000_000)]))
        .vcpu(&forever(&[run(1_000_000)]))
        .build();
    let done = simulate(&plan, &costs);
    let (mut ticks, mut last_tick, mut periods) = (0, Nanos::ZERO, 0);
    for entry in &done.entries {
        let Entry::Input(at, Input::TimerDue { timer }) = *entry else {
            continue;
        };
        match timer {
            Timer::Tick => (ticks, last_tick) = (ticks + 1, at),
            Timer::Period => {
                periods += 1;
                assert_eq!(ticks, 100 * periods, "at {at}");
                assert_eq!(at, last_tick + Nanos(1));
            }
            _ => {}
        }
    }
    assert!(periods >= 18, "{periods}");
}
