//! `stealtime suite`.

use super::conditions::BackendChoice;
use super::values::policy;
use clap::{Args, ValueEnum};
use stealtime_scheduler::spec::PolicySpec;

/// `stealtime suite`.
#[derive(Clone, Debug, Args)]
pub struct SuiteArgs {
    /// fairness, latency, regressions or all; or a scenario by name or path
    pub name: String,
    /// A policy to check; may be given several times [default: all policies and the variants that
    /// the scenarios name]
    #[arg(long = "policy", value_name = "POLICY", value_parser = policy)]
    pub policies: Vec<PolicySpec>,
    /// What to run on
    #[arg(long, value_enum, default_value = "sim")]
    pub backend: BackendChoice,
    /// How often each scenario runs under each policy, each time with another seed; all must hold
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// How to print the outcome
    #[arg(long, value_enum, default_value_t)]
    pub format: SuiteFormat,
    /// No progress bar and no remarks
    #[arg(long, short)]
    pub quiet: bool,
}

/// How the outcome of a suite is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum SuiteFormat {
    /// A matrix to read
    #[default]
    Text,
    /// One JSON document (docs/commands.md)
    Json,
}
