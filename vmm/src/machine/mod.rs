//! A virtual machine: memory, the guest kernel in it, its vCPUs on KVM.
//!
//! [`Machine::new`] makes everything that needs no vCPU thread; [`Machine::into_cpus`] hands out the
//! vCPUs, one for each thread. A thread then calls [`GuestCpu::boot`], shares a [`Calibration`], sets
//! the start of the run with [`GuestCpu::set_clock_epoch`] and drives the vCPU as a
//! [`crate::cpu::Cpu`].

mod error;
mod guest_cpu;
mod page;

pub use error::MachineError;
pub use guest_cpu::GuestCpu;
pub use page::SharedPage;
pub use stealtime_workloads::run::Calibration;

use kvm_ioctls::Kvm;
use stealtime_scheduler::ids::VmId;
use stealtime_workloads::run::Plan;

/// A virtual machine that has not started.
#[derive(Debug)]
pub struct Machine {
    cpus: Vec<GuestCpu>,
}

impl Machine {
    /// Makes VM `vm` of the plan, with its memory, kernel, programs and vCPUs.
    ///
    /// # Errors
    /// If KVM refuses a step, or allows fewer vCPUs than the plan has.
    pub fn new(_kvm: &Kvm, _plan: &Plan, _vm: VmId) -> Result<Self, MachineError> {
        Err(MachineError::Unfinished)
    }

    /// The vCPUs, in the order of their numbers within the VM.
    #[must_use]
    pub fn into_cpus(self) -> Vec<GuestCpu> {
        self.cpus
    }
}
