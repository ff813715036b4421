//! `build`: a parallel build with the kernel-priority flag and without.
//!
//! Measured are the three figures that a shell prints for a fixed amount of work, and whether the
//! priority inversion that the flag was meant to prevent is back without it.

use crate::reproduce::measured::Run;
use crate::reproduce::model::{Case, Criterion, Knob, Place, Published, Reproduction, Row, Unit};
use stealtime_scheduler::time::Nanos;

/// What is known of the finding.
pub(super) static FINDING: Reproduction = Reproduction {
    name: "build",
    title: "a parallel build takes longer with the flag than without",
    place: "illumos-joyent nightly build, non-DEBUG, stock against patched: illumos issue 11909",
    history: "\
Full builds of the system were compared on a stock platform image and on one without the flag. They were \
consistent within each and faster without by a significant margin. The user time was about the same: a \
build does the same work. The question was also whether the removal brings priority inversion back.",
    mechanism: "\
Who has waited with a request for kernel priority goes before all others until it returns to user mode. \
Those that wait for a disk again and again and need a core for a moment only then wait for it each time: \
their waits are no longer hidden behind the others' computing, and cores are idle in the end.",
    model: "\
One core, the time-sharing class. Three `cc` jobs read a page as readers of a host lock with a request for kernel priority, compute \
some 24 ms in eight stretches with hypervisor work under a mutex, and return to user mode. A `copy` job \
does 250 times a little work under that mutex and waits some 10 ms for a disk. Both do a fixed amount of \
work. A supervisor works 10 ms in the hypervisor every 200 ms, as a writer of the first lock, however long \
the build takes. Real is when the last job ends; user is guest code and sys is the hypervisor's work, of \
all, until then.",
    left_out: "\
Many cores and thousands of processes. Under `fss` it comes out the same with most seeds; with one in ten \
its prices leave the disk's job behind the others without the flag, too. What made the original's sys time grow is not told in its report; \
mutexes that spin while their owner runs may be a part of it, and the model has none: here sys grows with \
the elapsed time through the supervisor alone, so that row follows from the first.",
    cases: &[
        Case::new("flag", "build", "ts:variant=before"),
        Case::new("without", "build", "ts:variant=after"),
    ],
    rows: &[
        Row {
            name: "real",
            unit: Unit::Time,
            of: "flag",
            against: Some("without"),
            published: Published::figures(841.1e9, 637.6e9),
            figure: |run| Some(real(run)?.get() as f64),
            criteria: &[Criterion::RatioAtLeast(1.15)],
        },
        Row {
            name: "user",
            unit: Unit::Time,
            of: "flag",
            against: Some("without"),
            published: Published::figures(6_614.7e9, 6_750.6e9),
            figure: |run| Some(run.user_and_sys(real(run)?).0.get() as f64),
            criteria: &[Criterion::WithinFactor(1.05)],
        },
        Row {
            name: "sys",
            unit: Unit::Time,
            of: "flag",
            against: Some("without"),
            published: Published::figures(3_359.8e9, 2_782.0e9),
            figure: |run| Some(run.user_and_sys(real(run)?).1.get() as f64),
            criteria: &[Criterion::RatioAtLeast(1.0)],
        },
        Row {
            name: "cores kept busy, (user + sys) ÷ real",
            unit: Unit::Number,
            of: "flag",
            against: Some("without"),
            published: Published::figures((6_614.7 + 3_359.8) / 841.1, (6_750.6 + 2_782.0) / 637.6),
            figure: busy,
            criteria: &[Criterion::RatioAtMost(0.9)],
        },
        Row {
            name: "priority inversion at the mutex: its owner without a core while others wait, in all",
            unit: Unit::Time,
            of: "without",
            against: Some("flag"),
            published: Published::said("removing the mechanism does not bring it back: turnstiles"),
            figure: |run| Some(run.inversions("names")?.total()),
            criteria: &[Criterion::OfAtMost(100e6)],
        },
        Row {
            name: "priority inversion at the rwlock: a reader without a core while the writer waits, in all",
            unit: Unit::Time,
            of: "without",
            against: Some("flag"),
            published: Published::said("possible both before and after; not seen on busy systems"),
            figure: |run| Some(run.inversions("pages")?.total()),
            criteria: &[],
        },
    ],
    histogram: None,
    explained: None,
    knobs: &[
        Knob {
            name: "stretches of computing until the return to user mode",
            place: Place::Scenario("repeat {}\""),
            documented: "8",
            values: &["1", "2", "4", "8", "16"],
        },
        Knob {
            name: "the disk's mean time for `copy`",
            place: Place::Scenario("host-wait exponential {}\",\n    \"run"),
            documented: "10ms",
            values: &["2ms", "5ms", "10ms", "20ms"],
        },
        Knob {
            name: "period of the supervisor",
            place: Place::Scenario("timer {}"),
            documented: "200ms",
            values: &["50ms", "100ms", "200ms", "500ms"],
        },
    ],
};

/// When the last job was done.
fn real(run: &Run<'_>) -> Option<Nanos> {
    Some(run.elapsed("cc/")?.max(run.elapsed("copy/")?))
}

fn busy(run: &Run<'_>) -> Option<f64> {
    let real = real(run)?;
    let (user, sys) = run.user_and_sys(real);
    Some((user.get() + sys.get()) as f64 / real.get() as f64)
}
