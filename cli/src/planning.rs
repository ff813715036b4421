//! From what was typed to a plan: the scenario, the backend, the cores.

use crate::args::Conditions;
use crate::backend::{self, Kind};
use crate::cores::{self, CoreList};
use crate::disturbance::Disturbance;
use crate::failure::{Blame, Failure};
use stealtime_scheduler::spec::PolicySpec;
use stealtime_sim::cost::CostModel;
use stealtime_workloads::run::Plan;
use stealtime_workloads::scenario::{Overrides, Scenario};

/// A scenario with the conditions under which it is to run.
#[derive(Debug)]
pub struct Setting {
    scenario: Scenario,
    conditions: Conditions,
    /// What it runs on.
    pub backend: Kind,
}

impl Setting {
    /// Reads the scenario, then decides the backend.
    ///
    /// # Errors
    /// If there is no such scenario, or KVM is demanded and cannot be used.
    pub fn new(scenario: &str, conditions: &Conditions) -> Result<Self, Failure> {
        Self::of(Scenario::load(scenario).bad_input()?, conditions)
    }

    /// Decides the backend for a scenario that was read already.
    ///
    /// # Errors
    /// If KVM is demanded and cannot be used.
    pub fn of(scenario: Scenario, conditions: &Conditions) -> Result<Self, Failure> {
        Ok(Self {
            conditions: conditions.clone(),
            backend: backend::decide(conditions, usize::from(scenario.cores))?,
            scenario,
        })
    }

    /// Lets the scenario's threads of the host disturb a run for as long as the answer lives.
    ///
    /// # Errors
    /// If this process has no right to real-time priority.
    pub fn disturb(&self, plan: &Plan) -> Result<Disturbance, Failure> {
        Disturbance::start(&self.scenario.host_threads, self.backend, &plan.cores)
    }

    /// The plan for a policy; without one, for the scenario's own.
    ///
    /// # Errors
    /// If a core is not there, or something does not fit the scenario or the policy.
    pub fn plan(&self, policy: Option<&PolicySpec>) -> Result<Plan, Failure> {
        let asked = self.conditions.cores.as_ref();
        let wanted = usize::from(self.scenario.cores);
        let cores = match self.backend {
            Kind::Sim => {
                if let Some(CoreList(list)) = asked
                    && let [only] = list[..]
                    && only >= 2
                {
                    eprintln!(
                        "note: `--cores {only}` is one core, that with the number {only}; {only} cores are 0-{}",
                        only - 1
                    );
                }
                cores::simulated(asked, wanted)
            }
            Kind::Lab(choice) => {
                let emulated = CoreList((0..choice.cores).collect());
                cores::choose(asked, wanted, &emulated).bad_input()?
            }
            Kind::Kvm => cores::choose(asked, wanted, &cores::allowed().machine()?).bad_input()?,
        };
        let overrides = Overrides {
            policy: policy.cloned(),
            cores: Some(cores),
            duration: self.conditions.duration,
            warmup: self.conditions.warmup,
            seed: self.conditions.seed,
        };
        let mut plan = self.scenario.plan(&overrides).bad_input()?;
        if self.backend == Kind::Sim && stealtime_sim::needs_substitute(&plan.policy) {
            let costs = CostModel::stored_or_default().machine()?;
            let instead = stealtime_sim::substitute(&plan.policy, &costs);
            eprintln!(
                "note: there is no host to schedule in virtual time: `{instead}` runs instead of `{}`",
                plan.policy
            );
            plan.policy = instead;
        }
        Ok(plan)
    }
}
