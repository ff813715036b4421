//! CPU work: calibrated iterations, with an eye on the clock.

use super::clock;
use core::arch::asm;
use core::sync::atomic::Ordering;
use stealtime_guest::gap::{CHUNK_NS, Detector, Stretch};
use stealtime_guest::page::{Page, add};

/// Does work and finds gaps in its own time.
pub(super) struct Worker {
    page: &'static Page,
    detector: Detector,
}

impl Worker {
    pub(super) fn new(page: &'static Page) -> Self {
        Self {
            page,
            detector: Detector::new(clock::now(page)),
        }
    }

    /// Time that has passed was given up on purpose: it is no gap.
    pub(super) fn restart(&mut self) {
        self.detector.restart(clock::now(self.page));
    }

    /// Work that takes `length_ns` of CPU time, however long it takes by the clock.
    pub(super) fn run(&mut self, length_ns: u64) {
        let per_ms = self.page.iterations_per_ms.load(Ordering::Relaxed);
        let whole = iterations(CHUNK_NS, per_ms);
        let mut left = length_ns;
        while left >= CHUNK_NS {
            self.chunk(whole, CHUNK_NS, CHUNK_NS);
            left -= CHUNK_NS;
        }
        if left > 0 {
            self.chunk(iterations(left, per_ms), left, left);
        }
    }

    /// Iterations of the work loop, then a look at the clock; a stretch longer than `expected_ns` is
    /// judged. Always this same code, so that a calibration measures what a run does.
    #[inline(never)]
    pub(super) fn chunk(&mut self, iterations: u64, progress_ns: u64, expected_ns: u64) {
        spin(iterations);
        self.tick(expected_ns);
        add(&self.page.progress_ns, progress_ns);
    }

    /// Judges the stretch since the last look at the clock, and counts a gap.
    pub(super) fn tick(&mut self, expected_ns: u64) -> Stretch {
        let stretch = self.detector.tick(clock::now(self.page), expected_ns);
        if let Some(gap) = stretch.gap {
            self.page.count_gap(gap);
        }
        stretch
    }
}

/// Iterations that take so long, for lengths up to a chunk.
const fn iterations(length_ns: u64, per_ms: u64) -> u64 {
    length_ns * per_ms / 1_000_000
}

/// The work loop: a chain of multiplications, each of which needs the result of the one before.
///
/// It is bound by their latency, which a processor has to itself, and not by how many instructions it takes in: that it
/// may share with another hardware thread of the core. A loop that only counts takes one cycle a round, or two while
/// the sibling is busy, and then a length of work means nothing.
fn spin(iterations: u64) {
    if iterations > 0 {
        // SAFETY: multiplies one register by itself and counts another down.
        unsafe {
            asm!(
                "2:",
                "imul {chain}, {chain}",
                "dec {left}",
                "jnz 2b",
                chain = inout(reg) 3_u64 => _,
                left = inout(reg) iterations => _,
                options(nomem, nostack),
            );
        }
    }
}
