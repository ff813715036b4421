//! `rwlock-inversion`: a writer waits for a reader that was preempted.
//!
//! Measured is the longest time that the writer took for a turn with the lock.

use crate::reproduce::measured::Run;
use crate::reproduce::model::{Case, Criterion, Knob, Place, Published, Reproduction, Row, Unit};
use stealtime_scheduler::time::Nanos;

/// What is known of the finding.
pub(super) static FINDING: Reproduction = Reproduction {
    name: "rwlock-inversion",
    title: "a writer waits for a reader that a third one has preempted",
    place: "illumos rwlocks, before and after issue 11909; Bryan Cantrill's remarks on it",
    history: "\
When the flag was to go, it was asked whether that leaves priority inversion without a remedy. The answer: \
turnstiles lend priority to owners of mutexes and to writers, never to readers, before and after; the flag \
did very little about it; and it takes a spinner of middle priority, for with two threads the writer \
blocks and the reader runs.",
    mechanism: "\
A lock held by readers does not know them, so nobody can lend them a priority. A reader that is preempted \
by a thread of middle priority waits for that one, and so does the writer, whatever its own priority.",
    model: "\
One core, the time-sharing class. A reader (nice 19) holds the lock for 5 ms of guest code at a time; a \
writer (nice −20) wants it every 10 to 30 ms; a spinner (nice 0) computes 300 ms at a time. Cases: without \
the spinner; with it; the lock a mutex instead; and the reader asking for kernel priority, as all readers \
did, under the class of before. Last, what illumos never had: with the layer `pi` the dispatcher knows a \
lock's readers, and a waiting writer lends its turn to the reader.",
    left_out: "\
More readers, and readers that arrive behind the waiting writer; `pi` follows a lock's first reader.",
    cases: &[
        Case::new("two", "inversion-two", "ts:variant=after"),
        Case::new("three", "inversion-rwlock", "ts:variant=after"),
        Case::new("three, a mutex", "inversion-mutex", "ts:variant=after"),
        Case::new(
            "three, the old remedy",
            "inversion-kpri",
            "ts:variant=before",
        ),
        Case::new(
            "three, readers tracked",
            "inversion-rwlock",
            "ts:variant=after+pi",
        ),
    ],
    rows: &[
        Row {
            name: "longest wait of the writer",
            unit: Unit::Time,
            of: "three",
            against: Some("two"),
            published: Published::said("no inversion with two, inversion with a middling spinner"),
            figure: longest,
            criteria: &[Criterion::RatioAtLeast(10.0)],
        },
        Row {
            name: "longest wait of the writer",
            unit: Unit::Time,
            of: "three, a mutex",
            against: Some("two"),
            published: Published::said("turnstiles bound it: mutexes where that is wanted"),
            figure: longest,
            criteria: &[Criterion::RatioAtMost(2.0)],
        },
        Row {
            name: "longest wait of the writer",
            unit: Unit::Time,
            of: "three, the old remedy",
            against: Some("two"),
            published: Published::said("it did very little about it"),
            figure: longest,
            criteria: &[],
        },
        Row {
            name: "longest wait of the writer",
            unit: Unit::Time,
            of: "three, readers tracked",
            against: Some("two"),
            published: Published::said(
                "a long, long way from reader tracking and true inheritance",
            ),
            figure: longest,
            criteria: &[Criterion::RatioAtMost(2.0)],
        },
        Row {
            name: "priority inversion: the lock's owner without a core while the writer waits, in all",
            unit: Unit::Time,
            of: "three",
            against: Some("three, a mutex"),
            published: Published::said("possible both before and after this change"),
            figure: |run| Some(run.inversions("table")?.total()),
            criteria: &[Criterion::RatioAtLeast(10.0)],
        },
    ],
    histogram: None,
    explained: None,
    knobs: &[
        Knob {
            name: "how long the spinner computes at a time",
            place: Place::Scenario("run {}"),
            documented: "300ms",
            values: &["1ms", "10ms", "30ms", "100ms", "300ms", "1s"],
        },
        Knob {
            name: "the reader's section",
            place: Place::Scenario("run {}"),
            documented: "5ms",
            values: &["100us", "1ms", "5ms", "20ms"],
        },
        Knob {
            name: "inheritance through the locks",
            place: Place::Policy("turnstile"),
            documented: "on",
            values: &["on", "off"],
        },
    ],
};

/// The longest request, or the wait that goes on at the end if that is longer.
fn longest(run: &Run<'_>) -> Option<f64> {
    let row = run.reports("high").into_iter().next()?;
    let requests = &row.guest.request_ns;
    let done = (requests.count > 0).then_some(requests.max);
    let waits = run.waits_at_end("high", "table")?.into_iter();
    let longest = waits.map(Nanos::get).chain(done).max()?;
    Some(longest as f64)
}
