//! Plans of the probe's own: guests that do one thing over and over.

use stealtime_guest::op::Step;
use stealtime_scheduler::ids::VmId;
use stealtime_scheduler::policy::VcpuParams;
use stealtime_scheduler::spec::{NamedOptions, PolicySpec};
use stealtime_scheduler::time::Nanos;
use stealtime_workloads::run::{LockKind, Plan, VcpuPlan, VmPlan};

/// One VM with a vCPU for each program and a lock, on these cores, for so long.
pub(super) fn plan(
    policy: (&str, &[(&str, &str)]),
    cores: &[u16],
    duration: Nanos,
    programs: &[&[Step]],
) -> Plan {
    let options = policy.1.iter();
    let vcpus = (0..).zip(programs).map(|(index, steps)| VcpuPlan {
        name: format!("probe{index}"),
        vm: VmId(0),
        index,
        params: VcpuParams::plain(VmId(0)),
        start: Nanos::ZERO,
        program: steps.iter().map(|step| step.encode()).collect(),
    });
    Plan {
        scenario: "probe".into(),
        policy: PolicySpec {
            policy: NamedOptions {
                name: policy.0.into(),
                options: options
                    .map(|(name, value)| ((*name).into(), (*value).into()))
                    .collect(),
            },
            layers: Vec::new(),
        },
        cores: cores.to_vec(),
        warmup: Nanos::ZERO,
        duration,
        seed: 0,
        vms: vec![VmPlan {
            name: "probe".into(),
            locks: vec![("probe".into(), LockKind::Ticket)],
        }],
        vcpus: vcpus.collect(),
        host_locks: Vec::new(),
    }
}
