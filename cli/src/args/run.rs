//! `stealtime run`.

use super::conditions::Conditions;
use super::values::{Format, policy};
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use std::path::PathBuf;
use stealtime_scheduler::spec::PolicySpec;
use stealtime_workloads::scenario::DEFAULT_SCENARIO;

/// `stealtime run`.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// A scenario by name (see `stealtime scenarios`) or a scenario file by path
    #[arg(default_value = DEFAULT_SCENARIO, value_parser = NonEmptyStringValueParser::new())]
    pub scenario: String,
    /// The policy, with options, such as fss:quantum=50ms [default: the scenario's]
    #[arg(long, value_parser = policy)]
    pub policy: Option<PolicySpec>,
    /// Under which conditions.
    #[command(flatten)]
    pub conditions: Conditions,
    /// How to print the report
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Keep the whole run in this directory, for `report` and `replay`; what is missing of its path is
    /// made, an earlier run is replaced
    #[arg(long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// No progress bar and no remarks
    #[arg(long, short)]
    pub quiet: bool,
}

impl Default for RunArgs {
    fn default() -> Self {
        Self {
            scenario: DEFAULT_SCENARIO.to_owned(),
            policy: None,
            conditions: Conditions::default(),
            format: Format::Text,
            output: None,
            quiet: false,
        }
    }
}
