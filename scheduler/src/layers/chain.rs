//! What becomes of the turn of a vCPU that waits for a lock.
//!
//! The dispatcher knows who waits for which lock and who owns it, over guest locks and host locks. It
//! follows a waiter to the end of its chain: an owner that waits for nothing itself. Of a guest's mutex that was
//! left free the sleeper that is woken for it counts as the owner: until it has run, the others sleep.
//!
//! * The end is runnable and off core: the waiter stays in (or comes back to) the run queue as a
//!   *donor*. When the policy picks it, the end runs in its stead: on the donor's slice, and on the
//!   donor's or its own account.
//! * The end is on a core, or asleep: a sleeping waiter is set aside until that changes. A spinning
//!   one spins.
//! * The chain is a circle: a deadlock, which is told.

use crate::event::Charged;
use crate::input::MutexMode;
use crate::spec::{OptionInfo, OptionKind, Options, SWITCH};
use crate::time::Nanos;

/// The rules of a layer that follows chains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chain {
    /// Whether who waits lends its turn at all.
    pub lends: bool,
    /// On whose account the owner runs.
    pub charged: Charged,
    /// How guests' mutexes work that leave it open.
    pub mutex: MutexMode,
    /// How long a vCPU spins before it says so, and its turn is lent. None: never.
    pub spin_window: Option<Nanos>,
    /// Whether the owner's guest is told who lent it the turn, to hand the lock to that one.
    pub blocked_donor: bool,
    /// What a donor's core does when the donor no longer waits.
    pub ends: LoanEnds,
    /// What becomes of a sleeping waiter whose owner is on, or queued at, another core.
    pub elsewhere: Elsewhere,
}

/// What becomes of a sleeping waiter whose owner is on, or queued at, another core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Elsewhere {
    /// It is set aside while the owner runs; an owner that is queued is fetched to the waiter's core.
    Aside,
    /// It moves to the queue of the owner's core, where it stays as a donor, and comes back as said.
    /// Where a policy has no queues of cores it is as with `Aside`.
    Follows(Return),
}

/// What happens on a donor's core when the donor no longer waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoanEnds {
    /// The core is asked back at once.
    AtOnce,
    /// The owner goes on, on its own account, until the policy prefers the donor or another one.
    ByPolicy,
}

/// When a waiter that has moved to its owner's core and has the lock is placed anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Return {
    /// When it is woken.
    OnWake,
    /// When it is picked there.
    OnPick,
}

/// What surprises about locks of which it is not known who has them.
pub(super) const READERS: &str = "\
    Nobody knows who reads under a guest `rwlock`. One that spins for it is lent turns until it has spun for two \
    windows, and no more until its wait is over: turns would keep it spinning before those it spins for.";

/// The option for the length of spinning before a vCPU says so.
pub(super) const WINDOW: OptionInfo = OptionInfo {
    name: "window",
    kind: OptionKind::TimeOr {
        word: "never",
        min: Nanos::from_micros(1),
        max: Nanos::from_secs(1),
    },
    default: "250us",
    help: "how long a vCPU spins, in its own running time, before its turn is lent",
};

/// The option for mutexes that are handed over.
pub(super) const fn hand_off(default: &'static str) -> OptionInfo {
    OptionInfo {
        name: "handoff",
        kind: SWITCH,
        default,
        help: "guest mutexes are handed to a waiter, which does not spin",
    }
}

/// The option for telling the guest who lent its turn.
pub(super) const fn blocked_donor(default: &'static str) -> OptionInfo {
    OptionInfo {
        name: "blocked-donor",
        kind: SWITCH,
        default,
        help: "a mutex is handed to the vCPU that lent its turn, rather than to the first in line",
    }
}

pub(super) fn mutex_mode(options: &Options) -> MutexMode {
    if options.on("handoff") {
        MutexMode::HandOff
    } else {
        MutexMode::Spin
    }
}
