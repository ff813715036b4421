//! A vCPU's registers at its start: 64-bit mode, ring 0, at the kernel's entry.
//!
//! Everything is set from outside, nothing by guest code: page tables, descriptor tables and the task
//! register come with `KVM_SET_SREGS`.

use super::MachineError;
use super::descriptors::TSS_SIZE;
use super::error::KvmStep;
use super::memory::Memory;
use kvm_bindings::{kvm_dtable, kvm_segment};
use kvm_ioctls::VcpuFd;
use stealtime_guest::layout::{
    BLOCK, GDT, GDT_SIZE, IDT, KERNEL_CODE, KERNEL_DATA, STACK_TOPS, TASK, TSS, block, shared_page,
};

/// Paging, write protection also for ring 0, alignment checks, native floating point errors,
/// protected mode.
const CR0: u64 = 0x8005_0033;
/// Physical address extension; SSE state and exceptions known, though the guest uses neither.
const CR4: u64 = 0x620;
/// System calls known, though unused; long mode enabled and active; no-execute.
const EFER: u64 = 0xd01;

const CODE: kvm_segment = kvm_segment {
    base: 0,
    limit: u32::MAX,
    selector: KERNEL_CODE,
    type_: 11,
    present: 1,
    dpl: 0,
    db: 0,
    s: 1,
    l: 1,
    g: 1,
    avl: 0,
    unusable: 0,
    padding: 0,
};

const DATA: kvm_segment = kvm_segment {
    selector: KERNEL_DATA,
    type_: 3,
    db: 1,
    l: 0,
    ..CODE
};

/// Sets the registers of vCPU `index` of the VM.
pub(super) fn set_registers(
    vcpu: &VcpuFd,
    memory: &Memory,
    index: u32,
) -> Result<(), MachineError> {
    let control = block(index);
    let table = |base, size: u64| kvm_dtable {
        base,
        limit: u16::try_from(size - 1).unwrap_or(u16::MAX),
        padding: [0; 3],
    };
    let mut system = vcpu
        .get_sregs()
        .map_err(MachineError::kvm(KvmStep::GetRegisters))?;
    system.cs = CODE;
    for segment in [
        &mut system.ds,
        &mut system.es,
        &mut system.fs,
        &mut system.gs,
        &mut system.ss,
    ] {
        *segment = DATA;
    }
    system.ldt = kvm_segment {
        unusable: 1,
        ..kvm_segment::default()
    };
    system.tr = kvm_segment {
        base: control + TSS,
        limit: u32::try_from(TSS_SIZE - 1).unwrap_or(u32::MAX),
        selector: TASK,
        type_: 11,
        present: 1,
        ..kvm_segment::default()
    };
    system.gdt = table(control + GDT, GDT_SIZE);
    system.idt = table(IDT, 256 * 16);
    system.cr0 = CR0;
    system.cr3 = memory.root();
    system.cr4 = CR4;
    system.efer = EFER;
    vcpu.set_sregs(&system)
        .map_err(MachineError::kvm(KvmStep::SetRegisters))?;

    let mut general = vcpu
        .get_regs()
        .map_err(MachineError::kvm(KvmStep::GetRegisters))?;
    general.rip = memory.entry();
    general.rsp = control + STACK_TOPS[0];
    general.rflags = 2;
    general.rdi = shared_page(index);
    general.rsi = control + BLOCK;
    vcpu.set_regs(&general)
        .map_err(MachineError::kvm(KvmStep::SetRegisters))
}
