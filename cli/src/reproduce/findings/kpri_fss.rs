//! `kpri-fss`: kernel priority that outlives its cause, in the fair share scheduler.

use super::kpri;
use crate::reproduce::measured::Run;
use crate::reproduce::model::{Knob, Place, Reproduction};
use stealtime_scheduler::registry;

/// What is known of the finding.
pub(super) static FINDING: Reproduction = Reproduction {
    name: "kpri-fss",
    title: "kernel priority that outlives its cause, under FSS",
    place: "illumos, fair share scheduler, until April 2020: issue 11909 (SmartOS OS-7753, OS-7926)",
    history: "\
Systems with KVM and bhyve guests were seen in dire or deadlocked states. A vCPU thread kept its core, \
at a priority above everybody else of its class, for as long as its guest computed.",
    mechanism: "\
A thread that blocks on a kernel lock while it has asked for kernel priority gets a flag in its \
scheduling class (FSSKPRI). The flag lifts it to priority 60, above all ordinary threads (0 to 59), and \
past the end of its quantum; to give the lock back does not clear it, only the return to user mode does. \
A vCPU thread lives inside the run ioctl and returns seldom or never.",
    model: "\
One core. A spinner catches the flag once, by waiting 5 ms with a host lock for which it has asked for \
kernel priority, and never returns to user mode. Three victims with equal shares spin.",
    left_out: "\
Caps, and the other threads that a host has: what held the lock up is a timer here. The clock tick runs \
beside the guest and does not end its run, as on the real system.",
    cases: &kpri::cases("fss:variant=before", "fss:variant=after"),
    rows: &kpri::rows(
        "starvation of the most starved victim, in quanta of each competitor",
        quanta,
    ),
    histogram: None,
    explained: None,
    knobs: &[
        kpri::REQUEST,
        kpri::VICTIMS,
        Knob {
            name: "what the spinner does",
            place: Place::Scenario("program = [{}]\n\n[[vm]]"),
            documented: r#""spin""#,
            values: &[
                r#""spin""#,
                r#""run 1s", "user-return""#,
                r#""run 100ms", "user-return""#,
            ],
        },
        Knob {
            name: "quantum",
            place: Place::Policy("quantum"),
            documented: "110ms",
            values: &["20ms", "50ms", "110ms", "250ms"],
        },
    ],
};

fn quanta(run: &Run<'_>) -> Option<f64> {
    let (_, options) = registry::check(&run.plan.policy).ok()?;
    kpri::most_starved(run, options.time("quantum").get() as f64)
}
