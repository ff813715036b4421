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
    /// Owners of locks that are, or were, waited for.
    owners: BTreeMap<GuestLockId, VcpuId>,
    members: BTreeMap<VmId, Vec<VcpuId>>,
    /// Each vCPU's number within its VM.
    indices: Vec<u32>,
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
            owners: BTreeMap::new(),
            members,
            indices,
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

    /// What is to be told before this input, and counts as told from now on.
    pub(crate) fn news(
        &mut self,
        dispatcher: &Dispatcher,
        input: Input,
        seats: &[Seat],
    ) -> Vec<Input> {
        let mut news = Vec::new();
        if !dispatcher.lock_aware() {
            for vcpu in concerned(dispatcher, input) {
                self.locks_of(vcpu, seats, &mut news);
            }
        } else if decides(input) {
            self.all(dispatcher, seats, &mut news);
        }
        news
    }

    fn locks_of(&mut self, vcpu: VcpuId, seats: &[Seat], news: &mut Vec<Input>) {
        let locks = seats[vcpu.index()].watch.locks();
        if std::mem::replace(&mut self.locks[vcpu.index()], locks) != locks {
            news.push(Input::Locks { vcpu, locks });
        }
    }

    fn all(&mut self, dispatcher: &Dispatcher, seats: &[Seat], news: &mut Vec<Input>) {
        for vcpu in on_cores_or_waiting(dispatcher, &self.locks) {
            self.locks_of(vcpu, seats, news);
        }
        // Any of those that wait for a lock can tell who owns it: they share its memory.
        let waiting = (0..).map(VcpuId).zip(&self.locks);
        let waited: BTreeMap<_, _> = waiting
            .filter_map(|(vcpu, locks)| Some((locks.waits_for?, vcpu)))
            .collect();
        for (lock, waiter) in waited {
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
    }
}

/// Whose locks matter for what the dispatcher decides on this input: the vCPUs whose cores it may take.
fn concerned(dispatcher: &Dispatcher, input: Input) -> impl Iterator<Item = VcpuId> + use<> {
    let everywhere = 0..dispatcher.cores();
    let (one, cores) = match input {
        Input::Stopped { vcpu, .. }
        | Input::Yield { vcpu }
        | Input::Block { vcpu, .. }
        | Input::CriticalLeft { vcpu }
        | Input::GuestWait { vcpu, .. }
        | Input::UserReturn { vcpu } => (Some(vcpu), 0..0),
        Input::TimerDue {
            timer: Timer::Slice(core),
        } => (dispatcher.on_core(core), 0..0),
        // Somebody may become runnable, or go first, anywhere.
        Input::TimerDue { .. }
        | Input::Admit { .. }
        | Input::Interrupt { .. }
        | Input::HostUnlock { .. }
        | Input::GuestWake { .. }
        | Input::Retire { .. } => (None, everywhere),
        _ => (None, 0..0),
    };
    let all: Vec<_> = cores
        .filter_map(|core| dispatcher.on_core(CoreId(u16::try_from(core).ok()?)))
        .collect();
    one.into_iter().chain(all)
}

/// Whether the dispatcher may decide something on this input.
const fn decides(input: Input) -> bool {
    !matches!(
        input,
        Input::Entered { .. }
            | Input::Exited { .. }
            | Input::Resumed { .. }
            | Input::InterruptsTaken { .. }
            | Input::ArmPeriodic { .. }
            | Input::Locks { .. }
            | Input::GuestOwner { .. }
            | Input::HostDelay { .. }
            | Input::Mark(_)
    )
}

/// Whose locks matter if the dispatcher follows who waits for whom.
fn on_cores_or_waiting(dispatcher: &Dispatcher, told: &[GuestLocks]) -> BTreeSet<VcpuId> {
    let cores = (0..dispatcher.cores()).filter_map(|core| u16::try_from(core).ok());
    let on_cores = cores.filter_map(|core| dispatcher.on_core(CoreId(core)));
    let waiting = (0..).map(VcpuId).zip(told);
    let waiting = waiting.filter(|(_, locks)| locks.waits_for.is_some());
    on_cores.chain(waiting.map(|(vcpu, _)| vcpu)).collect()
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
    fn running() -> Dispatcher {
        let config = Config {
            policy: "rr".parse().unwrap(),
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
        let dispatcher = running();
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
            let asked: Vec<_> = concerned(&dispatcher, input).collect();
            assert_eq!(asked, [VcpuId(0), VcpuId(1)], "{input:?}");
        }
        let slice = Input::TimerDue {
            timer: Timer::Slice(CoreId(1)),
        };
        assert!(concerned(&dispatcher, slice).eq([VcpuId(1)]));
        assert!(concerned(&dispatcher, Input::Yield { vcpu: VcpuId(0) }).eq([VcpuId(0)]));
    }

    #[test]
    fn who_waits_is_asked_for_its_locks_without_a_core() {
        let mut told = [GuestLocks::default(); 3];
        let of = |told: &[GuestLocks]| Vec::from_iter(on_cores_or_waiting(&running(), told));
        assert_eq!(of(&told), [VcpuId(0), VcpuId(1)]);
        told[2].waits_for = Some(GuestLockId::new(VmId(0), 7));
        assert_eq!(of(&told), [VcpuId(0), VcpuId(1), VcpuId(2)]);
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
        let dispatcher = running();
        let mut told = Told::new([VmId(0); 3].into_iter());
        let news = move |told: &mut Told| {
            let mut news = Vec::new();
            told.all(&dispatcher, &seats, &mut news);
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
    }
}
