//! The scenarios that come with the program.

use crate::ledger::check;
use crate::plans::simulate;
use stealtime_scheduler::time::Nanos;
use stealtime_sim::cost::CostModel;
use stealtime_workloads::run::Plan;
use stealtime_workloads::scenario::{Overrides, Scenario, embedded};

fn plans() -> impl Iterator<Item = Plan> {
    let overrides = Overrides {
        duration: Some(Nanos::from_millis(800)),
        warmup: Some(Nanos::from_millis(200)),
        ..Overrides::default()
    };
    embedded().iter().map(move |entry| {
        let scenario = Scenario::load(entry.name).expect("it is embedded");
        scenario.plan(&overrides).expect("it can be run")
    })
}

#[test]
fn every_scenario_runs_by_the_rules_and_twice_the_same() {
    let costs = CostModel::bare_hardware();
    let mut seen = 0;
    for plan in plans() {
        let (once, again) = (simulate(&plan, &costs), simulate(&plan, &costs));
        check(&once, plan.warmup + plan.duration);
        assert!(once.entries == again.entries, "{}", plan.scenario);
        assert_eq!(once.outcome, again.outcome, "{}", plan.scenario);
        seen += 1;
    }
    assert!(seen > 5, "{seen}");
}
