//! Before the program: the guest boots, its clock is compared with the host's, its work calibrated.
//!
//! The guest waits for commands in the shared page, carries out each and comes back. Whoever runs
//! this is the vCPU's own thread, before the run.

use super::exits::{self, Stop};
use super::guest_cpu::Phase;
use super::tsc::{ns_in, rate_hz};
use super::{Calibration, GuestCpu, MachineError};
use crate::cpu::Exit;
use crate::host::monotonic_ns;
use std::sync::atomic::Ordering;
use stealtime_guest::call::Command;
use stealtime_guest::gap::CHUNK_NS;

/// How long a guest may take for a command, in nanoseconds: much longer than any command on the
/// slowest machine (an emulated one).
const PATIENCE_NS: u64 = 20_000_000_000;

/// Chunks of one timing of the work loop: short, so that some timings are not disturbed.
const CHUNKS: u64 = 64;

/// Timings of one calibration, of which the fastest counts.
const TIMINGS: usize = 20;

/// Calibrations, whose spread tells how well they agree.
const CALIBRATIONS: usize = 5;

/// Iterations of a chunk before anything is known.
const FIRST_GUESS: u64 = 4_000;

impl GuestCpu {
    /// Runs the guest up to where it is ready to start its program, and learns how its clock relates
    /// to the host's. On the vCPU's own thread.
    ///
    /// # Errors
    /// If the guest does not get there.
    pub fn boot(&mut self) -> Result<(), MachineError> {
        self.until_ready()?;
        self.phase = Phase::Booted;
        self.compare_clocks()?;
        self.set_clock_epoch(monotonic_ns());
        Ok(())
    }

    /// Measures how fast the guest's work loop is. After [`Self::boot`], before the first entry; one
    /// vCPU of a run does so while the others wait.
    ///
    /// # Errors
    /// If the guest fails.
    pub fn calibrate(&mut self) -> Result<Calibration, MachineError> {
        let rate = rate_hz();
        // Timed with chunks of about the length that they will have, because the look at the clock
        // after each is part of the work.
        let mut per_ms = self.fastest(FIRST_GUESS, rate)?;
        let mut all = [0; CALIBRATIONS];
        for one in &mut all {
            per_ms = self.fastest(per_ms * CHUNK_NS / 1_000_000, rate)?;
            *one = per_ms;
        }
        let (slowest, fastest) = (all.iter().min(), all.iter().max());
        let (slowest, fastest) = (*slowest.unwrap_or(&1), *fastest.unwrap_or(&1));
        Ok(Calibration {
            iterations_per_ms: fastest,
            // (slowest time - fastest time) / fastest time, and time is the inverse of the rate.
            spread_ppm: (fastest - slowest) * 1_000_000 / slowest.max(1),
            tsc_khz: rate / 1_000,
        })
    }

    /// Sets what a calibration found. Before the first entry.
    pub fn set_calibration(&mut self, calibration: &Calibration) {
        let page = self.page.get();
        page.iterations_per_ms
            .store(calibration.iterations_per_ms, Ordering::Relaxed);
    }

    /// Iterations per millisecond in the fastest of some timings.
    fn fastest(&mut self, iterations: u64, rate: u64) -> Result<u64, MachineError> {
        let iterations = iterations.max(1);
        let page = self.page.get();
        page.command_a.store(iterations, Ordering::Relaxed);
        page.command_b.store(CHUNKS, Ordering::Relaxed);
        let mut fastest = u64::MAX;
        for _ in 0..TIMINGS {
            fastest = fastest.min(self.command(Command::Calibrate)?);
        }
        let ns = ns_in(fastest, rate).max(1);
        Ok((iterations * CHUNKS * 1_000_000 / ns).max(1))
    }

    /// Has the guest carry out a command, and yields its result.
    pub(super) fn command(&mut self, command: Command) -> Result<u64, MachineError> {
        self.page
            .get()
            .command
            .store(command as u32, Ordering::Relaxed);
        self.until_ready()?;
        Ok(self.page.get().result.load(Ordering::Relaxed))
    }

    fn until_ready(&mut self) -> Result<(), MachineError> {
        let begin = monotonic_ns();
        loop {
            // No kick counts before the run.
            self.vcpu.set_kvm_immediate_exit(0);
            match exits::run(&mut self.vcpu, self.page.get()) {
                Stop::Ready => return Ok(()),
                Stop::Exit(Exit::Interrupted) => {}
                Stop::Exit(exit) => return Err(MachineError::NotReady { exit }),
            }
            if monotonic_ns() - begin > PATIENCE_NS {
                return Err(MachineError::NoAnswer {
                    seconds: PATIENCE_NS / 1_000_000_000,
                });
            }
        }
    }
}
