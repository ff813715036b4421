//! From the stream of a run to what its user reads.
//!
//! A [`collector::Collector`] listens to a run and keeps its figures; [`model::Report`] is what comes
//! of it, as text, JSON or CSV.

mod build;
pub mod collector;
mod csv;
mod diagnosis;
pub mod latency;
pub mod model;
#[cfg(test)]
pub(crate) mod testing;
mod text;

pub use collector::Collector;
pub use model::Report;
