//! Circles of waits for locks, as the dispatcher told of them: who waits for which lock of whom, since when.
//!
//! They last for ever, so the start of the measurement forgets none. Instants in nanoseconds.

use stealtime_scheduler::event::{EventKind, Waits};
use stealtime_scheduler::ids::{GuestLockId, HostLockId};

/// A lock that is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wanted {
    /// In a guest, spinning or asleep.
    Guest(GuestLockId),
    /// In the hypervisor.
    Host(HostLockId),
}

/// A vCPU of a circle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Link {
    pub(crate) vcpu: usize,
    /// Who holds what it waits for.
    pub(crate) owner: usize,
    /// What it waits for.
    pub(crate) wanted: Option<Wanted>,
    /// Since when.
    pub(crate) since: u64,
}

/// What everybody waits for, and the circles so far.
#[derive(Debug)]
pub(crate) struct Circles {
    /// By vCPU: a lock, and since when.
    wants: Vec<Option<(Wanted, u64)>>,
    links: Vec<Link>,
}

impl Circles {
    pub(super) fn new(vcpus: usize) -> Self {
        Self {
            wants: vec![None; vcpus],
            links: Vec::new(),
        }
    }

    /// Takes note of an event of a vCPU.
    pub(super) fn note(&mut self, now: u64, vcpu: usize, kind: EventKind) {
        let wants = &mut self.wants[vcpu];
        let wanted = match kind {
            EventKind::Locks { waits_for, .. } => waits_for.map(Wanted::Guest),
            EventKind::Blocked(Waits::HostLock(lock, _)) => Some(Wanted::Host(lock)),
            EventKind::HostLockTaken(_) => None,
            EventKind::Deadlock { owner } => {
                self.links.push(Link {
                    vcpu,
                    owner: owner.index(),
                    wanted: wants.map(|(wanted, _)| wanted),
                    since: wants.map_or(now, |(_, since)| since),
                });
                return;
            }
            _ => return,
        };
        if wants.map(|(before, _)| before) != wanted {
            *wants = wanted.map(|wanted| (wanted, now));
        }
    }

    /// All circles in the order in which they were told, each from its lowest number on: everybody waits for
    /// the next, and the last for the first.
    pub(crate) fn told(&self) -> Vec<Vec<Link>> {
        let mut left = self.links.clone();
        let mut circles = Vec::new();
        while !left.is_empty() {
            let mut circle = vec![left.remove(0)];
            let behind = |circle: &[Link], left: &[Link]| {
                let owner = circle.last().map(|last| last.owner);
                left.iter().position(|link| Some(link.vcpu) == owner)
            };
            while let Some(next) = behind(&circle, &left) {
                circle.push(left.remove(next));
            }
            circles.push(circle);
        }
        circles
    }
}
