//! What a wait waited for, from its beginning to its end.
//!
//! At every instant of the wait its chain is followed; the time is put to the account of that chain.
//! The chain that had most of it is shown, as it was in the middle of its longest stretch.

use super::chain::{Chain, End};
use super::graph::Graph;
use super::scene::Scene;
use super::waits::{On, Wait, is_in};
use crate::run_dir::LoadError;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use stealtime_scheduler::event::EventKind;
use stealtime_scheduler::ids::{VcpuId, VmId};
use stealtime_workloads::run::Entry;

/// The time of one chain in a wait, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    total: u64,
    longest: (u64, u64),
}

/// Where the time of a wait went.
#[derive(Debug, Default)]
pub(super) struct Blame {
    shares: BTreeMap<Chain, Share>,
    last: Option<(Chain, u64, u64)>,
    delays: BTreeMap<VcpuId, u64>,
}

/// The chain to show.
#[derive(Clone, Debug)]
pub(super) struct Verdict {
    /// The chain itself; none if there is none to follow.
    pub(super) chain: Option<Chain>,
    /// The middle of its longest stretch.
    pub(super) moment: u64,
    /// From when to when that lasted.
    pub(super) stretch: (u64, u64),
    /// Its time of all the wait.
    pub(super) total: u64,
    /// What the wait ended at, by the end of its chains: how long, the longest first.
    pub(super) ends: Vec<(End, u64)>,
    /// How long the threads of vCPUs waited for the host meanwhile.
    pub(super) delays: BTreeMap<VcpuId, u64>,
}

impl Blame {
    fn add(&mut self, chain: Chain, from: u64, to: u64) {
        match &mut self.last {
            Some((last, _, end)) if *last == chain && *end == from => *end = to,
            _ => {
                self.book();
                self.last = Some((chain, from, to));
            }
        }
    }

    fn book(&mut self) {
        if let Some((chain, from, to)) = self.last.take() {
            let share = self.shares.entry(chain).or_default();
            share.total += to - from;
            if to - from > share.longest.1 - share.longest.0 {
                share.longest = (from, to);
            }
        }
    }

    fn verdict(mut self) -> Option<Verdict> {
        self.book();
        let mut ends: BTreeMap<End, u64> = BTreeMap::new();
        for (chain, share) in &self.shares {
            *ends.entry(chain.end).or_default() += share.total;
        }
        let mut ends: Vec<_> = ends.into_iter().collect();
        ends.sort_by_key(|(end, total)| (Reverse(*total), *end));
        // The chain that had most of the time; the first of equals.
        let all = self.shares.into_iter();
        let (chain, most) = all.max_by_key(|(_, share)| (share.total, Reverse(share.longest.0)))?;
        let (from, to) = most.longest;
        Some(Verdict {
            chain: Some(chain),
            moment: from + (to - from) / 2,
            stretch: most.longest,
            total: most.total,
            ends,
            delays: self.delays,
        })
    }
}

/// Follows a wait through the stream.
///
/// # Errors
/// If the stream cannot be read.
pub(super) fn blame(
    entries: impl Iterator<Item = Result<Entry, LoadError>>,
    wait: &Wait,
    mut scene: Scene,
    vms: &[VmId],
) -> Result<Option<Verdict>, LoadError> {
    let mut blame = Blame::default();
    for entry in entries {
        let entry = entry?;
        if let Entry::Input(at, _) = entry {
            let (from, to) = (scene.now.max(wait.from), at.0.min(wait.to));
            if to > from {
                blame.add(chain_of(&scene, wait, vms), from, to);
            }
            if at.0 >= wait.to {
                return Ok(blame.verdict());
            }
        }
        if let Entry::Event(event) = entry
            && let EventKind::HostDelay(delay) = event.kind
            && event.at.0 > wait.from
        {
            let within = delay.0.min(event.at.0 - wait.from);
            *blame.delays.entry(event.vcpu).or_default() += within;
        }
        scene.entry(&entry);
    }
    // The stream may end with the wait.
    let (from, to) = (scene.now.max(wait.from), wait.to);
    if to > from {
        blame.add(chain_of(&scene, wait, vms), from, to);
    }
    Ok(blame.verdict())
}

/// The chain of a wait in a scene.
pub(super) fn chain_of(scene: &Scene, wait: &Wait, vms: &[VmId]) -> Chain {
    let graph = Graph { scene, vms };
    let state = scene.vcpus[wait.vcpu.index()].state;
    // Woken to take a mutex it is ready for a while, within its wait for the mutex.
    let on = if is_in(state, wait.on) {
        wait.on
    } else {
        On::Core
    };
    graph.chain(wait.vcpu, on)
}
