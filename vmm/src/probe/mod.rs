//! What `doctor` finds out: whether KVM can be used, what rights there are, what everything costs, and what the host
//! itself does.
//!
//! All of it is asked or measured, with the same guests, kicks and threads that a run uses. Nothing
//! is concluded from names of processors or modules.

mod costs;
mod course;
mod guests;
mod host_slice;
mod interference;
mod plan;
mod rights;
mod sample;
mod status;
mod stays;
mod threads;

pub use costs::{Costs, MeasureError, measure};
pub use course::CourseCosts;
pub use host_slice::host_slice;
pub use interference::{Gaps, Interference, interference};
pub use rights::{Rights, rights};
pub use sample::Cost;
pub use status::{KvmStatus, check};
