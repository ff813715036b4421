//! `pileup`: one core's queue is overloaded while others idle.
//!
//! Measured from where vCPUs are queued, at every instant.

use crate::reproduce::measured::Run;
use crate::reproduce::measures::{self, Piece};
use crate::reproduce::model::{
    Case, Criterion, Explained, Knob, Place, Published, Reproduction, Row, Unit,
};

const PICKED: &str = "back when picked";
const WOKEN: &str = "back when woken";
const ASIDE: &str = "set aside";

/// What is known of the finding.
pub(super) static FINDING: Reproduction = Reproduction {
    name: "pileup",
    title: "one core's queue is overloaded while others idle",
    place: "Linux, proxy-exec v6; mails of K. Prateek Nayak and John Stultz, December 2023",
    history: "\
Proxy execution moves whoever waits for a mutex to the queue of the core where the owner is. Where \
`hackbench`'s time went was asked, and one answer was that this chain migration leads to a single run queue's \
being overloaded. To place waiters anew when they wake took a good part of the loss away again.",
    mechanism: "\
All who wait for the mutex come to be queued at one core. The next owner is one of them: it has the mutex, it \
could run anywhere, and it waits for its turn in the longest queue there is; its waiters follow it there. \
Placed anew when it wakes, it goes to an idle core at once.",
    model: "\
Two cores, and twelve vCPUs of one VM that do 50 us of work with the VM's mutex and about 300 us without. \
`proxy:migrate=on` moves waiters to the owner's core; with `return=pick` they are placed anew when they are \
picked there (the series before its return migration in try-to-wake-up), with `return=wake` when they wake. \
For comparison: waiters that are set aside while the owner runs, and optimistic spinning.",
    left_out: "\
The balancer, which moves threads from long queues to short ones now and then.",
    cases: &[
        Case::new(
            PICKED,
            "pileup",
            "eevdf+proxy:migrate=on,return=pick,blocked-donor=off",
        ),
        Case::new(
            WOKEN,
            "pileup",
            "eevdf+proxy:migrate=on,return=wake,blocked-donor=off",
        ),
        Case::new(ASIDE, "pileup", "eevdf+proxy"),
        Case::new("spinning", "pileup", "eevdf"),
    ],
    rows: &[
        Row {
            name: "time in which a core idles though somebody who could run is queued at another",
            unit: Unit::Part,
            of: PICKED,
            against: Some(WOKEN),
            published: Published::said(
                "\"chain migration leads to a single runqueue being overloaded\"",
            ),
            figure: |run| run.traffic().stranded(),
            criteria: &[Criterion::OfAtLeast(0.2), Criterion::AgainstAtMost(0.05)],
        },
        Row {
            name: "longest queue over mean queue",
            unit: Unit::Number,
            of: PICKED,
            against: Some(ASIDE),
            published: Published::said("no figure"),
            figure: fullest_over_mean,
            criteria: &[Criterion::RatioAtLeast(1.4)],
        },
        Row {
            name: "turns with the mutex a second",
            unit: Unit::PerSecond,
            of: PICKED,
            against: Some(WOKEN),
            published: Published::said("less throughput; `hackbench` has the figures"),
            figure: turns,
            criteria: &[Criterion::RatioAtMost(0.85)],
        },
    ],
    histogram: None,
    explained: Some(Explained {
        measures: &[
            measures::QUEUE,
            measures::FULLEST,
            measures::IDLE,
            measures::STRANDED,
            measures::donors(Piece::Request),
            measures::sleeps(Piece::Request),
            measures::switches(Piece::Request),
        ],
        reading: "\
With either way of placing waiters anew about as many are queued in all; what differs is at which cores, and whether \
they could run. Waiters that were moved are queued together: one core's queue has nearly all of them, and which \
core that is changes with the owner. That does no harm while they sleep. It does when the one that is given the mutex stays among \
them: the other core idles for as long as that one waits for a turn.",
        queues: true,
    }),
    knobs: &[
        Knob {
            name: "vCPUs",
            place: Place::Scenario("vcpus = {}"),
            documented: "12",
            values: &["3", "6", "12", "24"],
        },
        Knob {
            name: "work with the mutex",
            place: Place::Scenario("section = \"{}\""),
            documented: "50us",
            values: &["5us", "20us", "50us", "200us", "1ms"],
        },
        Knob {
            name: "work without",
            place: Place::Scenario("outside = \"{}\""),
            documented: "300us",
            values: &["50us", "100us", "300us", "1ms"],
        },
    ],
};

fn fullest_over_mean(run: &Run<'_>) -> Option<f64> {
    let queue = run.traffic().queue().filter(|queue| *queue > 0.0)?;
    Some(run.traffic().fullest()? / queue)
}

fn turns(run: &Run<'_>) -> Option<f64> {
    let done = measures::requests(run);
    (done > 0).then(|| done as f64 / run.length().as_secs_f64())
}
