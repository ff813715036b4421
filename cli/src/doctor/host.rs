//! What the host itself does, and how `doctor` tells it.

use std::fmt;
use stealtime_scheduler::time::Nanos;
use stealtime_sim::cost::Theft;
use stealtime_vmm::probe::{self, Cost, Gaps, MeasureError};

/// More than this part of each core is hardly taken by the host alone.
const MUCH: f64 = 0.1;

/// What the host itself does, as the cost model has it.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) interference: Vec<Theft>,
    /// How much of each core it says that it takes, in millionths.
    pub(super) told_ppm: u64,
    /// None if it never took a core from one thread for another.
    pub(super) slice: Option<Cost>,
}

impl Host {
    /// Measures it.
    ///
    /// # Errors
    /// If KVM or the host does not do its part.
    pub(super) fn measure() -> Result<Self, MeasureError> {
        let theft = |gaps: Gaps| Theft {
            length: Nanos(gaps.length_ns),
            every: Nanos(gaps.every_ns),
            told: gaps.told,
        };
        let found = probe::interference()?;
        Ok(Self {
            interference: found.gaps.into_iter().map(theft).collect(),
            told_ppm: found.told_ppm,
            slice: probe::host_slice()?,
        })
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nThe host itself, measured just now")?;
        let each = self.interference.iter();
        let taken: f64 = each.clone().map(Theft::part).sum();
        let often: f64 = each
            .clone()
            .map(|theft| 1e9 / theft.every.get() as f64)
            .sum();
        match each.map(|theft| theft.length).max() {
            Some(longest) => writeln!(
                f,
                "  takes of each core         {:.2} %, {often:.1} times a second, for up to about {longest}\n  \
                 and tells of it            {:.2} %, as run delay; the rest is interrupts, and what a hypervisor below it takes",
                taken * 100.0,
                self.told_ppm as f64 / 1e4
            )?,
            None => writeln!(f, "  takes of each core         nothing")?,
        }
        if taken > MUCH {
            writeln!(
                f,
                "  That is much. If other programs were running, measure again when they are not."
            )?;
        }
        match self.slice {
            Some(slice) => writeln!(
                f,
                "  lets a busy thread run     {} at a time while another waits ({} times)",
                Nanos(slice.median_ns),
                slice.samples
            ),
            None => writeln!(
                f,
                "  lets a busy thread run     for longer than was looked: another one did not get the core"
            ),
        }
    }
}
