//! The report of a run, as it is kept and as JSON shows it (`docs/report-format.md`).
//!
//! Names end in their unit. Instants (`_at_ns`, `from_ns`, `since_ns`) count from the start of the
//! run, warm-up included; all other times are lengths. Unknown fields are refused on reading, so that
//! a file of another version is never half understood.

use crate::latency::LatencyReport;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use stealtime_workloads::run::{Calibration, ClockAgreement};

/// The version of this format.
pub const FORMAT_VERSION: u32 = 1;

/// What a run showed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// [`FORMAT_VERSION`].
    pub format_version: u32,
    /// What ran it: `kvm` or `sim`.
    pub backend: String,
    /// The policy with its options, as given.
    pub policy: String,
    /// The scenario's name.
    pub scenario: String,
    /// The seed of all random lengths.
    pub seed: u64,
    /// How many cores were handed out.
    pub cores: u64,
    /// Which cores of the host these were.
    pub host_cores: Vec<u16>,
    /// How long it ran before figures counted.
    pub warmup_ns: u64,
    /// How long figures counted.
    pub wall_ns: u64,
    /// The user ended it before its time.
    pub interrupted: bool,
    /// Every vCPU, by number.
    pub vcpus: Vec<VcpuReport>,
    /// Every VM, by number.
    pub vms: Vec<VmReport>,
    /// The run as a whole.
    pub run: RunReport,
    /// How far to trust it.
    pub quality: QualityReport,
    /// Rules that the policy broke.
    pub violations: Violations,
    /// The longest wait of all; none if nobody waited.
    pub worst: Option<Starvation>,
    /// Circles of vCPUs that wait for each other's locks, in the order in which they were found, warm-up
    /// included.
    pub deadlocks: Vec<DeadlockReport>,
    /// The longest time that a vCPU was blocked in the hypervisor; none if it is below a second.
    pub stall: Option<StallReport>,
    /// Who starved, why, and what fixes it.
    pub diagnosis: Diagnosis,
}

/// One vCPU. The six times `run_ns` to `idle_ns` sum to the report's `wall_ns`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VcpuReport {
    /// Its VM's name.
    pub vm: String,
    /// Its name within the VM.
    pub vcpu: String,
    /// Guest code on a core.
    pub run_ns: u64,
    /// Runnable, without a core (steal).
    pub ready_ns: u64,
    /// Waiting for the hypervisor: a host lock, a device, a page.
    pub blocked_ns: u64,
    /// On a core, the hypervisor working on its behalf.
    pub hypervisor_ns: u64,
    /// Runnable, but held back until its siblings can run too.
    pub costop_ns: u64,
    /// Nothing to do: halted, asleep, not yet started, ended.
    pub idle_ns: u64,
    /// Part of the time on a core at kernel priority.
    pub kernel_priority_ns: u64,
    /// Part of `ready_ns` and `costop_ns`: waits that began with a preemption and ended with running. These a guest
    /// sees as gaps in its own time.
    pub preempted_ns: u64,
    /// Time on a core as a part of the capacity of all cores (0 to 1).
    pub share: f64,
    /// The part that it was entitled to, by its weight or its VM's shares, while it was runnable.
    pub entitled: f64,
    /// From waking to running.
    pub wakeup_ns: LatencyReport,
    /// Each wait for a core that ended with running.
    pub run_delay_ns: LatencyReport,
    /// The longest wait for a core, unfinished ones included.
    pub longest_starvation_ns: u64,
    /// When that wait began.
    pub longest_starvation_at_ns: u64,
    /// That wait went on at the end.
    pub starving_at_end: bool,
    /// Times it left its core against its will.
    pub preemptions: u64,
    /// The same by reason.
    pub preemptions_by_reason: BTreeMap<String, u64>,
    /// Preemptions while it held a lock of its guest, those to lend its turn (`lock-wait`) left out.
    pub preemptions_in_lock: u64,
    /// Times it was given a core other than its last.
    pub migrations: u64,
    /// Times it gave up its core of its own accord.
    pub yields: u64,
    /// Times its core was asked back.
    pub kicks: u64,
    /// Times its thread returned to user mode of the host.
    pub user_returns: u64,
    /// Exits from guest code by reason.
    pub exits: BTreeMap<String, u64>,
    /// Time that its thread, while granted a core, waited for the host's scheduler.
    pub host_delay_ns: u64,
    /// The same run as seen from inside the guest.
    pub guest: GuestReport,
}

/// What a vCPU saw from inside.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestReport {
    /// CPU work done, as calibrated length.
    pub progress_ns: u64,
    /// How often its own time jumped while it ran.
    pub gaps: u64,
    /// Sum of these jumps.
    pub gap_total_ns: u64,
    /// The largest.
    pub gap_max_ns: u64,
    /// `gap_total_ns` less `preempted_ns` (and less a wait that went on at the end, where the guest
    /// counts it). For a guest that always runs, what remains is the cost of exits and entries.
    pub gap_difference_ns: i64,
    /// Latencies of its requests (percentiles to 1 in 16).
    pub request_ns: LatencyReport,
    /// Interrupts handled.
    pub interrupts: u64,
    /// Guest locks taken.
    pub lock_acquisitions: u64,
    /// Time spent spinning for guest locks.
    pub lock_spin_ns: u64,
}

/// One VM.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VmReport {
    /// Its name.
    pub vm: String,
    /// How it came to end before the run did, if it did.
    pub failure: Option<Failure>,
}

/// The end of a VM before its time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// When.
    pub at_ns: u64,
    /// What happened.
    pub message: String,
}

/// The run as a whole.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunReport {
    /// Jain's index over received ÷ entitled: 1 if all are treated alike, 1/n if one has everything.
    pub jain: f64,
    /// Part of the capacity that was used (0 to 1).
    pub used: f64,
    /// Work done by all guests as a part of the capacity (0 to 1).
    pub throughput: f64,
    /// Events that arrived, warm-up included.
    pub events: u64,
    /// Events that were emitted and did not arrive. Must be 0.
    pub lost_events: u64,
    /// Time that granted vCPU threads waited for the host's scheduler.
    pub host_interference_ns: u64,
    /// Time spent in the dispatcher.
    pub dispatch_overhead_ns: u64,
    /// Calls of the dispatcher.
    pub dispatch_calls: u64,
    /// From asking for a core back to its being left.
    pub kick_ns: LatencyReport,
}

/// How far to trust the figures.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QualityReport {
    /// How guest work was calibrated; none in `sim`.
    pub calibration: Option<Calibration>,
    /// How well the clocks of guests and host agree; none in `sim`.
    pub clock: Option<ClockAgreement>,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// Rules that the policy broke.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Violations {
    /// How many times, warm-up included.
    pub count: u64,
    /// The first ones.
    pub first: Vec<ViolationEntry>,
}

/// A rule that the policy broke.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ViolationEntry {
    /// When.
    pub at_ns: u64,
    /// The policy's name.
    pub policy: String,
    /// The rule, in words.
    pub rule: String,
    /// The state at that moment.
    pub dump: String,
}

/// vCPUs that wait for each other's locks in a circle: none of them can ever go on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeadlockReport {
    /// When the last of them began to wait.
    pub from_ns: u64,
    /// Each waits for a lock that the next one holds, the last for one of the first's.
    pub circle: Vec<DeadlockLink>,
}

/// A vCPU of a circle.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeadlockLink {
    /// Its VM.
    pub vm: String,
    /// Its name.
    pub vcpu: String,
    /// The lock of its guest that it waits for, as `VM:LOCK`.
    pub guest_lock: Option<String>,
    /// The lock in the hypervisor that it waits for.
    pub host_lock: Option<String>,
}

/// A vCPU that left its guest and was kept in the hypervisor.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StallReport {
    /// Its VM.
    pub vm: String,
    /// Its name.
    pub vcpu: String,
    /// When it was blocked.
    pub from_ns: u64,
    /// For how long.
    pub length_ns: u64,
    /// It could go on in the end.
    pub ended: bool,
    /// The host lock that it waited for; none if it waited for something else, as a device or a page.
    pub host_lock: Option<String>,
    /// Who held that lock when it began to wait, as `VM/vCPU`.
    pub owner: Option<String>,
}

/// A wait for a core, and what happened meanwhile.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Starvation {
    /// The VM of who waited.
    pub vm: String,
    /// Who waited.
    pub vcpu: String,
    /// When it began.
    pub from_ns: u64,
    /// How long it was.
    pub length_ns: u64,
    /// It got a core in the end.
    pub ended: bool,
    /// The last part of it, when a core was granted but not yet entered.
    pub granted_for_ns: u64,
    /// Who had the cores meanwhile, the greatest first. Empty under policies that leave scheduling to
    /// the host.
    pub occupants: Vec<Occupant>,
    /// From when on the occupants are known (`from_ns` unless the wait was very long and busy).
    pub known_from_ns: u64,
    /// The time at kernel priority of the first occupant, if it had one then.
    pub kernel_priority: Option<KernelPriorityReport>,
    /// Others who waited at least half as long, as `VM/vCPU`.
    pub also: Vec<String>,
}

/// Who had a core during a wait.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Occupant {
    /// Its VM.
    pub vm: String,
    /// Its name.
    pub vcpu: String,
    /// For how long.
    pub on_core_ns: u64,
    /// The part of it at kernel priority.
    pub kernel_priority_ns: u64,
    /// In how many turns.
    pub turns: u64,
}

/// A time at kernel priority.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelPriorityReport {
    /// Since when.
    pub since_ns: u64,
    /// Until when; none if it went on at the end.
    pub until_ns: Option<u64>,
    /// The host lock it held when it began.
    pub host_lock: Option<String>,
    /// When it released that lock, if it did before the priority ended.
    pub released_ns: Option<u64>,
    /// How often its thread returned to user mode meanwhile.
    pub user_returns: u64,
}

/// Why the longest wait was as long as it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Those on the cores stood at kernel priority.
    KernelPriority,
    /// A preemption was remembered and not carried out.
    DeferredPreemption,
    /// It waited for its turn.
    Turn,
    /// The core was asked back, and not left.
    SlowStop,
    /// It was granted a core and its thread did not enter it.
    LateEntry,
    /// Cores were idle meanwhile.
    IdleCores,
    /// The host's own scheduler decided.
    HostScheduler,
}

/// Who starved, why, and what fixes it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Diagnosis {
    /// Somebody starved, or received less than half of what it was entitled to.
    pub starved: bool,
    /// Why the longest wait was as long as it was; none if nobody waited.
    pub cause: Option<Cause>,
    /// The same in plain sentences.
    pub text: String,
    /// What would fix it, if the facts say so.
    pub fix: Option<String>,
}

impl VcpuReport {
    /// `VM/vCPU`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}/{}", self.vm, self.vcpu)
    }

    /// Exits of all reasons.
    #[must_use]
    pub fn exits_total(&self) -> u64 {
        self.exits.values().sum()
    }

    /// Received ÷ entitled, as one of so many vCPUs; none for who was entitled to nothing to speak of: below a
    /// thousandth of the capacity, or, where they are more than a hundred, below a tenth of an equal part.
    #[must_use]
    pub fn received(&self, vcpus: usize) -> Option<f64> {
        let little = 0.1 / vcpus.max(100) as f64;
        (self.entitled > little).then(|| self.share / self.entitled)
    }
}

impl Report {
    /// Time that granted vCPU threads waited for the host's scheduler, as a part of the capacity.
    #[must_use]
    pub fn interference(&self) -> f64 {
        let capacity = self.wall_ns as f64 * self.cores as f64;
        if capacity > 0.0 {
            self.run.host_interference_ns as f64 / capacity
        } else {
            0.0
        }
    }

    /// As JSON, on several lines.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut json = serde_json::to_string_pretty(self)
            .expect("numbers are finite, keys are strings: nothing in it can fail to be written");
        json.push('\n');
        json
    }
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
