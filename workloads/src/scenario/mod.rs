//! Scenario files: what they say, what may be wrong with them, and the plan that they make.
//!
//! `docs/scenarios.md` is the format's reference. A scenario is read in four steps, each a file:
//! TOML with places (`document`), keys and values (`read`) with the grammar of steps (`step`), what
//! holds in every run (`flow`), and numbers and ops (`build`). [`Scenario::plan`] then applies what the
//! user asked for instead.

mod build;
mod document;
mod embedded;
mod error;
pub mod expect;
mod flow;
mod guest_lock;
mod host_lock;
mod model;
mod parameters;
mod read;
mod step;

pub use embedded::{Embedded, embedded, text as embedded_text};
pub use error::{Position, Problem, ScenarioError, StepFault};
pub use step::{LONGEST_STEP, SHORTEST_PERIOD, Statement, StepError, Target, WORDS};

use crate::run::{Plan, VcpuPlan, VmPlan};
use build::Built;
use error::{Fault, nearest};
use std::collections::HashSet;
use std::sync::LazyLock;
use stealtime_scheduler::dispatcher::{ConfigError, Dispatcher};
use stealtime_scheduler::spec::{NamedOptions, PolicySpec};
use stealtime_scheduler::time::Nanos;

/// The most VMs of a scenario.
pub const MAX_VMS: usize = 65_535;
/// The most vCPUs of a scenario, all VMs together.
pub const MAX_VCPUS: usize = 100_000;
/// The most guest locks of a VM, and the most host locks of a scenario.
pub const MAX_LOCKS: usize = 1_024;
/// The most messages that a channel can hold.
pub const MAX_CHANNEL: u32 = 1_000_000;
/// The most that can meet at a barrier.
pub const MAX_PARTIES: u32 = 65_535;
/// The most ops of a program, its end included.
pub const MAX_OPS: usize = 1_024;
/// The start of a vCPU that is parked: it never joins the run, which is over before.
pub const NEVER: Nanos = Nanos::MAX;
/// The longest duration, and the longest warm-up.
pub const LONGEST_RUN: Nanos = Nanos::from_secs(86_400);
/// The vector that `interrupt` raises.
pub const INTERRUPT_VECTOR: u8 = 0x40;
/// The vector that `timer` raises.
pub const TIMER_VECTOR: u8 = 0x41;
/// The seed of a run for which none is given.
pub const DEFAULT_SEED: u64 = 1;
/// The duration of a scenario that gives none.
pub const DEFAULT_DURATION: Nanos = Nanos::from_secs(5);
/// The scenario that is run if none is named.
pub const DEFAULT_SCENARIO: &str = "starvation";

/// The policy of a scenario that names none.
static DEFAULT_POLICY: LazyLock<PolicySpec> = LazyLock::new(|| PolicySpec {
    policy: NamedOptions {
        name: "fss".into(),
        options: Vec::new(),
    },
    layers: Vec::new(),
});

/// A real-time thread of the host that takes a core away now and then, whatever runs there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostThread {
    /// Which of the run's cores, from 0.
    pub core: u16,
    /// When it begins, from the start of the run's preparation.
    pub start: Nanos,
    /// How long it works at a time.
    pub busy: Nanos,
    /// From the beginning of one such time to that of the next.
    pub period: Nanos,
}

/// A scenario that was read and found to be in order.
#[derive(Clone, PartialEq, Debug)]
pub struct Scenario {
    /// Its name, with the parameters that were set.
    pub name: String,
    /// What it shows, in one line.
    pub description: String,
    /// The policy that it is meant for.
    pub policy: PolicySpec,
    /// On how many host cores it is meant to run.
    pub cores: u16,
    /// How long figures count.
    pub duration: Nanos,
    /// How long to run before that.
    pub warmup: Nanos,
    /// The suites that it belongs to, of [`expect::SUITES`].
    pub suites: Vec<String>,
    /// The only backend on which it shows what it is about, if there is one.
    pub only_on: Option<String>,
    /// Threads of the host that disturb it; on real hardware only.
    pub host_threads: Vec<HostThread>,
    /// What must hold of its runs.
    pub expectations: Vec<expect::Expectation>,
    file: String,
    built: Built,
}

/// What the user asked for instead of what the scenario says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Overrides {
    /// The policy.
    pub policy: Option<PolicySpec>,
    /// The host cores, by the host's numbers. Without them the plan names 0 up to the scenario's count.
    pub cores: Option<Vec<u16>>,
    /// How long figures count.
    pub duration: Option<Nanos>,
    /// How long to run before that.
    pub warmup: Option<Nanos>,
    /// The seed of random lengths; [`DEFAULT_SEED`] without it.
    pub seed: Option<u64>,
}

/// More than any scenario needs, and little enough to be read in one go.
const LARGEST_FILE: u64 = 1 << 20;

/// Reads a regular file. A pipe or a device might never end.
fn read_small_file(path: &str) -> std::io::Result<String> {
    let refused = |what: &str| Err(std::io::Error::other(what.to_owned()));
    let metadata = std::fs::metadata(path)?;
    if metadata.is_dir() {
        return refused("it is a directory");
    }
    if !metadata.is_file() {
        return refused("it is not a regular file");
    }
    if metadata.len() > LARGEST_FILE {
        return refused("it is larger than 1 MiB");
    }
    std::fs::read_to_string(path)
}

impl Scenario {
    /// Finds a scenario: anything with a `/` or ending in `.toml` is a file, all else the name of an
    /// embedded one. Its parameters may be set behind it, as `lhp:lock=mutex,section=1ms`.
    ///
    /// # Errors
    /// If there is none, or what is wrong with it.
    pub fn load(name_or_path: &str) -> Result<Self, ScenarioError> {
        let (name_or_path, settings) = parameters::settings(name_or_path);
        if name_or_path.contains('/') || name_or_path.ends_with(".toml") {
            let text = read_small_file(name_or_path).map_err(|error| {
                let message = error.to_string();
                let problem = Problem::Unreadable { message };
                Fault { at: None, problem }.in_file(name_or_path, "")
            })?;
            return Self::parse_with(name_or_path, &text, &settings);
        }
        match embedded::text(name_or_path) {
            Some(text) => Self::parse_with(&format!("{name_or_path}.toml"), text, &settings),
            None => {
                let problem = Problem::UnknownScenario {
                    known: embedded::names().collect::<Vec<_>>().join(", "),
                    meant: nearest(name_or_path, embedded::names()),
                };
                Err(Fault { at: None, problem }.in_file(name_or_path, ""))
            }
        }
    }

    /// Reads a scenario from its text; `file` is how messages name it.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn parse(file: &str, text: &str) -> Result<Self, ScenarioError> {
        Self::parse_with(file, text, &[])
    }

    /// Reads a scenario from a text that stands for the one asked for, with the parameters that are
    /// set behind its name.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn parse_as(asked: &str, text: &str) -> Result<Self, ScenarioError> {
        let (name, settings) = parameters::settings(asked);
        Self::parse_with(&format!("{name}.toml"), text, &settings)
    }

    fn parse_with(
        file: &str,
        text: &str,
        settings: &[(&str, &str)],
    ) -> Result<Self, ScenarioError> {
        let text = parameters::fill_in(text, settings)
            .map_err(|fault: Fault| fault.in_file(file, text))?;
        let read = || {
            let scenario = read::scenario(&text)?;
            let built = build::build(&scenario)?;
            let expectations = expect::resolve(scenario.expectations.clone(), &built)?;
            Ok((scenario, built, expectations))
        };
        let (scenario, built, expectations) =
            read().map_err(|fault: Fault| fault.in_file(file, &text))?;
        Ok(Self {
            name: parameters::shown(&scenario.name, settings),
            description: scenario.description,
            policy: scenario.policy,
            cores: scenario.cores,
            duration: scenario.duration,
            warmup: scenario.warmup,
            suites: scenario.suites,
            only_on: scenario.only_on,
            host_threads: scenario.host_threads,
            expectations,
            file: file.to_owned(),
            built,
        })
    }

    /// Its VMs, by number.
    #[must_use]
    pub fn vms(&self) -> &[VmPlan] {
        &self.built.vms
    }

    /// The vCPUs of all VMs, by number.
    #[must_use]
    pub fn vcpus(&self) -> &[VcpuPlan] {
        &self.built.vcpus
    }

    /// The plan of a run: this scenario with what the user asked for instead.
    ///
    /// # Errors
    /// If something asked for is out of range, or if the policy does not understand its options or a
    /// parameter of a vCPU.
    pub fn plan(&self, overrides: &Overrides) -> Result<Plan, ScenarioError> {
        let in_file = |problem| Fault { at: None, problem }.in_file(&self.file, "");
        let plan = Plan {
            scenario: self.name.clone(),
            policy: overrides.policy.as_ref().unwrap_or(&self.policy).clone(),
            cores: match &overrides.cores {
                None => (0..self.cores).collect(),
                Some(cores) => cores.clone(),
            },
            warmup: overrides.warmup.unwrap_or(self.warmup),
            duration: overrides.duration.unwrap_or(self.duration),
            seed: overrides.seed.unwrap_or(DEFAULT_SEED),
            vms: self.built.vms.clone(),
            vcpus: self.built.vcpus.clone(),
            host_locks: self.built.host_locks.clone(),
        };
        conditions(&plan).map_err(in_file)?;
        // The dispatcher is the judge of policy and parameters; this one is never used.
        match Dispatcher::new(&plan.config()) {
            Ok(_) => Ok(plan),
            Err(error) => Err(in_file(match error {
                ConfigError::Policy(error) => Problem::Policy(error),
                ConfigError::Param { vcpu, refused } => Problem::Refused {
                    vcpu: plan.vcpu_name(vcpu),
                    refused,
                },
                ConfigError::None(what) => value(what, "none".to_owned(), "at least one"),
            })),
        }
    }
}

fn value(key: &str, written: String, expected: &str) -> Problem {
    Problem::Value {
        key: key.to_owned(),
        written,
        expected: expected.to_owned(),
    }
}

/// Checks the conditions of a run, wherever they come from.
fn conditions(plan: &Plan) -> Result<(), Problem> {
    let different: HashSet<_> = plan.cores.iter().collect();
    if plan.cores.is_empty() || different.len() != plan.cores.len() {
        let expected = "at least one core, each only once";
        return Err(value("cores", format!("{:?}", plan.cores), expected));
    }
    if !(Nanos(1)..=LONGEST_RUN).contains(&plan.duration) {
        let expected = "a time of more than 0, at most 24 hours (1440m)";
        return Err(value("duration", plan.duration.to_string(), expected));
    }
    if plan.warmup > LONGEST_RUN {
        let expected = "a time of at most 24 hours (1440m)";
        return Err(value("warmup", plan.warmup.to_string(), expected));
    }
    Ok(())
}
