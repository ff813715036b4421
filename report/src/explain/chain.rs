//! From a waiter through locks and their owners to what it all waits for in the end.

use super::graph::{Graph, Wanted};
use super::scene::State;
use super::waits::On;
use stealtime_scheduler::event::{Charged, PreemptReason, Until};
use stealtime_scheduler::ids::{CoreId, HostLockId, VcpuId};

/// A vCPU, and what it waits for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Link {
    pub(super) vcpu: VcpuId,
    pub(super) wanted: Wanted,
}

/// What a chain ends at.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum End {
    /// The owner is on a core and works: nothing keeps it.
    Runs(VcpuId),
    /// The core is another's, which was not preempted.
    Occupied(CoreId, VcpuId, Why),
    /// It was granted the core and its thread has not entered it.
    Entering(CoreId, VcpuId),
    /// The core is idle.
    Idle(CoreId),
    /// It is held back for its siblings.
    CoStopped(VcpuId),
    /// It waits for something that is nobody's: a device, a timer, an interrupt.
    Waits(VcpuId),
    /// Nobody has what is waited for.
    Free,
    /// The guest does not tell who has it.
    Unknown,
    /// It waits, through others, for itself.
    Circle(VcpuId),
    /// The owner is gone.
    Gone(VcpuId),
    /// The host's own scheduler decides.
    Host,
}

/// The first reason why a vCPU on a core is not preempted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Why {
    Kicked,
    KernelPriority,
    Owed,
    Boosted,
    Lent,
    Slice,
    Open,
}

/// A reason, with what is known of it. Instants in nanoseconds since the start of the run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reason {
    /// It was asked to leave and has not yet.
    Kicked { since: u64, why: PreemptReason },
    /// It stands above all of its class.
    KernelPriority {
        since: u64,
        lock: Option<HostLockId>,
        released: Option<u64>,
        user_returns: u64,
    },
    /// A preemption is only remembered.
    Owed {
        since: u64,
        why: PreemptReason,
        until: Until,
        critical: u16,
        /// When it is carried out at the latest, if a timer is armed for that.
        latest: Option<u64>,
    },
    /// It goes before others for a while.
    Boosted { since: u64 },
    /// It uses the turn of one that waits for it.
    Lent { donor: VcpuId, charged: Charged },
    /// Its slice is not over.
    Slice { ends: u64 },
    /// No timer ends its turn.
    Open,
}

/// A chain of waits.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Chain {
    pub(super) links: Vec<Link>,
    pub(super) end: End,
}

impl Reason {
    pub(super) const fn why(&self) -> Why {
        match self {
            Self::Kicked { .. } => Why::Kicked,
            Self::KernelPriority { .. } => Why::KernelPriority,
            Self::Owed { .. } => Why::Owed,
            Self::Boosted { .. } => Why::Boosted,
            Self::Lent { .. } => Why::Lent,
            Self::Slice { .. } => Why::Slice,
            Self::Open => Why::Open,
        }
    }
}

impl Graph<'_> {
    /// Why whoever is on a core is not preempted, the weightiest reason first.
    pub(super) fn reasons(&self, core: CoreId) -> Vec<Reason> {
        let Some(core) = self.scene.cores.get(core.index()) else {
            return Vec::new();
        };
        let Some(vcpu) = core
            .vcpu
            .and_then(|vcpu| self.scene.vcpus.get(vcpu.index()))
        else {
            return Vec::new();
        };
        let stand = &vcpu.stand;
        let kicked = core
            .kicked
            .map(|(since, why)| Reason::Kicked { since, why });
        let kernel = stand.now.kernel_priority.then_some(Reason::KernelPriority {
            since: stand.since,
            lock: stand.lock,
            released: stand.released,
            user_returns: stand.user_returns,
        });
        let owed = core.owed.map(|(since, why, until)| Reason::Owed {
            since,
            why,
            until,
            critical: vcpu.critical,
            latest: core.grace_ends,
        });
        let boosted = stand
            .now
            .boosted
            .then_some(Reason::Boosted { since: stand.since });
        let lent = vcpu
            .donor
            .map(|(donor, charged)| Reason::Lent { donor, charged });
        let slice = match core.slice_ends {
            Some(ends) => Reason::Slice { ends },
            None => Reason::Open,
        };
        [kicked, kernel, owed, boosted, lent, Some(slice)]
            .into_iter()
            .flatten()
            .collect()
    }

    /// The chain that begins with a vCPU that waits for `on`.
    pub(super) fn chain(&self, first: VcpuId, on: On) -> Chain {
        let mut links: Vec<Link> = Vec::new();
        let mut vcpu = first;
        let end = loop {
            if links.iter().any(|link| link.vcpu == vcpu) {
                break End::Circle(vcpu);
            }
            let entry = &self.scene.vcpus[vcpu.index()];
            let waits_for_core = links.is_empty() && on == On::Core;
            let wanted = match entry.state {
                State::Ready(_) if waits_for_core => self.turn(vcpu),
                _ => self.wanted(vcpu),
            };
            let Some(wanted) = wanted else {
                break at_rest(vcpu, entry.state);
            };
            links.push(Link { vcpu, wanted });
            if let Wanted::Core(core) = wanted {
                break self.on_core(core, vcpu);
            }
            match (self.owner(wanted), wanted) {
                (Some(owner), _) => vcpu = owner,
                (None, Wanted::GuestLock(_)) => break End::Unknown,
                (None, _) => break End::Free,
            }
        };
        Chain { links, end }
    }

    /// What keeps a ready vCPU off a core.
    fn on_core(&self, core: CoreId, waiter: VcpuId) -> End {
        if self.scene.vcpus[waiter.index()].stand.now.costopped {
            return End::CoStopped(waiter);
        }
        let occupant = self
            .scene
            .cores
            .get(core.index())
            .and_then(|core| core.vcpu);
        let Some(occupant) = occupant.filter(|vcpu| vcpu.index() < self.scene.vcpus.len()) else {
            return End::Idle(core);
        };
        if matches!(self.scene.vcpus[occupant.index()].state, State::Granted(_)) {
            return End::Entering(core, occupant);
        }
        let first = self.reasons(core).first().map_or(Why::Open, Reason::why);
        End::Occupied(core, occupant, first)
    }
}

const fn at_rest(vcpu: VcpuId, state: State) -> End {
    match state {
        State::Running(_) | State::Hypervisor(..) => End::Runs(vcpu),
        State::Granted(core) => End::Entering(core, vcpu),
        State::Blocked(_) | State::Ready(_) => End::Waits(vcpu),
        State::Unborn | State::Retired => End::Gone(vcpu),
    }
}

impl End {
    /// The last vCPU of the chain, if it is not one of its links.
    pub(super) const fn vcpu(self) -> Option<VcpuId> {
        match self {
            Self::Runs(vcpu)
            | Self::Occupied(_, vcpu, _)
            | Self::Entering(_, vcpu)
            | Self::Waits(vcpu)
            | Self::Circle(vcpu)
            | Self::Gone(vcpu) => Some(vcpu),
            Self::Idle(_) | Self::CoStopped(_) | Self::Free | Self::Unknown | Self::Host => None,
        }
    }
}
