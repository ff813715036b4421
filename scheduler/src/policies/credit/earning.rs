//! Who earns in `credit`, and what the accounting of a period does to each unit.

use super::account::{self, Claim, PER_SLICE};
use super::units::{Credit, Domain, Priority};
use crate::ids::{CoreId, VcpuId};

/// What the accounting of a unit leads to.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Settled {
    /// It stays where it is.
    InPlace,
    /// It runs on this core and is parked.
    Leaves(CoreId),
    /// It waits again, for this core.
    Unparked(CoreId),
}

impl Credit {
    pub(super) fn activate(&mut self, vcpu: VcpuId) {
        let unit = self.unit(vcpu);
        if !unit.active {
            unit.active = true;
            let index = unit.domain;
            let domain = &mut self.domains[index];
            domain.active.push(vcpu);
            if domain.active.len() == 1 {
                self.list.push(index);
            }
        }
    }

    pub(super) fn deactivate(&mut self, vcpu: VcpuId) {
        let unit = self.unit(vcpu);
        if std::mem::take(&mut unit.active) {
            let index = unit.domain;
            let domain = &mut self.domains[index];
            domain.active.retain(|active| *active != vcpu);
            if domain.active.is_empty() {
                self.list.retain(|listed| *listed != index);
            }
        }
    }

    /// The accounting of a period. The answer is the cores on which somebody is to leave, and the units
    /// that wait again because they were unparked, with the core that they wait for.
    pub(super) fn account(&mut self) -> (Vec<CoreId>, Vec<(CoreId, VcpuId)>) {
        let visited = self.list.clone();
        let claims: Vec<_> = visited
            .iter()
            .map(|index| &self.domains[*index])
            .map(Claim::of)
            .collect();
        let cores = i64::try_from(self.cores.len()).unwrap_or(1);
        let grants = account::divide(&claims, cores, self.balance);
        self.balance = 0;
        let (mut leave, mut unparked) = (Vec::new(), Vec::new());
        for (index, grant) in visited.into_iter().zip(&grants) {
            for vcpu in self.domains[index].active.clone() {
                match self.settle(vcpu, grant) {
                    Settled::InPlace => {}
                    Settled::Leaves(core) => leave.push(core),
                    Settled::Unparked(home) => unparked.push((home, vcpu)),
                }
                self.balance += self.units[vcpu.index()].credits;
            }
            if grant.to_head
                && let Some(at) = self.list.iter().position(|listed| *listed == index)
            {
                self.list.remove(at);
                self.list.insert(0, index);
            }
        }
        for core in 0..self.cores.len() {
            self.sort(core);
        }
        (leave, unparked)
    }

    /// One unit's part of the accounting.
    fn settle(&mut self, vcpu: VcpuId, grant: &account::Grant) -> Settled {
        let unit = self.unit(vcpu);
        unit.credits += grant.each;
        if unit.credits < 0 {
            unit.priority = Priority::Over;
            let park = grant.park_below.is_some_and(|limit| unit.credits < limit);
            unit.credits = unit.credits.max(-PER_SLICE);
            if park && !unit.parked {
                unit.parked = true;
                return self.park(vcpu);
            }
            return Settled::InPlace;
        }
        unit.priority = Priority::Under;
        let unparked = std::mem::take(&mut unit.parked);
        if unit.credits > PER_SLICE {
            unit.credits /= 2;
            self.deactivate(vcpu);
        }
        let unit = self.unit(vcpu);
        if unparked && std::mem::take(&mut unit.waiting_parked) {
            let home = unit.home.unwrap_or(CoreId(0));
            self.insert(home, vcpu);
            return Settled::Unparked(home);
        }
        Settled::InPlace
    }

    fn park(&mut self, vcpu: VcpuId) -> Settled {
        if let Some(core) = self.units[vcpu.index()].on {
            return Settled::Leaves(core);
        }
        let queued = self.queued;
        self.unqueue(vcpu);
        self.unit(vcpu).waiting_parked = self.queued < queued;
        Settled::InPlace
    }
}

impl Claim {
    fn of(domain: &Domain) -> Self {
        let active = i64::try_from(domain.active.len()).unwrap_or(i64::MAX);
        Self {
            weight: domain.weight,
            cap: domain.cap,
            active,
        }
    }
}
