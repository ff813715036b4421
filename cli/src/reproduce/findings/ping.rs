//! `ping`: a preemption that is remembered and not acted on.
//!
//! Measured are round trips: from the packet's interrupt until the answer's is taken.

use crate::reproduce::distribution::Distribution;
use crate::reproduce::measured::Run;
use crate::reproduce::model::{
    Case, Criterion, Histogram, Knob, Place, Published, Reproduction, Row, Unit,
};

/// The clock tick of hz = 100, in nanoseconds.
const TICK: u64 = 10_000_000;

/// What is known of the finding.
pub(super) static FINDING: Reproduction = Reproduction {
    name: "ping",
    title: "a preemption that is remembered and not acted on",
    place: "FreeBSD-current, June 2004: Bruce Evans on flood ping, 100 Mb/s Ethernet, Celeron 366, hz = 100",
    history: "\
Sound skipped under load, and a kernel trace was proposed. The answer was that interrupt delivery was known \
to be broken, and that flood ping shows it: with the fault 100,000 packets took 0.393 ms each on average \
and 20 ms, two clock ticks, at worst; without it 0.204 ms and 2.4 ms.",
    mechanism: "\
An interrupt that comes while the running thread is in a critical section cannot switch to its thread at \
once. That is noted in a flag, and the flag is looked at on return to user mode alone, which may be a long \
time later. The running thread goes on until it gives up the core or an interrupt comes that can switch at \
once, such as the clock's; then the best thread runs, and the flag no longer matters.",
    model: "\
One core. `client` sends a packet (an interrupt at `wire`), which takes 200 us there and back and comes in \
as an interrupt; bursts of three packets begin at clock ticks, as timeouts did. `kernel` is in a critical \
section of 20 us for a seventh of its time and never returns to user mode. `deferred=on` is the fault, \
`deferred=off` switches when the section is left.",
    left_out: "\
The other machine and its own delays; idle time, in which there is nobody to be preempted. The fault's \
many small delays, which end at a return to user mode, since `kernel` makes none: here a packet is delayed \
to the next tick or not at all. How often depends on the part of time in sections; a seventh makes the \
fault stand out on a noisy machine, and the sweep shows that a few per cent come to the published average. Real, user and sys of \
the whole: bursts begin at ticks either way.",
    cases: &[
        Case::new("fault", "ping-flood", "4bsd:deferred=on"),
        Case::new("fixed", "ping-flood", "4bsd:deferred=off"),
    ],
    rows: &[
        Row {
            name: "round trip, min",
            unit: Unit::Time,
            of: "fault",
            against: Some("fixed"),
            published: Published::figures(172e3, 156e3),
            figure: |run| trips(run).min(),
            criteria: &[],
        },
        Row {
            name: "round trip, avg",
            unit: Unit::Time,
            of: "fault",
            against: Some("fixed"),
            published: Published::figures(393e3, 204e3),
            figure: |run| trips(run).mean(),
            criteria: &[Criterion::RatioAtLeast(1.5)],
        },
        Row {
            name: "round trip, max",
            unit: Unit::Time,
            of: "fault",
            against: Some("fixed"),
            published: Published::figures(20_336e3, 2_449e3),
            figure: |run| trips(run).max(),
            criteria: &[Criterion::RatioAtLeast(4.0)],
        },
        Row {
            name: "round trip, stddev",
            unit: Unit::Time,
            of: "fault",
            against: Some("fixed"),
            published: Published::figures(191e3, 99e3),
            figure: |run| trips(run).deviation(),
            criteria: &[],
        },
        Row {
            name: "of round trips above half a tick, those within a quarter tick of whole ticks",
            unit: Unit::Part,
            of: "fault",
            against: None,
            published: Published::said("the latency is sometimes 20 ms (2 clock ticks)"),
            figure: |run| trips(run).at_multiples(TICK),
            criteria: &[Criterion::OfAtLeast(0.75)],
        },
    ],
    histogram: Some(Histogram {
        title: "Round trips",
        bin_ns: 1_000_000,
        of: trips,
    }),
    explained: None,
    knobs: &[
        Knob {
            name: "length of the critical section",
            place: Place::Scenario("run {}"),
            documented: "20us",
            values: &["1us", "3us", "7us", "20us", "60us"],
        },
        Knob {
            name: "time on the wire",
            place: Place::Scenario("sleep {}"),
            documented: "200us",
            values: &["50us", "100us", "200us", "500us", "1ms"],
        },
        Knob {
            name: "what follows the section",
            place: Place::Scenario("critical-leave\",{}"),
            documented: "",
            values: &["", " \"user-return\","],
        },
        Knob {
            name: "the clock's period",
            place: Place::Policy("hardclock"),
            documented: "10ms",
            values: &["1ms", "5ms", "10ms", "20ms"],
        },
    ],
};

fn trips(run: &Run<'_>) -> Distribution {
    run.round_trips("client/ping", "wire/packet")
}
