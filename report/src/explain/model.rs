//! An explanation as JSON shows it and text is made of it (`docs/commands.md`).
//!
//! Names end in their unit; instants count from the start of the run, warm-up included.

use serde::Serialize;
use stealtime_scheduler::event::Standing;

/// The version of this form.
pub const FORMAT_VERSION: u32 = 1;

/// The worst waits of a run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Explanation {
    /// [`FORMAT_VERSION`].
    pub format_version: u32,
    /// The scenario's name.
    pub scenario: String,
    /// The policy with its options.
    pub policy: String,
    /// What ran it.
    pub backend: String,
    /// How many cores were handed out.
    pub cores: usize,
    /// How many vCPUs there were.
    pub vcpus: usize,
    /// The worst first. Those whose chain leads through one shown before are left out.
    pub waits: Vec<Waited>,
}

/// One wait.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Waited {
    /// The VM of who waited.
    pub vm: String,
    /// Its name in its VM.
    pub vcpu: String,
    /// `core`, `host-lock`, `guest-lock` or `hypervisor`.
    pub waited_for: &'static str,
    /// The lock.
    pub lock: Option<String>,
    /// When it began.
    pub from_ns: u64,
    /// How long it was.
    pub length_ns: u64,
    /// It came to its end in the measurement.
    pub ended: bool,
    /// The instant that is shown.
    pub moment_ns: u64,
    /// How much of the wait was like that.
    pub alike_ns: u64,
    /// From the waiter to the last vCPU of the chain.
    pub frames: Vec<Frame>,
    /// What the chain ends at: `occupied`, `runs`, `entering`, `idle`, `co-stopped`, `waits`, `free`,
    /// `unknown`, `circle`, `gone` or `host`.
    pub end: &'static str,
    /// What there is to say of the end, the weightiest first.
    pub reasons: Vec<Reason>,
    /// At what the chains of the whole wait ended, the longest first.
    pub ends: Vec<EndShare>,
    /// Other long waits with the very same chain, which are left out.
    pub like_it: usize,
    /// Where all vCPUs were then.
    pub census: Census,
}

/// A vCPU in a chain.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Frame {
    /// Its VM.
    pub vm: String,
    /// Its name in its VM.
    pub vcpu: String,
    /// `ready`, `granted`, `running`, `hypervisor`, `blocked`, `idle`, `asleep`, `gone`.
    pub state: &'static str,
    /// Since when; on a core, since when it has that.
    pub since_ns: u64,
    /// The core that it is on, by the host's number.
    pub core: Option<u16>,
    /// Where it stands in the policy.
    pub standing: Standing,
    /// The priority or the like that the policy gives it, in the policy's words.
    pub rank: Option<String>,
    /// Locks in the hypervisor that it holds, and since when.
    pub holds: Vec<Held>,
    /// What it waits for: `core`, `host-lock` or `guest-lock`; `vcpu` if it is in no queue until another one
    /// moves.
    pub waits_for: Option<&'static str>,
    /// The lock, the core by the host's number, or the vCPU.
    pub what: Option<String>,
    /// How many others wait for the same.
    pub others: usize,
    /// The first of them by name.
    pub some: Vec<String>,
    /// The same in words.
    pub text: String,
}

/// A lock that is held.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Held {
    /// Which.
    pub lock: String,
    /// Since when.
    pub since_ns: u64,
}

/// Something to say of the end of a chain.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Reason {
    /// `kicked`, `kernel-priority`, `owed`, `boosted`, `lent`, `slice`, `open`, `host-interference`, or the
    /// chain's end.
    pub reason: &'static str,
    /// Since when.
    pub since_ns: Option<u64>,
    /// Until when, if that is known.
    pub until_ns: Option<u64>,
    /// In words.
    pub text: String,
}

/// A part of a wait by what its chain ended at.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct EndShare {
    /// As in [`Waited::end`].
    pub end: &'static str,
    /// The first reason why the last vCPU was not preempted, if it was on the core that was waited for.
    pub reason: Option<&'static str>,
    /// How long.
    pub length_ns: u64,
    /// How many vCPUs the chains ended at.
    pub whom: usize,
    /// The one at which they ended longest, as `VM/VCPU`, and how long, in nanoseconds.
    pub most: Option<(String, u64)>,
}

/// How many vCPUs were where.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Census {
    /// Waiting for host locks: the lock and how many, the most first.
    pub host_locks: Vec<(String, usize)>,
    /// Waiting for guest locks, spinning or asleep.
    pub guest_locks: usize,
    /// Waiting for a core.
    pub ready: usize,
    /// On a core or granted one.
    pub on_core: usize,
    /// Waiting in the hypervisor.
    pub hypervisor: usize,
    /// Idle, asleep, not there yet, or gone.
    pub idle: usize,
}
