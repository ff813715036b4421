//! A minimal KVM VMM that runs vCPU threads of small guest kernels under our own scheduler.

pub mod backend;
pub mod clock;
pub mod conduct;
pub mod cpu;
pub mod crew;
pub mod engine;
pub mod host;
pub mod kick;
pub mod machine;
pub mod probe;
pub mod run_delay;
pub mod runstate;
pub mod seat;
pub mod thread;
mod told;
pub mod vectors;

#[cfg(test)]
#[cfg(not(loom))]
mod handover;
#[cfg(test)]
#[cfg(not(loom))]
mod mock;
