//! Locks in guest memory, exactly: who gets a lock depends on who is on a core to see it free.
//!
//! * Test-and-set: a lock that is released is taken by the vCPU that spins for it on a core and began
//!   to spin first. If none is on a core, the lock stays free and the next that comes on a core, or
//!   newly asks, takes it.
//! * Ticket: strict order of asking. A release hands the lock to the first in line, which has it from
//!   then on; but it goes on only when it is on a core to see that, and until then everybody waits.
//!
//! "On a core" means that guest code runs: not on the way in or out, not in the hypervisor.

use std::collections::{BTreeSet, VecDeque};
use stealtime_scheduler::ids::VcpuId;
use stealtime_workloads::run::LockKind;

/// When a vCPU began to spin, as a number that grows over the run: earlier ones go first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Turn(u64);

/// What came of asking for a lock.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Take {
    /// The asker has it.
    Taken,
    /// It has to spin.
    Spin,
}

/// Who has the lock after its release.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HandOver {
    /// Nobody: it is free.
    Nobody,
    /// A spinner that saw it at once.
    Taken(VcpuId),
    /// The first in line, which is off core and does not know yet.
    Unseen(VcpuId),
}

#[derive(Debug)]
pub(crate) struct GuestLock {
    kind: LockKind,
    owner: Option<VcpuId>,
    /// Ticket: all that wait, in order.
    line: VecDeque<VcpuId>,
    /// Those that spin on a core at this moment, by the order in which they began.
    watching: BTreeSet<(Turn, VcpuId)>,
    turns: u64,
}

impl GuestLock {
    pub(crate) const fn new(kind: LockKind) -> Self {
        Self {
            kind,
            owner: None,
            line: VecDeque::new(),
            watching: BTreeSet::new(),
            turns: 0,
        }
    }

    /// The vCPU, on a core, asks for the lock for the first time. If it has to spin, it watches from
    /// now on, with the turn given.
    pub(crate) fn ask(&mut self, vcpu: VcpuId) -> (Take, Turn) {
        let turn = Turn(self.turns);
        self.turns += 1;
        if self.owner.is_none() {
            self.owner = Some(vcpu);
            return (Take::Taken, turn);
        }
        if self.kind == LockKind::Ticket {
            self.line.push_back(vcpu);
        }
        self.watching.insert((turn, vcpu));
        (Take::Spin, turn)
    }

    /// A vCPU that spins is on a core again and looks at the lock.
    pub(crate) fn come(&mut self, vcpu: VcpuId, turn: Turn) -> Take {
        if self.owner.is_none() && self.kind == LockKind::TestAndSet {
            self.owner = Some(vcpu);
        }
        if self.owner == Some(vcpu) {
            return Take::Taken;
        }
        self.watching.insert((turn, vcpu));
        Take::Spin
    }

    /// A vCPU that spins leaves its core and no longer sees the lock.
    pub(crate) fn go(&mut self, vcpu: VcpuId, turn: Turn) {
        self.watching.remove(&(turn, vcpu));
    }

    /// The owner releases the lock.
    pub(crate) fn release(&mut self) -> HandOver {
        self.owner = None;
        let first = self.watching.first().copied();
        match self.kind {
            LockKind::TestAndSet => {
                let Some((turn, next)) = first else {
                    return HandOver::Nobody;
                };
                self.watching.remove(&(turn, next));
                self.owner = Some(next);
                HandOver::Taken(next)
            }
            LockKind::Ticket => {
                self.owner = self.line.pop_front();
                let Some(next) = self.owner else {
                    return HandOver::Nobody;
                };
                // Of those that watch the first to have begun is the first in line, if it watches.
                match first.filter(|(_, watcher)| *watcher == next) {
                    Some(entry) => {
                        self.watching.remove(&entry);
                        HandOver::Taken(next)
                    }
                    None => HandOver::Unseen(next),
                }
            }
        }
    }

    /// Whether the vCPU holds the lock.
    pub(crate) fn held_by(&self, vcpu: VcpuId) -> bool {
        self.owner == Some(vcpu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: VcpuId = VcpuId(0);
    const B: VcpuId = VcpuId(1);
    const C: VcpuId = VcpuId(2);

    #[test]
    fn test_and_set_goes_to_the_longest_spinner_on_a_core() {
        let mut lock = GuestLock::new(LockKind::TestAndSet);
        assert_eq!(lock.ask(A).0, Take::Taken);
        let (_, b) = lock.ask(B);
        assert_eq!(lock.ask(C).0, Take::Spin);
        lock.go(B, b);
        assert_eq!(lock.release(), HandOver::Taken(C), "B is off core");
        assert_eq!(lock.come(B, b), Take::Spin);
        assert_eq!(lock.ask(A).0, Take::Spin);
        assert_eq!(lock.release(), HandOver::Taken(B), "B began before A");
    }

    #[test]
    fn a_free_test_and_set_lock_goes_to_whoever_comes_even_if_others_asked_before() {
        let mut lock = GuestLock::new(LockKind::TestAndSet);
        assert_eq!(lock.ask(A).0, Take::Taken);
        let (_, b) = lock.ask(B);
        lock.go(B, b);
        assert_eq!(lock.release(), HandOver::Nobody);
        assert_eq!(lock.ask(C).0, Take::Taken);
        assert_eq!(lock.come(B, b), Take::Spin);
        assert!(lock.held_by(C));
    }

    #[test]
    fn a_ticket_lock_waits_for_the_first_in_line_to_come_on_a_core() {
        let mut lock = GuestLock::new(LockKind::Ticket);
        assert_eq!(lock.ask(A).0, Take::Taken);
        let (_, b) = lock.ask(B);
        let (_, c) = lock.ask(C);
        lock.go(B, b);
        assert_eq!(
            lock.release(),
            HandOver::Unseen(B),
            "C spins, but B is first"
        );
        assert!(lock.held_by(B));
        assert_eq!(lock.ask(A).0, Take::Spin, "a newcomer joins the line");
        assert_eq!(lock.come(C, c), Take::Spin);
        assert_eq!(lock.come(B, b), Take::Taken);
        assert_eq!(lock.release(), HandOver::Taken(C));
        assert_eq!(lock.release(), HandOver::Taken(A));
        assert_eq!(lock.release(), HandOver::Nobody);
    }
}
