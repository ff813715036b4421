//! What is said of a chain's links and its end.

use super::chain::{End, Reason};
use super::graph::{Graph, Wanted};
use super::model;
use super::scene::{Became, State, Vcpu};
use crate::names::Names;
use stealtime_scheduler::event::{Charged, PreemptReason, Waits, WakeSource};
use stealtime_scheduler::ids::VcpuId;
use stealtime_scheduler::policy::VcpuParams;
use stealtime_scheduler::time::Nanos;

/// Of so many others the names are given; of more, the number.
const NAMED: usize = 3;

/// What is needed to speak of a scene.
#[derive(Clone, Copy, Debug)]
pub(super) struct Speaker<'a> {
    pub(super) graph: Graph<'a>,
    pub(super) names: &'a Names,
    pub(super) params: &'a [VcpuParams],
}

/// An instant of the run.
pub(super) fn instant(ns: u64) -> String {
    format!("{:.3} s", Nanos(ns).as_secs_f64())
}

const fn preempted(why: PreemptReason) -> &'static str {
    match why {
        PreemptReason::SliceEnd => "its slice ran out",
        PreemptReason::Wakeup => "one that woke went first",
        PreemptReason::Tick => "at a tick",
        PreemptReason::Period => "at the end of a period",
        PreemptReason::PriorityDrop => "it lost its priority",
        PreemptReason::LockWait => "it lends its turn",
        PreemptReason::LoanOver => "its loan was over",
    }
}

impl Speaker<'_> {
    fn vcpu(&self, vcpu: VcpuId) -> &Vcpu {
        &self.graph.scene.vcpus[vcpu.index()]
    }

    pub(super) fn name(&self, vcpu: VcpuId) -> &str {
        self.names.vcpu(vcpu)
    }

    pub(super) fn ago(&self, since: u64) -> Nanos {
        Nanos(self.graph.scene.now.saturating_sub(since))
    }

    /// A lock or a core.
    pub(super) fn wanted(&self, wanted: Wanted) -> String {
        match wanted {
            Wanted::HostLock(lock) => format!("host lock `{}`", self.names.host_lock(lock)),
            Wanted::GuestLock(lock) => format!("guest lock `{}`", self.names.guest_lock(lock)),
            Wanted::Core(core) => self.names.core_in_words(core),
            Wanted::Vcpu(vcpu) => self.name(vcpu).to_owned(),
        }
    }

    /// The state of a vCPU and how it came to it.
    fn state(&self, vcpu: VcpuId) -> String {
        match self.vcpu(vcpu).state {
            State::Unborn => "not yet admitted".to_owned(),
            State::Retired => "gone".to_owned(),
            State::Ready(became) => self.became(vcpu, became),
            State::Granted(core) => format!(
                "{} granted, not yet entered",
                self.names.core_in_words(core)
            ),
            State::Running(core) => format!("on {}, in guest code", self.names.core_in_words(core)),
            State::Hypervisor(core, why) => format!(
                "on {}, the hypervisor works for it ({})",
                self.names.core_in_words(core),
                why.name()
            ),
            State::Blocked(Waits::Idle) => "idle until an interrupt".to_owned(),
            State::Blocked(Waits::Sleep) => "asleep until its timer".to_owned(),
            State::Blocked(Waits::Host) => "waits in the hypervisor (a device, a page)".to_owned(),
            State::Blocked(Waits::HostLock(..)) => String::new(),
            State::Blocked(Waits::GuestLock(_)) => "asleep".to_owned(),
        }
    }

    fn became(&self, vcpu: VcpuId, became: Became) -> String {
        match became {
            Became::Admitted => "has not run yet".to_owned(),
            Became::Yielded => "gave up its core".to_owned(),
            Became::Preempted(why) => format!("preempted ({})", preempted(why)),
            Became::Woken(WakeSource::Timer) => "woken by its timer".to_owned(),
            Became::Woken(WakeSource::Interrupt(None)) => "woken by an interrupt".to_owned(),
            Became::Woken(WakeSource::Interrupt(Some(by))) => {
                format!("woken by an interrupt of {}", self.name(by))
            }
            Became::Woken(WakeSource::GuestLock(by)) => {
                format!("woken by {} from its wait for a guest lock", self.name(by))
            }
            Became::Woken(WakeSource::HostLock(by)) => match self.vcpu(vcpu).retries {
                Some(lock) => {
                    let name = self.names.host_lock(lock);
                    let owner = self.graph.owner(Wanted::HostLock(lock));
                    let lock = &self.graph.scene.host_locks[lock.index()];
                    let has = owner.map_or_else(
                        || format!("free since {}", instant(lock.since)),
                        |owner| format!("held by {} meanwhile", self.name(owner)),
                    );
                    format!("woken to take host lock `{name}`, {has}")
                }
                None => format!("woken when {} handed it over", self.name(by)),
            },
        }
    }

    /// The line of a vCPU: what it holds that the one above waits for, its state, what it waits for
    /// and how many wait with it, and a standing that is not plain.
    pub(super) fn frame(
        &self,
        vcpu: VcpuId,
        above: Option<Wanted>,
        wanted: Option<Wanted>,
        others: &[VcpuId],
    ) -> String {
        let mut parts = Vec::new();
        match above {
            Some(Wanted::HostLock(lock)) => {
                let held = self.vcpu(vcpu).holds.iter().find(|(held, _)| *held == lock);
                let since = held.map_or_else(String::new, |(_, since)| {
                    format!(" for {}", self.ago(*since))
                });
                parts.push(format!("holds `{}`{since}", self.names.host_lock(lock)));
            }
            Some(Wanted::GuestLock(lock)) => {
                let told = !self.graph.owners(Wanted::GuestLock(lock)).is_empty();
                let how = if told {
                    "holds"
                } else {
                    "alone of its VM holds a lock, likely"
                };
                parts.push(format!("{how} `{}`", self.names.guest_lock(lock)));
            }
            Some(Wanted::Core(_) | Wanted::Vcpu(_)) | None => {}
        }
        parts.push(self.state(vcpu));
        if let Some((donor, charged)) = self.vcpu(vcpu).donor {
            let account = match charged {
                Charged::Donor => "and account",
                Charged::Owner => "at its own expense",
            };
            parts.push(format!("on the turn of {} {account}", self.name(donor)));
        }
        if let Some(wanted) = wanted {
            parts.push(self.waits(vcpu, wanted, others));
        }
        let stand = self.vcpu(vcpu).stand.now;
        let flags = [
            (stand.kernel_priority, "KERNEL PRIORITY"),
            (stand.boosted, "BOOSTED"),
            (stand.costopped, "CO-STOPPED"),
        ];
        parts.extend(
            flags
                .iter()
                .filter(|(has, _)| *has)
                .map(|(_, word)| (*word).to_owned()),
        );
        parts.retain(|part| !part.is_empty());
        parts.join("; ")
    }

    fn waits(&self, vcpu: VcpuId, wanted: Wanted, others: &[VcpuId]) -> String {
        let how = match (wanted, self.vcpu(vcpu).state) {
            (Wanted::GuestLock(_), State::Running(_) | State::Hypervisor(..)) => "spins for",
            (Wanted::GuestLock(_), State::Ready(_) | State::Granted(_)) => "was spinning for",
            (Wanted::Vcpu(_), _) => "waits, set aside, for",
            _ => "waits for",
        };
        let names: Vec<_> = others.iter().map(|other| self.name(*other)).collect();
        let others = match names.as_slice() {
            [] => String::new(),
            [one] => format!(", and so does {one}"),
            [first @ .., last] if names.len() <= NAMED => {
                format!(", and so do {} and {last}", first.join(", "))
            }
            all => format!("; {} more wait for it", all.len()),
        };
        format!("{how} {}{others}", self.wanted(wanted))
    }

    /// What is to be said of a chain's end.
    pub(super) fn end(&self, end: End, reasons: &[Reason]) -> Vec<model::Reason> {
        let one = |text: String, since: Option<u64>| {
            vec![model::Reason {
                reason: name(end),
                since_ns: since,
                until_ns: None,
                text,
            }]
        };
        match end {
            End::Occupied(..) => reasons.iter().map(|reason| self.reason(reason)).collect(),
            End::Runs(vcpu) => one(
                format!(
                    "{} is on a core and works: nothing keeps it from going on",
                    self.name(vcpu)
                ),
                None,
            ),
            End::Entering(core, vcpu) => {
                let since = self.vcpu(vcpu).since;
                let text = format!(
                    "{} was granted {} {} ago and its thread has not entered it yet: a switch, or a host that is busy",
                    self.name(vcpu),
                    self.names.core_in_words(core),
                    self.ago(since)
                );
                one(text, Some(since))
            }
            End::Idle(core) => {
                let since = self
                    .graph
                    .scene
                    .cores
                    .get(core.index())
                    .map(|core| core.since);
                let text = format!(
                    "{} is idle although somebody is ready: the policy means it so{}",
                    self.names.core_in_words(core),
                    self.limits()
                );
                one(text, since)
            }
            End::CoStopped(vcpu) => one(
                format!(
                    "{} is held back until its siblings have caught up or can run too: the policy means it so",
                    self.name(vcpu)
                ),
                Some(self.vcpu(vcpu).stand.since),
            ),
            End::Waits(vcpu) => one(
                format!(
                    "{} waits for no lock and no core: {}",
                    self.name(vcpu),
                    self.state(vcpu)
                ),
                Some(self.vcpu(vcpu).since),
            ),
            End::Free => one("nobody has it: it was released just then".to_owned(), None),
            End::Unknown => one(
                "who has it is not known: the guest does not tell".to_owned(),
                None,
            ),
            End::Circle(vcpu) => one(
                format!(
                    "a circle: {} waits, through those above, for itself; none of them can ever go on",
                    self.name(vcpu)
                ),
                None,
            ),
            End::Gone(vcpu) => one(
                format!("{} is gone and has it still", self.name(vcpu)),
                None,
            ),
            End::Host => one(
                "the host's own scheduler decides who runs; whom it ran instead is not known here"
                    .to_owned(),
                None,
            ),
        }
    }

    /// Whether anybody has a limit that lets cores be idle.
    fn limits(&self) -> &'static str {
        if self.params.iter().any(|params| params.cap.is_some()) {
            " (there are caps)"
        } else if self.params.iter().any(|params| params.budget.is_some()) {
            " (there are budgets)"
        } else {
            ""
        }
    }
}

/// The name of a chain's end.
pub(super) const fn name(end: End) -> &'static str {
    match end {
        End::Runs(_) => "runs",
        End::Occupied(..) => "occupied",
        End::Entering(..) => "entering",
        End::Idle(_) => "idle",
        End::CoStopped(_) => "co-stopped",
        End::Waits(_) => "waits",
        End::Free => "free",
        End::Unknown => "unknown",
        End::Circle(_) => "circle",
        End::Gone(_) => "gone",
        End::Host => "host",
    }
}
