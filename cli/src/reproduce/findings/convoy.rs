//! `convoy`: hundreds of waiters behind one flag.
//!
//! Measured is the throughput of the first lock of the chain: how many tasks had it and are done.

use crate::reproduce::measured::Run;
use crate::reproduce::model::{Case, Criterion, Knob, Place, Published, Reproduction, Row, Unit};

/// What is known of the finding.
pub(super) static FINDING: Reproduction = Reproduction {
    name: "convoy",
    title: "hundreds wait for a lock whose chain of owners ends at a flag",
    place: "SmartOS, Joyent SWSUP-1426, in illumos issue 11909",
    history: "\
A machine ground to a halt. Hundreds of vmadm processes waited for a lock that a node process held; that \
one waited for a lock of a bhyve vCPU; and that vCPU had waited for the cross-call lock, which was free \
again. It was ready, at priority 1, on a core that a qemu vCPU had had for a long time, at priority 60.",
    mechanism: "\
The flag of `kpri-fss`: the qemu vCPU had caught it and did not return to user mode. Turnstiles lend the \
waiters' priority to the owners along the chain, but ordinary priorities end at 59, and what is lent to \
the bhyve vCPU stays below 60.",
    model: "\
One core, the one on which it happened. Three host mutexes in a chain. 200 tasks take the first for 0.1 ms \
now and then; `node` takes the first and the second, `bhyve` the second and the third between stretches \
of 20 ms of guest code. `qemu` holds the third for 0.8 s, during the warm-up, having asked for kernel \
priority; then it releases it and spins. Beside the fault and its absence a run without `qemu`.",
    left_out: "\
The machine's other cores: the bhyve vCPU was bound to this one, and policies here would let an idle core \
take it. Adaptive mutexes: who waits here blocks at once.",
    cases: &[
        Case::new("fault", "convoy", "fss:variant=before"),
        Case::new("without", "convoy", "fss:variant=after"),
        Case::new("alone", "convoy-alone", "fss:variant=after"),
    ],
    rows: &[
        Row {
            name: "tasks through the first lock",
            unit: Unit::PerSecond,
            of: "fault",
            against: Some("alone"),
            published: Published::said("the machine basically ground to a halt"),
            figure: tasks,
            criteria: &[Criterion::RatioAtMost(0.05)],
        },
        Row {
            name: "tasks through the first lock",
            unit: Unit::PerSecond,
            of: "without",
            against: Some("alone"),
            published: Published::said("no such state any more"),
            figure: tasks,
            criteria: &[Criterion::RatioAtLeast(0.9)],
        },
        Row {
            name: "tasks that wait for the first lock at the end",
            unit: Unit::Number,
            of: "fault",
            against: Some("without"),
            published: Published::said("hundreds"),
            figure: |run| Some(run.waits_at_end("vmadm", "dtrace")?.len() as f64),
            criteria: &[Criterion::OfAtLeast(100.0), Criterion::AgainstAtMost(10.0)],
        },
    ],
    histogram: None,
    explained: None,
    knobs: &[
        Knob {
            name: "how long `qemu` waits with the third lock",
            place: Place::Scenario("host-wait {}"),
            documented: "800ms",
            values: &["5ms", "50ms", "200ms", "800ms"],
        },
        Knob {
            name: "guest code of `bhyve` between its turns with the locks",
            place: Place::Scenario("run {}"),
            documented: "20ms",
            values: &["1ms", "5ms", "20ms", "100ms"],
        },
        Knob {
            name: "inheritance through the locks",
            place: Place::Policy("turnstile"),
            documented: "on",
            values: &["on", "off"],
        },
    ],
};

/// Tasks that were through, a second.
fn tasks(run: &Run<'_>) -> Option<f64> {
    let rows = run.reports("vmadm").into_iter();
    let done: u64 = rows.map(|row| row.guest.request_ns.count).sum();
    let seconds = run.length().as_secs_f64();
    (seconds > 0.0).then(|| done as f64 / seconds)
}
