//! `kpri-fss`: kernel priority that outlives its cause (illumos issue 11909, OS-7753).
//!
//! A thread that goes to sleep in the kernel while it has asked for kernel priority is given a flag
//! by the fair share class. Quantum ends and peers do not count against the flag, and only a return
//! to user mode takes it away. A vCPU's thread lives in the run ioctl and returns seldom or never.
//!
//! Measured is the longest starvation of each *victim*: every vCPU whose program asks for no kernel
//! priority. With the fault the least starved victim decides, with the fix the most starved one.

use super::criterion::{Row, Side};
use super::{Finding, Way};
use anyhow::{Context, Result};
use stealtime_guest::op::Step;
use stealtime_report::Report;
use stealtime_scheduler::registry;
use stealtime_scheduler::time::Nanos;
use stealtime_workloads::run::{Plan, VcpuPlan};

/// What is known of the finding.
pub(super) const FINDING: Finding = Finding {
    name: "kpri-fss",
    title: "kernel priority that outlives its cause",
    place: "illumos, fair share scheduler, until April 2020: issue 11909 (SmartOS OS-7753)",
    story: "\
A thread that sleeps in the kernel on a lock, having asked for kernel priority, gets a flag in its
scheduling class. The flag lifts it above every ordinary thread and past the end of its quantum, and
only a return to user mode clears it. A vCPU thread spends its life inside the run ioctl: once it has
caught the flag and its guest just computes, it keeps the core, and its peers wait without bound.",
    scenario: "kpri-fss",
    ways: &[
        Way {
            name: "fault",
            policy: "fss:variant=before",
        },
        Way {
            name: "fix",
            policy: "fss:variant=after",
        },
    ],
    judge,
};

/// Part of the run that a victim must have starved in one piece for the fault to count as shown.
const STARVED_PERCENT: u64 = 80;
/// Quanta that a victim may wait for each competitor once it is mended.
const QUANTA_PER_COMPETITOR: u64 = 3;

fn asks_for_kernel_priority(vcpu: &VcpuPlan) -> bool {
    vcpu.program.iter().any(|op| {
        let step = Step::decode(*op);
        matches!(
            step,
            Ok(Step::HostLock {
                kernel_priority: true,
                ..
            })
        )
    })
}

/// The longest starvation of each victim.
fn starvation(plan: &Plan, report: &Report) -> Vec<Nanos> {
    let all = plan.vcpus.iter().zip(&report.vcpus);
    all.filter(|(vcpu, _)| !asks_for_kernel_priority(vcpu))
        .map(|(_, row)| Nanos(row.longest_starvation_ns))
        .collect()
}

fn judge(way: &Way, plan: &Plan, reports: &[Report]) -> Result<Row> {
    let victims = reports.iter().map(|report| starvation(plan, report));
    if way.name == "fault" {
        return Ok(Row {
            name: "fault: longest starvation of the least starved victim".into(),
            published: "victims wait without bound",
            measured: victims.filter_map(|all| all.into_iter().min()).collect(),
            side: Side::AtLeast,
            bound: Nanos(plan.duration.get() / 100 * STARVED_PERCENT),
            criterion: format!("at least {STARVED_PERCENT} % of the run"),
        });
    }
    let (_, options) = registry::check(&plan.policy).context("the policy of the fix")?;
    let quantum = options.time("quantum");
    let competitors = plan.vcpus.len().saturating_sub(1) as u64;
    Ok(Row {
        name: "fix: longest starvation of the most starved victim".into(),
        published: "no flag: a victim waits for its competitors' quanta only",
        measured: victims.filter_map(|all| all.into_iter().max()).collect(),
        side: Side::AtMost,
        bound: Nanos(quantum.get() * QUANTA_PER_COMPETITOR * competitors),
        criterion: format!(
            "at most {QUANTA_PER_COMPETITOR} quanta of {quantum} for each of {competitors} competitors"
        ),
    })
}
