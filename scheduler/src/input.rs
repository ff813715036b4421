//! What a driver tells the dispatcher.
//!
//! An input says what has happened; its time comes beside it (`Dispatcher::handle(now, input)`).
//! Times never go backwards. The driver reports facts only: every decision, and every state that can
//! be derived, is the dispatcher's.

use crate::ids::{CoreId, GuestLockId, HostLockId, VcpuId};
use crate::time::Nanos;
use serde::{Deserialize, Serialize};

/// Why guest code stopped running while its vCPU keeps the core.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum ExitReason {
    /// The guest called the VMM by port I/O.
    Call = 0,
    /// The guest halted until an interrupt.
    Halt = 1,
    /// A kick or another signal interrupted the guest.
    Kick = 2,
    /// The guest can take the interrupt that waits for it.
    InterruptWindow = 3,
    /// Port or memory access that no call explains.
    Unexpected = 4,
    /// The guest shut down: a triple fault.
    Shutdown = 5,
    /// KVM could not go on.
    Failed = 6,
}

impl ExitReason {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::Call,
        Self::Halt,
        Self::Kick,
        Self::InterruptWindow,
        Self::Unexpected,
        Self::Shutdown,
        Self::Failed,
    ];

    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Halt => "halt",
            Self::Kick => "kick",
            Self::InterruptWindow => "interrupt-window",
            Self::Unexpected => "unexpected",
            Self::Shutdown => "shutdown",
            Self::Failed => "failed",
        }
    }
}

/// Whether the taker of a host lock asks for kernel priority while it holds the lock
/// (illumos `THREAD_KPRI_REQUEST`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum KernelPriority {
    /// An ordinary acquisition.
    NotAsked,
    /// The request is counted from now until the lock is released.
    Asked,
}

/// How a host lock is taken that is not a plain one. The first use of a lock decides its kind.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum HostMode {
    /// As a mutex: a release wakes all that wait, and the first that runs has it.
    Mutex = 0,
    /// As a reader of a reader-writer lock, which is handed over.
    Read = 1,
    /// As its writer.
    Write = 2,
}

/// What a vCPU waits for when it gives up its core of its own accord.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BlockOn {
    /// The guest has nothing to do: halted until an interrupt. Does not block if an interrupt
    /// waits for it.
    Idle,
    /// Asleep until the given instant (idle too, but no interrupt ends it).
    Sleep(Nanos),
    /// A wait in the hypervisor that ends at the given instant (a device, a page).
    Host(Nanos),
}

/// Why a vCPU leaves the run for good.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum RetireReason {
    /// Its program came to its end.
    Finished = 0,
    /// Its VM was ended for a fault of its guest.
    Fault = 1,
    /// The run is over.
    RunOver = 2,
}

/// What the guest's shared page says of its locks, read without an exit at decision time.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub struct GuestLocks {
    /// Guest locks held.
    pub held: u16,
    /// Depth of critical sections that the guest has marked.
    pub critical: u16,
    /// The guest lock it spins or sleeps for.
    pub waits_for: Option<GuestLockId>,
    /// It waits at a place in line that nobody may pass, as for a ticket lock: while it has no core, all
    /// behind it wait.
    pub in_line: bool,
}

/// How a guest is to take its locks, as the lock-aware layers want it. Fixed for a run; the driver
/// tells every guest before it starts.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub struct GuestHints {
    /// How a sleeping mutex that leaves it open is taken and released.
    pub mutex: MutexMode,
    /// How long a vCPU spins, counted in its own running time, before it says so (`SpunTooLong`) and
    /// then goes on for as long again. None: it never says so.
    pub spin_window: Option<Nanos>,
}

/// How a sleeping mutex in a guest works.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub enum MutexMode {
    /// A waiter spins while the owner is on a core, and sleeps otherwise; whoever comes first takes
    /// it.
    #[default]
    Spin,
    /// A waiter sleeps at once; a release hands the mutex to a waiter.
    HandOff,
}

/// A moment of the run that reports refer to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Mark {
    /// The warm-up is over: figures count from here.
    MeasureStart = 0,
    /// Figures count up to here.
    MeasureEnd = 1,
}

/// Which timer: armed by the dispatcher through an effect, reported due by the driver.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Timer {
    /// End of the slice on a core.
    Slice(CoreId),
    /// End of a vCPU's sleep.
    Wake(VcpuId),
    /// A guest's periodic timer.
    Periodic(VcpuId),
    /// The policy's clock tick, on all busy cores.
    Tick,
    /// The policy's accounting period.
    Period,
    /// A moment the policy asked for.
    Policy,
    /// The longest that a preemption on a core may be put off.
    Grace(CoreId),
}

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Input {
    /// The vCPU is ready to run for the first time.
    Admit {
        /// Who; its parameters were given at set-up.
        vcpu: VcpuId,
    },
    /// The vCPU is gone for good, whatever state it was in.
    Retire {
        /// Who.
        vcpu: VcpuId,
        /// Why.
        why: RetireReason,
    },
    /// A granted vCPU has begun to run guest code on its core.
    Entered {
        /// Where.
        core: CoreId,
        /// Who.
        vcpu: VcpuId,
    },
    /// The guest exited; the hypervisor works on the vCPU's behalf, on its core and account.
    Exited {
        /// Who.
        vcpu: VcpuId,
        /// Why.
        why: ExitReason,
    },
    /// The hypervisor's work is done and guest code runs again.
    Resumed {
        /// Who.
        vcpu: VcpuId,
    },
    /// The vCPU's thread passed through user mode of its host (the run ioctl returned).
    UserReturn {
        /// Who.
        vcpu: VcpuId,
    },
    /// A kick is acknowledged: the vCPU has left guest code and its core is free.
    Stopped {
        /// Where.
        core: CoreId,
        /// Who.
        vcpu: VcpuId,
    },
    /// The guest left its outermost critical section, released its last lock, or both, while a preemption is pending
    /// (`Effect::Owe`): it saw that itself, or had left before it could, which the driver sees.
    CriticalLeft {
        /// Who.
        vcpu: VcpuId,
    },
    /// The vCPU gives up its core but stays runnable.
    Yield {
        /// Who.
        vcpu: VcpuId,
    },
    /// The vCPU waits.
    Block {
        /// Who.
        vcpu: VcpuId,
        /// For what.
        on: BlockOn,
    },
    /// An interrupt is raised at a vCPU.
    Interrupt {
        /// At whom.
        to: VcpuId,
        /// Its vector.
        vector: u8,
        /// By which vCPU; none if by a device.
        from: Option<VcpuId>,
    },
    /// The guest has taken all interrupts that waited for it when it was entered. The hypervisor learns of it at the
    /// next exit.
    InterruptsTaken {
        /// Who.
        vcpu: VcpuId,
        /// When the handler of the last one began, by the guest's own clock.
        at: Nanos,
        /// Another one was raised since, and waits.
        more: bool,
    },
    /// The guest arms its periodic timer; a period of zero disarms it.
    ArmPeriodic {
        /// Who.
        vcpu: VcpuId,
        /// The period.
        period: Nanos,
        /// The vector raised at each period.
        vector: u8,
    },
    /// A timer that was armed is due.
    TimerDue {
        /// Which.
        timer: Timer,
    },
    /// The vCPU wants a lock in the hypervisor. It has it when it is next found on a core.
    HostLock {
        /// Who.
        vcpu: VcpuId,
        /// Which.
        lock: HostLockId,
        /// With or without a request for kernel priority.
        priority: KernelPriority,
    },
    /// The same for a lock that is a mutex or a reader-writer lock.
    HostAcquire {
        /// Who.
        vcpu: VcpuId,
        /// Which.
        lock: HostLockId,
        /// How.
        mode: HostMode,
        /// With or without a request for kernel priority.
        priority: KernelPriority,
    },
    /// The vCPU releases a lock in the hypervisor, of whatever kind.
    HostUnlock {
        /// Who.
        vcpu: VcpuId,
        /// Which.
        lock: HostLockId,
    },
    /// The shared page's word on locks has changed since the driver last told.
    Locks {
        /// Whose.
        vcpu: VcpuId,
        /// The state.
        locks: GuestLocks,
    },
    /// The owner of a guest lock is another one than the driver last told (nobody at first). Told
    /// after `Locks`, and only of locks that somebody was told to wait for.
    GuestOwner {
        /// Which lock.
        lock: GuestLockId,
        /// Who has it, or is the one that goes on next when it has a core, if anybody is.
        owner: Option<VcpuId>,
    },
    /// The guest waits for a lock (or for the other end of a channel) and wants to sleep until it is
    /// woken (`GuestWake`). If it was woken since it last slept it does not sleep: every wake-up
    /// counts once, and one that comes early is kept.
    GuestWait {
        /// Who.
        vcpu: VcpuId,
        /// For what.
        lock: GuestLockId,
    },
    /// The guest wakes a vCPU of its VM that waits for a lock, or is about to.
    GuestWake {
        /// Whom.
        vcpu: VcpuId,
        /// The vCPU that wakes it.
        by: VcpuId,
        /// For which lock.
        lock: GuestLockId,
    },
    /// The guest has spun for a lock for as long as [`GuestHints::spin_window`] allows: the stand-in
    /// for a pause-loop exit.
    SpunTooLong {
        /// Who.
        vcpu: VcpuId,
        /// For which lock.
        lock: GuestLockId,
    },
    /// The vCPU's thread waited for a core of the host while it was granted one: interference from
    /// outside, or, under the policy `host`, the host's own scheduling.
    HostDelay {
        /// Who.
        vcpu: VcpuId,
        /// How long since this was last told.
        delay: Nanos,
    },
    /// A moment that reports refer to.
    Mark(Mark),
}

impl Input {
    /// Whether the driver looks at what guests say of their locks before it tells of this input.
    ///
    /// It need not before the others. They follow at once upon an input that it did so before (a grant, a
    /// call), or they tell what it has just seen itself; what is decided on them, such as a kick at guest entry,
    /// goes by what was known then.
    #[must_use]
    pub const fn decides(&self) -> bool {
        !matches!(
            self,
            Self::Entered { .. }
                | Self::Exited { .. }
                | Self::Resumed { .. }
                | Self::InterruptsTaken { .. }
                | Self::ArmPeriodic { .. }
                | Self::Locks { .. }
                | Self::GuestOwner { .. }
                | Self::HostDelay { .. }
                | Self::Mark(_)
        )
    }
}
