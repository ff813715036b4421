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

use crate::event::{PreemptReason, Standing, Until, Waits, WakeSource};
use crate::ids::{CoreId, HostLockId, VcpuId, VmId};
use crate::input::GuestLocks;
use crate::time::Nanos;
use serde::{Deserialize, Serialize};
use std::fmt::Debug;

/// What the user asked for a vCPU. A policy uses what it knows and refuses the rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VcpuParams {
    /// Its VM.
    pub vm: VmId,
    /// How many vCPUs its VM has.
    pub siblings: u32,
    /// Shares of its VM against other VMs (1 to 65535); `None` if not given, which counts as 1.
    pub shares: Option<u32>,
    /// Weight against the other vCPUs (1 to 10000); `None` if not given, which counts as 1.
    pub weight: Option<u32>,
    /// Nice value (−20 to 19), an alternative to a weight.
    pub nice: Option<i8>,
    /// The length of slice it asks for, if it asks.
    pub slice: Option<Nanos>,
    /// The most it may use, in per cent of one core, if it is capped (1 to 100 times its number of
    /// vCPUs; of the VM for policies that cap VMs).
    pub cap: Option<u32>,
    /// Period of a real-time reservation, if it has one.
    pub period: Option<Nanos>,
    /// Budget in each period of that reservation.
    pub budget: Option<Nanos>,
}

impl VcpuParams {
    /// A vCPU alone in its VM, with nothing asked for.
    #[must_use]
    pub const fn plain(vm: VmId) -> Self {
        Self {
            vm,
            siblings: 1,
            shares: None,
            weight: None,
            nice: None,
            slice: None,
            cap: None,
            period: None,
            budget: None,
        }
    }

    /// The weight of the vCPU alone, for policies that know no VMs. Shares of a VM that has one vCPU
    /// are the weight of that vCPU; shares of a wider VM are refused, and so is a weight of 0.
    pub fn flat_weight(&self, policy: &'static str) -> Result<u32, Refused> {
        if self.shares.is_some() && self.siblings > 1 {
            let knows = "a weight per vCPU; shares only for a VM that has a single vCPU";
            return Err(Refused::unknown(policy, "shares", knows));
        }
        self.some_product(policy)
    }

    /// The shares of the VM, for policies that know no weights within a VM. The weight of the only
    /// vCPU of a VM is the shares of that VM; weights in a wider VM are refused, and so are 0 shares.
    pub fn group_shares(&self, policy: &'static str) -> Result<u32, Refused> {
        self.refuse_weight_in_group(policy)?;
        self.some_product(policy)
    }

    /// The same for policies that let a VM with 0 shares run when nobody else wants to.
    pub fn group_shares_or_zero(&self, policy: &'static str) -> Result<u32, Refused> {
        self.refuse_weight_in_group(policy)?;
        self.product(policy)
    }

    fn refuse_weight_in_group(&self, policy: &'static str) -> Result<(), Refused> {
        if self.weight.is_some() && self.siblings > 1 {
            let knows = "shares per VM; a vCPU weight only in a VM that has a single vCPU";
            return Err(Refused::unknown(policy, "weight", knows));
        }
        Ok(())
    }

    /// Shares times weight.
    fn product(&self, policy: &'static str) -> Result<u32, Refused> {
        let (shares, weight) = (self.shares.unwrap_or(1), self.weight.unwrap_or(1));
        shares.checked_mul(weight).ok_or(Refused::Value {
            policy,
            param: "shares",
            value: shares,
            takes: "shares that, times the weight of the vCPU, are less than 2^32",
        })
    }

    /// The same, of at least 1.
    fn some_product(&self, policy: &'static str) -> Result<u32, Refused> {
        let given = [("shares", self.shares), ("weight", self.weight)];
        if let Some((param, _)) = given.into_iter().find(|(_, value)| *value == Some(0)) {
            return Err(Refused::Value {
                policy,
                param,
                value: 0,
                takes: "1 or more",
            });
        }
        self.product(policy)
    }

    /// Refuses all but weights and shares: a nice value, a slice, a cap, a reservation.
    pub fn refuse_all_but_weights(
        &self,
        policy: &'static str,
        knows: &'static str,
    ) -> Result<(), Refused> {
        self.refuse_nice(policy, knows)?;
        self.refuse_slice(policy, knows)?;
        self.refuse_limits(policy, knows)
    }

    /// Refuses whatever is asked for, for policies to which all are equal.
    pub fn refuse_all(&self, policy: &'static str, knows: &'static str) -> Result<(), Refused> {
        self.refuse_all_but_weights(policy, knows)?;
        self.refuse_weights(policy, knows)
    }

    /// Refuses a nice value.
    pub fn refuse_nice(&self, policy: &'static str, knows: &'static str) -> Result<(), Refused> {
        self.nice
            .map_or(Ok(()), |_| Err(Refused::unknown(policy, "nice", knows)))
    }

    /// Refuses a cap and a reservation, for policies that know neither.
    pub fn refuse_limits(&self, policy: &'static str, knows: &'static str) -> Result<(), Refused> {
        self.refuse_cap(policy, knows)?;
        self.refuse_reservation(policy, knows)
    }

    /// Refuses a cap.
    pub fn refuse_cap(&self, policy: &'static str, knows: &'static str) -> Result<(), Refused> {
        let param = "cap";
        let refused = Refused::unknown(policy, param, knows);
        self.cap.map_or(Ok(()), |_| Err(refused))
    }

    /// Refuses weights and shares other than 1, for policies to which all are equal.
    pub fn refuse_weights(&self, policy: &'static str, knows: &'static str) -> Result<(), Refused> {
        let given = [("weight", self.weight), ("shares", self.shares)];
        match given
            .into_iter()
            .find(|(_, value)| value.is_some_and(|value| value != 1))
        {
            Some((param, _)) => Err(Refused::unknown(policy, param, knows)),
            None => Ok(()),
        }
    }

    /// Refuses a real-time reservation.
    pub fn refuse_reservation(
        &self,
        policy: &'static str,
        knows: &'static str,
    ) -> Result<(), Refused> {
        let given = [("period", self.period), ("budget", self.budget)];
        match given.into_iter().find(|(_, value)| value.is_some()) {
            Some((param, _)) => Err(Refused::unknown(policy, param, knows)),
            None => Ok(()),
        }
    }

    /// Refuses a slice of its own.
    pub fn refuse_slice(&self, policy: &'static str, knows: &'static str) -> Result<(), Refused> {
        self.slice
            .map_or(Ok(()), |_| Err(Refused::unknown(policy, "slice", knows)))
    }
}

/// What a policy cannot do as it was asked to: never ignored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// A parameter that it does not know, or not together with the others.
    #[error("policy `{policy}` does not know the parameter `{param}`; it knows {knows}")]
    Unknown {
        /// The policy.
        policy: &'static str,
        /// What it was given.
        param: &'static str,
        /// What it would understand.
        knows: &'static str,
    },
    /// A parameter that it knows, with a value that it has no use for.
    #[error("policy `{policy}` does not take {value} for `{param}`; it takes {takes}")]
    Value {
        /// The policy.
        policy: &'static str,
        /// The parameter as it was given.
        param: &'static str,
        /// What it was given.
        value: u32,
        /// What it would take.
        takes: &'static str,
    },
}

impl Refused {
    /// A parameter that the policy does not know, and what it would understand.
    #[must_use]
    pub const fn unknown(policy: &'static str, param: &'static str, knows: &'static str) -> Self {
        Self::Unknown {
            policy,
            param,
            knows,
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn params(shares: Option<u32>, weight: Option<u32>, siblings: u32) -> VcpuParams {
        VcpuParams {
            shares,
            weight,
            siblings,
            ..VcpuParams::plain(VmId(0))
        }
    }

    fn said(refused: Result<u32, Refused>) -> String {
        refused.expect_err("refused").to_string()
    }

    #[test]
    fn a_value_that_is_refused_is_named_as_it_was_written() {
        let shares = said(params(Some(0), None, 1).flat_weight("stride"));
        let expected = "policy `stride` does not take 0 for `shares`; it takes 1 or more";
        assert_eq!(shares, expected);
        let weight = said(params(None, Some(0), 1).group_shares("credit"));
        let expected = "policy `credit` does not take 0 for `weight`; it takes 1 or more";
        assert_eq!(weight, expected);
        assert_eq!(params(Some(0), None, 2).group_shares_or_zero("fss"), Ok(0));
    }

    #[test]
    fn shares_times_weight_count_and_more_than_fits_is_refused() {
        let some = params(Some(60), Some(7), 1);
        assert_eq!(some.flat_weight("stride"), Ok(420));
        assert_eq!(some.group_shares("credit"), Ok(420));
        let many = params(Some(1 << 16), Some(1 << 16), 1);
        for refused in [many.flat_weight("stride"), many.group_shares("credit")] {
            let said = said(refused);
            assert!(said.contains("65536 for `shares`"), "{said}");
        }
    }

    #[test]
    fn in_a_wider_vm_shares_are_no_weight_and_weights_are_no_shares() {
        let shares = said(params(Some(2), None, 2).flat_weight("stride"));
        assert!(
            shares.contains("does not know the parameter `shares`"),
            "{shares}"
        );
        let weight = said(params(None, Some(2), 2).group_shares("credit"));
        assert!(
            weight.contains("does not know the parameter `weight`"),
            "{weight}"
        );
    }
}
