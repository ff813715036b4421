//! What may be typed: a file a command.

mod compare;
mod conditions;
mod dist;
mod explain;
mod lab;
mod reproduce;
mod run;
mod suite;
mod trace;
mod values;

pub use compare::CompareArgs;
pub use conditions::{BackendChoice, Conditions, LabArgs};
pub use dist::DistArgs;
pub use explain::ExplainArgs;
pub use lab::{LabCalibrateArgs, LabCommand, LabExecArgs, LabSetupArgs, PredictArgs};
pub use reproduce::{ReproduceArgs, ReproduceBackend};
pub use run::RunArgs;
pub use suite::{SuiteArgs, SuiteFormat};
pub use trace::{TraceArgs, TraceFormat};
pub(crate) use values::policy;
pub use values::{Form, Format};

use crate::failure::STATUSES;
use clap::{Parser, Subcommand};
use dist::DIST_HELP;
use std::path::PathBuf;
use trace::TRACE_HELP;

/// Real KVM guests under our own schedulers: see which vCPU starves, why, and what fixes it
///
/// Without a command, `stealtime` runs the scenario `starvation` and prints its report.
#[derive(Debug, Parser)]
#[command(name = "stealtime", bin_name = "stealtime", version, after_help = STATUSES)]
pub struct Cli {
    /// What to do; `run` if nothing is said
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a scenario and report on every vCPU
    Run(RunArgs),
    /// Run a scenario under several policies in turn, and show the figures side by side
    Compare(CompareArgs),
    /// Reproduce what was seen on real systems, with the fault and without, against a criterion
    Reproduce(ReproduceArgs),
    /// Check sets of scenarios under sets of policies against what each scenario expects
    Suite(SuiteArgs),
    /// List the policies, or tell all about one
    Policies {
        /// A policy
        name: Option<String>,
    },
    /// List the scenarios that come with the program
    Scenarios,
    /// Tell what this machine can do, and measure what switching guests costs on it
    Doctor {
        /// Store the measured costs for `--backend sim`, with what the host itself takes of the cores
        #[arg(long)]
        calibrate: bool,
        /// Measure costs only, as on a machine whose host takes nothing
        #[arg(long, requires = "calibrate")]
        only_costs: bool,
    },
    /// Print the report of a run that was kept with --output
    Report {
        /// The run's directory
        dir: PathBuf,
        /// How to print
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Feed a kept run's inputs to a fresh dispatcher and check that it decides the same
    Replay {
        /// The run's directory
        dir: PathBuf,
    },
    /// Print the events of a kept run with times and cores, as a kernel's trace is dumped
    #[command(after_help = TRACE_HELP.as_str())]
    Trace(TraceArgs),
    /// Show the distribution of the time between two kinds of event, such as from interrupt to handler
    #[command(after_help = DIST_HELP.as_str())]
    Dist(DistArgs),
    /// Tell why the worst waits were so long: from the waiter through locks and owners to the core
    Explain(ExplainArgs),
    /// Run on the real AMD-V KVM of an emulated machine, wherever you are
    #[command(subcommand)]
    Lab(LabCommand),
    /// What the program does inside the lab
    #[command(hide = true)]
    InLab,
}

impl Command {
    /// Whether it is a command that runs something and can be ended early: then, whether it is to be quiet.
    #[must_use]
    pub const fn runs(&self) -> Option<bool> {
        match self {
            Self::Run(arguments) | Self::Lab(LabCommand::Run(arguments)) => Some(arguments.quiet),
            Self::Compare(arguments) => Some(arguments.quiet),
            Self::Reproduce(arguments) => Some(arguments.quiet),
            Self::Suite(arguments) => Some(arguments.quiet),
            Self::Explain(arguments) => Some(arguments.quiet),
            Self::Lab(LabCommand::Predict(arguments)) => Some(arguments.quiet),
            Self::Lab(_) | Self::InLab => Some(false),
            Self::Policies { .. }
            | Self::Scenarios
            | Self::Doctor { .. }
            | Self::Trace(_)
            | Self::Dist(_)
            | Self::Report { .. }
            | Self::Replay { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn no_command_at_all_is_allowed() {
        let cli = Cli::try_parse_from(["stealtime"]).expect("allowed");
        assert!(cli.command.is_none());
    }

    #[test]
    fn a_run_without_arguments_is_the_default_run() {
        let cli = Cli::try_parse_from(["stealtime", "run"]).expect("allowed");
        let Some(Command::Run(args)) = cli.command else {
            panic!("{cli:?}");
        };
        assert_eq!(format!("{args:?}"), format!("{:?}", RunArgs::default()));
    }

    #[test]
    fn nonsense_is_refused_when_it_is_read() {
        for arguments in [
            "run --duration 0",
            "run --duration 5",
            "run --policy nosuch",
            "run --policy fss:nosuch=1",
            "run --cores x",
            "run --format xml",
            "run ",
            "compare  --policy rr",
            "compare starvation",
            "compare starvation --policy rr --repeat 0",
            "reproduce nosuch",
            "trace dir --mask nosuch",
            "trace dir --from 5",
            "dist dir --from running",
            "dist dir --from nosuch --to running",
            "dist dir --from running --to blocked:nosuch",
            "reproduce ping --sweep --backend kvm",
            "reproduce ping --format csv",
        ] {
            let words = std::iter::once("stealtime").chain(arguments.split(' '));
            assert!(Cli::try_parse_from(words).is_err(), "{arguments}");
        }
    }
}
