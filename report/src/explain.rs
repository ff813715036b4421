//! Why the worst waits of a run were so long: from the waiter through locks and their owners to the
//! vCPU on the core, and why that one was not preempted, as one reads stacks in a crash dump.
//!
//! The stream is read several times and never held in memory: once to find the longest waits, and for
//! each that is shown once to follow its chain through all of it, and once to the instant that is
//! shown. Everything comes from events, and from the timers that the dispatcher armed; only the ranks
//! that a policy gives come from a replay of the inputs.

mod blame;
mod build;
mod chain;
mod graph;
pub mod model;
mod reasons;
mod scene;
#[cfg(test)]
mod tests;
mod text;
mod waits;
mod words;

use crate::names::Names;
use crate::run_dir::{LoadError, Recording, names_only_what_exists};
use blame::{Verdict, blame};
use build::Builder;
use chain::Chain;
use model::{Explanation, FORMAT_VERSION, Waited};
use scene::Scene;
use stealtime_scheduler::dispatcher::{Dispatcher, Output};
use stealtime_scheduler::ids::{VcpuId, VmId};
use stealtime_scheduler::policy::VcpuParams;
use stealtime_scheduler::registry::ScheduledBy;
use stealtime_workloads::run::{Entry, Plan};
use waits::{Finder, On, Wait};

/// A stream that can be read again and again.
pub trait Source {
    /// The stream from its beginning.
    ///
    /// # Errors
    /// If it cannot be opened.
    fn entries(&self)
    -> Result<Box<dyn Iterator<Item = Result<Entry, LoadError>> + '_>, LoadError>;
}

impl Source for Recording {
    fn entries(
        &self,
    ) -> Result<Box<dyn Iterator<Item = Result<Entry, LoadError>> + '_>, LoadError> {
        Ok(Box::new(Self::entries(self)?))
    }
}

impl Source for [Entry] {
    fn entries(
        &self,
    ) -> Result<Box<dyn Iterator<Item = Result<Entry, LoadError>> + '_>, LoadError> {
        Ok(Box::new(self.iter().copied().map(Ok)))
    }
}

/// Waits of one vCPU that are kept for each that is to be shown: others of its waits may lead through
/// a chain that was shown before.
const SPARE: usize = 4;

/// What a run was, as far as it matters here.
#[derive(Debug)]
struct Run<'a> {
    plan: &'a Plan,
    names: Names,
    vms: Vec<VmId>,
    params: Vec<VcpuParams>,
    cores: usize,
}

impl Run<'_> {
    fn scene(&self) -> Scene {
        Scene::new(
            self.plan.vcpus.len(),
            self.cores,
            self.plan.host_locks.len(),
        )
    }

    /// The scene at an instant, and what the policy says of every vCPU then: a fresh dispatcher is
    /// given the inputs up to there.
    fn at(
        &self,
        source: &(impl Source + ?Sized),
        moment: u64,
    ) -> Result<(Scene, Vec<Option<String>>), LoadError> {
        let mut scene = self.scene();
        let mut dispatcher = Dispatcher::new(&self.plan.config()).ok();
        let mut out = Output::default();
        for entry in source.entries()? {
            let entry = entry?;
            if let Entry::Input(at, input) = entry {
                if at.0 > moment {
                    break;
                }
                // A stream that is not one of a dispatcher has no ranks.
                dispatcher = dispatcher.filter(|dispatcher| {
                    names_only_what_exists(&input, self.plan.vcpus.len(), dispatcher.cores())
                });
                if let Some(dispatcher) = &mut dispatcher {
                    out.clear();
                    dispatcher.handle(at, input, &mut out);
                }
            }
            scene.entry(&entry);
        }
        scene.now = moment;
        let vcpus = (0..self.plan.vcpus.len()).filter_map(|id| u32::try_from(id).ok());
        let rank = |id| dispatcher.as_ref()?.rank(VcpuId(id));
        Ok((scene, vcpus.map(rank).collect()))
    }
}

/// Explains the worst waits of these vCPUs (a flag for each), at most so many. A wait whose chain
/// leads through vCPUs of one shown before, at the time shown there, is not shown again.
///
/// # Errors
/// If the stream cannot be read.
pub fn explain(
    plan: &Plan,
    backend: &str,
    source: &(impl Source + ?Sized),
    vcpus: &[bool],
    worst: usize,
) -> Result<Explanation, LoadError> {
    let names = Names::new(plan);
    let cores = match names.scheduled_by() {
        ScheduledBy::Policy => plan.cores.len(),
        ScheduledBy::Host => plan.vcpus.len(),
    };
    let run = Run {
        plan,
        vms: plan.vcpus.iter().map(|vcpu| vcpu.vm).collect(),
        params: plan.vcpus.iter().map(|vcpu| vcpu.params).collect(),
        names,
        cores,
    };
    let all = longest(&run, source, vcpus, worst.saturating_mul(SPARE))?;
    let waits = choose(&run, source, &all, worst)?;
    Ok(Explanation {
        format_version: FORMAT_VERSION,
        scenario: plan.scenario.clone(),
        policy: plan.policy.to_string(),
        backend: backend.to_owned(),
        cores: plan.cores.len(),
        vcpus: plan.vcpus.len(),
        waits,
    })
}

/// A wait that was shown: whose chain it was, who was in it, and from when to when it lasted.
#[derive(Debug)]
struct Told {
    wait: Wait,
    chain: Option<Chain>,
    vcpus: Vec<VcpuId>,
    stretch: (u64, u64),
}

impl Told {
    /// Most of the wait lies in the time that was told of, and its vCPU was too; or it is a wait for
    /// the same lock at the same time.
    fn covers(&self, wait: &Wait) -> bool {
        let most = |(from, to): (u64, u64)| {
            2 * to.min(wait.to).saturating_sub(from.max(wait.from)) >= wait.length()
        };
        (self.vcpus.contains(&wait.vcpu) && most(self.stretch))
            || (wait.on != On::Core
                && wait.on == self.wait.on
                && most((self.wait.from, self.wait.to)))
    }
}

/// Takes the longest waits one after the other, and shows each whose story was not told yet.
fn choose(
    run: &Run<'_>,
    source: &(impl Source + ?Sized),
    all: &[Wait],
    worst: usize,
) -> Result<Vec<Waited>, LoadError> {
    let mut waits: Vec<Waited> = Vec::new();
    let mut told: Vec<Told> = Vec::new();
    let mut followed = 0;
    for wait in all {
        if waits.len() == worst || followed == worst.saturating_mul(SPARE) {
            break;
        }
        if told.iter().any(|told| told.covers(wait)) {
            continue;
        }
        followed += 1;
        let (mut story, mut waited, behind) = one(run, source, wait)?;
        // Others may wait behind this one, nearly as long: theirs is the whole story.
        let further = behind.and_then(|behind| {
            let mut its = all.iter().filter(|other| other.vcpu == behind);
            its.find(|other| {
                let common = other
                    .to
                    .min(wait.to)
                    .saturating_sub(other.from.max(wait.from));
                2 * common >= wait.length() && other.length() / 2 <= wait.length()
            })
        });
        if let Some(further) = further {
            (story, waited, _) = one(run, source, further)?;
        }
        let same = |told: &Told| story.chain.is_some() && told.chain == story.chain;
        match told.iter().position(same) {
            Some(place) => waits[place].like_it += 1,
            None => {
                waits.push(waited);
                told.push(story);
            }
        }
    }
    Ok(waits)
}

fn longest(
    run: &Run<'_>,
    source: &(impl Source + ?Sized),
    vcpus: &[bool],
    each: usize,
) -> Result<Vec<Wait>, LoadError> {
    let mut scene = run.scene();
    let mut finder = Finder::new(vcpus, each, run.names.scheduled_by());
    for entry in source.entries()? {
        let entry = entry?;
        if let Entry::Event(event) = &entry {
            finder.event(event, &scene);
        }
        scene.entry(&entry);
    }
    Ok(finder.finish())
}

/// Follows one wait, and goes to the instant that is shown. Also, who waits behind it.
fn one(
    run: &Run<'_>,
    source: &(impl Source + ?Sized),
    wait: &Wait,
) -> Result<(Told, Waited, Option<VcpuId>), LoadError> {
    let verdict = match run.names.scheduled_by() {
        ScheduledBy::Policy => blame(source.entries()?, wait, run.scene(), &run.vms)?,
        ScheduledBy::Host => None,
    };
    // Under the host's scheduler there is no chain, and the middle is as good as any instant.
    let verdict = verdict.unwrap_or_else(|| Verdict {
        chain: None,
        moment: wait.from + wait.length() / 2,
        stretch: (wait.from, wait.to),
        total: wait.length(),
        ends: Vec::new(),
        delays: std::collections::BTreeMap::new(),
    });
    let (scene, ranks) = run.at(source, verdict.moment)?;
    let builder = Builder::new(run, &scene, wait, &verdict, &ranks);
    let told = Told {
        wait: *wait,
        vcpus: builder.told_of(),
        stretch: verdict.stretch,
        chain: verdict.chain.clone(),
    };
    let behind = builder.behind();
    Ok((told, builder.waited(), behind))
}
