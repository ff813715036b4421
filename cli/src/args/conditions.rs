//! Under which conditions a scenario runs.

use super::values::positive_time;
use crate::cores::CoreList;
use clap::{Args, ValueEnum};
use stealtime_scheduler::time::Nanos;

/// What a scenario runs on, as asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum BackendChoice {
    /// KVM if it can be used, else the simulator
    #[default]
    Auto,
    /// Real guests on /dev/kvm
    Kvm,
    /// Discrete events in virtual time
    Sim,
    /// Real guests on the KVM of an emulated machine (see `stealtime lab`)
    Lab,
}

/// The emulated machine of the lab.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Args)]
pub struct LabArgs {
    /// In the lab: how many cores to emulate [default: one more than the scenario asks for, as long
    /// as this machine has as many]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub lab_cores: Option<u16>,
    /// In the lab: count instructions on one core, so that every run gives the same figures
    #[arg(long)]
    pub exact: bool,
}

/// Under which conditions a scenario runs. What is not given is the scenario's own.
#[derive(Clone, PartialEq, Eq, Debug, Default, Args)]
pub struct Conditions {
    /// Host cores to run on, such as 1 or 0,2 or 0-3 [default: the last ones, as many as the
    /// scenario asks for]
    #[arg(long, value_name = "LIST")]
    pub cores: Option<CoreList>,
    /// How long to measure, such as 500ms or 10s [default: the scenario's]
    #[arg(long, value_name = "TIME", value_parser = positive_time)]
    pub duration: Option<Nanos>,
    /// How long to run before figures count [default: the scenario's]
    #[arg(long, value_name = "TIME")]
    pub warmup: Option<Nanos>,
    /// What to run on
    #[arg(long, value_enum, default_value_t)]
    pub backend: BackendChoice,
    /// The machine of the lab.
    #[command(flatten)]
    pub lab: LabArgs,
    /// Seed of every random length [default: the scenario's]
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
}
