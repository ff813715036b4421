//! `stealtime explain`.

use super::conditions::Conditions;
use super::values::{Form, policy};
use clap::Args;
use stealtime_scheduler::spec::PolicySpec;
use stealtime_workloads::scenario::DEFAULT_SCENARIO;

/// `stealtime explain`.
#[derive(Clone, Debug, Args)]
pub struct ExplainArgs {
    /// The directory of a kept run; else a scenario by name or path, which is run first
    #[arg(value_name = "DIR|SCENARIO", default_value = DEFAULT_SCENARIO)]
    pub what: String,
    /// Only waits of these vCPUs: VM/VCPU, either of which may end in *, or a VM
    #[arg(long, value_name = "VCPU")]
    pub vcpu: Option<String>,
    /// How many waits to explain
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub worst: u16,
    /// The policy, with options [default: the scenario's]
    #[arg(long, value_parser = policy)]
    pub policy: Option<PolicySpec>,
    /// Under which conditions.
    #[command(flatten)]
    pub conditions: Conditions,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    pub format: Form,
    /// No progress bar and no remarks
    #[arg(long, short)]
    pub quiet: bool,
}
