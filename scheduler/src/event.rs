//! What happened, for those who measure.
//!
//! The dispatcher emits one stream of events; every metric and report is computed from it, so that
//! both backends yield the same report. Events are small and of fixed size; see [`crate::record`] for
//! the 32-byte form that is kept on disk.

mod queues;

pub use queues::Queues;

use crate::ids::{CoreId, GuestLockId, HostLockId, VcpuId};
use crate::input::{ExitReason, Mark, RetireReason};
use crate::time::Nanos;
use serde::{Deserialize, Serialize};

/// Why a vCPU's core is asked back, or why it went back to the run queue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum PreemptReason {
    /// Its slice or quantum ran out.
    SliceEnd = 0,
    /// A vCPU that woke goes first.
    Wakeup = 1,
    /// The policy's clock tick found a better one.
    Tick = 2,
    /// The policy's accounting period re-ordered the queue.
    Period = 3,
    /// A kernel priority was given back.
    PriorityDrop = 4,
    /// It waits for a lock, and stays in the queue to lend its turn to the lock's owner.
    LockWait = 5,
    /// It used the turn of a vCPU that no longer waits for it.
    LoanOver = 6,
}

/// The moment at which a remembered preemption is looked at.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum Until {
    /// When the vCPU is in no critical section and holds no guest lock any more.
    CriticalExit = 0,
    /// When its thread returns to user mode of the host.
    UserReturn = 1,
    /// When the hypervisor's work on its behalf is done, before guest code runs again.
    GuestEntry = 2,
}

/// Who or what woke a vCPU.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WakeSource {
    /// Its own timer.
    Timer,
    /// An interrupt, raised by another vCPU or by a device.
    Interrupt(Option<VcpuId>),
    /// The vCPU that handed it a host lock.
    HostLock(VcpuId),
    /// The vCPU of its VM that woke it from a wait for a guest lock.
    GuestLock(VcpuId),
}

/// What a vCPU waits for, as seen in reports.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Waits {
    /// Halted until an interrupt.
    Idle,
    /// Asleep until its timer.
    Sleep,
    /// A wait in the hypervisor.
    Host,
    /// A host lock, with its owner.
    HostLock(HostLockId, VcpuId),
    /// Asleep for a guest lock, or for the other end of a guest's channel.
    GuestLock(GuestLockId),
}

/// A state of the policy that puts a vCPU before or behind others, for explanations.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Standing {
    /// It holds a kernel priority: above all of its class, and not subject to the quantum.
    pub kernel_priority: bool,
    /// It holds a temporary boost.
    pub boosted: bool,
    /// It is held back, although it could run and cores may be idle, until its siblings have caught up
    /// or can run too.
    pub costopped: bool,
}

/// Whether a vCPU owns a guest lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Owns {
    /// It does.
    Yes = 0,
    /// It did until now; nobody does.
    NoLonger = 1,
}

/// Who is charged for a turn that is lent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Charged {
    /// The vCPU that lends it.
    Donor = 0,
    /// The vCPU that uses it.
    Owner = 1,
}

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EventKind {
    /// The vCPU takes part from now on.
    Admitted,
    /// It is gone.
    Retired(RetireReason),
    /// It woke and is runnable.
    Woken(WakeSource),
    /// It is queued now, and this core is considered for it first: the policy's answer to `enqueue`. Of a
    /// policy with one queue for all cores that is where it would preempt, not where it has to run.
    /// Told of a ready vCPU if it is not the core that was last told of it, by this or by `Granted`;
    /// and of one that waits for a lock, queued to lend its turn, always. [`Queues`] follows it.
    Placed(CoreId),
    /// It is in no queue until it is placed again, though it is ready, or was queued to lend its turn.
    SetAside {
        /// Until this one leaves its core, wakes or gives up a lock; none if nobody is known to be in
        /// its way.
        behind: Option<VcpuId>,
    },
    /// It was granted a core.
    Granted(CoreId),
    /// It runs guest code on the core.
    Running(CoreId),
    /// Guest code stopped; the hypervisor works on its behalf.
    Exited(ExitReason),
    /// Guest code runs again.
    Resumed,
    /// Its core was asked back.
    Kicked(CoreId, PreemptReason),
    /// Its core is wanted, but a preemption is only remembered for now, until the moment named.
    Owed(CoreId, PreemptReason, Until),
    /// It left its core against its will and waits for another turn.
    Preempted(CoreId, PreemptReason),
    /// It gave up its core but stays runnable.
    Yielded(CoreId),
    /// It left its core to wait; or it was woken to try a mutex again, found it taken when its turn
    /// on a core came, and waits on without having run.
    Blocked(Waits),
    /// It was given a core other than its last.
    Migrated {
        /// Its last core.
        from: CoreId,
        /// The new one.
        to: CoreId,
    },
    /// An interrupt was raised at it.
    InterruptRaised {
        /// Its vector.
        vector: u8,
        /// Who raised it; none for a device or timer.
        from: Option<VcpuId>,
    },
    /// It has taken the interrupts that waited for it, as is known at its next exit.
    InterruptsTaken {
        /// When the handler of the last one began; no later than the event.
        at: Nanos,
    },
    /// It took a host lock.
    HostLockTaken(HostLockId),
    /// It released a host lock.
    HostLockReleased(HostLockId),
    /// What its guest says of its locks: held, critical depth, lock waited for and how.
    Locks {
        /// Guest locks held.
        held: u16,
        /// Depth of marked critical sections.
        critical: u16,
        /// The lock waited for.
        waits_for: Option<GuestLockId>,
        /// Whether it waits at a place in line that nobody may pass.
        in_line: bool,
    },
    /// The owner of a guest lock that is waited for (the vCPU named is the owner, or the last one).
    GuestOwner {
        /// The lock.
        lock: GuestLockId,
        /// Whether it owns the lock, or has just ceased to and nobody is known to follow.
        owns: Owns,
    },
    /// It has spun for a guest lock for as long as it is meant to before it says so.
    SpunTooLong(GuestLockId),
    /// It uses the turn of another vCPU that waits for it: that one's slice, and, if the layer says
    /// so, that one's account. Comes after `Granted`. The donor is in no queue until it is placed again.
    Borrows {
        /// Whose turn it is.
        donor: VcpuId,
        /// Who is charged.
        charged: Charged,
    },
    /// It gave its core to another one, because it spins for a lock (directed yield).
    YieldedTo(VcpuId),
    /// It waits for a lock whose owner waits, maybe through others, for this one: none of them can
    /// ever go on. Told once for each vCPU of the circle.
    Deadlock {
        /// Whom it waits for.
        owner: VcpuId,
    },
    /// Its thread returned to user mode of the host.
    UserReturn,
    /// Its standing in the policy changed.
    Standing(Standing),
    /// Its thread waited for the host while it had a core.
    HostDelay(Nanos),
    /// The policy broke a rule; the number is that of [`crate::dispatcher::Violation`].
    Violation(u16),
    /// A moment that reports refer to (the vCPU named is meaningless).
    Mark(Mark),
}

/// An event: when, to whom, what.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Event {
    /// When.
    pub at: Nanos,
    /// To whom.
    pub vcpu: VcpuId,
    /// What.
    pub kind: EventKind,
}

impl Event {
    /// When it happened: for what the hypervisor learns later, before it is told.
    #[must_use]
    pub const fn happened(&self) -> Nanos {
        match self.kind {
            EventKind::InterruptsTaken { at } => at,
            _ => self.at,
        }
    }
}
