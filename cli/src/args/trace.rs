//! `stealtime trace`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::sync::LazyLock;
use stealtime_report::mask::Mask;
use stealtime_scheduler::time::Nanos;

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

pub(super) static TRACE_HELP: LazyLock<String> =
    LazyLock::new(|| format!("Classes of events:\n{}", Mask::help()));
