//! Asking for events of one kind, or one variety of it.

use super::{Details, Kind, detail};
use crate::names::Names;
use std::fmt;
use std::str::FromStr;
use stealtime_scheduler::event::EventKind;

/// Events of a kind, or of one variety of it: `blocked`, `blocked:host-lock`, `host_lock_taken:pages`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Selector {
    kind: Kind,
    detail: Option<String>,
}

/// What does not name events.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadSelector {
    /// There is no such kind.
    #[error("there is no kind of event `{asked}`; there are {}", known_kinds())]
    Kind {
        /// What was asked for.
        asked: String,
    },
    /// The kind has no such variety.
    #[error("events of kind `{}` have no variety `{asked}`; {}", kind.name(), known_details(*kind))]
    Detail {
        /// The kind.
        kind: Kind,
        /// What was asked for.
        asked: String,
    },
    /// The run has no such lock.
    #[error("the run has no lock of the hypervisor called `{asked}`; it has {known}")]
    HostLock {
        /// What was asked for.
        asked: String,
        /// What it has.
        known: String,
    },
}

fn known_kinds() -> String {
    let names: Vec<_> = Kind::ALL.iter().map(|kind| kind.name()).collect();
    names.join(", ")
}

fn known_details(kind: Kind) -> String {
    match kind.details() {
        Details::None => "they are all alike".to_owned(),
        Details::Words(words) => format!("they have {}", words.join(", ")),
        Details::HostLock => "expected the name of a lock".to_owned(),
        Details::Number => "expected a number".to_owned(),
    }
}

impl Selector {
    /// The kind that it means, or means a variety of.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether it means this event.
    #[must_use]
    pub fn means(&self, event: &EventKind, names: &Names) -> bool {
        Kind::of(event) == self.kind
            && self
                .detail
                .as_deref()
                .is_none_or(|asked| detail(event, names).as_deref() == Some(asked))
    }

    /// Checks what only the run can tell: that it has the lock named.
    ///
    /// # Errors
    /// If it does not.
    pub fn check(&self, names: &Names) -> Result<(), BadSelector> {
        let (Details::HostLock, Some(asked)) = (self.kind.details(), &self.detail) else {
            return Ok(());
        };
        if names.host_locks().contains(asked) {
            return Ok(());
        }
        Err(BadSelector::HostLock {
            asked: asked.clone(),
            known: match names.host_locks() {
                [] => "none".to_owned(),
                all => all.join(", "),
            },
        })
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        self.detail
            .as_ref()
            .map_or(Ok(()), |detail| write!(f, ":{detail}"))
    }
}

impl FromStr for Selector {
    type Err = BadSelector;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, asked) = match text.split_once(':') {
            Some((name, asked)) => (name, Some(asked)),
            None => (text, None),
        };
        // KTR and its readers know underscores; a hyphen is as good.
        let name = name.trim().replace('-', "_");
        let kind = Kind::ALL.iter().copied().find(|kind| kind.name() == name);
        let kind = kind.ok_or_else(|| BadSelector::Kind {
            asked: text.to_owned(),
        })?;
        let fits = |asked: &str| match kind.details() {
            Details::None => false,
            Details::Words(words) => words.contains(&asked),
            Details::HostLock => true,
            Details::Number => asked.parse::<u16>().is_ok(),
        };
        if let Some(asked) = asked.filter(|asked| !fits(asked)) {
            let asked = asked.to_owned();
            return Err(BadSelector::Detail { kind, asked });
        }
        Ok(Self {
            kind,
            detail: asked.map(str::to_owned),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::plan;
    use stealtime_scheduler::event::{Waits, WakeSource};
    use stealtime_scheduler::ids::{HostLockId, VcpuId};

    #[test]
    fn a_kind_means_all_its_varieties_and_a_variety_only_itself() {
        let names = Names::new(&plan("fss", 2, 1));
        let waits = EventKind::Blocked(Waits::HostLock(HostLockId(1), VcpuId(0)));
        let means = |text: &str, event| {
            let selector: Selector = text.parse().expect("known");
            selector.check(&names).expect("in this run");
            selector.means(&event, &names)
        };
        assert!(means("blocked", waits) && means("blocked:host-lock", waits));
        assert!(!means("blocked:idle", waits) && !means("woken", waits));
        let taken = EventKind::HostLockTaken(HostLockId(1));
        assert!(means("host_lock_taken:pages", taken) && means("host-lock-taken", taken));
        assert!(!means("host_lock_taken:device", taken));
        let raised = EventKind::InterruptRaised {
            vector: 33,
            from: None,
        };
        assert!(means("irq_raise:33", raised) && !means("irq_raise:34", raised));
        assert!(means("woken:timer", EventKind::Woken(WakeSource::Timer)));
    }

    #[test]
    fn what_there_is_not_is_answered_with_what_there_is() {
        let names = Names::new(&plan("fss", 2, 1));
        let refused = |text: &str| match text.parse::<Selector>() {
            Ok(selector) => selector.check(&names).expect_err("unknown").to_string(),
            Err(error) => error.to_string(),
        };
        for kind in Kind::ALL {
            assert!(refused("nosuch").contains(kind.name()));
        }
        assert!(refused("blocked:nosuch").contains("idle, sleep, host, host-lock"));
        assert!(refused("running:x").contains("alike"));
        assert!(refused("irq_raise:x").contains("a number"));
        assert!(refused("host_lock_taken:nosuch").contains("address-space, pages"));
    }
}
