//! From the stream of a run to what its user reads.
//!
//! A [`collector::Collector`] listens to a run and keeps its figures; [`model::Report`] is what comes
//! of it, as text, JSON or CSV; [`run_dir`] keeps a whole run in a directory, reads it, and replays it;
//! [`compare::Comparison`] puts runs of several policies side by side. Of a kept run, [`trace`] writes
//! the events, [`dist`] the distribution of the time between two kinds of them.

mod about;
mod build;
pub mod collector;
pub mod compare;
mod csv;
mod deadlock;
mod diagnosis;
pub mod dist;
pub mod expect;
pub mod explain;
pub mod kind;
pub mod latency;
pub mod mask;
pub mod model;
pub mod names;
pub mod run_dir;
mod stall;
#[cfg(test)]
pub(crate) mod testing;
mod text;
pub mod trace;

pub use collector::Collector;
pub use compare::Comparison;
pub use model::Report;
