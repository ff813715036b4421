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
        Waits::Idle | Waits::Sleep | Waits::Host | Waits::GuestLock(_) => (None, None),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Tape, plan};
    use stealtime_scheduler::event::{EventKind, WakeSource};
    use stealtime_scheduler::ids::{CoreId, HostLockId, VcpuId};

    const MS: u64 = 1_000_000;

    /// vCPU 1 is blocked for so long, on a lock that vCPU 0 holds.
    fn blocked_for(length: u64) -> Option<StallReport> {
        let plan = plan("rr", 2, 1);
        let mut tape = Tape::new(&plan);
        let on = Waits::HostLock(HostLockId(1), VcpuId(0));
        tape.at(0, 1, EventKind::Admitted);
        tape.at(0, 1, EventKind::Running(CoreId(0)));
        tape.at(500 * MS, 1, EventKind::Blocked(on));
        tape.at(
            500 * MS + length,
            1,
            EventKind::Woken(WakeSource::HostLock(VcpuId(0))),
        );
        tape.collector.close();
        longest(&plan, &tape.collector)
    }

    #[test]
    fn a_stall_of_a_second_is_told_with_the_lock_and_its_owner() {
        assert_eq!(blocked_for(1_000 * MS - 1), None);
        let stall = blocked_for(1_000 * MS).expect("worth telling");
        let expected = StallReport {
            vm: "vm1".into(),
            vcpu: "main".into(),
            from_ns: 500 * MS,
            length_ns: 1_000 * MS,
            ended: true,
            host_lock: Some("pages".into()),
            owner: Some("vm0/main".into()),
        };
        assert_eq!(stall, expected);
    }

    #[test]
    fn the_names_of_a_stall_are_documented() {
        let page = include_str!("../../docs/report-format.md");
        let row = page.lines().find(|line| line.starts_with("| `stall`"));
        let row = row.expect("a row for it");
        let json = serde_json::to_value(blocked_for(1_000 * MS)).expect("JSON");
        for name in json.as_object().expect("an object").keys() {
            assert!(row.contains(&format!("`{name}`")), "`{name}` is missing");
        }
    }
}
