//! `kpri-ts`: kernel priority that outlives its cause, in the time-sharing class.
//!
//! The same guests as `kpri-fss`; only the class differs.

use super::kpri_fss::{least_starved, most_starved};
use crate::reproduce::model::{Case, Criterion, Knob, Place, Published, Reproduction, Row, Unit};

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
    cases: &[
        Case {
            halves: 1,
            ..Case::new("fault", "kpri-fss", "ts:variant=before")
        },
        Case::new("fault, twice as long", "kpri-fss", "ts:variant=before"),
        Case {
            halves: 1,
            ..Case::new("without", "kpri-fss", "ts:variant=after")
        },
    ],
    rows: &[
        Row {
            name: "starvation of the least starved victim, as a part of the run",
            unit: Unit::Part,
            of: "fault",
            against: Some("without"),
            published: Published::said("victims wait without bound"),
            figure: |run| least_starved(run).map(|longest| longest / run.length().get() as f64),
            criteria: &[Criterion::OfAtLeast(0.8)],
        },
        Row {
            name: "starvation of the least starved victim",
            unit: Unit::Time,
            of: "fault, twice as long",
            against: Some("fault"),
            published: Published::said("it grows with the run"),
            figure: least_starved,
            criteria: &[Criterion::RatioAtLeast(1.8), Criterion::RatioAtMost(2.2)],
        },
        Row {
            name: "starvation of the most starved victim, in longest quanta of each competitor",
            unit: Unit::Number,
            of: "without",
            against: None,
            published: Published::said("no flag: a victim waits for its competitors' quanta only"),
            figure: |run| most_starved(run, LONGEST_QUANTUM),
            criteria: &[Criterion::OfAtMost(3.0)],
        },
    ],
    histogram: None,
    knobs: &[
        Knob {
            name: "how long the spinner waits with the request",
            place: Place::Scenario("host-wait {}"),
            documented: "5ms",
            values: &["1us", "100us", "1ms", "5ms", "50ms"],
        },
        Knob {
            name: "victims",
            place: Place::Scenario("count = {}"),
            documented: "3",
            values: &["2", "3", "6", "12"],
        },
    ],
};
