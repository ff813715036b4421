//! `audio`: sound beside heavy I/O.
//!
//! Measured are missed deadlines: interrupts of the sound card at which the player was not back for the
//! next buffer.

use crate::reproduce::measured::Run;
use crate::reproduce::model::{Case, Criterion, Knob, Place, Published, Reproduction, Row, Unit};

/// What is known of the finding.
pub(super) static FINDING: Reproduction = Reproduction {
    name: "audio",
    title: "sound under heavy I/O: hiccups under ULE, half speed under 4BSD",
    place: "FreeBSD-current, June 2004: Jon Noack, in the thread on MySQL and threading",
    history: "\
A user heard sound hiccups now and then under heavy I/O with ULE; with 4BSD it was a bit ridiculous: sound \
skipped and slowed down, to half speed or slower. The advice was to listen, since 100 us is what one may hear.",
    mechanism: "\
The card's interrupt thread is served at once under either scheduler. The player is a user thread: once \
it has returned to user mode, under 4BSD everybody who wakes in the kernel from a wait for a disk goes \
before it. ULE has seen that it sleeps four fifths of the time, and places it before the disk's threads.",
    model: "\
One core. The card raises an interrupt every 10 ms; its handler wakes the player, which returns to user \
mode and works 2 ms there. Two disk jobs wait 5 ms on average and then work 3.3 ms, a spinner computes. A \
deadline is missed if the player is not back at the next interrupt; a buffer is then played late, and \
sound that plays a part of its buffers in time plays at that part of its speed.",
    left_out: "\
The locks of the sound drivers of the time, which were said to be not all they should be; a buffer ahead, \
which would hide some of the misses; the fault of `ping`, which both schedulers had then.",
    cases: &[
        Case::new("4bsd", "audio", "4bsd"),
        Case::new("ule", "audio", "ule"),
    ],
    rows: &[
        Row {
            name: "missed deadlines",
            unit: Unit::PerMinute,
            of: "4bsd",
            against: Some("ule"),
            published: Published::said("ULE: now and then; 4BSD: a bit ridiculous"),
            figure: |run| {
                let (missed, _) = deadlines(run)?;
                Some(missed as f64 * 60.0 / run.length().as_secs_f64())
            },
            criteria: &[Criterion::RatioAtLeast(5.0)],
        },
        Row {
            name: "part of the buffers that is played in time: the speed of the sound",
            unit: Unit::Part,
            of: "4bsd",
            against: Some("ule"),
            published: Published {
                of: Some(0.5),
                against: None,
                said: "half speed or slower under 4BSD",
            },
            figure: |run| {
                let (missed, all) = deadlines(run)?;
                Some(1.0 - missed as f64 / all as f64)
            },
            criteria: &[Criterion::OfAtMost(0.6), Criterion::AgainstAtLeast(0.9)],
        },
    ],
    histogram: None,
    explained: None,
    knobs: &[
        Knob {
            name: "work of the player for a buffer",
            place: Place::Scenario("\"user-return\",\n    \"run {}"),
            documented: "2ms",
            values: &["500us", "1ms", "2ms", "3ms", "5ms"],
        },
        Knob {
            name: "disk jobs",
            place: Place::Scenario("count = {}"),
            documented: "2",
            values: &["1", "2", "3", "4", "5"],
        },
        Knob {
            name: "a disk job's work outside the hypervisor",
            place: Place::Scenario("hypervisor 300us\",\n    \"run {}"),
            documented: "3ms",
            values: &["500us", "1ms", "2ms", "3ms", "5ms"],
        },
        Knob {
            name: "a disk job's wait (mean)",
            place: Place::Scenario("host-wait exponential {}"),
            documented: "5ms",
            values: &["2ms", "5ms", "10ms", "30ms"],
        },
    ],
};

fn deadlines(run: &Run<'_>) -> Option<(u64, u64)> {
    run.underruns("card/handler", "sound/player", "buffer")
}
