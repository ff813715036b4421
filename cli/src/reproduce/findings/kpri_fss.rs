//! `kpri-fss`: kernel priority that outlives its cause, in the fair share scheduler.
//!
//! Measured is the longest starvation of each *victim*. With the fault the least starved victim
//! decides, without it the most starved one.

use crate::reproduce::measured::Run;
use crate::reproduce::model::{Case, Criterion, Knob, Place, Published, Reproduction, Row, Unit};
use stealtime_scheduler::registry;

/// What is known of the finding.
pub(super) static FINDING: Reproduction = Reproduction {
    name: "kpri-fss",
    title: "kernel priority that outlives its cause, under FSS",
    place: "illumos, fair share scheduler, until April 2020: issue 11909 (SmartOS OS-7753, OS-7926)",
    history: "\
Systems with KVM and bhyve guests were seen in dire or deadlocked states. A vCPU thread kept its core, \
at a priority above everybody else of its class, for as long as its guest computed.",
    mechanism: "\
A thread that blocks on a kernel lock while it has asked for kernel priority gets a flag in its \
scheduling class (FSSKPRI). The flag lifts it to priority 60, above all ordinary threads (0 to 59), and \
past the end of its quantum; to give the lock back does not clear it, only the return to user mode does. \
A vCPU thread lives inside the run ioctl and returns seldom or never.",
    model: "\
One core. A spinner catches the flag once, by waiting 5 ms with a host lock for which it has asked for \
kernel priority, and never returns to user mode. Three victims with equal shares spin.",
    left_out: "\
Caps, and the other threads that a host has: what held the lock up is a timer here. The clock tick runs \
beside the guest and does not end its run, as on the real system.",
    cases: &[
        Case {
            halves: 1,
            ..Case::new("fault", "kpri-fss", "fss:variant=before")
        },
        Case::new("fault, twice as long", "kpri-fss", "fss:variant=before"),
        Case {
            halves: 1,
            ..Case::new("without", "kpri-fss", "fss:variant=after")
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
            name: "starvation of the most starved victim, in quanta of each competitor",
            unit: Unit::Number,
            of: "without",
            against: None,
            published: Published::said("no flag: a victim waits for its competitors' quanta only"),
            figure: |run| {
                let (_, options) = registry::check(&run.plan.policy).ok()?;
                most_starved(run, options.time("quantum").get() as f64)
            },
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
        Knob {
            name: "what the spinner does",
            place: Place::Scenario("program = [{}]\n\n[[vm]]"),
            documented: r#""spin""#,
            values: &[
                r#""spin""#,
                r#""run 1s", "user-return""#,
                r#""run 100ms", "user-return""#,
            ],
        },
        Knob {
            name: "quantum",
            place: Place::Policy("quantum"),
            documented: "110ms",
            values: &["20ms", "50ms", "110ms", "250ms"],
        },
    ],
};

/// The starvation of the victim that starved least.
pub(super) fn least_starved(run: &Run<'_>) -> Option<f64> {
    run.starvations("victim").into_iter().reduce(f64::min)
}

/// The starvation of the victim that starved most, in quanta of each of its competitors.
pub(super) fn most_starved(run: &Run<'_>, quantum: f64) -> Option<f64> {
    let longest = run.starvations("victim").into_iter().reduce(f64::max)?;
    let competitors = run.plan.vcpus.len().saturating_sub(1);
    Some(longest / (quantum * competitors as f64))
}
