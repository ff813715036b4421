//! `kpri-ts`: kernel priority that outlives its cause, in the time-sharing class.
//!
//! The same guests as `kpri-fss`; only the class differs.

use super::kpri;
use crate::reproduce::measured::Run;
use crate::reproduce::model::Reproduction;

/// The longest quantum of the usual dispatch table, that of rows 0 to 9, in nanoseconds.
const LONGEST_QUANTUM: f64 = 200e6;

/// What is known of the finding.
pub(super) static FINDING: Reproduction = Reproduction {
    name: "kpri-ts",
    title: "kernel priority that outlives its cause, under TS",
    place: "illumos, time-sharing class, until April 2020: issue 11909 (SmartOS OS-7753, OS-7926)",
    history: "\
The time-sharing class had a flag of its own (TSKPRI) with the same fate as that of the fair share \
scheduler: issue 11909 took both away.",
    mechanism: "\
As in `kpri-fss`: the flag is caught by blocking with a request for kernel priority, lifts the thread \
to priority 60, and lasts until the return to user mode. The rise that a waiting thread gets each second \
leads to priority 59 at most, so it does not help.",
    model: "The scenario of `kpri-fss` under `ts`.",
    left_out: "The interactive class, which is this one with a boost for who has the window.",
    cases: &kpri::cases("ts:variant=before", "ts:variant=after"),
    rows: &kpri::rows(
        "starvation of the most starved victim, in longest quanta of each competitor",
        quanta,
    ),
    histogram: None,
    explained: None,
    knobs: &[kpri::REQUEST, kpri::VICTIMS],
};

fn quanta(run: &Run<'_>) -> Option<f64> {
    kpri::most_starved(run, LONGEST_QUANTUM)
}
