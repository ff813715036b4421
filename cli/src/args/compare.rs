//! `stealtime compare`.

use super::conditions::Conditions;
use super::values::{Format, policy};
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use std::path::PathBuf;
use stealtime_scheduler::spec::PolicySpec;

/// `stealtime compare`.
#[derive(Clone, Debug, Args)]
pub struct CompareArgs {
    /// A scenario by name (see `stealtime scenarios`) or a scenario file by path
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub scenario: String,
    /// A policy to compare; give two or more
    #[arg(long = "policy", value_name = "POLICY", value_parser = policy, required = true)]
    pub policies: Vec<PolicySpec>,
    /// How often each policy runs, in turn with the others; 6 is the least for 95 % confidence
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Under which conditions.
    #[command(flatten)]
    pub conditions: Conditions,
    /// How to print the figures
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Keep every run in a directory of its own below this one
    #[arg(long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// No progress bar and no remarks
    #[arg(long, short)]
    pub quiet: bool,
}
