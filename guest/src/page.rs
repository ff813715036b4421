//! The page that host and guest share, one for each vCPU.
//!
//! All fields are atomics: either side may read at any time. Each field has one writer, host or
//! guest. Sums and counts only grow; whoever wants the figures of an interval subtracts. Times are in
//! nanoseconds of the guest's clock unless said otherwise.
//!
//! The guest's clock: `(tsc - tsc_epoch) * ns_per_tick / 2^32`, 0 before the epoch.

use crate::hist::BUCKETS;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The version of this page; a guest refuses any other.
pub const VERSION: u32 = 3;

/// The shared page.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Page {
    // Written by the host before the guest starts.
    /// [`VERSION`].
    pub version: AtomicU32,
    /// The vCPU's number within its VM.
    pub index: AtomicU32,
    /// Address of the program's first op.
    pub program: AtomicU64,
    /// Count of its ops.
    pub program_ops: AtomicU64,
    /// Address of the VM's first guest lock ([`crate::lock::Lock`]).
    pub locks: AtomicU64,
    /// Address of the VM's first vCPU as its siblings see it ([`crate::lock::Node`]).
    pub nodes: AtomicU64,
    /// Count of the VM's guest locks.
    pub lock_count: AtomicU32,
    /// Count of the VM's vCPUs.
    pub vcpus: AtomicU32,
    /// How long it spins for a lock, in its own running time, before it says so; 0: it never does.
    pub spin_window_ns: AtomicU64,
    /// Not 0: a mutex that leaves it open is handed on.
    pub hand_off: AtomicU32,
    /// Changed by the host, at any time, to have the guest's maxima start anew.
    pub maxima_epoch: AtomicU32,
    /// Seed of the run's random lengths.
    pub seed: AtomicU64,
    /// The vCPU's stream of them: its number over all VMs.
    pub stream: AtomicU64,

    // Written by the host after boot, before the program starts.
    /// The guest's time-stamp counter at the start of the run, in ticks.
    pub tsc_epoch: AtomicU64,
    /// Length of a tick, in 2^-32 ns.
    pub ns_per_tick: AtomicU64,
    /// Iterations of the work loop per millisecond.
    pub iterations_per_ms: AtomicU64,
    /// What to do next: a [`crate::call::Command`].
    pub command: AtomicU32,
    /// Written by the host at any time: not 0 while a preemption is pending that waits for the guest
    /// to hold no lock and to be in no critical section.
    pub preempt_pending: AtomicU32,
    /// First argument of the command.
    pub command_a: AtomicU64,
    /// Second argument of the command.
    pub command_b: AtomicU64,

    // Written by the guest.
    /// What the command yielded, in ticks of the time-stamp counter.
    pub result: AtomicU64,
    /// First argument of the call in progress.
    pub call_a: AtomicU64,
    /// Second argument of the call in progress.
    pub call_b: AtomicU64,
    /// CPU work done: the calibrated length of what was run.
    pub progress_ns: AtomicU64,
    /// Gaps in the guest's own time ([`crate::gap`]).
    pub gaps: AtomicU64,
    /// Their sum.
    pub gap_total_ns: AtomicU64,
    /// The largest since the maxima started anew.
    pub gap_max_ns: AtomicU64,
    /// The largest latency of a request since the maxima started anew.
    pub request_max_ns: AtomicU64,
    /// Interrupts handled (written by ring 0).
    pub interrupts: AtomicU64,
    /// Interrupts handled when the last wait for an interrupt ended.
    pub interrupts_seen: AtomicU64,
    /// Reading of the time-stamp counter when the last interrupt was handled (written by ring 0, one half after
    /// the other: for the vCPU's own thread, when the guest has stopped).
    pub interrupt_tsc: AtomicU64,
    /// Guest locks taken.
    pub lock_acquisitions: AtomicU64,
    /// Time spent spinning for guest locks, gaps left out.
    pub lock_spin_ns: AtomicU64,
    /// [`Self::maxima_epoch`] as the maxima were last started anew.
    pub maxima_epoch_seen: AtomicU32,

    // Written by ring 0 at an exception that it did not expect.
    /// Its vector.
    pub exception_vector: AtomicU64,
    /// Its error code; 0 if it has none.
    pub exception_error: AtomicU64,
    /// Address of the instruction.
    pub exception_rip: AtomicU64,
    /// Address that a page fault was about; else what the last page fault left.
    pub exception_cr2: AtomicU64,

    /// Latencies of ended requests, in the buckets of [`crate::hist`].
    pub request_hist: [AtomicU32; BUCKETS],
}

const _: () = assert!(size_of::<Page>() == 4096);
const _: () = assert!(offset_of!(Page, program) == 8);
const _: () = assert!(offset_of!(Page, seed) == 64);
const _: () = assert!(offset_of!(Page, tsc_epoch) == 80);
const _: () = assert!(offset_of!(Page, command) == 104);
const _: () = assert!(offset_of!(Page, result) == 128);
const _: () = assert!(offset_of!(Page, progress_ns) == 152);
const _: () = assert!(offset_of!(Page, interrupts) == 192);
const _: () = assert!(offset_of!(Page, maxima_epoch_seen) == 232);
const _: () = assert!(offset_of!(Page, exception_vector) == 240);
const _: () = assert!(offset_of!(Page, request_hist) == 272);

/// Adds to a field that only the caller writes, or to one bucket: cheaper than a locked addition.
pub fn add(field: &AtomicU64, n: u64) {
    field.store(
        field.load(Ordering::Relaxed).wrapping_add(n),
        Ordering::Relaxed,
    );
}

impl Page {
    /// Counts a gap.
    pub fn count_gap(&self, gap_ns: u64) {
        add(&self.gaps, 1);
        add(&self.gap_total_ns, gap_ns);
        self.start_maxima_anew_if_asked();
        raise(&self.gap_max_ns, gap_ns);
    }

    /// Counts a request that took so long.
    pub fn count_request(&self, latency_ns: u64) {
        let bucket = &self.request_hist[crate::hist::bucket(latency_ns)];
        bucket.store(
            bucket.load(Ordering::Relaxed).wrapping_add(1),
            Ordering::Relaxed,
        );
        self.start_maxima_anew_if_asked();
        raise(&self.request_max_ns, latency_ns);
    }

    /// Largest gap and largest latency since the host last asked to start them anew.
    #[must_use]
    pub fn maxima(&self) -> (u64, u64) {
        let asked = self.maxima_epoch.load(Ordering::Relaxed);
        // Acquire: what was counted before the epoch was seen is not read with it.
        if self.maxima_epoch_seen.load(Ordering::Acquire) != asked {
            return (0, 0);
        }
        let gap = self.gap_max_ns.load(Ordering::Relaxed);
        (gap, self.request_max_ns.load(Ordering::Relaxed))
    }

    fn start_maxima_anew_if_asked(&self) {
        let asked = self.maxima_epoch.load(Ordering::Relaxed);
        if self.maxima_epoch_seen.load(Ordering::Relaxed) != asked {
            self.gap_max_ns.store(0, Ordering::Relaxed);
            self.request_max_ns.store(0, Ordering::Relaxed);
            self.maxima_epoch_seen.store(asked, Ordering::Release);
        }
    }

    /// The guest's clock at a reading of its time-stamp counter.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "nanoseconds since the start of a run fit 64 bits for centuries"
    )]
    pub fn clock(&self, tsc: u64) -> u64 {
        let ticks = tsc.saturating_sub(self.tsc_epoch.load(Ordering::Relaxed));
        let scaled = u128::from(ticks) * u128::from(self.ns_per_tick.load(Ordering::Relaxed));
        (scaled >> 32) as u64
    }
}

fn raise(field: &AtomicU64, value: u64) {
    if value > field.load(Ordering::Relaxed) {
        field.store(value, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> Page {
        Page {
            version: AtomicU32::new(VERSION),
            index: AtomicU32::default(),
            program: AtomicU64::default(),
            program_ops: AtomicU64::default(),
            locks: AtomicU64::default(),
            nodes: AtomicU64::default(),
            lock_count: AtomicU32::default(),
            vcpus: AtomicU32::default(),
            spin_window_ns: AtomicU64::default(),
            hand_off: AtomicU32::default(),
            maxima_epoch: AtomicU32::default(),
            seed: AtomicU64::default(),
            stream: AtomicU64::default(),
            tsc_epoch: AtomicU64::default(),
            ns_per_tick: AtomicU64::default(),
            iterations_per_ms: AtomicU64::default(),
            command: AtomicU32::default(),
            preempt_pending: AtomicU32::default(),
            command_a: AtomicU64::default(),
            command_b: AtomicU64::default(),
            result: AtomicU64::default(),
            call_a: AtomicU64::default(),
            call_b: AtomicU64::default(),
            progress_ns: AtomicU64::default(),
            gaps: AtomicU64::default(),
            gap_total_ns: AtomicU64::default(),
            gap_max_ns: AtomicU64::default(),
            request_max_ns: AtomicU64::default(),
            interrupts: AtomicU64::default(),
            interrupts_seen: AtomicU64::default(),
            interrupt_tsc: AtomicU64::default(),
            lock_acquisitions: AtomicU64::default(),
            lock_spin_ns: AtomicU64::default(),
            maxima_epoch_seen: AtomicU32::default(),
            exception_vector: AtomicU64::default(),
            exception_error: AtomicU64::default(),
            exception_rip: AtomicU64::default(),
            exception_cr2: AtomicU64::default(),
            request_hist: std::array::from_fn(|_| AtomicU32::default()),
        }
    }

    #[test]
    fn maxima_start_anew_when_the_host_asks_even_if_nothing_happens_after() {
        let page = page();
        page.count_gap(500);
        page.count_request(900);
        assert_eq!(page.maxima(), (500, 900));
        page.maxima_epoch.store(1, Ordering::Relaxed);
        assert_eq!(page.maxima(), (0, 0));
        page.count_gap(20);
        assert_eq!(page.maxima(), (20, 0));
        assert_eq!(page.gap_total_ns.load(Ordering::Relaxed), 520);
    }

    #[test]
    fn the_clock_counts_from_the_epoch_and_never_before_it() {
        let page = page();
        page.tsc_epoch.store(1_000, Ordering::Relaxed);
        // 2.5 GHz: a tick is 0.4 ns.
        page.ns_per_tick.store((4 << 32) / 10, Ordering::Relaxed);
        assert_eq!(page.clock(999), 0);
        let hour = page.clock(1_000 + 2_500_000_000 * 3_600);
        assert!(hour.abs_diff(3_600_000_000_000) < 1_000, "{hour}");
    }
}
