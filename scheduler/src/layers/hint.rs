//! `hint`: a vCPU in a critical section gets one extra turn.

use super::{Grace, GraceEnds, Layer, LayerInfo};
use crate::spec::{OptionInfo, OptionKind};
use crate::time::Nanos;

pub(crate) const INFO: LayerInfo = LayerInfo {
    name: "hint",
    summary: "a vCPU that is preempted in a critical section gets one extra turn",
    rules: &[
        "The guest counts its locks and critical sections in shared memory, without telling anybody (as for `delay`).",
        "A vCPU in a section that is due to be preempted runs for one extra turn of length `extra`, whether it leaves the section meanwhile or not; then it is preempted for certain.",
        "There is no second extra turn before it has left the core.",
        "The extra time is charged like any other; the policy takes it back by its own rules.",
    ],
    source: "Kashyap, Min, Kim: Scaling Guest OS Critical Sections with eCS (USENIX ATC 2018); its extra schedule is about a tick",
    quirks: &[
        "Without a word from the guest the extra turn is always taken whole: longer than `delay` where sections are short, without an exit at their end.",
    ],
    options: &[OptionInfo {
        name: "extra",
        kind: OptionKind::Time {
            min: Nanos::from_micros(1),
            max: Nanos::from_secs(1),
        },
        default: "4ms",
        help: "length of the extra turn",
    }],
    build: |options| {
        Layer::Grace(Grace {
            most: options.time("extra"),
            ends: GraceEnds::WhenOver,
            repaid: false,
            // An extra turn is taken whole: a waiter would mostly spin in it.
            line: false,
        })
    },
};
