//! A CPU without KVM for tests of the hand-over: guest code is a closure on the thread itself.
//!
//! It leaves for the same reason as KVM does: the byte that the kick's handler sets. It checks, at every
//! entry, that no other runs on the same core of the host.
#![expect(
    unsafe_code,
    reason = "the byte of a kick handle must outlive its receiver; here it is leaked on purpose"
)]

use crate::cpu::{Call, Cpu, Exit, Queued, Watch};
use crate::host::monotonic_ns;
use crate::kick::KickHandle;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use stealtime_scheduler::ids::{GuestLockId, VmId};
use stealtime_scheduler::input::GuestLocks;
use stealtime_scheduler::time::Nanos;
use stealtime_workloads::run::GuestView;

/// What the mock guest has done.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) entries: AtomicU64,
    pub(crate) interrupts: AtomicU64,
    pub(crate) pending: AtomicBool,
    pub(crate) held: AtomicU64,
    pub(crate) waits: AtomicBool,
    /// Who has any guest lock, and who lends it its turn: number and 1.
    pub(crate) owner: AtomicU32,
    pub(crate) donor: AtomicU32,
    pub(crate) running: AtomicBool,
}

impl Watch for Page {
    fn locks(&self) -> GuestLocks {
        GuestLocks {
            held: u16::try_from(self.held.load(Ordering::Relaxed)).unwrap(),
            waits_for: self
                .waits
                .load(Ordering::Relaxed)
                .then_some(GuestLockId::new(VmId(0), 0)),
            ..GuestLocks::default()
        }
    }

    fn view(&self) -> GuestView {
        GuestView {
            progress_ns: self.entries.load(Ordering::Relaxed),
            ..GuestView::default()
        }
    }

    fn restart_maxima(&self) {}

    fn set_preempt_pending(&self, pending: bool) {
        self.pending.store(pending, Ordering::Relaxed);
    }

    fn owner(&self, _lock: u16) -> Option<u32> {
        self.owner.load(Ordering::Relaxed).checked_sub(1)
    }

    fn set_running(&self, running: bool) {
        self.running.store(running, Ordering::Relaxed);
    }

    fn set_donor(&self, donor: Option<u32>) {
        let mark = donor.map_or(0, |donor| donor + 1);
        self.donor.store(mark, Ordering::Relaxed);
    }
}

/// Cores of the host that are in guest code, to find two on one.
#[derive(Debug, Default)]
pub(crate) struct Occupancy {
    cores: [AtomicBool; 32],
    pub(crate) clashes: AtomicU64,
}

impl Occupancy {
    fn enter(&self) -> usize {
        let core = rustix::thread::sched_getcpu() % 32;
        if self.cores[core].swap(true, Ordering::AcqRel) {
            self.clashes.fetch_add(1, Ordering::Relaxed);
        }
        core
    }

    fn leave(&self, core: usize) {
        self.cores[core].store(false, Ordering::Release);
    }
}

/// One turn of the mock guest: how long it computes before it exits, and with what.
#[derive(Clone, Debug)]
pub(crate) enum Turn {
    /// Until it is kicked.
    Spin,
    /// For a time, unless it is kicked; then the exit.
    Then(Nanos, Exit),
    /// A bug in the VMM.
    Panic,
    /// Does not react to anything until it is let go.
    Deaf(Arc<AtomicBool>),
}

/// A call at once.
pub(crate) fn call(call: Call) -> Turn {
    Turn::Then(Nanos::ZERO, Exit::Call(call))
}

/// The CPU.
pub(crate) struct MockCpu {
    byte: &'static AtomicU8,
    program: Box<dyn FnMut() -> Turn + Send>,
    /// A turn that a kick cut short, and what is left of it.
    rest: Option<(Nanos, Exit)>,
    queued: u64,
    /// Of CLOCK_MONOTONIC, when interrupts were last handled.
    handled: u64,
    pub(crate) page: Arc<Page>,
    occupancy: Arc<Occupancy>,
}

impl MockCpu {
    pub(crate) fn new(
        occupancy: &Arc<Occupancy>,
        program: impl FnMut() -> Turn + Send + 'static,
    ) -> Self {
        Self {
            byte: Box::leak(Box::default()),
            program: Box::new(program),
            rest: None,
            queued: 0,
            handled: 0,
            page: Arc::default(),
            occupancy: Arc::clone(occupancy),
        }
    }

    fn kicked(&self) -> bool {
        self.byte.load(Ordering::Relaxed) != 0
    }

    /// Computes until kicked, or for `length`; the answer is what is left.
    fn compute(&self, length: Nanos) -> Nanos {
        let until = monotonic_ns() + length.get();
        loop {
            let now = monotonic_ns();
            if self.kicked() || now >= until {
                return Nanos(until.saturating_sub(now));
            }
            std::hint::spin_loop();
        }
    }

    fn guest(&mut self) -> Exit {
        let (length, exit) = match self.rest.take() {
            Some(rest) => rest,
            None => match (self.program)() {
                Turn::Spin => (Nanos::from_secs(3600), Exit::Halt),
                Turn::Then(length, exit) => (length, exit),
                Turn::Panic => panic!("the mock panics"),
                Turn::Deaf(let_go) => {
                    while !let_go.load(Ordering::Relaxed) {
                        std::thread::yield_now();
                    }
                    (Nanos::ZERO, Exit::Call(Call::Nothing))
                }
            },
        };
        let left = self.compute(length);
        if left > Nanos::ZERO {
            self.rest = Some((left, exit));
            return Exit::Interrupted;
        }
        exit
    }
}

impl Cpu for MockCpu {
    fn enter(&mut self) -> Exit {
        if self.kicked() {
            return Exit::Interrupted;
        }
        self.page.entries.fetch_add(1, Ordering::Relaxed);
        let taken = std::mem::take(&mut self.queued);
        self.page.interrupts.fetch_add(taken, Ordering::Relaxed);
        if taken > 0 {
            self.handled = monotonic_ns();
        }
        let core = self.occupancy.enter();
        let exit = self.guest();
        self.occupancy.leave(core);
        exit
    }

    fn queue_interrupt(&mut self, _vector: u8) {
        self.queued += 1;
    }

    fn interrupts_queued(&self) -> Queued {
        if self.queued == 0 {
            Queued::None
        } else {
            Queued::Some
        }
    }

    /// At the entry.
    fn interrupt_handled_ago(&self) -> Nanos {
        Nanos(monotonic_ns().saturating_sub(self.handled))
    }

    fn set_preempt_pending(&mut self, pending: bool) {
        self.page.set_preempt_pending(pending);
    }

    fn locks(&self) -> GuestLocks {
        self.page.locks()
    }

    fn view(&self) -> GuestView {
        self.page.view()
    }

    fn clock_offset_ns(&self, _now: Nanos) -> Option<i64> {
        None
    }

    fn kick_handle(&self) -> KickHandle {
        // SAFETY: the byte is never freed.
        unsafe { KickHandle::new(NonNull::from(self.byte)) }
    }

    fn watch(&self) -> Arc<dyn Watch> {
        Arc::clone(&self.page) as Arc<dyn Watch>
    }
}
