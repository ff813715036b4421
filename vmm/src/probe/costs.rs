//! All costs together, within a few seconds.

use super::course::CourseCosts;
use super::rights::cores;
use super::sample::Cost;
use super::{course, guests, threads};
use crate::backend::KvmError;
use crate::cpu::Exit;
use crate::machine::MachineError;
use kvm_ioctls::Kvm;
use std::{io, thread};

/// What the machine's own work costs. Each figure has the count of its samples.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Costs {
    /// A call of the guest by port I/O: out of the guest and into it again.
    pub call_round_trip: Cost,
    /// A halt of the guest: out of the guest and into it again.
    pub halt_round_trip: Cost,
    /// An entry that a kick had already ended: what one that comes too early costs.
    pub immediate_exit: Cost,
    /// What an interrupt adds to an entry: its injection, the guest's handler and the way back.
    pub interrupt: Cost,
    /// From the kick of another core until the guest has been left. None with one core only.
    pub kick: Option<Cost>,
    /// From the end of a slice until the guest has been left: the timer's lateness and the kick.
    pub slice_overshoot: Cost,
    /// How late a thread wakes that waits for an instant.
    pub timer: Cost,
    /// From one thread's word until another runs, both on one core.
    pub hand_over_same_core: Cost,
    /// The same from one core to another. None with one core only.
    pub hand_over_other_core: Option<Cost>,
    /// A reading of the clock, which is also the finest difference that can be seen.
    pub clock_reading: Cost,
    /// What these come to in the course of a run.
    pub course: CourseCosts,
}

/// Why costs could not be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// KVM cannot be opened: see [`super::check`].
    #[error("KVM cannot be opened")]
    Open(#[source] kvm_ioctls::Error),
    /// A machine could not be made or started.
    #[error("no guest to measure with")]
    Machine(#[from] MachineError),
    /// The guest did something else than it was told.
    #[error("the guest that was measured did not do as it was told: {exit:?}")]
    Unexpected {
        /// What it did.
        exit: Exit,
    },
    /// The host refused a thread, a signal or a place on a core.
    #[error("the host does not let threads be measured")]
    Host(#[from] io::Error),
    /// A run did not take place.
    #[error("no run to measure in")]
    Run(#[from] KvmError),
    /// The machine is so busy that not one sample was had.
    #[error("no sample of {what} within the time allowed")]
    NoSamples {
        /// Of what.
        what: &'static str,
    },
}

/// Measures everything. Takes three to five seconds.
///
/// # Errors
/// If KVM or the host does not do its part.
pub fn measure() -> Result<Costs, MeasureError> {
    let kvm = Kvm::new().map_err(MeasureError::Open)?;
    // In a thread of its own: it is moved from core to core, and ends so.
    let measurer = thread::spawn(move || all(&kvm));
    match measurer.join() {
        Ok(costs) => costs,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn all(kvm: &Kvm) -> Result<Costs, MeasureError> {
    let cores = cores();
    let here = cores.first().copied().unwrap_or(0);
    let there = cores.get(1).copied();
    // Before this thread is bound to a core. As runs do, it leaves the first core to the other threads.
    let course = course::measure(cores.last().copied().unwrap_or(0))?;
    threads::pin(here)?;
    let exits = guests::exits(kvm)?;
    let (slice_overshoot, timer) = guests::slices(kvm, there.unwrap_or(here))?;
    Ok(Costs {
        call_round_trip: exits.call,
        halt_round_trip: exits.halt,
        immediate_exit: exits.immediate,
        interrupt: exits.interrupt,
        kick: there.map(|there| guests::kicks(kvm, there)).transpose()?,
        slice_overshoot,
        timer,
        hand_over_same_core: threads::hand_over(here, here)?,
        hand_over_other_core: there
            .map(|there| threads::hand_over(here, there))
            .transpose()?,
        clock_reading: threads::clock_reading()?,
        course,
    })
}

/// The cost, or that there was no sample of it.
pub(super) fn cost(samples: Vec<u64>, what: &'static str) -> Result<Cost, MeasureError> {
    Cost::of(samples).ok_or(MeasureError::NoSamples { what })
}
