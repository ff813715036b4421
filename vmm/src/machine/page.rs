//! The host's side of a vCPU's shared page.

use super::memory::Memory;
use crate::cpu::Watch;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stealtime_guest::lock::Node;
use stealtime_guest::page::Page;
use stealtime_scheduler::ids::{GuestLockId, VmId};
use stealtime_scheduler::input::GuestLocks;
use stealtime_workloads::run::GuestView;

/// A vCPU's shared page. Any thread may read it at any time, also while the guest runs.
///
/// Counts and sums of the view are cumulative: whoever wants those of an interval subtracts. Maxima
/// count from the last [`Watch::restart_maxima`].
#[derive(Clone, Debug)]
pub struct SharedPage {
    memory: Arc<Memory>,
    vm: VmId,
    index: u32,
}

impl SharedPage {
    pub(super) const fn new(memory: Arc<Memory>, vm: VmId, index: u32) -> Self {
        Self { memory, vm, index }
    }

    pub(super) fn get(&self) -> &Page {
        self.memory.page(self.index)
    }

    fn node(&self) -> &Node {
        &self.memory.locks().nodes[self.index as usize]
    }
}

impl Watch for SharedPage {
    fn locks(&self) -> GuestLocks {
        let memory = self.memory.locks();
        let seen = memory.seen(self.index);
        GuestLocks {
            held: seen.held,
            critical: seen.critical,
            waits_for: seen
                .waits_for
                .map(|number| GuestLockId::new(self.vm, number)),
            in_line: memory.in_line(seen),
        }
    }

    fn view(&self) -> GuestView {
        let page = self.get();
        let read = |field: &std::sync::atomic::AtomicU64| field.load(Ordering::Relaxed);
        let histogram: Vec<u32> = page
            .request_hist
            .iter()
            .map(|bucket| bucket.load(Ordering::Relaxed))
            .collect();
        let (gap_max_ns, request_max_ns) = page.maxima();
        GuestView {
            progress_ns: read(&page.progress_ns),
            gaps: read(&page.gaps),
            gap_total_ns: read(&page.gap_total_ns),
            gap_max_ns,
            // From the histogram, so that the two agree also while the guest counts.
            requests: histogram.iter().map(|count| u64::from(*count)).sum(),
            request_hist: histogram,
            request_max_ns,
            interrupts: read(&page.interrupts),
            lock_acquisitions: read(&page.lock_acquisitions),
            lock_spin_ns: read(&page.lock_spin_ns),
        }
    }

    fn restart_maxima(&self) {
        self.get().maxima_epoch.fetch_add(1, Ordering::Relaxed);
    }

    fn set_preempt_pending(&self, pending: bool) {
        let word = &self.get().preempt_pending;
        // SeqCst with the guest's own: see `Context::publish` of the locks.
        word.store(u32::from(pending), Ordering::SeqCst);
    }

    fn owner(&self, lock: u16) -> Option<u32> {
        self.memory.locks().owner(lock)
    }

    fn set_running(&self, running: bool) {
        let word = &self.node().running;
        word.store(u32::from(running), Ordering::Release);
    }

    fn set_donor(&self, donor: Option<u32>) {
        let mark = donor.map_or(0, |donor| donor + 1);
        self.node().donor.store(mark, Ordering::Release);
    }
}
