//! What each vCPU is entitled to: an ideal scheduler that divides the cores like a fluid
//! (generalized processor sharing; Parekh and Gallager 1993, here with two levels and limits).
//!
//! At every instant the cores are divided among **groups** that have runnable members, in proportion
//! to their shares, and a group's part among its runnable members in proportion to their weights.
//! Groups are the VMs if the policy divides between VMs, else every vCPU is its own group. With
//!
//! * `c` the number of cores, `n_g` the number of runnable members of group `g`,
//! * `L_g = min(n_g, cap of g)` the most that `g` can use, in cores,
//! * `S_g` the shares of `g`, `w_i` the weight of vCPU `i`, `W_g` the sum over `g`'s runnable ones,
//!
//! a group gets `min(L_g, λ S_g)` cores, where the level `λ` is such that the sum is
//! `min(c, Σ L_g)`. So everyone gets a whole core while there are no more runnable vCPUs than cores,
//! and what a group cannot use goes to the others. In a group below its limit, `i` gets the part
//! `w_i / W_g`; in a group at its limit all members get the same, `L_g / n_g` (a whole core, unless
//! capped). Not modelled: a single member's limit of one core in a group of unequal weights.
//!
//! # Cost
//! Integrals of the level are kept per group and brought up to date only when the group changes, so
//! a change costs the logarithm of the number of groups, plus one step for each group that is at its
//! limit while others are not (fewer than there are cores, caps aside).

use std::collections::BTreeSet;
use stealtime_scheduler::policies::nice::weight_of_nice;
use stealtime_scheduler::policy::{Division, VcpuParams};

/// One core in the unit of capacities: caps are given in per cent of a core.
const CORE: u64 = 100;

/// The weight of a vCPU for which nothing was asked, so that nice values keep their precision.
const UNIT_WEIGHT: u64 = 1024;

#[derive(Debug)]
struct Group {
    shares: u64,
    /// `u64::MAX` if it has none.
    cap: u64,
    runnable: u64,
    /// Sum of the weights of the runnable members.
    weights: u64,
    /// At its limit although others are not.
    limited: bool,
    /// The integrals of the whole up to which this group is up to date.
    synced: Integrals,
    /// What a member got while the group was at its limit, in core nanoseconds.
    level_part: f64,
    /// What a member got below the limit, per unit of its weight.
    weighted_part: f64,
}

#[derive(Debug)]
struct Member {
    group: usize,
    weight: u64,
    runnable: bool,
    /// The group's integrals when this member was last brought up to date.
    level_part: f64,
    weighted_part: f64,
    entitled: f64,
}

/// Integrals over time, for all groups.
#[derive(Debug, Clone, Copy, Default)]
struct Integrals {
    /// Time while all could be satisfied.
    ample: f64,
    /// Time while they could not.
    scarce: f64,
    /// The level λ over the scarce time.
    level: f64,
}

/// The ideal scheduler.
#[derive(Debug)]
pub(crate) struct Fluid {
    capacity: u64,
    groups: Vec<Group>,
    members: Vec<Member>,
    /// Groups with runnable members, by limit over shares: who reaches the limit first.
    order: BTreeSet<(u128, usize)>,
    limited: Vec<usize>,
    limits: u64,
    shares: u64,
    /// λ in cores per unit of shares; none while all can be satisfied.
    level: Option<f64>,
    at: u64,
    integrals: Integrals,
}

fn weight_of(params: &VcpuParams) -> u64 {
    params.nice.map_or_else(
        || UNIT_WEIGHT * u64::from(params.weight.unwrap_or(1).max(1)),
        |nice| u64::from(weight_of_nice(nice)),
    )
}

impl Group {
    /// The most it can use.
    fn limit(&self) -> u64 {
        self.cap.min(self.runnable * CORE)
    }

    fn key(&self) -> u128 {
        (u128::from(self.limit()) << 64) / u128::from(self.shares)
    }

    fn sync(&mut self, to: Integrals) {
        if self.runnable > 0 {
            let scarce = if self.limited {
                to.scarce - self.synced.scarce
            } else {
                self.weighted_part +=
                    self.shares as f64 * (to.level - self.synced.level) / self.weights as f64;
                0.0
            };
            let each = self.limit() as f64 / (CORE * self.runnable) as f64;
            self.level_part += each * (to.ample - self.synced.ample + scarce);
        }
        self.synced = to;
    }
}

impl Fluid {
    /// An ideal scheduler of `cores` for these vCPUs, none of them runnable yet.
    pub(crate) fn new(cores: usize, division: Division, vcpus: &[VcpuParams]) -> Self {
        let mut groups: Vec<Group> = Vec::new();
        let mut of_vm = std::collections::BTreeMap::new();
        let mut members = Vec::with_capacity(vcpus.len());
        for params in vcpus {
            let shares = u64::from(params.shares.unwrap_or(1));
            let (shares, fresh) = match division {
                Division::Vcpus => (shares * weight_of(params), true),
                // The weight of the only vCPU of a VM is the shares of that VM.
                Division::Vms if params.siblings == 1 => (shares * weight_of(params), true),
                Division::Vms => (shares * UNIT_WEIGHT, !of_vm.contains_key(&params.vm)),
            };
            if fresh {
                of_vm.insert(params.vm, groups.len());
                // No shares at all: next to nothing beside others, everything alone.
                groups.push(Group::new(shares.max(1), params.cap));
            }
            members.push(Member {
                group: of_vm.get(&params.vm).copied().unwrap_or(0),
                weight: weight_of(params),
                runnable: false,
                level_part: 0.0,
                weighted_part: 0.0,
                entitled: 0.0,
            });
        }
        Self {
            capacity: cores as u64 * CORE,
            groups,
            members,
            order: BTreeSet::new(),
            limited: Vec::new(),
            limits: 0,
            shares: 0,
            level: None,
            at: 0,
            integrals: Integrals::default(),
        }
    }

    /// A vCPU is runnable, or no longer so, from `at` on.
    pub(crate) fn set(&mut self, at: u64, vcpu: usize, runnable: bool) {
        if self.members[vcpu].runnable == runnable {
            return;
        }
        self.advance(at);
        self.settle(vcpu);
        let member = &mut self.members[vcpu];
        member.runnable = runnable;
        let (index, weight) = (member.group, member.weight);
        let group = &mut self.groups[index];
        if group.runnable > 0 {
            self.order.remove(&(group.key(), index));
            self.limits -= group.limit();
            self.shares -= group.shares;
        }
        if runnable {
            group.runnable += 1;
            group.weights += weight;
        } else {
            group.runnable -= 1;
            group.weights -= weight;
        }
        if group.runnable > 0 {
            self.order.insert((group.key(), index));
            self.limits += group.limit();
            self.shares += group.shares;
        }
        self.divide();
    }

    /// Core nanoseconds that the vCPU is entitled to since the last reset.
    pub(crate) fn entitled(&mut self, at: u64, vcpu: usize) -> f64 {
        self.advance(at);
        self.settle(vcpu);
        self.members[vcpu].entitled
    }

    /// Starts to count anew. Who is runnable stays so.
    pub(crate) fn reset(&mut self, at: u64) {
        self.advance(at);
        for vcpu in 0..self.members.len() {
            self.settle(vcpu);
            self.members[vcpu].entitled = 0.0;
        }
    }

    fn advance(&mut self, at: u64) {
        let passed = at.saturating_sub(self.at) as f64;
        self.at = self.at.max(at);
        match self.level {
            None => self.integrals.ample += passed,
            Some(level) => {
                self.integrals.scarce += passed;
                self.integrals.level += level * passed;
            }
        }
    }

    /// Brings a vCPU and its group up to date.
    fn settle(&mut self, vcpu: usize) {
        let member = &mut self.members[vcpu];
        let group = &mut self.groups[member.group];
        group.sync(self.integrals);
        if member.runnable {
            member.entitled += (group.level_part - member.level_part)
                + (group.weighted_part - member.weighted_part) * member.weight as f64;
        }
        member.level_part = group.level_part;
        member.weighted_part = group.weighted_part;
    }

    /// Finds the level: groups whose limit lies below it are at their limit, the rest share what is
    /// left.
    fn divide(&mut self) {
        if self.limits <= self.capacity {
            self.level = None;
            return;
        }
        let (mut capacity, mut shares) = (self.capacity, self.shares);
        let mut limited = Vec::new();
        for (_, index) in &self.order {
            let group = &self.groups[*index];
            let (limit, of_shares) = (group.limit(), group.shares);
            if u128::from(limit) * u128::from(shares) > u128::from(capacity) * u128::from(of_shares)
            {
                break;
            }
            limited.push(*index);
            capacity -= limit;
            shares -= of_shares;
        }
        self.level = Some(capacity as f64 / (CORE * shares.max(1)) as f64);
        if limited != self.limited {
            self.mark_limited(limited);
        }
    }

    fn mark_limited(&mut self, limited: Vec<usize>) {
        let before = std::mem::replace(&mut self.limited, limited);
        for index in &before {
            self.groups[*index].sync(self.integrals);
            self.groups[*index].limited = false;
        }
        for index in &self.limited {
            self.groups[*index].sync(self.integrals);
            self.groups[*index].limited = true;
        }
    }
}

impl Group {
    fn new(shares: u64, cap: Option<u32>) -> Self {
        Self {
            shares,
            cap: cap.map_or(u64::MAX, |cap| u64::from(cap.max(1))),
            runnable: 0,
            weights: 0,
            limited: false,
            synced: Integrals::default(),
            level_part: 0.0,
            weighted_part: 0.0,
        }
    }
}

#[cfg(test)]
#[path = "fluid_tests.rs"]
mod tests;
