//! `ithread`: from an interrupt to its handler, under two schedulers.
//!
//! Measured is the time from an interrupt's being raised until its handler takes it, as a trace of
//! interrupts and switches would give it.

use crate::reproduce::distribution::Distribution;
use crate::reproduce::measured::Run;
use crate::reproduce::model::{
    Case, Criterion, Histogram, Knob, Place, Published, Reproduction, Row, Unit,
};

/// A delay beyond what any platform takes for an interrupt, in nanoseconds.
const LATE: u64 = 1_000_000;

/// What is known of the finding.
pub(super) static FINDING: Reproduction = Reproduction {
    name: "ithread",
    title: "time from an interrupt to its handler, under 4BSD and ULE",
    place: "FreeBSD-current, June 2004: Robert Watson and Bruce Evans on ktr(4) and ithread scheduling",
    history: "\
It was proposed to trace interrupts and switches (KTR_INTR, KTR_PROC) and to take from the trace the \
distribution of the time between an interrupt and its handler's running, under ULE and under 4BSD. The \
answer: the scheduler should not affect it. Interrupt threads go before all user threads, and 4BSD just \
picks the best of them.",
    mechanism: "\
An interrupt's thread has a priority of the interrupt band and preempts at once under either scheduler. \
What delays it is the fault of `ping`, a switch that falls into a critical section and is only remembered; \
and that is below both schedulers.",
    model: "\
One core. A device raises an interrupt every 3.1 ms for `handler`. Beside it a vCPU in and out of critical \
sections, a spinner, and one that sleeps and works. Four cases: both schedulers, with the fault \
(`deferred=on`) and without.",
    left_out: "\
Interrupts of several devices that wait for each other, shared interrupt lines, and time with interrupts \
masked.",
    cases: &[
        Case::new("4bsd", "ithread", "4bsd:deferred=off"),
        Case::new("ule", "ithread", "ule:deferred=off"),
        Case::new("4bsd, fault", "ithread", "4bsd:deferred=on"),
        Case::new("ule, fault", "ithread", "ule:deferred=on"),
    ],
    rows: &[
        Row {
            name: "interrupt to handler, 50 %",
            unit: Unit::Time,
            of: "4bsd",
            against: Some("ule"),
            published: Published::said("the scheduler should not affect scheduling of ithreads"),
            figure: |run| delays(run).percentile(50),
            criteria: &[Criterion::WithinFactor(1.25)],
        },
        Row {
            name: "interrupt to handler, 99 %",
            unit: Unit::Time,
            of: "4bsd",
            against: Some("ule"),
            published: Published::said("the same"),
            figure: |run| delays(run).percentile(99),
            criteria: &[Criterion::WithinFactor(1.5)],
        },
        Row {
            name: "interrupt to handler, 99 %",
            unit: Unit::Time,
            of: "4bsd, fault",
            against: Some("4bsd"),
            published: Published::said("known to be broken: the thread runs a long time later"),
            figure: |run| delays(run).percentile(99),
            criteria: &[Criterion::RatioAtLeast(4.0)],
        },
        Row {
            name: "interrupt to handler, 99 %",
            unit: Unit::Time,
            of: "ule, fault",
            against: Some("ule"),
            published: Published::said("the same"),
            figure: |run| delays(run).percentile(99),
            criteria: &[Criterion::RatioAtLeast(4.0)],
        },
        Row {
            name: "part of the interrupts whose handler runs more than 1 ms later",
            unit: Unit::Part,
            of: "4bsd, fault",
            against: Some("ule, fault"),
            published: Published::said("the fault is below both schedulers"),
            figure: |run| delays(run).above(LATE),
            criteria: &[Criterion::WithinFactor(1.5)],
        },
    ],
    histogram: Some(Histogram {
        title: "From interrupt to handler",
        bin_ns: 1_000_000,
        of: delays,
    }),
    explained: None,
    knobs: &[
        Knob {
            name: "length of the critical section",
            place: Place::Scenario("run {}"),
            documented: "20us",
            values: &["1us", "5us", "20us", "60us", "200us"],
        },
        Knob {
            name: "the device's period",
            place: Place::Scenario("timer {}"),
            documented: "3100us",
            values: &["500us", "1ms", "3100us", "10ms", "17ms"],
        },
    ],
};

fn delays(run: &Run<'_>) -> Distribution {
    run.handled("device")
}
