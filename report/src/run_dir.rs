//! A run kept in a directory: `run.json` and `stream.bin` (`docs/trace-format.md`).
//!
//! [`RunWriter`] writes it while the run goes on, [`load`] reads it, and [`replay()`] proves that the
//! inputs give the same effects and events again.

mod read;
mod replay;
mod stream;
#[cfg(test)]
mod tests;
mod write;

pub use read::{Entries, LoadError, Recording, load};
pub(crate) use replay::names_only_what_exists;
pub use replay::{Difference, Kind, Replay, ReplayError, replay};
pub use stream::{BadHeader, HEADER_BYTES, MAGIC, STREAM_VERSION};
pub use write::{RunWriter, WriteError};

use crate::model::Report;
use serde::{Deserialize, Serialize};
use stealtime_scheduler::dispatcher::Config;
use stealtime_workloads::run::Plan;

/// The description of the run.
pub const RUN_FILE: &str = "run.json";

/// The stream of the run.
pub const STREAM_FILE: &str = "stream.bin";

/// What `run.json` calls itself.
pub const FORMAT: &str = "stealtime-run";

/// The version of `run.json`.
pub const RUN_VERSION: u32 = 1;

/// What `run.json` holds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunFile {
    /// [`FORMAT`].
    pub format: String,
    /// [`RUN_VERSION`].
    pub version: u32,
    /// How many records the stream has.
    pub records: u64,
    /// CRC-32 (IEEE) of the whole stream file.
    pub crc32: u32,
    /// What the dispatcher was given.
    pub config: Config,
    /// What the backend was given.
    pub plan: Plan,
    /// What the run showed.
    pub report: Report,
}
