//! What the tests of this crate share: small plans, and events written down by hand.

use crate::collector::Collector;
use stealtime_scheduler::event::{Event, EventKind};
use stealtime_scheduler::ids::{VcpuId, VmId};
use stealtime_scheduler::policy::VcpuParams;
use stealtime_scheduler::time::Nanos;
use stealtime_workloads::run::{Plan, VcpuPlan, VmPlan};

/// A plan of so many vCPUs, each alone in its VM, on so many cores.
pub(crate) fn plan(policy: &str, vcpus: u16, cores: usize) -> Plan {
    Plan {
        scenario: "example".into(),
        policy: policy.parse().expect("a policy"),
        cores: (0..cores)
            .filter_map(|core| u16::try_from(core).ok())
            .collect(),
        warmup: Nanos::ZERO,
        duration: Nanos::from_secs(1),
        seed: 7,
        vms: (0..vcpus)
            .map(|vm| VmPlan {
                name: format!("vm{vm}"),
                locks: Vec::new(),
            })
            .collect(),
        vcpus: (0..vcpus)
            .map(|vm| VcpuPlan {
                name: "main".into(),
                vm: VmId(vm),
                index: 0,
                params: VcpuParams::plain(VmId(vm)),
                start: Nanos::ZERO,
                program: Vec::new(),
            })
            .collect(),
        host_locks: vec![
            "address-space".into(),
            "pages".into(),
            "device".into(),
            "swap".into(),
        ],
    }
}

/// Events in the order of their writing, taken down by a collector.
pub(crate) struct Tape {
    pub(crate) collector: Collector,
}

impl Tape {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            collector: Collector::new(plan),
        }
    }

    pub(crate) fn at(&mut self, at: u64, vcpu: u32, kind: EventKind) {
        self.collector.event(&Event {
            at: Nanos(at),
            vcpu: VcpuId(vcpu),
            kind,
        });
    }
}
