//! `noregress`: what proxy execution does not change.

use crate::reproduce::measured::Run;
use crate::reproduce::model::{Case, Criterion, Published, Reproduction, Row, Unit};

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
chain of services. Each with the bare policy, with `proxy` and with `relay`; requests done in the same time.",
    left_out: "Networks and disks: requests travel through channels in guest memory.",
    cases: &[
        Case::new("schbench", "schbench", "eevdf"),
        Case::new("schbench, proxy", "schbench", "eevdf+proxy"),
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
        row("schbench, relay", "schbench"),
        row("requests, proxy", "requests"),
        row("requests, relay", "requests"),
        row("store, proxy", "store"),
        row("store, relay", "store"),
        row("chain, proxy", "chain"),
        row("chain, relay", "chain"),
    ],
    histogram: None,
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
    let rows = run.reports("").into_iter();
    let done: u64 = rows.map(|row| row.guest.request_ns.count).sum();
    (done > 0).then(|| done as f64 / run.length().as_secs_f64())
}
