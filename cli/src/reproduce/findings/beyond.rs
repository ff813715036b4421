//! `beyond`: optimistic spinning's speed and proxy execution's bound at once.

use super::hackbench::elapsed;
use crate::reproduce::measured::Run;
use crate::reproduce::model::{Case, Criterion, Knob, Place, Published, Reproduction, Row, Unit};

/// What is known of the finding.
pub(super) static FINDING: Reproduction = Reproduction {
    name: "beyond",
    title: "spin while the owner runs, lend it the turn when it does not",
    place: "asked for by the author of Linux's proxy execution; our own answer, the layer `relay`",
    history: "\
Proxy execution bounds how long a vCPU waits for an owner of less weight that has been preempted, and pays \
for it by handing mutexes over. Its author asked for a way to spin as long as a runnable owner at the end \
of the chain is on a core.",
    mechanism: "\
A waiter's turn is of use to the owner only while the owner is off core; spinning is of use only while it is \
on one. A dispatcher that sees the whole chain when it decides can do each in its time.",
    model: "\
`hackbench` as there, with optimistic spinning and with `relay`. And an inversion: a vCPU of nice 19 holds a \
mutex for 2 ms at a time, one of nice -20 wants it every 10 to 30 ms, two of nice 0 compute; two cores.",
    left_out: "\
What it costs a host kernel to follow a chain: nothing in the simulator; on KVM the dispatcher does it, and its time is \
part of the figures. How many messages are sleeps is up to chance, and few rounds say little.",
    cases: &[
        Case {
            on_kvm: Some("hackbench:messages=300"),
            ..Case::new("spinning", "hackbench:messages=1000", "eevdf")
        },
        Case {
            on_kvm: Some("hackbench:messages=300"),
            ..Case::new("relay", "hackbench:messages=1000", "eevdf+relay")
        },
        Case::new("inversion, bare", "inversion-guest", "eevdf"),
        Case::new("inversion, relay", "inversion-guest", "eevdf+relay"),
        Case::new("inversion, proxy", "inversion-guest", "eevdf+proxy"),
    ],
    rows: &[
        Row {
            name: "elapsed",
            unit: Unit::Time,
            of: "relay",
            against: Some("spinning"),
            published: Published::said("wanted: no worse than spinning"),
            figure: elapsed,
            criteria: &[Criterion::RatioAtMost(1.2)],
        },
        longest_wait(
            "inversion, bare",
            "inversion, relay",
            &[Criterion::RatioAtLeast(3.0)],
        ),
        longest_wait(
            "inversion, relay",
            "inversion, proxy",
            &[Criterion::RatioAtMost(2.0)],
        ),
    ],
    histogram: None,
    explained: None,
    knobs: &[Knob {
        name: "the owner's section",
        place: Place::Scenario("run {}"),
        documented: "2ms",
        values: &["200us", "1ms", "2ms", "5ms", "10ms"],
    }],
};

const fn longest_wait(
    of: &'static str,
    against: &'static str,
    criteria: &'static [Criterion],
) -> Row {
    Row {
        name: "99 % of the heavy one's turns with the mutex take no longer than",
        unit: Unit::Time,
        of,
        against: Some(against),
        published: Published::said("bounded with proxy execution, unbounded without"),
        figure: most,
        criteria,
    }
}

fn most(run: &Run<'_>) -> Option<f64> {
    let row = run.reports("vm/heavy").into_iter().next()?;
    let requests = &row.guest.request_ns;
    (requests.count > 0).then_some(requests.p99 as f64)
}
