//! The contract between a scheduling policy and the dispatcher.
//!
//! A policy decides order, slice, placement and preemption, and nothing else. It owns its run
//! queues; the dispatcher owns cores, vCPU states, locks and timers, calls the policy under the rules
//! below, and checks every answer. A policy that breaks a rule is reported by name with a state dump
//! and the run goes on (see [`crate::dispatcher::Violation`]).
//!
//! A vCPU is, for the policy, in exactly one of three places:
//!
//! ```text
//!             enqueue(New | Wake)                  pick
//!   away  ─────────────────────────►  queued  ─────────────►  on a core
//!    ▲                                  ▲ │                       │ │
//!    │                           remove │ │ enqueue(Preempted|Yield)│
//!    │                                  │ ▼◄──────────────────────┘ │
//!    └──────────────────────────────────┴───────────────────────────┘
//!                                          block, retire
//! ```
//!
//! Time is a parameter of every call and never goes backwards. Ties are broken by time, then by
//! sequence of arrival, then by id, so that runs repeat.

mod params;

pub use params::{Refused, VcpuParams};

use crate::event::{PreemptReason, Standing, Until, Waits, WakeSource};
use crate::ids::{CoreId, HostLockId, VcpuId};
use crate::input::GuestLocks;
use crate::time::Nanos;
use std::fmt::Debug;

/// Why a vCPU joins the run queue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Enqueue {
    /// It is new.
    New,
    /// It woke.
    Wake,
    /// It was taken off the core.
    Preempted(CoreId, PreemptReason),
    /// It gave up the core.
    Yield(CoreId),
}

/// Whether what runs on a core has to make room.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Preempt {
    /// It goes on.
    Keep,
    /// Ask for the core back.
    Kick,
    /// Remember that the core is wanted and look at it at the moment named (or when it leaves the
    /// core anyway). While one preemption is remembered, a later answer of `Kick` still kicks.
    Defer(Until),
}

/// How long a vCPU may run before the policy wants to be asked again.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Slice {
    /// For this long (at least 1 ns).
    For(Nanos),
    /// Until something else ends it: a tick, a wake-up, its own will.
    Open,
}

/// The slice of a vCPU that was taken from a policy that says nothing of its own on it.
const TAKEN: Nanos = Nanos::from_millis(10);

/// Whether a policy has queues of cores to which it can bind a vCPU.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Pinned {
    /// It has, and the vCPU is bound.
    Yes,
    /// It has none, or does not bind.
    No,
}

/// Who runs next on a core.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Pick {
    /// This one. It leaves the run queue with this answer.
    Run(VcpuId, Slice),
    /// Nobody that may run here waits.
    Idle,
}

/// What follows when a slice has run out.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SliceEnd {
    /// Nobody better waits: it goes on for another slice.
    Extend(Slice),
    /// Ask for the core back.
    Kick,
}

/// Where a vCPU was queued: the core on which it is to be considered first.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Placed(pub CoreId);

/// Cores on which something better waits now.
#[must_use]
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Resched(pub Vec<CoreId>);

/// What came of priority inheritance.
#[must_use]
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Inherited {
    /// Whose standing may have changed.
    pub vcpus: Vec<VcpuId>,
    /// Where something better waits now.
    pub resched: Resched,
}

/// The clocks a policy wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Clocks {
    /// Period of `tick`, called for every busy core.
    pub tick: Option<Nanos>,
    /// Period of `periodic`, called once for all.
    pub period: Option<Nanos>,
}

/// A scheduling policy.
///
/// The dispatcher calls it from one thread, never within another of its calls. Whenever a method
/// names a vCPU on a core, that vCPU has just been charged up to `now`.
pub trait Policy: Debug + Send {
    /// The clocks it wants. Asked once, after every vCPU was declared.
    fn clocks(&self) -> Clocks {
        Clocks::default()
    }

    /// Learns of a vCPU at set-up, before it is runnable. Called once for each, in order of id.
    ///
    /// # Errors
    /// Refuses a parameter that it does not know; the run does not start then.
    fn declare(&mut self, vcpu: VcpuId, params: &VcpuParams) -> Result<(), Refused>;

    /// The vCPU is runnable and waits from now on: put it on a run queue.
    fn enqueue(&mut self, now: Nanos, vcpu: VcpuId, why: Enqueue) -> Placed;

    /// What woke the vCPU. Called just before `enqueue(.., Enqueue::Wake)`.
    fn woken_by(&mut self, _now: Nanos, _vcpu: VcpuId, _source: WakeSource) {}

    /// Takes a queued vCPU off its queue without running it here: the dispatcher had to choose in the
    /// policy's stead, a layer places it anew, or it retires (then `retire_waiting` follows). It is away
    /// from then on, as after `block`.
    fn remove(&mut self, now: Nanos, vcpu: VcpuId);

    /// Takes a queued vCPU off its queue, wherever it is queued, and puts it on an idle core as if it
    /// had been picked there: the dispatcher follows a chain of locks, or one vCPU yields to another.
    /// What is not said here is as after `pick`.
    fn take(&mut self, now: Nanos, _core: CoreId, vcpu: VcpuId) -> Slice {
        self.remove(now, vcpu);
        Slice::For(TAKEN)
    }

    /// Binds a vCPU to the queue of a core, or sets it free: from its next `enqueue` on it is queued
    /// there and nowhere else. It concerns donors, which run nowhere themselves.
    fn pin(&mut self, _vcpu: VcpuId, _to: Option<CoreId>) -> Pinned {
        Pinned::No
    }

    /// Chooses who runs on an idle core and takes it off its queue. A work-conserving policy answers
    /// `Idle` only if nobody waits anywhere.
    fn pick(&mut self, now: Nanos, core: CoreId) -> Pick;

    /// The vCPU that was picked for the core has arrived there: its time runs from now on.
    fn entered(&mut self, _now: Nanos, _core: CoreId, _vcpu: VcpuId) {}

    /// The vCPU on a core has run for `ran` since it was last charged.
    fn charge(&mut self, now: Nanos, vcpu: VcpuId, ran: Nanos);

    /// `woken` was just placed on `core`, where `running` is: does it go first?
    fn preempts(&mut self, now: Nanos, core: CoreId, running: VcpuId, woken: VcpuId) -> Preempt;

    /// The slice of the vCPU on the core has run out.
    fn slice_end(&mut self, now: Nanos, core: CoreId, vcpu: VcpuId) -> SliceEnd;

    /// The vCPU on the core leaves it to wait.
    fn block(&mut self, now: Nanos, core: CoreId, vcpu: VcpuId, on: Waits);

    /// The vCPU on the core leaves it for good. A queued one retires by `remove` and
    /// `retire_waiting`, a waiting one by `retire_waiting`.
    fn retire(&mut self, now: Nanos, core: CoreId, vcpu: VcpuId);

    /// A vCPU that waits (it is neither queued nor on a core) is gone for good.
    fn retire_waiting(&mut self, _now: Nanos, _vcpu: VcpuId) {}

    /// A clock tick while the vCPU is on the core.
    fn tick(&mut self, _now: Nanos, _core: CoreId, _vcpu: VcpuId) -> Preempt {
        Preempt::Keep
    }

    /// When it wants `timer` to be called next, beside its regular clocks. Asked after every input;
    /// an instant that has passed means at once.
    fn wants_timer(&self) -> Option<Nanos> {
        None
    }

    /// The instant it wanted has come. Everybody on a core has just been charged.
    fn timer(&mut self, _now: Nanos) -> Resched {
        Resched::default()
    }

    /// What the guest's shared page says of the locks and critical sections of the vCPU has changed.
    fn locks(&mut self, _now: Nanos, _vcpu: VcpuId, _locks: GuestLocks) {}

    /// The vCPU on a core began (`Mode::Hypervisor`) or ended hypervisor work.
    fn mode(&mut self, _now: Nanos, _vcpu: VcpuId, _mode: Mode) {}

    /// The accounting period has passed. Everybody on a core has just been charged.
    fn periodic(&mut self, _now: Nanos) -> Resched {
        Resched::default()
    }

    /// The thread of the vCPU on the core has passed through user mode of its host.
    fn user_return(&mut self, _now: Nanos, _core: CoreId, _vcpu: VcpuId) -> Preempt {
        Preempt::Keep
    }

    /// The vCPU has taken a host lock with a request for kernel priority (`held`), or released it.
    /// On taking it may still be queued nowhere: it is told before it is woken.
    fn kernel_priority(&mut self, _now: Nanos, _vcpu: VcpuId, _request: KernelRequest) {}

    /// The vCPU waits for a host lock: called right after `block`. Through a mutex, or a lock that a
    /// writer holds, its owner may inherit.
    fn lock_wait(&mut self, _now: Nanos, _vcpu: VcpuId, _lock: HostLockId) -> Inherited {
        Inherited::default()
    }

    /// The vCPU owns a mutex, or a reader-writer lock as its writer. If the lock was handed to it, it
    /// is told before it is woken.
    fn lock_taken(&mut self, _now: Nanos, _vcpu: VcpuId, _lock: HostLockId) {}

    /// The vCPU has released such a lock (or is gone): told before anybody is woken.
    fn lock_released(&mut self, _now: Nanos, _vcpu: VcpuId, _lock: HostLockId) -> Inherited {
        Inherited::default()
    }

    /// How the vCPU ranks among those that wait for a reader-writer lock: the greatest goes first,
    /// among equals the one that came first.
    fn lock_rank(&self, _vcpu: VcpuId) -> u8 {
        0
    }

    /// Where the vCPU stands, for explanations.
    fn standing(&self, _vcpu: VcpuId) -> Standing {
        Standing::default()
    }

    /// What puts the vCPU before or behind others just now, in the policy's own terms (`priority 60`),
    /// for explanations; none if it has nothing of the kind.
    fn rank(&self, _vcpu: VcpuId) -> Option<String> {
        None
    }

    /// Between whom it divides the cores: what reports hold its results against.
    fn divides(&self) -> Division {
        Division::Vcpus
    }

    /// Whether a core may stay idle by intent while somebody waits.
    fn conserving(&self) -> WorkConserving {
        WorkConserving::Yes
    }

    /// Its state in words, one line an item, for the dump of a violation.
    fn dump(&self) -> String {
        format!("{self:#?}")
    }
}

/// What runs on a vCPU's core and account.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// Guest code.
    Guest,
    /// The hypervisor, on its behalf.
    Hypervisor,
}

/// A change of a vCPU's count of kernel-priority requests.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum KernelRequest {
    /// One more.
    Begin,
    /// One less.
    End,
}

/// Between whom a policy divides the cores.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Division {
    /// Between all vCPUs, by their weights.
    Vcpus,
    /// Between VMs by their shares, then between the vCPUs of each by their weights.
    Vms,
}

/// Whether the rule "no idle core while an eligible vCPU waits" holds for a policy.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WorkConserving {
    /// It holds, and is checked.
    Yes,
    /// The policy leaves cores idle by intent (caps, co-scheduling).
    No,
}
