//! Guest locks: takes and releases them, and publishes what the host may know.

use super::work::Worker;
use core::sync::atomic::Ordering;
use stealtime_guest::call::Refusal;
use stealtime_guest::lock::{Lock, State, Waiter};
use stealtime_guest::page::{Page, add};

/// What a look at a lock is expected to take, in nanoseconds: less by far than the threshold of a
/// gap, so that its exact length does not matter.
const LOOK_NS: u64 = 100;

/// The locks of the VM as one vCPU uses them.
pub(super) struct Locks {
    page: &'static Page,
    locks: &'static [Lock],
    state: State,
}

impl Locks {
    pub(super) fn new(page: &'static Page) -> Self {
        let address = page.locks.load(Ordering::Relaxed);
        let count = page.lock_count.load(Ordering::Relaxed);
        let first = core::ptr::with_exposed_provenance::<Lock>(address as usize);
        // SAFETY: the host says where it has put so many locks, aligned, for as long as the guest
        // exists; all their fields are atomics.
        let locks = unsafe { core::slice::from_raw_parts(first, count as usize) };
        Self {
            page,
            locks,
            state: State::default(),
        }
    }

    /// The owner's mark in a lock.
    fn mark(&self) -> u32 {
        self.page.index.load(Ordering::Relaxed) + 1
    }

    fn find(&self, number: u16) -> Result<&'static Lock, Refusal> {
        let lock = self.locks.get(usize::from(number));
        lock.ok_or(Refusal::NoSuchLock(number))
    }

    pub(super) fn acquire(&mut self, number: u16, worker: &mut Worker) -> Result<(), Refusal> {
        let (lock, mark) = (self.find(number)?, self.mark());
        if lock.owner.load(Ordering::Relaxed) == mark {
            return Err(Refusal::AlreadyHeld(number));
        }
        if self.state.held == u16::MAX {
            return Err(Refusal::TooDeep);
        }
        lock.acquire(&mut Spinner {
            page: self.page,
            state: &mut self.state,
            number,
            worker,
        });
        lock.owner.store(mark, Ordering::Relaxed);
        add(&self.page.lock_acquisitions, 1);
        Ok(())
    }

    pub(super) fn release(&mut self, number: u16) -> Result<(), Refusal> {
        let lock = self.find(number)?;
        if lock.owner.load(Ordering::Relaxed) != self.mark() {
            return Err(Refusal::NotHeld(number));
        }
        lock.owner.store(0, Ordering::Relaxed);
        lock.release();
        self.state.held -= 1;
        publish(self.page, self.state);
        Ok(())
    }

    pub(super) fn enter_critical(&mut self) -> Result<(), Refusal> {
        let deeper = self.state.critical.checked_add(1);
        self.state.critical = deeper.ok_or(Refusal::TooDeep)?;
        publish(self.page, self.state);
        Ok(())
    }

    /// Leaves a critical section; yields whether the host waits for that.
    pub(super) fn leave_critical(&mut self) -> Result<Left, Refusal> {
        let outer = self.state.critical.checked_sub(1);
        self.state.critical = outer.ok_or(Refusal::NotCritical)?;
        publish(self.page, self.state);
        // SeqCst on both sides: either the host sees that the section is left, or the guest sees
        // that a preemption is pending.
        let pending = self.page.preempt_pending.load(Ordering::SeqCst) != 0;
        Ok(if self.state.critical == 0 && pending {
            Left::HostWaits
        } else {
            Left::Quietly
        })
    }
}

/// How a critical section was left.
pub(super) enum Left {
    /// Nobody waits for it.
    Quietly,
    /// It was the outermost, and the host has a preemption pending.
    HostWaits,
}

/// SeqCst, a full barrier: the host has the count of held locks before anyone can see the lock taken
/// (and for critical sections, see [`Locks::leave_critical`]).
fn publish(page: &Page, state: State) {
    page.lock_state.store(state.encode(), Ordering::SeqCst);
}

struct Spinner<'a> {
    page: &'static Page,
    state: &'a mut State,
    number: u16,
    worker: &'a mut Worker,
}

impl Waiter for Spinner<'_> {
    fn taking(&mut self) {
        self.state.held += 1;
        self.state.waits_for = None;
        publish(self.page, *self.state);
    }

    fn waiting(&mut self, ticket: Option<u32>) {
        // The ticket first: the host reads it only if the state says that someone waits.
        self.page
            .ticket
            .store(ticket.unwrap_or(0), Ordering::Relaxed);
        self.state.held -= 1;
        self.state.waits_for = Some(self.number);
        publish(self.page, *self.state);
        // What came before was no spinning.
        self.worker.tick(LOOK_NS);
    }

    fn spin(&mut self) {
        core::hint::spin_loop();
        add(&self.page.lock_spin_ns, self.worker.tick(LOOK_NS).ran);
    }
}
