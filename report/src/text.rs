//! The report as its user reads it: what ran, where the time went, who waited, how far to trust it,
//! and the diagnosis.
//!
//! One row a vCPU in every table, at most about 110 columns wide, units in every cell or heading.

pub(crate) mod format;
mod quality;
mod tables;
#[cfg(test)]
mod tests;

use crate::model::{Report, VcpuReport};
use format::{heading, paragraph};
use std::fmt::Write;
use stealtime_scheduler::dispatcher::Violation;
use stealtime_scheduler::time::Nanos;

/// Up to so many vCPUs all are shown, of more only those who waited longest.
const SHOWN: usize = 64;

/// How many are shown if there are more.
const SHOWN_OF_MANY: usize = 32;

impl Report {
    /// The report as text, ending in a line break.
    #[must_use]
    pub fn to_text(&self) -> String {
        let (shown, left_out) = self.shown();
        let mut text = self.title();
        heading(
            &mut text,
            "Where the time went",
            "per cent of the time measured",
        );
        text.push_str(&tables::time(self, &shown));
        heading(&mut text, "Waiting for a core", "");
        text.push_str(&tables::waiting(&shown));
        heading(&mut text, "What was done to it", "number of times");
        text.push_str(&tables::counts(&shown));
        heading(&mut text, "Seen from inside the guest", "");
        text.push_str(&tables::guest(&shown));
        if shown.iter().any(|vcpu| vcpu.guest.lock_acquisitions > 0) {
            heading(&mut text, "Locks of the guest", "");
            text.push_str(&tables::locks(&shown));
        }
        if left_out > 0 {
            let _ = writeln!(
                text,
                "\nShown are the {} vCPUs that waited longest at a time; the other {left_out} are in the JSON and CSV forms.",
                shown.len()
            );
        }
        heading(&mut text, "The run", "");
        text.push_str(&quality::lines(self));
        heading(&mut text, "Diagnosis", "");
        text.push_str(&paragraph(&self.diagnosis.text));
        if let Some(fix) = &self.diagnosis.fix {
            text.push_str(&paragraph(&format!("Fix: {fix}")));
        }
        text
    }

    fn title(&self) -> String {
        let cores = match self.host_cores.as_slice() {
            [_] => "1 core".to_owned(),
            all => format!("{} cores", all.len()),
        };
        let failed = Violation::Failed.to_string();
        let early = if self.interrupted {
            ", ended early by the user"
        } else if self.violations.first.iter().any(|one| one.rule == failed) {
            ", ended early because the policy failed"
        } else {
            ""
        };
        let warmup = match self.warmup_ns {
            0 => ", without warm-up".to_owned(),
            n => format!(" after {} of warm-up", Nanos(n)),
        };
        format!(
            "Scenario {}, policy {}, on {} with {cores}, seed {}\n\
             Measured for {}{warmup}{early}\n",
            self.scenario,
            self.policy,
            self.backend,
            self.seed,
            Nanos(self.wall_ns),
        )
    }

    /// The vCPUs to show, by number, and how many are left out.
    fn shown(&self) -> (Vec<&VcpuReport>, usize) {
        if self.vcpus.len() <= SHOWN {
            return (self.vcpus.iter().collect(), 0);
        }
        let mut order: Vec<_> = self.vcpus.iter().enumerate().collect();
        order.sort_by_key(|(number, v)| (std::cmp::Reverse(v.longest_starvation_ns), *number));
        order.truncate(SHOWN_OF_MANY);
        order.sort_by_key(|(number, _)| *number);
        let shown: Vec<_> = order.into_iter().map(|(_, vcpu)| vcpu).collect();
        let left_out = self.vcpus.len() - shown.len();
        (shown, left_out)
    }
}
