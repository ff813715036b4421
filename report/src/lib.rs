//! From the stream of a run to what its user reads.

pub mod collector;
pub mod latency;
#[cfg(test)]
pub(crate) mod testing;
