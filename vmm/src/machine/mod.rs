//! A virtual machine: memory, the guest kernel in it, its vCPUs on KVM.
//!
//! [`Machine::new`] makes everything that needs no vCPU thread; [`Machine::into_cpus`] hands out the
//! vCPUs, one for each thread. A thread then calls [`GuestCpu::boot`], shares a [`Calibration`], sets
//! the start of the run with [`GuestCpu::set_clock_epoch`] and drives the vCPU as a
//! [`crate::cpu::Cpu`].
//!
//! There is no interrupt controller, no timer and no device in the machine: what a vCPU waits for and
//! what wakes it is decided outside.

mod boot;
mod clock;
mod descriptors;
mod error;
mod exits;
mod guest_cpu;
mod image;
mod interrupts;
mod map;
mod memory;
mod page;
mod start;
mod tsc;

pub use error::{KvmStep, MachineError};
pub use guest_cpu::GuestCpu;
pub use page::SharedPage;
pub use stealtime_workloads::run::Calibration;

use guest_cpu::Parts;
use kvm_bindings::{KVM_MAX_CPUID_ENTRIES, kvm_userspace_memory_region};
use kvm_ioctls::{Kvm, VmFd};
use memory::{Memory, Program};
use std::sync::Arc;
use stealtime_scheduler::ids::{VcpuId, VmId};
use stealtime_workloads::run::Plan;

/// Three pages for KVM, in the guest's address space but far above its memory.
const KVM_TASK_STATE: usize = 0xfffb_d000;

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
    pub fn new(kvm: &Kvm, plan: &Plan, vm: VmId) -> Result<Self, MachineError> {
        let ids: Vec<VcpuId> = (0..)
            .zip(&plan.vcpus)
            .filter(|(_, vcpu)| vcpu.vm == vm)
            .map(|(id, _)| VcpuId(id))
            .collect();
        let (asked, allowed) = (ids.len(), kvm.get_max_vcpus());
        if asked == 0 {
            return Err(MachineError::NoVcpus { vm });
        }
        if asked > allowed {
            return Err(MachineError::TooManyVcpus { asked, allowed });
        }
        let memory = Arc::new(memory_of(plan, vm, &ids)?);
        let fd = create(kvm, &memory)?;
        let cpuid = kvm
            .get_supported_cpuid(KVM_MAX_CPUID_ENTRIES)
            .map_err(MachineError::kvm(KvmStep::GetCpuid))?;
        let make = |(index, id): (u32, VcpuId)| {
            GuestCpu::new(Parts {
                vm: &fd,
                cpuid: &cpuid,
                memory: &memory,
                page: SharedPage::new(Arc::clone(&memory), vm, index),
                index,
                id,
            })
        };
        let cpus = (0..).zip(ids).map(make).collect::<Result<_, _>>()?;
        Ok(Self { cpus })
    }

    /// The vCPUs, in the order of their numbers within the VM.
    #[must_use]
    pub fn into_cpus(self) -> Vec<GuestCpu> {
        self.cpus
    }
}

fn memory_of(plan: &Plan, vm: VmId, ids: &[VcpuId]) -> Result<Memory, MachineError> {
    let locks: Vec<_> = plan.vms[vm.index()]
        .locks
        .iter()
        .map(|(_, kind)| *kind)
        .collect();
    let program = |id: &VcpuId| Program {
        ops: &plan.vcpus[id.index()].program,
        seed: plan.seed,
        stream: u64::from(id.0),
    };
    let programs: Vec<_> = ids.iter().map(program).collect();
    Memory::new(&locks, &programs)
}

/// A VM with its memory. It lives on as long as one of its vCPUs does.
#[expect(unsafe_code, reason = "lends memory of this process to a guest")]
fn create(kvm: &Kvm, memory: &Memory) -> Result<VmFd, MachineError> {
    let vm = kvm
        .create_vm()
        .map_err(MachineError::kvm(KvmStep::CreateVm))?;
    // Intel processors that cannot run real mode natively need a place for a task state of KVM's own.
    // The guest is never in real mode, so nothing is lost where this is refused.
    if let Err(error) = vm.set_tss_address(KVM_TASK_STATE) {
        log::debug!("KVM_SET_TSS_ADDR: {error}");
    }
    let (address, size) = memory.region()?;
    let region = kvm_userspace_memory_region {
        slot: 0,
        flags: 0,
        guest_phys_addr: 0,
        memory_size: size,
        userspace_addr: address,
    };
    // SAFETY: the region is all of `memory`, a mapping of its own that nothing else uses. Every
    // vCPU keeps it (through its shared page) until after it has been closed, and a VM runs guest
    // code only through its vCPUs.
    unsafe { vm.set_user_memory_region(region) }.map_err(MachineError::kvm(KvmStep::SetMemory))?;
    Ok(vm)
}
