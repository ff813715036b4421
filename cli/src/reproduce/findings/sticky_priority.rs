//! `sticky-priority`: a kernel priority that is kept after the return to user mode.
//!
//! Measured is what an interactive vCPU's requests take, with the property and without.

use crate::reproduce::measured::Run;
use crate::reproduce::model::{Case, Criterion, Knob, Place, Published, Reproduction, Row, Unit};

/// What is known of the finding.
pub(super) static FINDING: Reproduction = Reproduction {
    name: "sticky-priority",
    title: "a kernel priority kept in user mode makes 4BSD interactive",
    place: "FreeBSD-current, June 2004: Bruce Evans on the 4BSD scheduler",
    history: "\
A thread that wakes in the kernel has a high kernel priority, and under 4BSD it essentially keeps it when \
it goes back to user mode, until it gives up control. That bugfeature, it was said, is more responsible \
for 4BSD's good interactive behaviour than anything it does intentionally, and ULE does similar things \
intentionally.",
    mechanism: "\
Who keeps the kernel priority is not preempted in user mode by others that wake in the kernel: equals do \
not preempt each other. Without it, every wake-up of a daemon takes the core from the interactive thread. \
ULE sees that such a thread sleeps more than it runs and gives it a priority of the interactive band, \
which daemons of the batch band cannot beat.",
    model: "\
One core. `editor` wakes about ten times a second, returns to user mode and works 20 ms there. Two \
daemons wake a hundred times a second and work 2.3 ms in the kernel, two spinners compute. Both \
schedulers with `userret=sticky-kernel-priority`, the popular account, and with `number-restored`, which is \
what the source does: the number is restored, and nothing is compared.",
    left_out: "\
The window system and its server between the user and the program; nice values.",
    cases: &[
        Case::new("4bsd, restored", "sticky", "4bsd:userret=number-restored"),
        Case::new(
            "4bsd, kept",
            "sticky",
            "4bsd:userret=sticky-kernel-priority",
        ),
        Case::new("ule, restored", "sticky", "ule:userret=number-restored"),
        Case::new("ule, kept", "sticky", "ule:userret=sticky-kernel-priority"),
    ],
    rows: &[
        Row {
            name: "a request of the interactive vCPU, 50 %",
            unit: Unit::Time,
            of: "4bsd, restored",
            against: Some("4bsd, kept"),
            published: Published::said("responsible for 4BSD's good interactive behaviour"),
            figure: request,
            criteria: &[Criterion::RatioAtLeast(1.5)],
        },
        Row {
            name: "a request of the interactive vCPU, 50 %",
            unit: Unit::Time,
            of: "ule, restored",
            against: Some("ule, kept"),
            published: Published::said("ULE does similar things intentionally"),
            figure: request,
            criteria: &[Criterion::WithinFactor(1.5)],
        },
        Row {
            name: "a request of the interactive vCPU, 50 %",
            unit: Unit::Time,
            of: "4bsd, restored",
            against: Some("ule, restored"),
            published: Published::said("not by anything it does intentionally"),
            figure: request,
            criteria: &[Criterion::RatioAtLeast(1.5)],
        },
    ],
    histogram: None,
    explained: None,
    knobs: &[
        Knob {
            name: "work of a request in user mode",
            place: Place::Scenario("run {}"),
            documented: "20ms",
            values: &["1ms", "5ms", "20ms", "50ms"],
        },
        Knob {
            name: "sleep of a daemon (mean)",
            place: Place::Scenario("sleep exponential {}"),
            documented: "10ms",
            values: &["5ms", "10ms", "30ms", "100ms"],
        },
    ],
};

/// The median of the requests' lengths.
fn request(run: &Run<'_>) -> Option<f64> {
    let row = run.reports("desk").into_iter().next()?;
    let requests = &row.guest.request_ns;
    (requests.count > 0).then_some(requests.p50 as f64)
}
