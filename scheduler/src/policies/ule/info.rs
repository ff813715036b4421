//! What `ule` says of itself.

use super::state::Ule;
use crate::policies::freebsd;
use crate::registry::{PolicyInfo, ScheduledBy};
use crate::spec::{OptionInfo, OptionKind, SWITCH};
use crate::time::Nanos;

/// What `ule` says of itself.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "ule",
    summary: "FreeBSD's ULE: interactivity score, calendar queues per core, stealing",
    rules: &[
        "A score of 0 to 100 sets run time against sleep time over some five seconds; with nice added, \
         below 30 is interactive.",
        "An interactive thread's priority follows its score; a batch thread's follows its usage in a \
         window of 10 s, and nice.",
        "Every core has a queue for all that is better than batch, and a calendar of 64 lists for batch, \
         in which a worse priority means a later list.",
        "A slice is a tenth of a second divided by the other runnable threads of the core, at least a \
         sixth of it. A wake-up starts a new one.",
        "Who wakes goes to its last core, if it ran there a moment ago and would win; else to the core \
         with the least load where it would win; else to the one with the least load.",
        "It preempts if its priority reaches the kernel band; on another core also if it is interactive \
         and the running one is not. On its waker's core a better one otherwise asks for an AST; \
         another core is not even told.",
        "A batch thread that waits is raised to the best batch priority until its return to user mode.",
        "A core with nothing to do takes a thread from the core with the greatest load; at random \
         intervals of half to one and a half seconds loads are evened out.",
    ],
    source: "FreeBSD sched_ule.c (2025); kern_intr.c and kern_switch.c (2004) for the switches",
    quirks: &[
        "Who is batch and wakes on another core with a better batch priority waits for the end of the \
         slice there: that core is not told.",
        "A new vCPU is batch until it has slept more than five thirds of what it ran.",
        "A vCPU that an interrupt woke and that never waits again starves all of its core.",
        "Interactive vCPUs that together fill a core starve batch there.",
        "Only ticks are charged to score and slice; usage counts milliseconds.",
        "deferred=on: an interrupt thread's preemption that falls into a critical section waits for the \
         return to user mode, the end of the stay on the core or a clock interrupt (2004).",
    ],
    options: &[
        freebsd::STATHZ,
        OptionInfo {
            name: "bands",
            kind: OptionKind::Word(&["14", "15"]),
            default: "14",
            help: "bands of priorities of the release: 14 = 9 to 14, 15 = 15 and later",
        },
        OptionInfo {
            name: "threshold",
            kind: OptionKind::Int { min: 1, max: 100 },
            default: "30",
            help: "scores below this are interactive",
        },
        OptionInfo {
            name: "shortcut",
            kind: SWITCH,
            default: "on",
            help: "whether who runs at least as much as it sleeps has score 50 at once (now: on)",
        },
        OptionInfo {
            name: "preemption",
            kind: OptionKind::Word(&["kernel-band", "full", "never"]),
            default: "kernel-band",
            help: "the worst priority that preempts: the first of the kernel band, any, or none",
        },
        OptionInfo {
            name: "static-boost",
            kind: OptionKind::Word(&["min-batch", "sleep-priority", "off"]),
            default: "min-batch",
            help: "what a thread that waits is raised to until its return to user mode: the best batch \
                   priority, the sleep priority of its wait, or nothing",
        },
        OptionInfo {
            name: "affinity",
            kind: OptionKind::Time {
                min: Nanos::ZERO,
                max: Nanos::from_secs(1),
            },
            default: "1ms",
            help: "for how long after it ran a thread prefers its core, in whole milliseconds",
        },
        OptionInfo {
            name: "steal",
            kind: SWITCH,
            default: "on",
            help: "whether a core with nothing to do takes a thread from another",
        },
        OptionInfo {
            name: "balance",
            kind: SWITCH,
            default: "on",
            help: "whether loads are evened out from time to time",
        },
        OptionInfo {
            name: "seed",
            kind: OptionKind::Int {
                min: 0,
                max: i64::MAX,
            },
            default: "1",
            help: "seed of the balancer's intervals",
        },
        freebsd::USERRET,
        freebsd::DEFERRED,
        freebsd::HARDCLOCK,
        freebsd::GUEST,
        freebsd::INTERRUPT_THREADS,
    ],
    scheduled_by: ScheduledBy::Policy,
    consistent: |_options| Ok(()),
    build: |options, cores| Box::new(Ule::new(options, cores)),
};
