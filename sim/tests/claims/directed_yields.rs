//! Directed yields: whom they go to, and what becomes of the boost.

use crate::ledger::events;
use crate::plans::simulate;
use stealtime_scheduler::event::EventKind;
use stealtime_sim::cost::CostModel;
use stealtime_workloads::scenario::{Overrides, Scenario};

/// What came of the directed yields of a scenario.
#[derive(Default)]
struct Yields {
    /// To one that held the lock, or whose turn it was.
    to_holders: u64,
    to_others: u64,
    /// Of the first: ended by a preemption before the lock was released.
    evaporated: u64,
}

fn yields(scenario: &str, policy: &str) -> Yields {
    let scenario = Scenario::load(scenario).expect("embedded");
    let overrides = Overrides {
        policy: Some(policy.parse().expect("a policy")),
        ..Overrides::default()
    };
    let plan = scenario.plan(&overrides).expect("in order");
    let done = simulate(&plan, &CostModel::bare_hardware());
    let mut held = vec![0; plan.vcpus.len()];
    let mut boosted = vec![false; plan.vcpus.len()];
    let mut yields = Yields::default();
    for event in events(&done) {
        let of = event.vcpu.index();
        match event.kind {
            EventKind::Locks { held: now, .. } => {
                boosted[of] &= now > 0;
                held[of] = now;
            }
            EventKind::YieldedTo(to) if held[to.index()] > 0 => {
                yields.to_holders += 1;
                boosted[to.index()] = true;
            }
            EventKind::YieldedTo(_) => yields.to_others += 1,
            EventKind::Preempted(..) => {
                yields.evaporated += u64::from(std::mem::take(&mut boosted[of]));
            }
            _ => {}
        }
    }
    yields
}

#[test]
fn a_directed_yield_goes_to_a_spinner_if_it_guesses_and_to_the_holder_if_it_looks() {
    let guessed = yields("wrong-yield", "eevdf+yieldto:in-kernel=off");
    assert!(
        guessed.to_others > 5 * guessed.to_holders,
        "{} and {}",
        guessed.to_others,
        guessed.to_holders
    );
    let looked = yields("wrong-yield", "eevdf+yieldto");
    assert_eq!(looked.to_others, 0);
    assert!(looked.to_holders > 1_000, "{}", looked.to_holders);
}

#[test]
fn a_boost_evaporates_before_a_long_section_ends_unless_preemptions_are_put_off() {
    for policy in ["eevdf+yieldto", "eevdf+yieldto:sticky=on"] {
        let lost = yields("boost-evaporates", policy);
        assert!(
            2 * lost.evaporated > lost.to_holders,
            "{policy}: {} of {}",
            lost.evaporated,
            lost.to_holders
        );
    }
    // With waiters put off, too, no holder is ever off its core, so that there is nobody to yield to.
    let kept = yields("boost-evaporates", "eevdf+delay:most=10ms,line=off+yieldto");
    assert_eq!(kept.evaporated, 0);
    assert!(kept.to_holders > 10, "{}", kept.to_holders);
}
