//! Who starved, why, and what fixes it, in one or two plain sentences.
//!
//! The longest wait is followed to those who had the cores meanwhile, and to why they were not
//! preempted, as one reads a chain of stacks in a crash dump. Only facts from the events are said,
//! and a fix only where it follows from them.

mod words;

use crate::collector::{Collector, Deferral, Meanwhile, Occupancy, Priority, Stop, Wait};
use crate::model::{Cause, Diagnosis, KernelPriorityReport, Occupant, Starvation, VcpuReport};
use stealtime_scheduler::ids::VcpuId;
use stealtime_scheduler::registry::ScheduledBy;
use stealtime_workloads::run::{Outcome, Plan};

/// A wait of this length is a fault if something other than its turn caused it.
const TOO_LONG_NS: u64 = 100_000_000;

/// A wait of this length is a fault if its vCPU also received clearly too little.
const FAR_TOO_LONG_NS: u64 = 1_000_000_000;

/// A shorter wait is no starvation, whatever part of a run it is: it is of the length of a switch.
const NOTICEABLE_NS: u64 = 1_000_000;

/// Who received less than this part of what it was entitled to has starved.
const SHORTFALL: f64 = 0.5;

/// Who received less than this part of what it was entitled to has received clearly too little.
const CLEARLY_LESS: f64 = 0.8;

/// What is known of the longest wait.
struct Facts<'a> {
    plan: &'a Plan,
    vcpus: &'a [VcpuReport],
    wait: Wait,
    meanwhile: Meanwhile,
    cause: Cause,
    /// Of the first occupant.
    priority: Option<Priority>,
    deferral: Option<Deferral>,
    stop: Option<Stop>,
    /// The run's last instant.
    end: u64,
    violations: u64,
}

/// The longest wait, and what is to be said of the run.
pub(crate) fn diagnose(
    plan: &Plan,
    collector: &mut Collector,
    vcpus: &[VcpuReport],
    outcome: &Outcome,
) -> (Option<Starvation>, Diagnosis) {
    let Some((wait, meanwhile)) = collector.worst() else {
        return (None, words::nobody_waited(outcome.violation_count));
    };
    let (from, to) = (wait.from, wait.to);
    let first = meanwhile.occupants.first().map(|o| o.vcpu);
    let account = first.map(|vcpu| &collector.accounts[vcpu]);
    let priority = account.and_then(|a| a.priorities.during(from, to));
    let deferral = account.and_then(|a| a.deferrals.during(from, to));
    let stop = collector
        .slowest_stop()
        .filter(|stop| Some(stop.vcpu) == first && 2 * overlap(*stop, &wait) > to - from);
    let deferral = deferral.filter(|(_, common)| 2 * common > to - from);
    let cause = cause(
        collector,
        &wait,
        &meanwhile,
        deferral.is_some(),
        stop.is_some(),
    );
    let facts = Facts {
        plan,
        vcpus,
        cause,
        priority: priority.map(|(priority, _)| priority),
        deferral: deferral.map(|(deferral, _)| deferral),
        stop,
        end: collector.measured().1,
        violations: outcome.violation_count,
        wait,
        meanwhile,
    };
    let diagnosis = words::diagnosis(&facts);
    (Some(facts.starvation()), diagnosis)
}

fn overlap(stop: Stop, wait: &Wait) -> u64 {
    stop.left
        .min(wait.to)
        .saturating_sub(stop.asked.max(wait.from))
}

fn cause(
    collector: &Collector,
    wait: &Wait,
    meanwhile: &Meanwhile,
    deferred: bool,
    slow_stop: bool,
) -> Cause {
    let length = wait.to.saturating_sub(wait.from);
    let known = wait.to.saturating_sub(meanwhile.known_from);
    let occupied: u64 = meanwhile.occupants.iter().map(|o| o.on_core).sum();
    let had = occupied + meanwhile.on_the_way;
    let at_priority: u64 = meanwhile
        .occupants
        .iter()
        .map(|o| o.at_kernel_priority)
        .sum();
    if collector.scheduled_by == ScheduledBy::Host {
        Cause::HostScheduler
    } else if 2 * wait.granted_for > length {
        Cause::LateEntry
    } else if occupied > 0 && 2 * at_priority >= occupied {
        Cause::KernelPriority
    } else if u128::from(had) * 2 < u128::from(known) * collector.cores as u128 {
        Cause::IdleCores
    } else if deferred {
        Cause::DeferredPreemption
    } else if slow_stop {
        Cause::SlowStop
    } else {
        Cause::Turn
    }
}

impl Facts<'_> {
    fn length(&self) -> u64 {
        self.wait.to.saturating_sub(self.wait.from)
    }

    fn name(&self, vcpu: usize) -> String {
        self.vcpus[vcpu].name()
    }

    /// It went on when the run ended.
    fn to_the_end(&self) -> bool {
        !self.wait.ended && self.wait.to == self.end
    }

    /// Who received least of what it was entitled to, and which part of it.
    fn least_served(&self) -> Option<(usize, f64)> {
        let all = self.vcpus.iter().enumerate();
        all.filter_map(|(number, vcpu)| Some((number, vcpu.received(self.vcpus.len())?)))
            .min_by(|(_, a), (_, b)| a.total_cmp(b))
    }

    fn starved(&self) -> bool {
        self.waited_too_long() || self.came_short().is_some()
    }

    fn waited_too_long(&self) -> bool {
        let victim = &self.vcpus[self.wait.vcpu];
        let received = victim.received(self.vcpus.len()).unwrap_or(1.0);
        let abnormal = !matches!(self.cause, Cause::Turn | Cause::HostScheduler);
        (abnormal && self.length() >= TOO_LONG_NS)
            || (self.length() >= FAR_TOO_LONG_NS && received < CLEARLY_LESS)
    }

    /// Who received far less than it was entitled to, and which part of it.
    fn came_short(&self) -> Option<(usize, f64)> {
        let least = self.least_served();
        least.filter(|(_, part)| *part < SHORTFALL && self.length() >= NOTICEABLE_NS)
    }

    /// Others who waited at least half as long.
    fn also(&self) -> Vec<usize> {
        let others = self.vcpus.iter().enumerate();
        others
            .filter(|(number, vcpu)| {
                *number != self.wait.vcpu && vcpu.longest_starvation_ns >= self.length() / 2
            })
            .map(|(number, _)| number)
            .collect()
    }

    fn lock_name(&self, priority: &Priority) -> Option<String> {
        let lock = priority.lock?;
        let name = self.plan.host_locks.get(lock.index()).cloned();
        Some(name.unwrap_or_else(|| lock.to_string()))
    }

    fn starvation(&self) -> Starvation {
        let victim = &self.vcpus[self.wait.vcpu];
        let occupant = |o: &Occupancy| Occupant {
            vm: self.vcpus[o.vcpu].vm.clone(),
            vcpu: self.vcpus[o.vcpu].vcpu.clone(),
            on_core_ns: o.on_core,
            kernel_priority_ns: o.at_kernel_priority,
            turns: o.turns,
        };
        Starvation {
            vm: victim.vm.clone(),
            vcpu: victim.vcpu.clone(),
            from_ns: self.wait.from,
            length_ns: self.length(),
            ended: self.wait.ended,
            granted_for_ns: self.wait.granted_for,
            occupants: self.meanwhile.occupants.iter().map(occupant).collect(),
            known_from_ns: self.meanwhile.known_from,
            kernel_priority: self.priority.map(|priority| KernelPriorityReport {
                since_ns: priority.since,
                until_ns: priority.until,
                host_lock: self.lock_name(&priority),
                released_ns: priority.released,
                user_returns: priority.user_returns,
            }),
            also: self
                .also()
                .into_iter()
                .map(|other| {
                    self.plan
                        .vcpu_name(VcpuId(u32::try_from(other).unwrap_or(0)))
                })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests;
