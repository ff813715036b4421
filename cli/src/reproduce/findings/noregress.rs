//! `noregress`: what proxy execution does not change.

use crate::reproduce::measured::Run;
use crate::reproduce::measures::{self, Piece};
use crate::reproduce::model::{Case, Criterion, Explained, Published, Reproduction, Row, Unit};

/// What is known of the finding.
pub(super) static FINDING: Reproduction = Reproduction {
    name: "noregress",
    title: "workloads on which proxy execution makes little or no difference",
    place: "Linux, proxy-exec v6; K. Prateek Nayak, December 2023",
    history: "\
schbench, tbench, netperf, a key-value store and a chain of microservices showed no notable change with the \
series that made `hackbench` many times slower.",
    mechanism: "Where locks are rarely contended, nobody waits whose turn could be lent.",
    model: "\
A dispatcher with workers and sleepers; pairs that exchange requests; clients of a store behind one mutex; a \
chain of services. Each with the bare policy, with `proxy` and with `relay`; requests done in the same time. For the first also \
`proxy`'s hand-off of mutexes alone, with no turn lent.",
    left_out: "\
Networks and disks: requests travel through channels in guest memory. On the four simulated cores of \
`schbench`, with exits as dear as on this KVM, `proxy` gets far less done, and that is no answer to the published finding: \
a mutex that is handed on to sleepers is had once for each wake-up of one, some thousand times a second where a wake-up \
takes some hundred microseconds, and more than 11000 are asked for. A line that has formed once does not dissolve. \
With the costs of bare hardware, and with the fewer requests of two cores, it makes no difference.",
    cases: &[
        Case::new("schbench", "schbench", "eevdf"),
        Case::new("schbench, proxy", "schbench", "eevdf+proxy"),
        Case::new(
            "schbench, hand-off alone",
            "schbench",
            "eevdf+proxy:lend=off",
        ),
        Case::new("schbench, relay", "schbench", "eevdf+relay"),
        Case::new("requests", "request-response", "eevdf"),
        Case::new("requests, proxy", "request-response", "eevdf+proxy"),
        Case::new("requests, relay", "request-response", "eevdf+relay"),
        Case::new("store", "key-value", "eevdf"),
        Case::new("store, proxy", "key-value", "eevdf+proxy"),
        Case::new("store, relay", "key-value", "eevdf+relay"),
        Case::new("chain", "microservice-chain", "eevdf"),
        Case::new("chain, proxy", "microservice-chain", "eevdf+proxy"),
        Case::new("chain, relay", "microservice-chain", "eevdf+relay"),
    ],
    rows: &[
        row("schbench, proxy", "schbench"),
        Row {
            criteria: &[],
            ..row("schbench, hand-off alone", "schbench")
        },
        row("schbench, relay", "schbench"),
        row("requests, proxy", "requests"),
        row("requests, relay", "requests"),
        row("store, proxy", "store"),
        row("store, relay", "store"),
        row("chain, proxy", "chain"),
        row("chain, relay", "chain"),
    ],
    histogram: None,
    explained: Some(Explained {
        measures: &[
            measures::switches(Piece::Request),
            measures::sleeps(Piece::Request),
            measures::loans(Piece::Request),
            measures::IDLE,
        ],
        reading: "\
Where `proxy` loses, it is by handing mutexes over and not by lending turns: the hand-off alone loses as much, \
there are hardly any loans, and what grows is sleeps a request. A channel's mutex that is handed to a sleeper \
stays taken until that one has a core. With the costs of recent hardware that is over before the next one comes. \
Where an exit costs more than the piece of work that a request is, the next one finds the mutex taken and sleeps \
too: a convoy, beside which cores idle. `relay` lets a waiter spin while the owner runs, and has the sleeps of \
the bare policy.",
        queues: false,
    }),
    knobs: &[],
};

const fn row(of: &'static str, against: &'static str) -> Row {
    Row {
        name: "requests a second",
        unit: Unit::PerSecond,
        of,
        against: Some(against),
        published: Published::said("no notable change"),
        figure: requests,
        criteria: &[Criterion::WithinFactor(1.25)],
    }
}

fn requests(run: &Run<'_>) -> Option<f64> {
    let done = measures::requests(run);
    (done > 0).then(|| done as f64 / run.length().as_secs_f64())
}
