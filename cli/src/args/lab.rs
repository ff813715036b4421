//! `stealtime lab`.

use super::conditions::LabArgs;
use super::run::RunArgs;
use super::values::policy;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use stealtime_scheduler::spec::PolicySpec;

/// `stealtime lab`.
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Find or fetch QEMU and a kernel (Debian packages, unpacked into a cache folder)
    Setup(LabSetupArgs),
    /// Run a scenario in the lab: the same as `run --backend lab`
    Run(RunArgs),
    /// Carry out any command of this program in the lab, such as `lab exec -- doctor`
    Exec(LabExecArgs),
    /// Measure costs in the lab, exactly, and store them as a cost model for `--backend sim`
    Calibrate(LabCalibrateArgs),
    /// Simulate scenarios with the lab's costs, run them in the lab, and compare
    Predict(PredictArgs),
}

/// `stealtime lab setup`.
#[derive(Clone, Debug, Args)]
pub struct LabSetupArgs {
    /// A QEMU for x86-64, version 10 or later, instead of a fetched one
    #[arg(long, value_name = "PATH")]
    pub qemu: Option<PathBuf>,
    /// A Linux kernel (bzImage or ELF) instead of a fetched one; with --modules
    #[arg(long, value_name = "PATH", requires = "modules")]
    pub kernel: Option<PathBuf>,
    /// The folder with that kernel's modules, such as /lib/modules/VERSION
    #[arg(long, value_name = "DIR", requires = "kernel")]
    pub modules: Option<PathBuf>,
}

/// `stealtime lab exec`.
#[derive(Clone, Debug, Args)]
pub struct LabExecArgs {
    /// The emulated machine.
    #[command(flatten)]
    pub lab: LabArgs,
    /// How many seconds the command may take beyond the boot
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub limit: u64,
    /// Keep what the command leaves (its stored costs, say) in this directory
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
    /// The command, without `stealtime`
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<String>,
}

/// `stealtime lab calibrate`.
#[derive(Clone, Debug, Args)]
pub struct LabCalibrateArgs {
    /// The file to store the model in; `STEALTIME_COSTS=FILE` makes the simulator take it
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// `stealtime lab predict`.
#[derive(Clone, Debug, Default, Args)]
pub struct PredictArgs {
    /// Scenarios of one core [default: weights, nice, periodic, ping, sleeper, yield]
    #[arg(value_name = "SCENARIO", value_parser = NonEmptyStringValueParser::new())]
    pub scenarios: Vec<String>,
    /// The policy for all of them [default: cfs for nice, periodic and sleeper, else the
    /// scenario's]
    #[arg(long, value_parser = policy)]
    pub policy: Option<PolicySpec>,
    /// Take the cost model in this file instead of measuring one
    #[arg(long, value_name = "FILE")]
    pub costs: Option<PathBuf>,
    /// No progress bar and no remarks
    #[arg(long, short)]
    pub quiet: bool,
}
