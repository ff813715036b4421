//! What the dispatcher was told of guest locks, and what is news.
//!
//! Guests publish what they hold and wait for in memory that they share with the host. It is read at the
//! moment when something is decided, without an exit: of those whose core may be taken; or, if the
//! dispatcher follows who waits for whom, of all that are on cores or wait, together with the owners of
//! the locks that are waited for.

use crate::seat::Seat;
use std::collections::{BTreeMap, BTreeSet};
use stealtime_scheduler::dispatcher::Dispatcher;
use stealtime_scheduler::ids::{CoreId, GuestLockId, VcpuId, VmId};
use stealtime_scheduler::input::{GuestLocks, Input, Timer};

/// What was told, and which vCPUs make up each VM.
#[derive(Debug)]
pub(crate) struct Told {
    locks: Vec<GuestLocks>,
    /// Those that were told to wait for a lock.
    waiting: BTreeSet<VcpuId>,
    /// Owners of locks that are, or were, waited for.
    owners: BTreeMap<GuestLockId, VcpuId>,
    members: BTreeMap<VmId, Vec<VcpuId>>,
    /// Each vCPU's number within its VM.
    indices: Vec<u32>,
    /// Kept for its memory: whose locks are read.
    concerned: Vec<VcpuId>,
    /// Kept for its memory: the locks that are waited for, each with one that waits.
    waited: Vec<(GuestLockId, VcpuId)>,
}

impl Told {
    /// Nothing was told. For vCPUs given by their VM.
    pub(crate) fn new(vms: impl Iterator<Item = VmId>) -> Self {
        let mut members: BTreeMap<VmId, Vec<VcpuId>> = BTreeMap::new();
        let mut indices = Vec::new();
        for (vcpu, vm) in (0..).map(VcpuId).zip(vms) {
            let siblings = members.entry(vm).or_default();
            indices.push(u32::try_from(siblings.len()).unwrap_or(u32::MAX));
            siblings.push(vcpu);
        }
        Self {
            locks: vec![GuestLocks::default(); indices.len()],
            waiting: BTreeSet::new(),
            owners: BTreeMap::new(),
            members,
            indices,
            concerned: Vec::new(),
            waited: Vec::new(),
        }
    }

    /// The vCPU of a VM that has this number within it.
    pub(crate) fn sibling(&self, vm: VmId, index: u32) -> Option<VcpuId> {
        self.members.get(&vm)?.get(index as usize).copied()
    }

    /// A vCPU's number within its VM.
    pub(crate) fn index(&self, vcpu: VcpuId) -> u32 {
        self.indices[vcpu.index()]
    }

    /// Adds what is to be told before this input. It counts as told from now on.
    pub(crate) fn news(
        &mut self,
        dispatcher: &Dispatcher,
        input: Input,
        seats: &[Seat],
        news: &mut Vec<Input>,
    ) {
        if !input.decides() {
            return;
        }
        let mut concerned = std::mem::take(&mut self.concerned);
        concerned.clear();
        if dispatcher.lock_aware() {
            on_cores(dispatcher, &mut concerned);
            let running = concerned.len();
            for &vcpu in &self.waiting {
                if !concerned[..running].contains(&vcpu) {
                    concerned.push(vcpu);
                }
            }
        } else {
            whose_cores(dispatcher, input, &mut concerned);
        }
        for &vcpu in &concerned {
            self.locks_of(vcpu, seats, news);
        }
        self.concerned = concerned;
        if dispatcher.lock_aware() {
            self.owners(seats, news);
        }
    }

    fn locks_of(&mut self, vcpu: VcpuId, seats: &[Seat], news: &mut Vec<Input>) {
        let locks = seats[vcpu.index()].watch.locks();
        let before = std::mem::replace(&mut self.locks[vcpu.index()], locks);
        if before == locks {
            return;
        }
        match (before.waits_for, locks.waits_for) {
            (None, Some(_)) => {
                self.waiting.insert(vcpu);
            }
            (Some(_), None) => {
                self.waiting.remove(&vcpu);
            }
            _ => {}
        }
        news.push(Input::Locks { vcpu, locks });
    }

    /// Who owns the locks that are waited for. Any of those that wait can tell: they share its memory.
    fn owners(&mut self, seats: &[Seat], news: &mut Vec<Input>) {
        let mut waited = std::mem::take(&mut self.waited);
        waited.clear();
        let lock_of = |vcpu: &VcpuId| Some((self.locks[vcpu.index()].waits_for?, *vcpu));
        waited.extend(self.waiting.iter().filter_map(lock_of));
        waited.sort_unstable();
        waited.dedup_by_key(|(lock, _)| *lock);
        for &(lock, waiter) in &waited {
            let owner = seats[waiter.index()].watch.owner(lock.lock());
            let owner = owner.and_then(|index| self.sibling(lock.vm(), index));
            if self.owners.get(&lock).copied() == owner {
                continue;
            }
            match owner {
                Some(owner) => {
                    self.owners.insert(lock, owner);
                    // It may have come to the lock and lost its core since it was last looked at.
                    self.locks_of(owner, seats, news);
                }
                None => {
                    self.owners.remove(&lock);
                }
            }
            news.push(Input::GuestOwner { lock, owner });
        }
        self.waited = waited;
    }
}

/// The vCPUs whose cores the dispatcher may take on this input: their locks matter for what it decides.
fn whose_cores(dispatcher: &Dispatcher, input: Input, concerned: &mut Vec<VcpuId>) {
    match input {
        Input::Stopped { vcpu, .. }
        | Input::Yield { vcpu }
        | Input::Block { vcpu, .. }
        | Input::CriticalLeft { vcpu }
        | Input::GuestWait { vcpu, .. }
        | Input::UserReturn { vcpu } => concerned.push(vcpu),
        Input::TimerDue {
            timer: Timer::Slice(core),
        } => concerned.extend(dispatcher.on_core(core)),
        // Somebody may become runnable, or go first, anywhere.
        Input::TimerDue { .. }
        | Input::Admit { .. }
        | Input::Interrupt { .. }
        | Input::HostUnlock { .. }
        | Input::GuestWake { .. }
        | Input::Retire { .. } => on_cores(dispatcher, concerned),
        _ => {}
    }
}

fn on_cores(dispatcher: &Dispatcher, concerned: &mut Vec<VcpuId>) {
    let cores = (0..dispatcher.cores()).filter_map(|core| u16::try_from(core).ok());
    concerned.extend(cores.filter_map(|core| dispatcher.on_core(CoreId(core))));
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::cpu::Watch;
    use crate::mock::Page;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use stealtime_scheduler::dispatcher::{Config, Output};
    use stealtime_scheduler::ids::HostLockId;
    use stealtime_scheduler::input::RetireReason;
    use stealtime_scheduler::policy::VcpuParams;
    use stealtime_scheduler::time::Nanos;

    /// Three vCPUs on two cores: 0 and 1 run, 2 waits.
    fn running(policy: &str) -> Dispatcher {
        let config = Config {
            policy: policy.parse().unwrap(),
            cores: 2,
            host_locks: 1,
            vcpus: vec![VcpuParams::plain(VmId(0)); 3],
        };
        let mut dispatcher = Dispatcher::new(&config).unwrap();
        for vcpu in (0..3).map(VcpuId) {
            dispatcher.handle(Nanos::ZERO, Input::Admit { vcpu }, &mut Output::default());
        }
        dispatcher
    }

    #[test]
    fn before_anybody_may_be_preempted_all_on_cores_are_asked_for_their_locks() {
        let dispatcher = running("rr");
        let asked = |input| {
            let mut asked = Vec::new();
            whose_cores(&dispatcher, input, &mut asked);
            asked
        };
        let vcpu = VcpuId(2);
        let lock = HostLockId(0);
        let decisive = [
            Input::TimerDue {
                timer: Timer::Wake(vcpu),
            },
            Input::TimerDue {
                timer: Timer::Periodic(vcpu),
            },
            Input::TimerDue { timer: Timer::Tick },
            Input::Interrupt {
                to: vcpu,
                vector: 0x40,
                from: None,
            },
            Input::HostUnlock { vcpu, lock },
            Input::GuestWake {
                vcpu,
                by: VcpuId(0),
                lock: GuestLockId::new(VmId(0), 0),
            },
            Input::Admit { vcpu },
            Input::Retire {
                vcpu,
                why: RetireReason::Finished,
            },
        ];
        for input in decisive {
            assert_eq!(asked(input), [VcpuId(0), VcpuId(1)], "{input:?}");
        }
        let slice = Input::TimerDue {
            timer: Timer::Slice(CoreId(1)),
        };
        assert_eq!(asked(slice), [VcpuId(1)]);
        assert_eq!(asked(Input::Yield { vcpu: VcpuId(0) }), [VcpuId(0)]);
    }

    #[test]
    fn siblings_are_numbered_within_their_vm_in_the_order_of_the_plan() {
        let told = Told::new([0, 1, 0, 0, 1].map(VmId).into_iter());
        assert_eq!(
            [0, 1, 2, 3, 4].map(|n| told.index(VcpuId(n))),
            [0, 0, 1, 2, 1]
        );
        assert_eq!(told.sibling(VmId(1), 1), Some(VcpuId(4)));
        assert_eq!(told.sibling(VmId(1), 2), None);
    }

    #[test]
    fn owners_are_told_after_locks_only_if_waited_for_and_once() {
        let pages: Vec<Arc<Page>> = (0..3).map(|_| Arc::default()).collect();
        let seat = |page: &Arc<Page>| Seat::new(VmId(0), Arc::clone(page) as Arc<dyn Watch>);
        let seats: Vec<_> = pages.iter().map(seat).collect();
        let dispatcher = running("rr+delay");
        let mut told = Told::new([VmId(0); 3].into_iter());
        let news = move |told: &mut Told| {
            let mut news = Vec::new();
            let input = Input::TimerDue { timer: Timer::Tick };
            told.news(&dispatcher, input, &seats, &mut news);
            news
        };
        // vCPU 2, which has no core, has the lock; nobody waits for it.
        for page in &pages {
            page.owner.store(2 + 1, Ordering::Relaxed);
        }
        pages[2].held.store(1, Ordering::Relaxed);
        assert_eq!(news(&mut told), []);
        pages[0].waits.store(true, Ordering::Relaxed);
        let lock = GuestLockId::new(VmId(0), 0);
        let locks = |vcpu, held, waits_for| Input::Locks {
            vcpu: VcpuId(vcpu),
            locks: GuestLocks {
                held,
                critical: 0,
                waits_for,
                in_line: false,
            },
        };
        let owner = |owner| Input::GuestOwner { lock, owner };
        assert_eq!(
            news(&mut told),
            [
                locks(0, 0, Some(lock)),
                locks(2, 1, None),
                owner(Some(VcpuId(2)))
            ]
        );
        assert_eq!(news(&mut told), []);
        pages[0].owner.store(0, Ordering::Relaxed);
        assert_eq!(news(&mut told), [owner(None)]);
        // vCPU 2 has no core. Its word counts before it is told to wait only if it is an owner; after
        // that always.
        pages[2].waits.store(true, Ordering::Relaxed);
        assert_eq!(news(&mut told), []);
        pages[0].owner.store(2 + 1, Ordering::Relaxed);
        assert_eq!(
            news(&mut told),
            [locks(2, 1, Some(lock)), owner(Some(VcpuId(2)))]
        );
        pages[2].waits.store(false, Ordering::Relaxed);
        assert_eq!(news(&mut told), [locks(2, 1, None)]);
    }
}
