//! Plans made in code, and running them.

use std::sync::atomic::AtomicBool;
use stealtime_guest::op::{Length, Step};
use stealtime_scheduler::ids::VmId;
use stealtime_scheduler::policy::VcpuParams;
use stealtime_scheduler::time::Nanos;
use stealtime_sim::SimBackend;
use stealtime_sim::cost::CostModel;
use stealtime_workloads::run::{
    Backend, Entry, LockKind, Observer, Outcome, Plan, VcpuPlan, VmPlan,
};

/// A plan in the making.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    plan: Plan,
}

impl Setup {
    /// One core, no warm-up, one second, seed 1, one VM without locks.
    pub(crate) fn new(policy: &str) -> Self {
        Self {
            plan: Plan {
                scenario: "made in code".into(),
                policy: policy.parse().expect("a policy string"),
                cores: vec![0],
                warmup: Nanos::ZERO,
                duration: Nanos::from_secs(1),
                seed: 1,
                vms: Vec::new(),
                vcpus: Vec::new(),
                host_locks: Vec::new(),
            },
        }
    }

    pub(crate) fn cores(mut self, count: u16) -> Self {
        self.plan.cores = (0..count).collect();
        self
    }

    pub(crate) fn warmup(mut self, length: Nanos) -> Self {
        self.plan.warmup = length;
        self
    }

    pub(crate) fn duration(mut self, length: Nanos) -> Self {
        self.plan.duration = length;
        self
    }

    pub(crate) fn seed(mut self, seed: u64) -> Self {
        self.plan.seed = seed;
        self
    }

    pub(crate) fn host_locks(mut self, count: u16) -> Self {
        self.plan.host_locks = (0..count).map(|n| format!("host{n}")).collect();
        self
    }

    /// Another VM, with its locks; the vCPUs that follow are its own.
    pub(crate) fn vm(mut self, locks: &[LockKind]) -> Self {
        let named = |(n, kind): (usize, &LockKind)| (format!("lock{n}"), *kind);
        self.plan.vms.push(VmPlan {
            name: format!("vm{}", self.plan.vms.len()),
            locks: locks.iter().enumerate().map(named).collect(),
        });
        self
    }

    /// Another vCPU of the last VM.
    pub(crate) fn vcpu(self, steps: &[Step]) -> Self {
        self.vcpu_with(steps, |_| {})
    }

    /// The same with parameters for the policy.
    pub(crate) fn vcpu_with(mut self, steps: &[Step], set: impl FnOnce(&mut VcpuParams)) -> Self {
        let vm = VmId(u16::try_from(self.plan.vms.len()).expect("few VMs") - 1);
        let mut params = VcpuParams::plain(vm);
        set(&mut params);
        let index = self.plan.vcpus.iter().filter(|v| v.vm == vm).count();
        self.plan.vcpus.push(VcpuPlan {
            name: format!("vcpu{index}"),
            vm,
            index: u32::try_from(index).expect("few vCPUs"),
            params,
            start: Nanos::ZERO,
            program: steps.iter().map(|step| step.encode()).collect(),
        });
        self
    }

    /// The last vCPU is admitted later.
    pub(crate) fn start(mut self, at: Nanos) -> Self {
        self.plan.vcpus.last_mut().expect("a vCPU").start = at;
        self
    }

    pub(crate) fn build(mut self) -> Plan {
        let vms: Vec<_> = self.plan.vcpus.iter().map(|vcpu| vcpu.vm).collect();
        for vcpu in &mut self.plan.vcpus {
            let siblings = vms.iter().filter(|vm| **vm == vcpu.vm).count();
            vcpu.params.siblings = u32::try_from(siblings).expect("few vCPUs");
        }
        self.plan
    }
}

pub(crate) fn run(nanos: u64) -> Step {
    Step::Run(Length::Fixed(nanos))
}

pub(crate) fn sleep(nanos: u64) -> Step {
    Step::Sleep(Length::Fixed(nanos))
}

/// The steps for ever.
pub(crate) fn forever(steps: &[Step]) -> Vec<Step> {
    let mut all = vec![Step::Repeat(0)];
    all.extend(steps);
    all.push(Step::EndRepeat);
    all
}

/// Runs for ever, in stretches of a second.
pub(crate) fn spin() -> Vec<Step> {
    forever(&[run(1_000_000_000)])
}

/// Keeps the whole stream.
#[derive(Debug, Default)]
pub(crate) struct Keep(pub(crate) Vec<Entry>);

impl Observer for Keep {
    fn entries(&mut self, entries: &[Entry]) {
        self.0.extend_from_slice(entries);
    }
}

/// Only counts.
#[derive(Debug, Default)]
pub(crate) struct Count(pub(crate) u64);

impl Observer for Count {
    fn entries(&mut self, entries: &[Entry]) {
        self.0 += entries.len() as u64;
    }
}

/// A run with its stream.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) entries: Vec<Entry>,
    pub(crate) outcome: Outcome,
}

/// Runs the plan to its end.
pub(crate) fn simulate(plan: &Plan, costs: &CostModel) -> Done {
    let mut keep = Keep::default();
    let outcome = SimBackend::new(costs.clone())
        .run(plan, &AtomicBool::new(false), &mut keep)
        .expect("the plan can be run");
    Done {
        entries: keep.0,
        outcome,
    }
}
