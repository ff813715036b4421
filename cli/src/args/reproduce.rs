//! `stealtime reproduce`.

use super::conditions::{BackendChoice, Conditions, LabArgs};
use super::values::{Form, positive_time};
use crate::cores::CoreList;
use crate::reproduce;
use clap::{Args, ValueEnum};
use stealtime_scheduler::time::Nanos;

/// `stealtime reproduce`.
#[derive(Clone, Debug, Args)]
pub struct ReproduceArgs {
    /// Which finding; `all` for all of them
    #[arg(default_value = reproduce::ALL, value_parser = reproduce::names())]
    pub name: String,
    /// How many rounds to run: in each round every case once, in turn; 6 is the least for 95 % confidence
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// What to run on
    #[arg(long, value_enum, default_value_t)]
    pub backend: ReproduceBackend,
    /// Vary each parameter around its documented value, in the simulator
    #[arg(long, conflicts_with = "backend")]
    pub sweep: bool,
    /// Before each finding, measure this machine's costs for the simulator, so that the two sides of a comparison are of
    /// the same minutes: a quarter of a minute each, with KVM. They are stored as by `doctor --calibrate`
    #[arg(long, conflicts_with = "sweep")]
    pub calibrate: bool,
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
    /// The machine of the lab.
    #[command(flatten)]
    pub lab: LabArgs,
    /// Seed of the first round's random lengths; each round has the next one
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
    /// How to print the outcome
    #[arg(long, value_enum, default_value_t)]
    pub format: Form,
    /// No progress bar and no remarks
    #[arg(long, short)]
    pub quiet: bool,
}

/// What a reproduction runs on, as asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum ReproduceBackend {
    /// KVM if it can be used, else the simulator
    #[default]
    Auto,
    /// Real guests on /dev/kvm
    Kvm,
    /// Discrete events in virtual time
    Sim,
    /// Real guests on the KVM of an emulated machine (see `stealtime lab`)
    Lab,
    /// The simulator and KVM, side by side
    All,
}

impl ReproduceArgs {
    /// The conditions of a run on this backend.
    #[must_use]
    pub fn conditions(&self, backend: BackendChoice) -> Conditions {
        Conditions {
            cores: self.cores.clone(),
            duration: self.duration,
            warmup: self.warmup,
            backend,
            lab: self.lab,
            seed: self.seed,
        }
    }
}
