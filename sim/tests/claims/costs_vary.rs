//! Costs that vary by chance: every one of them, about its median, by the seed alone.

use crate::ledger::check;
use crate::plans::{Done, Setup, forever, run, simulate, sleep};
use stealtime_scheduler::effect::Effect;
use stealtime_scheduler::input::Input;
use stealtime_scheduler::time::Nanos;
use stealtime_sim::cost::CostModel;
use stealtime_workloads::run::Entry;

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

/// What the host does varies, whatever it is, and what the guest does itself does not.
#[test]
fn every_cost_of_the_host_varies_and_none_of_the_guests_own() {
    let cost = Nanos(COST);
    let free = CostModel::free;
    let of_the_host = [
        CostModel {
            exit: cost,
            ..free()
        },
        CostModel {
            entry: cost,
            ..free()
        },
        CostModel {
            load: cost,
            ..free()
        },
        CostModel {
            leaving: cost,
            ..free()
        },
        CostModel {
            kick: cost,
            ..free()
        },
        CostModel {
            switch_same_core: cost,
            ..free()
        },
        CostModel {
            switch_other_core: cost,
            ..free()
        },
        CostModel {
            park: cost,
            ..free()
        },
        CostModel {
            timer_work: cost,
            ..free()
        },
        CostModel {
            timer_wake: cost,
            ..free()
        },
    ];
    for costs in of_the_host {
        let runs = [1, 2].map(|seed| with(costs.clone(), seed).entries);
        assert!(runs[0] != runs[1], "{costs:?}");
    }
    let of_guests = CostModel {
        op: cost,
        lock_step: cost,
        ..free()
    };
    let runs = [1, 2].map(|seed| with(of_guests.clone(), seed).entries);
    assert!(runs[0] == runs[1], "nothing in it is up to chance");
}
