//! `sim`: the same run in virtual time.
//!
//! [`SimBackend`] drives the very dispatcher that the KVM driver drives, with the inputs that a KVM
//! vCPU thread would send, and interprets the same programs. Between them stands an event queue in
//! place of a machine, and a [`cost::CostModel`] in place of its hardware.
//!
//! What holds:
//! * The same plan, seed and cost model give the same stream to the byte, on every machine. Ties are
//!   broken as `queue.rs` says.
//! * Guest code makes progress only in guest mode on a core. While a kick is on its way the guest goes
//!   on.
//! * Nothing real is measured: `dispatch_overhead_ns` stays 0, because a time taken from a clock would
//!   make two runs differ. `dispatch_calls` is counted.
//! * A gap in the guest's own time that is still open when the run ends is counted up to the end, so
//!   that a vCPU that starves to the end does not look well served.

#![forbid(unsafe_code)]

mod backend;
pub mod cost;
mod ending;
mod guest;
mod guest_locks;
mod hypervisor;
mod interference;
mod machine;
mod queue;
pub mod stored;
mod stream;
mod timers;
mod vcpu;

pub use backend::{SimBackend, SimError, needs_substitute, substitute};
