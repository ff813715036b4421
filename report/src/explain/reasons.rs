//! What is said of why a vCPU on a core was not preempted.

use super::chain::{Reason, Why};
use super::model;
use super::words::{Speaker, instant};
use crate::trace::moment;
use stealtime_scheduler::event::{Charged, PreemptReason};
use stealtime_scheduler::ids::HostLockId;
use stealtime_scheduler::time::Nanos;

impl Speaker<'_> {
    /// A reason in words.
    pub(super) fn reason(&self, reason: &Reason) -> model::Reason {
        model::Reason {
            reason: reason_name(reason.why()),
            since_ns: reason.since(),
            until_ns: reason.until(),
            text: self.because(reason),
        }
    }

    fn because(&self, reason: &Reason) -> String {
        match *reason {
            Reason::Kicked { since, why } => format!(
                "a kick is under way: it was asked to leave {} ago ({}) and has not yet",
                self.ago(since),
                asked(why)
            ),
            Reason::KernelPriority {
                since,
                lock,
                released,
                user_returns,
            } => {
                let got = self.caught(lock, released);
                let ago = self.ago(since);
                let returns = returns(user_returns);
                format!(
                    "kernel priority since {} ({ago}){got}; {returns}",
                    instant(since)
                )
            }
            Reason::Owed {
                since,
                why,
                until,
                critical,
                latest,
            } => {
                let latest = latest.map_or_else(String::new, |at| {
                    format!(", or {} at the latest", instant(at))
                });
                let depth = match critical {
                    0 => String::new(),
                    n => format!(" (depth {n})"),
                };
                let (ago, asked, until) = (self.ago(since), asked(why), moment(until));
                format!(
                    "a preemption ({asked}) is owed for {ago} and only remembered until {until}{depth}{latest}"
                )
            }
            Reason::Boosted { since } => {
                format!("boosted since {} ({})", instant(since), self.ago(since))
            }
            Reason::Lent { donor, charged } => {
                let account = match charged {
                    Charged::Donor => "which is charged for it",
                    Charged::Owner => "and is charged itself",
                };
                format!("it uses the turn of {}, {account}", self.name(donor))
            }
            Reason::Slice { ends } => {
                let left = Nanos(ends.saturating_sub(self.graph.scene.now));
                format!("its slice lasts until {}, {left} more", instant(ends))
            }
            Reason::Open => "no timer ends its turn: ticks and wake-ups decide".to_owned(),
        }
    }

    /// With which lock it got its kernel priority, and whether it was kept after that.
    fn caught(&self, lock: Option<HostLockId>, released: Option<u64>) -> String {
        let Some(lock) = lock else {
            return String::new();
        };
        let kept = released.map_or_else(String::new, |at| {
            format!(" and kept when it released that at {}", instant(at))
        });
        let lock = self.names.host_lock(lock);
        format!(", which it got holding host lock `{lock}`{kept}")
    }
}

fn returns(user_returns: u64) -> String {
    match user_returns {
        0 => "its thread has made no return to user mode since".to_owned(),
        1 => "its thread has returned to user mode once since".to_owned(),
        n => format!("its thread has returned to user mode {n} times since"),
    }
}

impl Reason {
    const fn since(&self) -> Option<u64> {
        match *self {
            Self::Kicked { since, .. }
            | Self::KernelPriority { since, .. }
            | Self::Owed { since, .. }
            | Self::Boosted { since } => Some(since),
            Self::Lent { .. } | Self::Slice { .. } | Self::Open => None,
        }
    }

    const fn until(&self) -> Option<u64> {
        match *self {
            Self::Slice { ends } => Some(ends),
            Self::Owed { latest, .. } => latest,
            _ => None,
        }
    }
}

/// Why a core was asked back.
const fn asked(why: PreemptReason) -> &'static str {
    match why {
        PreemptReason::SliceEnd => "its slice is over",
        PreemptReason::Wakeup => "one that woke goes first",
        PreemptReason::Tick => "a tick found a better one",
        PreemptReason::Period => "the period is over",
        PreemptReason::PriorityDrop => "a priority was given back",
        PreemptReason::LockWait => "it lends its turn",
        PreemptReason::LoanOver => "its loan is over",
    }
}

/// The name of a reason.
pub(super) const fn reason_name(why: Why) -> &'static str {
    match why {
        Why::Kicked => "kicked",
        Why::KernelPriority => "kernel-priority",
        Why::Owed => "owed",
        Why::Boosted => "boosted",
        Why::Lent => "lent",
        Why::Slice => "slice",
        Why::Open => "open",
    }
}
