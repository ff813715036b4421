//! From a scene and the chain in it to what is shown.

use super::Run;
use super::blame::{Verdict, chain_of};
use super::chain::{Chain, End};
use super::graph::{Graph, Wanted};
use super::model::{Census, EndShare, Frame, Held, Reason, Waited};
use super::reasons::reason_name;
use super::scene::{Scene, State};
use super::waits::{On, Wait};
use super::words::{Speaker, name};
use crate::names::Names;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use stealtime_scheduler::event::Waits;
use stealtime_scheduler::ids::VcpuId;
use stealtime_scheduler::registry::ScheduledBy;
use stealtime_scheduler::time::Nanos;

/// Names of others that are given at most.
const SOME: usize = 8;

/// From this part of a wait on the host's interference with the vCPU on the core is told.
const INTERFERENCE: f64 = 0.1;

/// Times of a wait by the vCPU at which its chains ended.
type ByWhom = BTreeMap<Option<VcpuId>, u64>;

/// Everything about one wait.
#[derive(Debug)]
pub(super) struct Builder<'a> {
    names: &'a Names,
    speaker: Speaker<'a>,
    wait: &'a Wait,
    verdict: &'a Verdict,
    ranks: &'a [Option<String>],
    chain: Chain,
}

impl<'a> Builder<'a> {
    pub(super) fn new(
        run: &'a Run<'_>,
        scene: &'a Scene,
        wait: &'a Wait,
        verdict: &'a Verdict,
        ranks: &'a [Option<String>],
    ) -> Self {
        let mut chain = chain_of(scene, wait, &run.vms);
        if run.names.scheduled_by() == ScheduledBy::Host && wait.on == On::Core {
            chain.links.clear();
            chain.end = End::Host;
        }
        let graph = Graph {
            scene,
            vms: &run.vms,
        };
        Self {
            names: &run.names,
            speaker: Speaker {
                graph,
                names: &run.names,
                params: &run.params,
            },
            wait,
            verdict,
            ranks,
            chain,
        }
    }

    const fn graph(&self) -> &Graph<'a> {
        &self.speaker.graph
    }

    /// Others that wait for the same as a link of the chain.
    fn others(&self, vcpu: VcpuId, wanted: Wanted) -> Vec<VcpuId> {
        let mut others = self.graph().waiters(wanted);
        others.retain(|other| *other != vcpu);
        others
    }

    /// All that the chain names or counts.
    pub(super) fn told_of(&self) -> Vec<VcpuId> {
        let links = self.chain.links.iter();
        let mut all: Vec<_> = links
            .flat_map(|link| {
                let mut others = self.others(link.vcpu, link.wanted);
                others.push(link.vcpu);
                others
            })
            .collect();
        all.push(self.wait.vcpu);
        all
    }

    /// Who waits longest for something that the first of the chain has, directly or through others.
    pub(super) fn behind(&self) -> Option<VcpuId> {
        let mut seen: Vec<_> = self.chain.links.iter().map(|link| link.vcpu).collect();
        let mut top = self.wait.vcpu;
        loop {
            let waiters = self.graph().held(top).into_iter();
            let waiters = waiters.flat_map(|lock| self.graph().waiters(lock));
            let since = |vcpu: &VcpuId| self.graph().scene.vcpus[vcpu.index()].since;
            let next = waiters
                .filter(|vcpu| !seen.contains(vcpu))
                .min_by_key(|vcpu| (since(vcpu), *vcpu));
            let Some(next) = next else { break };
            seen.push(next);
            top = next;
        }
        (top != self.wait.vcpu).then_some(top)
    }

    pub(super) fn waited(self) -> Waited {
        let (vm, vcpu) = self.names.parts(self.wait.vcpu);
        let (waited_for, lock) = match self.wait.on {
            On::Core => ("core", None),
            On::HostLock(lock) => ("host-lock", Some(self.names.host_lock(lock).to_owned())),
            On::GuestLock(lock) => ("guest-lock", Some(self.names.guest_lock(lock))),
            On::Hypervisor => ("hypervisor", None),
        };
        Waited {
            vm: vm.to_owned(),
            vcpu: vcpu.to_owned(),
            waited_for,
            lock,
            from_ns: self.wait.from,
            length_ns: self.wait.length(),
            ended: self.wait.ended,
            moment_ns: self.verdict.moment,
            alike_ns: self.verdict.total,
            frames: self.frames(),
            end: name(self.chain.end),
            reasons: self.reasons(),
            ends: self.ends(),
            like_it: 0,
            census: self.census(),
        }
    }

    fn frames(&self) -> Vec<Frame> {
        let mut above = None;
        let mut frames = Vec::new();
        for link in &self.chain.links {
            frames.push(self.frame(link.vcpu, above, Some(link.wanted)));
            above = Some(link.wanted);
        }
        let last = match self.chain.end {
            End::Host => Some(self.wait.vcpu),
            // It is above already.
            End::Circle(_) => None,
            end => end.vcpu(),
        };
        let known = |vcpu: &VcpuId| self.chain.links.iter().any(|link| link.vcpu == *vcpu);
        frames.extend(
            last.filter(|vcpu| !known(vcpu))
                .map(|vcpu| self.frame(vcpu, above, None)),
        );
        frames
    }

    fn frame(&self, vcpu: VcpuId, above: Option<Wanted>, wanted: Option<Wanted>) -> Frame {
        let entry = &self.graph().scene.vcpus[vcpu.index()];
        let others = wanted.map_or_else(Vec::new, |wanted| self.others(vcpu, wanted));
        let (vm, name) = self.names.parts(vcpu);
        let held = |(lock, since): &(_, u64)| Held {
            lock: self.names.host_lock(*lock).to_owned(),
            since_ns: *since,
        };
        let some = others.iter().take(SOME);
        // On a core it is told since when it has the core, not since its last exit.
        let core = entry
            .state
            .core()
            .and_then(|core| self.graph().scene.cores.get(core.index()));
        Frame {
            vm: vm.to_owned(),
            vcpu: name.to_owned(),
            state: state(entry.state),
            since_ns: core.map_or(entry.since, |core| core.since),
            core: entry.state.core().and_then(|core| self.names.core(core)),
            standing: entry.stand.now,
            rank: self.ranks.get(vcpu.index()).cloned().flatten(),
            holds: entry.holds.iter().map(held).collect(),
            waits_for: wanted.map(|wanted| match wanted {
                Wanted::HostLock(_) => "host-lock",
                Wanted::GuestLock(_) => "guest-lock",
                Wanted::Core(_) => "core",
                Wanted::Vcpu(_) => "vcpu",
            }),
            what: wanted.map(|wanted| match wanted {
                Wanted::HostLock(lock) => self.names.host_lock(lock).to_owned(),
                Wanted::GuestLock(lock) => self.names.guest_lock(lock),
                Wanted::Core(core) => {
                    let number = self.names.core(core);
                    number.map_or_else(String::new, |number| number.to_string())
                }
                Wanted::Vcpu(vcpu) => self.names.vcpu(vcpu).to_owned(),
            }),
            some: some
                .map(|other| self.names.vcpu(*other).to_owned())
                .collect(),
            text: self.speaker.frame(vcpu, above, wanted, &others),
            others: others.len(),
        }
    }

    fn reasons(&self) -> Vec<Reason> {
        let known = match self.chain.end {
            End::Occupied(core, ..) => self.graph().reasons(core),
            _ => Vec::new(),
        };
        let mut reasons = self.speaker.end(self.chain.end, &known);
        let delay = self
            .chain
            .end
            .vcpu()
            .and_then(|vcpu| self.verdict.delays.get(&vcpu));
        if let Some(delay) =
            delay.filter(|delay| **delay as f64 >= INTERFERENCE * self.wait.length() as f64)
        {
            reasons.push(Reason {
                reason: "host-interference",
                since_ns: None,
                until_ns: None,
                text: format!(
                    "of the wait, its thread waited {} for the host although it had the core",
                    Nanos(*delay)
                ),
            });
        }
        reasons
    }

    /// The ends of all the wait's chains by kind.
    fn ends(&self) -> Vec<EndShare> {
        let mut kinds: BTreeMap<(&str, Option<&str>), ByWhom> = BTreeMap::new();
        for (end, length) in &self.verdict.ends {
            let reason = match end {
                End::Occupied(_, _, why) => Some(reason_name(*why)),
                _ => None,
            };
            let kind = kinds.entry((name(*end), reason)).or_default();
            *kind.entry(end.vcpu()).or_default() += length;
        }
        let share = |((end, reason), whom): ((_, _), ByWhom)| {
            let of = |(who, length): (Option<VcpuId>, u64)| Some((who?, length));
            let known: Vec<_> = whom
                .iter()
                .map(|(who, n)| (*who, *n))
                .filter_map(of)
                .collect();
            let most = known
                .iter()
                .max_by_key(|(who, length)| (*length, Reverse(*who)));
            EndShare {
                end,
                reason,
                length_ns: whom.values().sum(),
                whom: known.len(),
                most: most.map(|(who, length)| (self.names.vcpu(*who).to_owned(), *length)),
            }
        };
        let mut ends: Vec<_> = kinds.into_iter().map(share).collect();
        ends.sort_by_key(|share| Reverse(share.length_ns));
        ends
    }

    fn census(&self) -> Census {
        let mut census = Census::default();
        let mut locks: BTreeMap<&str, usize> = BTreeMap::new();
        for vcpu in &self.graph().scene.vcpus {
            match vcpu.state {
                State::Blocked(Waits::HostLock(lock, _)) => {
                    *locks.entry(self.names.host_lock(lock)).or_default() += 1;
                }
                State::Blocked(Waits::GuestLock(_)) => census.guest_locks += 1,
                State::Blocked(Waits::Host) => census.hypervisor += 1,
                State::Ready(_) => census.ready += 1,
                State::Granted(_) | State::Running(_) | State::Hypervisor(..) => {
                    census.on_core += 1;
                }
                State::Blocked(Waits::Idle | Waits::Sleep) | State::Unborn | State::Retired => {
                    census.idle += 1;
                }
            }
        }
        let locks = locks.into_iter().map(|(lock, n)| (lock.to_owned(), n));
        census.host_locks = locks.collect();
        census.host_locks.sort_by_key(|(_, n)| Reverse(*n));
        census
    }
}

const fn state(state: State) -> &'static str {
    match state {
        State::Ready(_) => "ready",
        State::Granted(_) => "granted",
        State::Running(_) => "running",
        State::Hypervisor(..) => "hypervisor",
        State::Blocked(Waits::Idle) => "idle",
        State::Blocked(Waits::Sleep) => "asleep",
        State::Blocked(Waits::Host | Waits::HostLock(..) | Waits::GuestLock(_)) => "blocked",
        State::Unborn | State::Retired => "gone",
    }
}
