//! Costs that vary by chance: every one of them, about its median, by the seed alone.

use crate::ledger::check;
use crate::plans::{Done, Setup, forever, run, simulate, sleep};
use stealtime_guest::op::Step;
use stealtime_scheduler::effect::Effect;
use stealtime_scheduler::input::Input;
use stealtime_scheduler::time::Nanos;
use stealtime_sim::cost::CostModel;
use stealtime_workloads::run::{Entry, LockKind};

const COST: u64 = 10_000;
/// In thousandths.
const SPREAD: u64 = 300;

/// Three that sleep and compute on one core, where one cost varies.
fn with(costs: CostModel, seed: u64) -> Done {
    let costs = CostModel {
        spread_permille: SPREAD,
        ..costs
    };
    let steps = forever(&[run(200_000), sleep(300_000)]);
    let mut setup = Setup::new("rr:quantum=100us").seed(seed).vm(&[]);
    for _ in 0..3 {
        setup = setup.vcpu(&steps);
    }
    let plan = setup.build();
    let done = simulate(&plan, &costs);
    check(&done, Nanos::from_secs(1));
    done
}

fn switches(seed: u64) -> Done {
    let costs = CostModel {
        switch_same_core: Nanos(COST),
        switch_other_core: Nanos(COST),
        ..CostModel::free()
    };
    with(costs, seed)
}

/// How long after each grant the vCPU's thread was there.
fn arrivals(done: &Done) -> Vec<u64> {
    let (mut now, mut granted, mut all) = (Nanos::ZERO, None, Vec::new());
    for entry in &done.entries {
        match *entry {
            Entry::Input(at, input) => {
                now = at;
                if let Input::Entered { .. } = input {
                    let since: Nanos = granted.take().expect("granted before");
                    all.push(at.since(since).0);
                }
            }
            Entry::Effect(Effect::Run { .. }) => granted = Some(now),
            _ => {}
        }
    }
    all
}

#[test]
fn half_of_all_switches_take_less_than_the_cost_and_the_rest_is_exponential() {
    let mut all = arrivals(&switches(1));
    assert!(all.len() > 3_000, "{}", all.len());
    all.sort_unstable();
    let part = |place: f64| {
        let index = all.len() as f64 * place;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a place in a list"
        )]
        let index = index as usize;
        all[index] as f64 / COST as f64
    };
    // From 1 - 0.3 ln 2 on: 0.3 times the logarithm of the part that is left.
    for (place, expected) in [(0.0, 0.792), (0.5, 1.0), (0.9, 1.483), (0.99, 2.174)] {
        let seen = part(place);
        assert!((seen / expected - 1.0).abs() < 0.08, "{place}: {seen}");
    }
}

#[test]
fn the_seed_says_how_much() {
    let once = switches(1);
    assert!(once.entries == switches(1).entries);
    assert!(arrivals(&once) != arrivals(&switches(2)));
}

/// Vcpus on two cores that sleep, compute, call, wait for interrupts and take locks: every cost has its part in it.
fn everything(costs: &CostModel, seed: u64) -> Vec<Entry> {
    let sleeper = forever(&[run(200_000), sleep(300_000), Step::Exit]);
    let mut waiter = vec![Step::Periodic {
        period: 700_000,
        vector: 0x41,
    }];
    waiter.extend(forever(&[
        Step::WaitInterrupt,
        Step::Lock(0),
        run(10_000),
        Step::Unlock(0),
    ]));
    let plan = Setup::new("rr:quantum=100us")
        .cores(2)
        .seed(seed)
        .duration(Nanos::from_millis(200))
        .vm(&[LockKind::Ticket])
        .vcpu(&sleeper)
        .vcpu(&sleeper)
        .vcpu(&sleeper)
        .vcpu(&waiter)
        .vcpu(&waiter)
        .build();
    simulate(&plan, costs).entries
}

/// What the host does varies, whatever it is, and what the guest does itself does not.
#[test]
fn every_cost_of_the_host_varies_and_none_of_the_guests_own() {
    let free = CostModel {
        spread_permille: SPREAD,
        ..CostModel::free()
    };
    let of_others = [
        "timer_ns",
        "timer_spread_ns",
        "op_ns",
        "lock_step_ns",
        "host_slice_ns",
    ];
    let nothing = everything(&free, 1);
    for (name, _) in free.fields() {
        let mut costs = serde_json::to_value(&free).expect("plain data");
        costs[name] = COST.into();
        let costs: CostModel = serde_json::from_value(costs).expect("a cost model");
        let runs = [1, 2].map(|seed| everything(&costs, seed));
        let constant = everything(&costs.clone().without_chance(), 1);
        if of_others.contains(&name) {
            let varies = name == "timer_spread_ns";
            assert_eq!(runs[0] != runs[1], varies, "{name}");
        } else {
            assert!(constant != nothing, "{name} has no part in it");
            assert!(runs[0] != runs[1], "{name} does not vary");
        }
    }
}
