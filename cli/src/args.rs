//! What may be typed.

use crate::cores::CoreList;
use crate::failure::STATUSES;
use crate::reproduce;
use crate::suite::SuiteArgs;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::sync::LazyLock;
use stealtime_report::kind::{Kind, Selector};
use stealtime_report::mask::Mask;
use stealtime_scheduler::registry;
use stealtime_scheduler::spec::PolicySpec;
use stealtime_scheduler::time::Nanos;
use stealtime_workloads::scenario::DEFAULT_SCENARIO;

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
        /// Store the measured costs for `--backend sim`
        #[arg(long)]
        calibrate: bool,
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

/// How a report is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum Format {
    /// Tables to read
    #[default]
    Text,
    /// One JSON document (docs/report-format.md)
    Json,
    /// One line a vCPU, for spreadsheets
    Csv,
}

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

/// `stealtime trace`.
#[derive(Clone, Debug, Args)]
pub struct TraceArgs {
    /// The run's directory (see `run --output`)
    pub dir: PathBuf,
    /// Only events of these classes, such as intr,proc
    #[arg(
        long,
        value_name = "CLASSES",
        default_value = "events",
        hide_default_value = true
    )]
    pub mask: Mask,
    /// Only events of these vCPUs: VM/VCPU, either of which may end in *, or a VM
    #[arg(long, value_name = "VCPU")]
    pub vcpu: Option<String>,
    /// Only what happened on this core, by the host's number
    #[arg(long, value_name = "N", alias = "core")]
    pub cpu: Option<u16>,
    /// Not before this time since the start of the run, warm-up included, such as 1.5s
    #[arg(long, value_name = "TIME")]
    pub from: Option<Nanos>,
    /// Not after this time
    #[arg(long, value_name = "TIME")]
    pub to: Option<Nanos>,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    pub format: TraceFormat,
}

/// How a trace is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum TraceFormat {
    /// One line an event
    #[default]
    Text,
    /// One JSON object a line (docs/trace-format.md)
    Json,
    /// A document for trace viewers such as ui.perfetto.dev
    #[value(alias = "chrome")]
    Perfetto,
}

/// `stealtime dist`.
#[derive(Clone, Debug, Args)]
pub struct DistArgs {
    /// The run's directory (see `run --output`)
    pub dir: PathBuf,
    /// What begins the time, such as irq_raise or woken:timer
    #[arg(long, value_name = "EVENT")]
    pub from: Selector,
    /// What ends it: the next such event of the same vCPU
    #[arg(long, value_name = "EVENT")]
    pub to: Selector,
    /// Leave out times that such an event comes into, such as blocked; may be given several times
    #[arg(long, value_name = "EVENT")]
    pub unless: Vec<Selector>,
    /// Only of these vCPUs: VM/VCPU, either of which may end in *, or a VM
    #[arg(long, value_name = "VCPU")]
    pub vcpu: Option<String>,
    /// Count what begins outside the measured time too
    #[arg(long)]
    pub warmup: bool,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    pub format: Form,
}

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

/// How what has no rows is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum Form {
    /// To read
    #[default]
    Text,
    /// One JSON document (docs/commands.md)
    Json,
}

static TRACE_HELP: LazyLock<String> =
    LazyLock::new(|| format!("Classes of events:\n{}", Mask::help()));

static DIST_HELP: LazyLock<String> =
    LazyLock::new(|| format!("Kinds of events, with their varieties:\n{}", Kind::help()));

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

fn positive_time(text: &str) -> Result<Nanos, String> {
    match text.parse::<Nanos>() {
        Ok(Nanos::ZERO) => Err("a run must last longer than 0".to_owned()),
        Ok(time) => Ok(time),
        Err(error) => Err(error.to_string()),
    }
}

pub(crate) fn policy(text: &str) -> Result<PolicySpec, String> {
    let spec: PolicySpec = text.parse().map_err(|error| format!("{error}"))?;
    registry::check(&spec).map_err(|error| error.to_string())?;
    Ok(spec)
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
