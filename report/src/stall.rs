//! What keeps vCPUs out of their guests and is no policy: the hypervisor, and the host.
//!
//! The vCPU that was blocked longest, how much the host interfered, and the sentences about both that
//! follow the diagnosis.

use crate::collector::Collector;
use crate::model::StallReport;
use stealtime_scheduler::event::Waits;
use stealtime_scheduler::registry::ScheduledBy;
use stealtime_scheduler::time::Nanos;
use stealtime_workloads::run::Plan;

/// From this length on it is told: guests report a stalled CPU after seconds.
const WORTH_TELLING_NS: u64 = 1_000_000_000;

/// The longest stall of all vCPUs (the first of equals), if it is worth telling.
pub(crate) fn longest(plan: &Plan, collector: &Collector) -> Option<StallReport> {
    let all = plan.vcpus.iter().zip(&collector.accounts);
    let stalls = all.filter_map(|(vcpu, account)| Some((vcpu, account.stalls.longest()?)));
    let (vcpu, stall) = stalls
        .rev()
        .max_by_key(|(_, stall)| stall.length())
        .filter(|(_, stall)| stall.length() >= WORTH_TELLING_NS)?;
    let (host_lock, owner) = match stall.on {
        Waits::HostLock(lock, owner) => (
            plan.host_locks.get(lock.index()).cloned(),
            Some(plan.vcpu_name(owner)),
        ),
        Waits::Idle | Waits::Sleep | Waits::Host => (None, None),
    };
    Some(StallReport {
        vm: plan.vms[vcpu.vm.index()].name.clone(),
        vcpu: vcpu.name.clone(),
        from_ns: stall.from,
        length_ns: stall.length(),
        ended: stall.ended,
        host_lock,
        owner,
    })
}

/// From this part of the core time on, host interference is told beside the diagnosis.
const INTERFERENCE: f64 = 0.1;

/// A sentence about host interference, if there was much: a granted vCPU that does not run looks like
/// a fault of the policy and is none. Under a policy that leaves scheduling to the host it is the
/// policy.
pub(crate) fn interference(part: f64, scheduled_by: ScheduledBy) -> Option<String> {
    (part >= INTERFERENCE && scheduled_by == ScheduledBy::Policy).then(|| {
        format!(
            " Host interference: for {:.0} % of the core time vCPU threads had a core by the policy and the host let something else run there; waits that come of that are not the policy's.",
            100.0 * part
        )
    })
}

/// A sentence about it, to follow the diagnosis.
pub(crate) fn words(stall: &StallReport) -> String {
    let for_what = match (&stall.host_lock, &stall.owner) {
        (Some(lock), Some(owner)) => format!("host lock `{lock}`, which {owner} held"),
        _ => "the hypervisor, as for a device or a page".to_owned(),
    };
    let end = if stall.ended {
        ""
    } else {
        ", to the end of the run"
    };
    format!(
        " {}/{} exited at {:.3} s and did not enter its guest again for {}{end}: it waited for {for_what}, not for a core.",
        stall.vm,
        stall.vcpu,
        Nanos(stall.from_ns).as_secs_f64(),
        Nanos(stall.length_ns),
    )
}
