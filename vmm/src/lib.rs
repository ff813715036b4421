//! A minimal KVM VMM that runs vCPU threads of small guest kernels under our own scheduler.

pub mod cpu;
pub mod kick;
pub mod runstate;
pub mod machine;
pub mod probe;
