//! `stealtime dist`.

use super::values::Form;
use clap::Args;
use std::path::PathBuf;
use std::sync::LazyLock;
use stealtime_report::kind::{Kind, Selector};

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

pub(super) static DIST_HELP: LazyLock<String> =
    LazyLock::new(|| format!("Kinds of events, with their varieties:\n{}", Kind::help()));
