//! Why a machine could not be made or started.

use crate::cpu::Exit;
use std::fmt;
use stealtime_scheduler::ids::VmId;

/// A step that KVM was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum KvmStep {
    /// Making the VM.
    CreateVm,
    /// Giving it memory.
    SetMemory,
    /// Making a vCPU.
    CreateVcpu,
    /// Asking which processor features there are.
    GetCpuid,
    /// Setting the processor features of a vCPU.
    SetCpuid,
    /// Reading a vCPU's registers.
    GetRegisters,
    /// Setting a vCPU's registers.
    SetRegisters,
}

impl fmt::Display for KvmStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CreateVm => "create a VM",
            Self::SetMemory => "give the VM its memory",
            Self::CreateVcpu => "create a vCPU",
            Self::GetCpuid => "tell its processor features",
            Self::SetCpuid => "set the vCPU's processor features",
            Self::GetRegisters => "read the vCPU's registers",
            Self::SetRegisters => "set the vCPU's registers",
        })
    }
}

/// Why a machine could not be made or started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MachineError {
    /// KVM refused a step. Whether that can be helped is in the kernel's answer.
    #[error("KVM did not {step}")]
    Kvm {
        /// Which.
        step: KvmStep,
        /// The kernel's answer.
        source: kvm_ioctls::Error,
    },
    /// The plan has more vCPUs than KVM allows: ask for fewer, or spread them over several VMs.
    #[error("{asked} vCPUs in one VM are more than this KVM allows, which is {allowed}")]
    TooManyVcpus {
        /// In the plan.
        asked: usize,
        /// KVM's limit.
        allowed: usize,
    },
    /// The plan has no vCPU for this VM.
    #[error("{vm} has no vCPU")]
    NoVcpus {
        /// Which.
        vm: VmId,
    },
    /// The programs are too large to be mapped: shorten them.
    #[error("the VM would need {needed} bytes of memory; at most {most} can be mapped")]
    TooLarge {
        /// What they need.
        needed: u64,
        /// What there can be.
        most: u64,
    },
    /// The host gave no memory for the guest.
    #[error("no memory for the guest ({bytes} bytes): {reason}")]
    NoMemory {
        /// How much was asked for.
        bytes: u64,
        /// The host's answer.
        reason: String,
    },
    /// An access to guest memory outside of it: a fault of ours.
    #[error("guest memory at {address:#x} could not be written")]
    Access {
        /// Where.
        address: u64,
        /// What the access said.
        source: vm_memory::GuestMemoryError,
    },
    /// The kernel image is not what this program was built for.
    #[error("the guest kernel's image cannot be loaded")]
    Image {
        /// What the loader said.
        source: linux_loader::loader::Error,
    },
    /// The guest did not get as far as its program.
    #[error("the guest did not start: {}", told(exit))]
    NotReady {
        /// What it did instead.
        exit: Exit,
    },
    /// The guest did not answer to a command in time.
    #[error("the guest did not start: no answer within {seconds} s")]
    NoAnswer {
        /// How long it was given.
        seconds: u64,
    },
    /// The guest's clock does not go as the host's: figures would mean nothing.
    #[error("the guest's clock cannot be used: {why}")]
    Clock {
        /// What is wrong.
        why: &'static str,
    },
}

fn told(exit: &Exit) -> String {
    match exit {
        Exit::Fault(line) => line.clone(),
        exit => format!("{exit:?} instead"),
    }
}

impl MachineError {
    /// For `map_err` of a step.
    pub(super) fn kvm(step: KvmStep) -> impl FnOnce(kvm_ioctls::Error) -> Self {
        move |source| Self::Kvm { step, source }
    }
}
