//! What `kpri-fss` and `kpri-ts` have in common: guests, cases, and what is measured.
//!
//! Measured is the longest starvation of each *victim*. With the fault the least starved victim
//! decides, without it the most starved one.

use crate::reproduce::measured::Run;
use crate::reproduce::model::{Case, Criterion, Knob, Place, Published, Row, Unit};

/// The cases: a class of threads with the flag (`before`), and without (`after`).
pub(super) const fn cases(before: &'static str, after: &'static str) -> [Case; 3] {
    [
        Case {
            halves: 1,
            ..Case::new("fault", "kpri-fss", before)
        },
        Case::new("fault, twice as long", "kpri-fss", before),
        Case {
            halves: 1,
            ..Case::new("without", "kpri-fss", after)
        },
    ]
}

/// The rows. The last one's figure and name are the class's, for its quanta are.
pub(super) const fn rows(name: &'static str, in_quanta: fn(&Run<'_>) -> Option<f64>) -> [Row; 3] {
    [
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
            name,
            unit: Unit::Number,
            of: "without",
            against: None,
            published: Published::said("no flag: a victim waits for its competitors' quanta only"),
            figure: in_quanta,
            criteria: &[Criterion::OfAtMost(3.0)],
        },
    ]
}

/// How long the spinner waits with its request.
pub(super) const REQUEST: Knob = Knob {
    name: "how long the spinner waits with the request",
    place: Place::Scenario("host-wait {}"),
    documented: "5ms",
    values: &["1us", "100us", "1ms", "5ms", "50ms"],
};

/// How many victims there are.
pub(super) const VICTIMS: Knob = Knob {
    name: "victims",
    place: Place::Scenario("count = {}"),
    documented: "3",
    values: &["2", "3", "6", "12"],
};

/// The starvation of the victim that starved least.
fn least_starved(run: &Run<'_>) -> Option<f64> {
    run.starvations("victim").into_iter().reduce(f64::min)
}

/// The starvation of the victim that starved most, in quanta of each of its competitors.
pub(super) fn most_starved(run: &Run<'_>, quantum: f64) -> Option<f64> {
    let longest = run.starvations("victim").into_iter().reduce(f64::max)?;
    let competitors = run.plan.vcpus.len().saturating_sub(1);
    Some(longest / (quantum * competitors as f64))
}
