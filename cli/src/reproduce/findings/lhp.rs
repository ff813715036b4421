//! `lhp`: a vCPU that holds a lock is preempted, and the others spin for nothing.

use crate::reproduce::measured::Run;
use crate::reproduce::model::{Case, Criterion, Knob, Place, Published, Reproduction, Row, Unit};

/// What is known of the finding.
pub(super) static FINDING: Reproduction = Reproduction {
    name: "lhp",
    title: "a vCPU that holds a lock is preempted, and the others spin for nothing",
    place: "Uhlig et al. 2004; Ouyang and Lange, VEE 2013; Kashyap et al., eCS, USENIX ATC 2018",
    history: "\
Where vCPUs outnumber cores, a vCPU may lose its core within a critical section, and its siblings spin until \
it is back. With ticket locks it is worse: a waiter that is preempted at its turn stops all behind it. eCS \
reports 85 to 100 % fewer preemptions within sections and up to 2.5 times the throughput; preemptable ticket \
locks 5.3 times on average.",
    mechanism: "The scheduler does not know who holds what, and a spinner looks as busy as an owner.",
    model: "\
Four vCPUs of one VM on two cores take turns with one lock: 100 us within it, 300 us without on average. The \
layers read from the guest's shared page who holds and who waits. Throughput is sections a second. The same \
work without overcommit is two vCPUs on the two cores. How often a vCPU is preempted within a section is \
taken where contention is light (2 ms without the lock): else they spin nearly all the time. Without \
overcommit nobody is switched, and a switch is dear where exits are: that comparison is made with Linux's slice \
on two cores (1.4 ms) and with its slice on eight or more (2.8 ms). `delay` puts preemptions off for owners, and \
for waiters at a place in line that nobody may pass; once with the owners alone, to see what the waiters cost. \
What breaks its line is an owner whose section takes longer than its limit, as when the host takes its core: from \
then on each who is preempted waits in line, and is the next to stop all others. A longer limit makes this rare, and \
a layer that hands turns to who is first in line (`relay`, `yieldto`) mends it.",
    left_out: "\
Pause-loop exits, which this KVM does not give: a guest tells itself that it has spun for too long. On KVM \
here a kick takes 60 to 100 us to arrive, so a vCPU may have entered a section meanwhile; `delay` puts it \
back.",
    cases: &[
        Case::new("bare, light", "lhp:outside=2ms", "eevdf"),
        Case::new("delay, light", "lhp:outside=2ms", "eevdf+delay"),
        Case::new("hint, light", "lhp:outside=2ms", "eevdf+hint"),
        Case::new("bare", "lhp", "eevdf"),
        Case::new("delay, owners only", "lhp", "eevdf+delay:line=off"),
        Case::new("delay", "lhp", "eevdf+delay"),
        Case::new("delay, at most 10 ms", "lhp", "eevdf+delay:most=10ms"),
        Case::new("hint", "lhp", "eevdf+hint"),
        Case::new("yieldto", "lhp", "eevdf+yieldto"),
        Case::new("pi", "lhp", "eevdf+pi"),
        Case::new("proxy", "lhp", "eevdf+proxy"),
        Case::new("relay", "lhp", "eevdf+relay"),
        Case::new("delay and relay", "lhp", "eevdf+delay+relay"),
        Case::new(
            "delay, at most 10 ms, longer slices",
            "lhp",
            "eevdf:slice=2800us+delay:most=10ms",
        ),
        Case::new(
            "delay and relay, longer slices",
            "lhp",
            "eevdf:slice=2800us+delay+relay",
        ),
        Case::new("no overcommit", "lhp:vcpus=2", "eevdf"),
        Case::new("host", "lhp", "host"),
        Case::new("bare, mcs", "lhp:lock=mcs", "eevdf"),
        Case::new("delay and relay, mcs", "lhp:lock=mcs", "eevdf+delay+relay"),
        Case::new("bare, pv", "lhp:lock=pv", "eevdf"),
        Case::new("delay and relay, pv", "lhp:lock=pv", "eevdf+delay+relay"),
        Case::new("bare, 4:1", "lhp:vcpus=8", "eevdf"),
        Case::new("delay and relay, 4:1", "lhp:vcpus=8", "eevdf+delay+relay"),
    ],
    rows: &[
        within("delay, light", &[Criterion::RatioAtMost(0.02)]),
        within("hint, light", &[]),
        sections("delay, light", "bare, light", "", &[]),
        sections("delay, owners only", "bare", "", &[]),
        sections("delay", "bare", WANTED, &[Criterion::RatioAtLeast(1.5)]),
        sections(
            "delay, at most 10 ms",
            "bare",
            WANTED,
            &[Criterion::RatioAtLeast(1.5)],
        ),
        sections("hint", "bare", "eCS: up to 2.5 times", &[]),
        sections("yieldto", "bare", "Linux 2012: 26 % more at 2:1", &[]),
        sections("pi", "bare", "", &[]),
        sections("proxy", "bare", "", &[]),
        sections("relay", "bare", "", &[]),
        sections(
            "delay and relay",
            "bare",
            "preemptable tickets: 5.3 times on average",
            &[Criterion::RatioAtLeast(1.5)],
        ),
        sections(
            "delay and relay",
            "no overcommit",
            "wanted: 0.9 of it",
            &[Criterion::RatioAtLeast(0.9)],
        ),
        sections(
            "delay, at most 10 ms, longer slices",
            "no overcommit",
            "wanted: 0.9 of it",
            &[Criterion::RatioAtLeast(0.9)],
        ),
        sections(
            "delay and relay, longer slices",
            "no overcommit",
            "wanted: 0.9 of it",
            &[Criterion::RatioAtLeast(0.9)],
        ),
        sections("host", "bare", "", &[]),
        sections("delay and relay, mcs", "bare, mcs", "", &[]),
        sections("delay and relay, pv", "bare, pv", "", &[]),
        sections("delay and relay, 4:1", "bare, 4:1", "", &[]),
    ],
    histogram: None,
    explained: None,
    knobs: &[
        Knob {
            name: "the section",
            place: Place::Scenario("section = \"{}\""),
            documented: "100us",
            values: &["1us", "10us", "100us", "1ms"],
        },
        Knob {
            name: "vCPUs on two cores",
            place: Place::Scenario("vcpus = {}"),
            documented: "4",
            values: &["2", "4", "8", "16"],
        },
    ],
};

/// Of `delay` with a ticket lock.
const WANTED: &str = "wanted: 1.5 times";

const fn sections(
    of: &'static str,
    against: &'static str,
    said: &'static str,
    criteria: &'static [Criterion],
) -> Row {
    Row {
        name: "sections a second",
        unit: Unit::PerSecond,
        of,
        against: Some(against),
        published: Published::said(said),
        figure: throughput,
        criteria,
    }
}

const fn within(of: &'static str, criteria: &'static [Criterion]) -> Row {
    Row {
        name: "preemptions within a section, of each 1000 sections",
        unit: Unit::Number,
        of,
        against: Some("bare, light"),
        published: Published::said("eCS: 85 to 100 % fewer"),
        figure: preempted_within,
        criteria,
    }
}

fn taken(run: &Run<'_>) -> f64 {
    let rows = run.reports("vm").into_iter();
    rows.map(|row| row.guest.lock_acquisitions as f64).sum()
}

fn throughput(run: &Run<'_>) -> Option<f64> {
    Some(taken(run) / run.length().as_secs_f64())
}

fn preempted_within(run: &Run<'_>) -> Option<f64> {
    let rows = run.reports("vm").into_iter();
    let within: u64 = rows.map(|row| row.preemptions_in_lock).sum();
    let all = taken(run);
    (all > 0.0).then(|| 1_000.0 * within as f64 / all)
}
