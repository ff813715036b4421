//! A scenario as it is written: VMs and vCPUs with names, counts and steps, not yet numbered.

use super::HostThread;
use super::document::Located;
use super::expect::ExpectText;
use super::guest_lock::GuestLocks;
use super::host_lock::HostLockKinds;
use super::step::Statement;
use stealtime_scheduler::spec::PolicySpec;
use stealtime_scheduler::time::Nanos;

/// A step with its text and its place in the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct StepLine {
    pub(super) statement: Statement,
    pub(super) text: String,
    pub(super) at: usize,
}

/// How often a program is executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rounds {
    Forever,
    /// So often, at least once.
    Times(u32),
}

/// A `[[vm.vcpu]]` table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct VcpuText {
    pub(super) name: Located<String>,
    pub(super) count: usize,
    pub(super) weight: Option<u32>,
    pub(super) nice: Option<i8>,
    pub(super) slice: Option<Nanos>,
    pub(super) cap: Option<Located<u32>>,
    pub(super) reservation: Option<(Nanos, Nanos)>,
    pub(super) start: Nanos,
    pub(super) setup: Vec<StepLine>,
    pub(super) program: Vec<StepLine>,
    pub(super) rounds: Rounds,
}

/// A `[[vm]]` table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct VmText {
    pub(super) name: Located<String>,
    pub(super) count: usize,
    pub(super) shares: Option<u32>,
    pub(super) cap: Option<Located<u32>>,
    pub(super) locks: GuestLocks,
    pub(super) vcpus: Vec<VcpuText>,
}

/// A scenario file.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct ScenarioText {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) policy: PolicySpec,
    pub(super) cores: u16,
    pub(super) duration: Nanos,
    pub(super) warmup: Nanos,
    pub(super) host_locks: HostLockKinds,
    pub(super) vms: Vec<VmText>,
    pub(super) suites: Vec<String>,
    pub(super) only_on: Option<String>,
    pub(super) host_threads: Vec<HostThread>,
    pub(super) expectations: Vec<ExpectText>,
}
