//! What `4bsd` says of itself.

use super::FourBsd;
use crate::policies::freebsd;
use crate::registry::{PolicyInfo, ScheduledBy};
use crate::spec::{OptionInfo, OptionKind, SWITCH};
use crate::time::Nanos;

/// What `4bsd` says of itself.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "4bsd",
    summary: "FreeBSD's traditional scheduler: decay usage, kernel sleep priorities, interrupt threads",
    rules: &[
        "Usage grows with every statistics tick and decays each second by the load average; from it \
         and nice follows the priority for user mode.",
        "One queue of 64 lists serves all cores, four priorities a list.",
        "Who waits in the kernel competes on waking with the sleep priority of that wait, until its \
         return to user mode, where nothing is compared. Its slice is full again.",
        "Who becomes runnable goes to an idle core; else to its waker's core, if it is better than what \
         runs there; else to the core that runs the worst.",
        "It preempts if it stands for an interrupt; a better one otherwise only asks for an AST.",
        "A preempted thread keeps its slice and the head of its list; one switched off by an AST takes \
         its user priority and goes to the tail.",
        "A slice is a tenth of a second, in one of three historical models. An interrupt's thread \
         that uses up a slice is demoted by four.",
        "Each second all decay who are awake or asleep for no more than a second; a queued thread whose \
         list changes goes to the new one's tail.",
    ],
    source: "FreeBSD sched_4bsd.c (8.0 and 2025), kern_switch.c and kern_intr.c (2004)",
    quirks: &[
        "Only ticks are charged: who always sleeps at the tick runs for nothing.",
        "A vCPU thread that slept keeps its kernel priority while its guest runs, until it returns to \
         user mode, its slice ends or it is switched off: vCPUs that wake often go before all \
         that only compute.",
        "After the return to user mode a thread goes on for the rest of its slice although a better one \
         waits: nothing is compared there.",
        "A vCPU that an interrupt woke and that never waits again starves all of user mode.",
        "deferred=on: an interrupt thread's preemption that falls into a critical section waits for the \
         return to user mode, the end of the stay on the core or a clock interrupt (2004).",
        "Sleep is rewarded by the load average of now, not by that of the time asleep.",
    ],
    options: &[
        freebsd::STATHZ,
        OptionInfo {
            name: "bands",
            kind: OptionKind::Word(&["8", "14", "15"]),
            default: "14",
            help: "bands of priorities of the release: 8 = up to 8.x, 14 = 9 to 14, 15 = 15 and later",
        },
        OptionInfo {
            name: "quantum-model",
            kind: OptionKind::Word(&["ticks", "elapsed", "roundrobin"]),
            default: "ticks",
            help: "ticks = statistics ticks of its own (now), elapsed = time since the last switch, \
                   looked at at each tick (8.x), roundrobin = every quantum on all cores (4.x)",
        },
        OptionInfo {
            name: "quantum",
            kind: OptionKind::TimeOr {
                word: "auto",
                min: Nanos::from_millis(1),
                max: Nanos::from_secs(10),
            },
            default: "auto",
            help: "length of a slice, in ticks rounded down; auto = 100ms, which is 94.5 ms at 127 Hz",
        },
        OptionInfo {
            name: "full-preemption",
            kind: SWITCH,
            default: "off",
            help: "whether every better thread preempts, not only those of interrupts",
        },
        freebsd::USERRET,
        freebsd::DEFERRED,
        freebsd::HARDCLOCK,
        freebsd::GUEST,
        freebsd::INTERRUPT_THREADS,
    ],
    scheduled_by: ScheduledBy::Policy,
    consistent: |_options| Ok(()),
    build: |options, cores| Box::new(FourBsd::new(options, cores)),
};
