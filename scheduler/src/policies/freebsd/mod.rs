//! What FreeBSD's two schedulers, `4bsd` and `ule`, have in common.
//!
//! Priorities are numbers from 0 to 255, the smaller the better, in bands (`bands.rs`). A thread has a
//! priority of its own for user mode and one that counts now (`thread.rs`). Run queues are 64 lists
//! (`runq.rs`). What runs is asked to make room in one of two ways: by *preemption*, at once or when its
//! critical section is over, or by an *AST*, a request that is looked at on the way to user mode
//! (`seat.rs`).
//!
//! # How a vCPU's thread is read
//! A vCPU thread lives inside one system call, so for the host its guest's time is kernel time until the
//! call returns. Three readings are offered by the option `guest`:
//! * `kernel`: guest time is kernel time: a kernel priority lasts until a real return to user mode. Only
//!   the AST is looked at earlier: the interrupt that brings it forces the guest to exit, and the run
//!   loop looks at it then; hypervisor work is finished first.
//! * `user`: entering the guest counts as a return to user mode, kernel priorities end there.
//! * `kernel-strict`: nobody looks at the AST before a real return to user mode. A vCPU that never makes
//!   one is never taken off its core by a slice's end.
//!
//! A critical section that the guest marks stands for one of the kernel, or for a spin mutex: interrupts
//! arrive, a switch may not happen. A vCPU that an interrupt wakes stands for that interrupt's thread
//! until it waits again.
//!
//! Source: FreeBSD `kern_switch.c` and `kern_intr.c` (2004), `subr_trap.c`, `sys/priority.h`,
//! `sys/runq.h`, by their behaviour.

pub(super) mod bands;
pub(super) mod runq;
pub(super) mod seat;
pub(super) mod thread;

use crate::policy::{Refused, VcpuParams};
use crate::spec::{OptionInfo, OptionKind, SWITCH};
use crate::time::Nanos;

/// What a vCPU may ask for: its nice value.
pub(super) fn nice(policy: &'static str, params: &VcpuParams) -> Result<i64, Refused> {
    let knows = "nice values (-20 to 19)";
    params.refuse_slice(policy, knows)?;
    params.refuse_limits(policy, knows)?;
    params.refuse_weights(policy, knows)?;
    Ok(i64::from(params.nice.unwrap_or(0)))
}

/// Rate of the statistics clock.
pub(super) const STATHZ: OptionInfo = OptionInfo {
    name: "stathz",
    kind: OptionKind::Int {
        min: 10,
        max: 1_000,
    },
    default: "127",
    help: "rate of the statistics clock in Hz (127 or 128): usage and slices are counted in its ticks",
};

/// The clock interrupt.
pub(super) const HARDCLOCK: OptionInfo = OptionInfo {
    name: "hardclock",
    kind: OptionKind::Time {
        min: Nanos::from_micros(100),
        max: Nanos::from_millis(100),
    },
    default: "10ms",
    help: "with deferred=on, period of the clock interrupt whose own thread is switched to at once and \
           so lets a remembered preemption through; 10ms is the hz = 100 of 2004",
};

/// The fault of 2004.
pub(super) const DEFERRED: OptionInfo = OptionInfo {
    name: "deferred",
    kind: SWITCH,
    default: "off",
    help: "what becomes of a preemption that falls into a critical section: on = as before July 2004, \
           remembered until return to user mode; off = owed, and paid when the section is left",
};

/// What a return to user mode does to a kernel priority.
pub(super) const USERRET: OptionInfo = OptionInfo {
    name: "userret",
    kind: OptionKind::Word(&["number-restored", "sticky-kernel-priority"]),
    default: "number-restored",
    help: "on return to user mode: the number is restored and nothing compared (as in the source), or \
           the kernel priority stays until the core is given up (the popular account)",
};

/// How guest time counts.
pub(super) const GUEST: OptionInfo = OptionInfo {
    name: "guest",
    kind: OptionKind::Word(&["kernel", "user", "kernel-strict"]),
    default: "kernel",
    help: "how guest time counts: kernel = kernel mode, but the run loop looks at reschedule requests \
           when an interrupt forces an exit; user = entering the guest is a return to user mode; \
           kernel-strict = requests wait for a real return to user mode",
};

/// Whether interrupts have threads.
pub(super) const INTERRUPT_THREADS: OptionInfo = OptionInfo {
    name: "interrupt-threads",
    kind: SWITCH,
    default: "on",
    help: "whether a vCPU that an interrupt wakes stands for an interrupt thread, with a priority of \
           the interrupt band until it waits again",
};

/// The period of the statistics clock.
pub(super) const fn statclock(stathz: i64) -> Nanos {
    Nanos(1_000_000_000 / stathz.unsigned_abs())
}
