//! A vCPU of KVM as a [`Cpu`].

use super::clock::Clock;
use super::exits::{self, Stop};
use super::interrupts::Pending;
use super::memory::Memory;

use super::{MachineError, SharedPage, start};
use crate::cpu::{Cpu, Exit, Queued, Watch};
use crate::kick::KickHandle;
use kvm_ioctls::{VcpuFd, VmFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use stealtime_guest::call::Command;
use stealtime_scheduler::ids::VcpuId;
use stealtime_scheduler::input::{GuestHints, GuestLocks, MutexMode};
use stealtime_scheduler::time::Nanos;
use stealtime_workloads::run::GuestView;

/// How far a vCPU has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// Not entered yet.
    Made,
    /// Waits for commands.
    Booted,
    /// Runs its program.
    Started,
}

/// A vCPU of KVM with its guest.
#[derive(Debug)]
pub struct GuestCpu {
    // Dropped in this order: the vCPU before the memory it runs in.
    pub(super) vcpu: VcpuFd,
    pub(super) page: SharedPage,
    pub(super) phase: Phase,
    pub(super) clock: Option<Clock>,
    id: VcpuId,
    pending: Pending,
    /// Interrupts that KVM was given. It keeps one that it could not inject for the next entry.
    given: u64,
    immediate_exit: KickHandle,
}

/// What a vCPU is made of.
#[derive(Debug)]
pub(super) struct Parts<'a> {
    pub(super) vm: &'a VmFd,
    pub(super) cpuid: &'a kvm_bindings::CpuId,
    pub(super) memory: &'a Arc<Memory>,
    pub(super) page: SharedPage,
    pub(super) index: u32,
    pub(super) id: VcpuId,
}

impl GuestCpu {
    #[expect(unsafe_code, reason = "a pointer to kvm_run for the signal handler")]
    pub(super) fn new(parts: Parts<'_>) -> Result<Self, MachineError> {
        use super::error::KvmStep;
        let mut vcpu = parts
            .vm
            .create_vcpu(u64::from(parts.index))
            .map_err(MachineError::kvm(KvmStep::CreateVcpu))?;
        vcpu.set_cpuid2(parts.cpuid)
            .map_err(MachineError::kvm(KvmStep::SetCpuid))?;
        start::set_registers(&vcpu, parts.memory, parts.index)?;
        let byte = NonNull::from(&mut vcpu.get_kvm_run().immediate_exit).cast::<AtomicU8>();
        // SAFETY: the byte lies in the mapping of `kvm_run`, which `vcpu` keeps at its place (also
        // when it moves) until it is dropped; whoever uses the handle drops its target before the
        // CPU (contract of `KickHandle::new`). It is accessed as an atomic, and once, at each entry,
        // by the kernel.
        let immediate_exit = unsafe { KickHandle::new(byte) };
        Ok(Self {
            vcpu,
            page: parts.page,
            phase: Phase::Made,
            clock: None,
            id: parts.id,
            pending: Pending::default(),
            given: 0,
            immediate_exit,
        })
    }

    /// Tells the guest how to take its locks. Before the first entry.
    pub fn set_hints(&self, hints: GuestHints) {
        let page = self.page.get();
        let hand_off = hints.mutex == MutexMode::HandOff;
        page.hand_off.store(u32::from(hand_off), Ordering::Relaxed);
        let window = hints.spin_window.map_or(0, Nanos::get);
        page.spin_window_ns.store(window, Ordering::Relaxed);
    }

    /// Its number over all VMs.
    #[must_use]
    pub const fn id(&self) -> VcpuId {
        self.id
    }
}

impl Cpu for GuestCpu {
    /// The first entry starts the program.
    fn enter(&mut self) -> Exit {
        if self.phase == Phase::Booted {
            let command = Command::Start as u32;
            self.page.get().command.store(command, Ordering::Relaxed);
            self.phase = Phase::Started;
        }
        match self.pending.deliver(&mut self.vcpu) {
            Ok(given) => self.given += u64::from(given),
            Err(error) => {
                return Exit::Fault(format!("KVM could not inject an interrupt: {error}"));
            }
        }
        match exits::run(&mut self.vcpu, self.page.get()) {
            Stop::Exit(exit) => exit,
            Stop::Ready => Exit::Fault("the guest started anew by itself".into()),
        }
    }

    fn queue_interrupt(&mut self, vector: u8) {
        self.pending.insert(vector);
    }

    fn interrupts_queued(&self) -> Queued {
        let handled = self.page.get().interrupts.load(Ordering::Relaxed);
        if self.pending.is_empty() && handled >= self.given {
            Queued::None
        } else {
            Queued::Some
        }
    }

    fn interrupt_handled_ago(&self) -> Nanos {
        let handled = self.page.get().interrupt_tsc.load(Ordering::Relaxed);
        Nanos(self.clock.map_or(0, |clock| clock.ns_since(handled)))
    }

    fn set_preempt_pending(&mut self, pending: bool) {
        Watch::set_preempt_pending(&self.page, pending);
    }

    fn locks(&self) -> GuestLocks {
        Watch::locks(&self.page)
    }

    fn view(&self) -> GuestView {
        Watch::view(&self.page)
    }

    fn clock_offset_ns(&self, now: Nanos) -> Option<i64> {
        self.clock_offset(now)
    }

    fn kick_handle(&self) -> KickHandle {
        self.immediate_exit
    }

    fn watch(&self) -> Arc<dyn Watch> {
        Arc::new(self.page.clone())
    }
}
