//! Priority inversion at a host lock: its owner is ready and without a core, and somebody waits for it.

use std::collections::HashSet;
use stealtime_scheduler::event::{Event, EventKind, Waits};
use stealtime_scheduler::ids::{HostLockId, VcpuId};
use stealtime_scheduler::time::Nanos;

/// Follows who owns a host lock, who waits for it, and who is ready without a core.
#[derive(Debug)]
pub(super) struct Inversion {
    lock: HostLockId,
    owners: HashSet<VcpuId>,
    waiters: HashSet<VcpuId>,
    ready: HashSet<VcpuId>,
    since: Option<Nanos>,
    ended: Vec<(Nanos, Nanos)>,
}

impl Inversion {
    /// Before the first event.
    pub(super) fn new(lock: HostLockId) -> Self {
        Self {
            lock,
            owners: HashSet::new(),
            waiters: HashSet::new(),
            ready: HashSet::new(),
            since: None,
            ended: Vec::new(),
        }
    }

    /// Takes the next event.
    pub(super) fn event(&mut self, event: &Event) {
        let vcpu = event.vcpu;
        match event.kind {
            EventKind::HostLockTaken(lock) if lock == self.lock => {
                self.waiters.remove(&vcpu);
                self.owners.insert(vcpu);
            }
            EventKind::HostLockReleased(lock) if lock == self.lock => {
                self.owners.remove(&vcpu);
            }
            EventKind::Blocked(on) => {
                self.ready.remove(&vcpu);
                if matches!(on, Waits::HostLock(lock, _) if lock == self.lock) {
                    self.waiters.insert(vcpu);
                }
            }
            EventKind::Woken(_)
            | EventKind::Preempted(..)
            | EventKind::Yielded(_)
            | EventKind::YieldedTo(_)
            | EventKind::Admitted => {
                self.ready.insert(vcpu);
            }
            EventKind::Running(_) | EventKind::Retired(_) => {
                self.ready.remove(&vcpu);
                self.waiters.remove(&vcpu);
            }
            _ => return,
        }
        let inverted = !self.waiters.is_empty() && !self.owners.is_disjoint(&self.ready);
        match (self.since, inverted) {
            (None, true) => self.since = Some(event.at),
            (Some(since), false) => {
                self.ended.push((since, event.at));
                self.since = None;
            }
            _ => {}
        }
    }

    /// All of them, one that goes on at the end too.
    pub(super) fn until(mut self, end: Nanos) -> Vec<(Nanos, Nanos)> {
        self.ended.extend(self.since.map(|since| (since, end)));
        self.ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stealtime_scheduler::event::{PreemptReason, WakeSource};
    use stealtime_scheduler::ids::CoreId;

    const LOCK: HostLockId = HostLockId(0);
    const CORE: CoreId = CoreId(0);

    fn after(events: &[(u64, u32, EventKind)]) -> Vec<(Nanos, Nanos)> {
        let mut watch = Inversion::new(LOCK);
        for (at, vcpu, kind) in events {
            watch.event(&Event {
                at: Nanos(*at),
                vcpu: VcpuId(*vcpu),
                kind: *kind,
            });
        }
        watch.until(Nanos(100))
    }

    #[test]
    fn it_begins_when_a_preempted_owner_is_waited_for_and_ends_when_it_runs() {
        let preempted = EventKind::Preempted(CORE, PreemptReason::Wakeup);
        let waits = EventKind::Blocked(Waits::HostLock(LOCK, VcpuId(0)));
        let seen = after(&[
            (1, 0, EventKind::HostLockTaken(LOCK)),
            (2, 0, preempted),
            (5, 1, waits),
            (9, 0, EventKind::Running(CORE)),
            (12, 0, EventKind::HostLockReleased(LOCK)),
        ]);
        assert_eq!(seen, [(Nanos(5), Nanos(9))]);
    }

    #[test]
    fn an_owner_that_runs_or_sleeps_or_another_lock_is_none() {
        let waits = |lock| EventKind::Blocked(Waits::HostLock(lock, VcpuId(0)));
        let seen = after(&[
            (1, 0, EventKind::HostLockTaken(LOCK)),
            (2, 1, waits(LOCK)),
            (3, 0, EventKind::Blocked(Waits::Host)),
            (4, 2, waits(HostLockId(1))),
        ]);
        assert_eq!(seen, []);
    }

    #[test]
    fn one_that_goes_on_lasts_to_the_end() {
        let seen = after(&[
            (1, 0, EventKind::HostLockTaken(LOCK)),
            (2, 0, EventKind::Blocked(Waits::Host)),
            (3, 1, EventKind::Blocked(Waits::HostLock(LOCK, VcpuId(0)))),
            (7, 0, EventKind::Woken(WakeSource::Timer)),
        ]);
        assert_eq!(seen, [(Nanos(7), Nanos(100))]);
    }
}
