//! `delay`: a preemption waits until the vCPU has left its critical section.

use super::{Layer, LayerInfo};
use crate::spec::{OptionInfo, OptionKind, SWITCH};
use crate::time::Nanos;

/// How a due preemption is put off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grace {
    /// The longest that it is put off.
    pub most: Nanos,
    /// When it ends.
    pub ends: GraceEnds,
    /// Whether what a vCPU ran beyond its turn is taken off its next slices.
    pub repaid: bool,
    /// Whether it is also put off while the vCPU waits at a place in line that nobody may pass.
    pub line: bool,
}

/// When a grace ends, if not by being too long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GraceEnds {
    /// As soon as the guest holds no lock and is in no critical section: it tells.
    WhenSafe,
    /// Not before its time is over: the guest is not asked to tell.
    WhenOver,
}

pub(crate) const INFO: LayerInfo = LayerInfo {
    name: "delay",
    summary: "a preemption waits until the vCPU has left its critical section, up to a limit",
    rules: &[
        "A vCPU is unsafe while its shared page says that it holds a guest lock or is in a marked critical section; it is safe otherwise, and when it is halted.",
        "It is unsafe, too, while it spins at a place in line that nobody may pass (`ticket`, `mcs`, `pv`, `rwlock`): without a core it stops all behind it, though the lock be free. (`line=off` leaves this out.)",
        "Not if the lock's owner has no core, or is not known: then it may wait in vain. Of a ticket, MCS or paravirtual lock that is free the one whose turn it is counts as the owner.",
        "A preemption of an unsafe vCPU, whatever the policy's reason, is put off: the guest's preempt-pending word is set, and the vCPU goes on.",
        "The guest looks at the word when it becomes safe, and tells: it is preempted at once. Leaving an inner lock tells nothing.",
        "After `most` it is preempted, safe or not.",
        "What it ran beyond is charged, and taken off its next slices (`repay=on`), of each at most nine tenths.",
        "A kick takes time to arrive: a vCPU that was safe when it was sent, and is unsafe when it has stopped, is put back and gets the same grace.",
    ],
    source: "Uhlig, LeVasseur, Skoglund, Dannowski: Towards Scalable Multiprocessor Virtual Machines (2004), the paravirtualised variant; the limit is our choice, and so are waiters in line (lock waiter preemption: Djomgwe Teabe et al., EuroSys 2017)",
    quirks: &[
        "A guest that always holds a lock gets `most` more at each turn. With `repay=on` its share stays what it was; the others' waits grow by `most`.",
        "Where sections are long a waiter in line spins for all of its grace, and others could have had the core: there `line=off` does more (`boost-evaporates`: sections of 5 ms).",
        "Only the owner is looked at: one that waits behind another waiter without a core is put off, too, in vain. While readers have a `rwlock`, or nobody has, no owner is known, and nobody in its line is put off.",
    ],
    options: &[
        OptionInfo {
            name: "most",
            kind: OptionKind::Time {
                min: Nanos::from_micros(1),
                max: Nanos::from_secs(1),
            },
            default: "1ms",
            help: "the longest that a preemption is put off",
        },
        OptionInfo {
            name: "repay",
            kind: SWITCH,
            default: "on",
            help: "take the time beyond off the next slices",
        },
        OptionInfo {
            name: "line",
            kind: SWITCH,
            default: "on",
            help: "put it off for who waits at a place in line that nobody may pass, too",
        },
    ],
    build: |options| {
        Layer::Grace(Grace {
            most: options.time("most"),
            ends: GraceEnds::WhenSafe,
            repaid: options.on("repay"),
            line: options.on("line"),
        })
    },
};
