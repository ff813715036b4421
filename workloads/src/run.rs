//! A run: what a backend is given, and what it gives back.
//!
//! A [`Plan`] is a scenario with everything decided: the policy, the cores, the duration, every vCPU
//! with its program and number. Both backends take the same plan and hand over the same stream of
//! [`Entry`]s while they run, and the same [`Outcome`] at the end, so that one report serves both.

use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering};
use stealtime_guest::lock::{Kind, Lock};
use stealtime_guest::op::Op;
use stealtime_scheduler::dispatcher::{Config, ViolationReport};
use stealtime_scheduler::effect::Effect;
use stealtime_scheduler::event::Event;
use stealtime_scheduler::ids::{VcpuId, VmId};
use stealtime_scheduler::input::Input;
use stealtime_scheduler::policy::VcpuParams;
use stealtime_scheduler::spec::PolicySpec;
use stealtime_scheduler::time::Nanos;

/// How a lock in guest memory works.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockKind {
    /// One word, whoever comes first takes it.
    TestAndSet,
    /// First come, first served.
    Ticket,
    /// A queue of waiters, each at a word of its own.
    Mcs,
    /// Waiters spin while the owner is on a core, and sleep otherwise; the policy's layers may want it
    /// handed on instead.
    Mutex,
    /// Waiters sleep; a release hands it to one of them.
    MutexHandoff,
    /// Not a lock: a queue of messages. The lock with the next number is the mutex that guards it.
    Channel {
        /// How many messages it holds at most.
        room: u32,
        /// How long it takes to copy one in or out, in nanoseconds.
        copy_ns: u32,
    },
    /// As `Ticket`, but waiters lose patience, after so many nanoseconds for each one before them.
    PreemptableTicket(u32),
    /// A queue of waiters that halt after having spun for so many nanoseconds; a release kicks.
    Pv(u32),
    /// For many readers or one writer; waiters spin.
    Rwlock,
    /// Not a lock: so many have to come before any goes on.
    Barrier(u32),
}

impl LockKind {
    /// Writes it into a lock in a guest's memory, before the guest starts.
    pub fn write(self, lock: &Lock) {
        let (kind, size, copy_ns) = match self {
            Self::TestAndSet => (Kind::TestAndSet, 0, 0),
            Self::Ticket => (Kind::Ticket, 0, 0),
            Self::Mcs => (Kind::Mcs, 0, 0),
            Self::Mutex => (Kind::Mutex, 0, 0),
            Self::MutexHandoff => (Kind::MutexHandOff, 0, 0),
            Self::Channel { room, copy_ns } => (Kind::Channel, room, copy_ns),
            Self::PreemptableTicket(unit) => (Kind::PreemptableTicket, unit, 0),
            Self::Pv(threshold) => (Kind::Pv, threshold, 0),
            Self::Rwlock => (Kind::ReadWrite, 0, 0),
            Self::Barrier(parties) => (Kind::Barrier, parties, 0),
        };
        lock.kind.store(kind as u32, Ordering::Relaxed);
        lock.size.store(size, Ordering::Relaxed);
        lock.copy_ns.store(copy_ns, Ordering::Relaxed);
    }
}

/// A vCPU of the plan. Its number over all VMs is its place in [`Plan::vcpus`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VcpuPlan {
    /// Its name within its VM, as the report shows it.
    pub name: String,
    /// Its VM.
    pub vm: VmId,
    /// Its number within its VM.
    pub index: u32,
    /// What was asked of the policy.
    pub params: VcpuParams,
    /// When it is admitted.
    pub start: Nanos,
    /// What it does.
    #[serde(with = "crate::op_form")]
    pub program: Vec<Op>,
}

/// A VM of the plan.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VmPlan {
    /// Its name, as the report shows it.
    pub name: String,
    /// Its guest locks by number: name and kind.
    pub locks: Vec<(String, LockKind)>,
}

/// Everything that a backend must know.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The scenario's name.
    pub scenario: String,
    /// The policy.
    pub policy: PolicySpec,
    /// The host cores to run on, by the host's numbers. `sim` uses their count.
    pub cores: Vec<u16>,
    /// How long to run before figures count.
    pub warmup: Nanos,
    /// How long figures count.
    pub duration: Nanos,
    /// The seed of every random length.
    pub seed: u64,
    /// The VMs, by number.
    pub vms: Vec<VmPlan>,
    /// The vCPUs of all VMs, by number.
    pub vcpus: Vec<VcpuPlan>,
    /// Names of the locks in the hypervisor, by number.
    pub host_locks: Vec<String>,
}

impl Plan {
    /// What the dispatcher must know.
    #[must_use]
    pub fn config(&self) -> Config {
        Config {
            policy: self.policy.clone(),
            cores: u16::try_from(self.cores.len()).unwrap_or(u16::MAX),
            host_locks: u16::try_from(self.host_locks.len()).unwrap_or(u16::MAX),
            vcpus: self.vcpus.iter().map(|vcpu| vcpu.params).collect(),
        }
    }

    /// `VM/vCPU`, as reports name a vCPU.
    #[must_use]
    pub fn vcpu_name(&self, vcpu: VcpuId) -> String {
        let plan = &self.vcpus[vcpu.index()];
        format!("{}/{}", self.vms[plan.vm.index()].name, plan.name)
    }
}

/// One item of the stream that a run is: inputs with what came of them, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// The dispatcher was told this at this time.
    Input(Nanos, Input),
    /// It asked for this (belongs to the last input).
    Effect(Effect),
    /// It told this (belongs to the last input).
    Event(Event),
}

/// Who listens to a run while it goes on.
pub trait Observer {
    /// The next part of the stream. Nothing is left out and nothing comes twice.
    fn entries(&mut self, entries: &[Entry]);

    /// How far the run is, warm-up included, for a progress bar.
    fn progress(&mut self, _elapsed: Nanos) {}
}

/// What a vCPU saw from inside its guest. Times in nanoseconds of the guest's own clock.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct GuestView {
    /// CPU work done: the calibrated length of what was run.
    pub progress_ns: u64,
    /// How often its own time jumped while it ran.
    pub gaps: u64,
    /// The sum of these jumps.
    pub gap_total_ns: u64,
    /// The largest of them.
    pub gap_max_ns: u64,
    /// Requests that ended.
    pub requests: u64,
    /// Their latencies, in the buckets of `stealtime_guest::hist`.
    pub request_hist: Vec<u32>,
    /// The largest latency.
    pub request_max_ns: u64,
    /// Interrupts handled.
    pub interrupts: u64,
    /// Guest locks taken.
    pub lock_acquisitions: u64,
    /// Time spent spinning for guest locks.
    pub lock_spin_ns: u64,
}

/// A VM that ended before the run did.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VmFailure {
    /// Which.
    pub vm: VmId,
    /// When.
    pub at: Nanos,
    /// What happened, in one line.
    pub message: String,
}

/// How far the figures can be trusted, as the backend measured it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Quality {
    /// Time spent in the dispatcher, all threads together.
    pub dispatch_overhead_ns: u64,
    /// Calls of the dispatcher.
    pub dispatch_calls: u64,
    /// Events that the dispatcher emitted, to be compared with those that arrived.
    pub events_emitted: u64,
    /// Iterations of the guest's work loop per millisecond, and how well repeated calibrations
    /// agree, in parts per million. None in `sim`.
    pub calibration: Option<Calibration>,
    /// How far the guests' clocks ended from the host's, the worst of all vCPUs, and how exactly that
    /// is known. None in `sim`, where there is one clock.
    pub clock: Option<ClockAgreement>,
    /// Time that granted vCPU threads waited for the host's scheduler.
    pub host_interference_ns: u64,
    /// What the user should know: a missing right, a substitute that was used.
    pub notes: Vec<String>,
}

/// How `run` was calibrated.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Calibration {
    /// Iterations of the work loop per millisecond.
    pub iterations_per_ms: u64,
    /// Spread of repeated calibrations, (slowest − fastest) / fastest, in parts per million.
    pub spread_ppm: u64,
    /// Frequency of the time-stamp counter in kHz.
    pub tsc_khz: u64,
}

/// How well guest and host clocks agree.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct ClockAgreement {
    /// Largest difference found at the end, in nanoseconds.
    pub worst_offset_ns: u64,
    /// The uncertainty of that figure: half the shortest round trip, in nanoseconds.
    pub uncertainty_ns: u64,
}

/// What a run yields beside its stream.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcome {
    /// What each vCPU saw, over the measured time, by number.
    pub guests: Vec<GuestView>,
    /// VMs that ended before their time.
    pub failures: Vec<VmFailure>,
    /// Rules that the policy broke: the first ones with dumps.
    pub violations: Vec<ViolationReport>,
    /// How many rules it broke in all.
    pub violation_count: u64,
    /// How far to trust it all.
    pub quality: Quality,
    /// The run was ended by the user before its time.
    pub interrupted: bool,
}

/// Something that can run a plan.
pub trait Backend {
    /// Why a run did not take place.
    type Error: std::error::Error + Send + Sync + 'static;

    /// The name in reports: `kvm` or `sim`.
    fn name(&self) -> &'static str;

    /// Runs the plan to its end, or until `stop` is set; either way what was measured is given back.
    ///
    /// # Errors
    /// Only if the run did not take place at all.
    fn run(
        &mut self,
        plan: &Plan,
        stop: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<Outcome, Self::Error>;
}
