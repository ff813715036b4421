//! A guest's CPU as the run loop sees it: enter the guest, learn why it came back.
//!
//! The run loop (threads, grants, kicks) is written against [`Cpu`], so that its hand-over can be
//! tested without KVM; `machine` implements it with a KVM vCPU.

use crate::kick::KickHandle;
use std::fmt::Debug;
use std::sync::Arc;
use stealtime_guest::op::BadOp;
use stealtime_scheduler::ids::VcpuId;
use stealtime_scheduler::input::{GuestLocks, HostMode};
use stealtime_scheduler::time::Nanos;
use stealtime_workloads::run::GuestView;

/// What the guest asks of the VMM by port I/O.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// Nothing: an exit for its own sake.
    Nothing,
    /// Sleep for this long; not ended by interrupts.
    Sleep(Nanos),
    /// Wait in the hypervisor for this long.
    HostWait(Nanos),
    /// Arm (or with 0 disarm) the periodic timer.
    Periodic {
        /// The period.
        period: Nanos,
        /// The vector raised.
        vector: u8,
    },
    /// Holds no lock and is in no critical section any more, and a preemption is pending.
    CriticalLeft,
    /// Sleep until woken, for this guest lock.
    GuestWait(u16),
    /// Wake a vCPU of its VM, for a guest lock.
    GuestWake {
        /// Its number within the VM.
        index: u32,
        /// Which lock.
        lock: u16,
    },
    /// Has spun for this guest lock for long.
    SpunTooLong(u16),
    /// Give up the core.
    Yield,
    /// Raise an interrupt at a vCPU of any VM.
    Interrupt {
        /// At whom.
        to: VcpuId,
        /// Its vector.
        vector: u8,
    },
    /// Take a host lock.
    HostLock {
        /// Which.
        lock: u16,
        /// With a request for kernel priority.
        kernel_priority: bool,
    },
    /// Take a host lock that is a mutex or a reader-writer lock.
    HostAcquire {
        /// Which.
        lock: u16,
        /// How.
        mode: HostMode,
        /// With a request for kernel priority.
        kernel_priority: bool,
    },
    /// Release a host lock, of whatever kind.
    HostUnlock(u16),
    /// The hypervisor works for this long on the vCPU's behalf.
    Hypervisor(Nanos),
    /// The thread passes through user mode.
    UserReturn,
    /// The program is over.
    Finished,
}

/// Why guest code stopped running.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Exit {
    /// A call.
    Call(Call),
    /// Halted at ring 0 with interrupts on.
    Halt,
    /// A signal: a kick, or nothing.
    Interrupted,
    /// The guest can take an interrupt now.
    InterruptWindow,
    /// The VM cannot go on; the line says why, in the words of the report: a triple fault, an
    /// unhandled exception with vector, error code and address, a port or address nobody answers, a
    /// program that means nothing.
    Fault(String),
}

/// A program that the guest refused, as it tells the host.
pub type Refusal = BadOp;

/// A CPU of a guest. Owned by its thread while it runs.
pub trait Cpu: Send {
    /// Runs guest code until something happens. Interrupts that were queued are delivered first, as
    /// far as the guest takes them.
    fn enter(&mut self) -> Exit;

    /// Queues an interrupt for delivery at the next entries. A vector already queued stays queued
    /// once.
    fn queue_interrupt(&mut self, vector: u8);

    /// Whether the guest has still to handle queued interrupts. That the hardware was given one is not enough: an
    /// entry that a kick prevents leaves it waiting.
    fn interrupts_queued(&self) -> Queued;

    /// How long ago the guest began to handle its last interrupt.
    fn interrupt_handled_ago(&self) -> Nanos;

    /// Sets or clears the preempt-pending word of the shared page.
    fn set_preempt_pending(&mut self, pending: bool);

    /// What the shared page says of locks. Called by the vCPU's own thread.
    fn locks(&self) -> GuestLocks;

    /// What the guest has seen so far.
    fn view(&self) -> GuestView;

    /// How far the guest's clock is from `now` at this moment, if that can be told.
    fn clock_offset_ns(&self, now: Nanos) -> Option<i64>;

    /// Where the signal handler writes so that `enter` returns [`Exit::Interrupted`]: the
    /// `immediate_exit` byte of `kvm_run`. `enter` itself must never clear it: the run loop does, at
    /// the one moment when no kick can be lost.
    fn kick_handle(&self) -> KickHandle;

    /// The shared page, for other threads than the vCPU's own.
    fn watch(&self) -> Arc<dyn Watch>;
}

/// The shared page of a vCPU as any thread may read it, while the guest runs.
pub trait Watch: Send + Sync + Debug {
    /// What the page says of locks.
    fn locks(&self) -> GuestLocks;

    /// What the guest has seen so far.
    fn view(&self) -> GuestView;

    /// Lets the largest gap and the largest latency count anew from now.
    fn restart_maxima(&self);

    /// Sets or clears the preempt-pending word.
    fn set_preempt_pending(&self, pending: bool);

    /// Who of its VM has a guest lock (by number within the VM).
    fn owner(&self, lock: u16) -> Option<u32>;

    /// Tells its VM whether it has a core.
    fn set_running(&self, running: bool);

    /// Tells its VM who lends it its turn (by number within the VM).
    fn set_donor(&self, donor: Option<u32>);
}

/// Whether interrupts wait in a [`Cpu`].
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queued {
    /// All have been handled.
    None,
    /// Some wait until the guest can handle them.
    Some,
}
