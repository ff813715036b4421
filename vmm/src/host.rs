//! What the run loop needs of the host: its clock, a thread's CPU time, cores, real-time priority.

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use std::io;
use stealtime_scheduler::time::Nanos;

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}

/// CLOCK_MONOTONIC in nanoseconds.
#[must_use]
pub fn monotonic_ns() -> u64 {
    read(ClockId::Monotonic)
}

/// The CPU time that the calling thread has used.
#[must_use]
pub fn thread_cpu_time() -> Nanos {
    Nanos(read(ClockId::ThreadCPUTime))
}

/// The clock of a run: nanoseconds of CLOCK_MONOTONIC since its start.
#[derive(Clone, Copy, Debug)]
pub struct RunClock {
    zero: u64,
}

impl RunClock {
    /// A run that starts at the given instant of CLOCK_MONOTONIC.
    #[must_use]
    pub const fn starting_at(zero: u64) -> Self {
        Self { zero }
    }

    /// The time since the start.
    #[must_use]
    pub fn now(self) -> Nanos {
        Nanos(monotonic_ns().saturating_sub(self.zero))
    }
}

/// Which cores of the host threads may run on.
#[derive(Debug)]
pub struct Placement {
    /// A set for each core of the plan, in its order; one for all where the host schedules.
    grants: Grants,
    /// Where the other threads run.
    others: CpuSet,
}

#[derive(Debug)]
enum Grants {
    Each(Vec<CpuSet>),
    All(CpuSet),
}

/// Who decides which core of the plan a vCPU's thread runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pinning {
    /// The dispatcher: a thread runs on the core it was granted, and nowhere else.
    Granted,
    /// The host: a thread may run on all cores of the plan.
    Free,
}

/// A core of the plan that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PlacementError {
    /// Not there, or not ours.
    #[error("core {core} cannot be used: this process may run on {allowed}")]
    Core {
        /// The core asked for.
        core: u16,
        /// The cores that would do.
        allowed: String,
    },
    /// The kernel does not say which cores there are.
    #[error("cannot learn which cores this process may run on")]
    Unknown(#[source] io::Error),
}

impl Placement {
    /// Looks whether all cores of the plan can be used.
    ///
    /// # Errors
    /// If one of them does not exist or is outside the affinity mask of the process.
    pub fn new(cores: &[u16], pinning: Pinning) -> Result<Self, PlacementError> {
        let allowed = sched_getaffinity(None).map_err(|e| PlacementError::Unknown(e.into()))?;
        let mut used = CpuSet::new();
        for &core in cores {
            let index = usize::from(core);
            if index >= CpuSet::MAX_CPU || !allowed.is_set(index) {
                return Err(PlacementError::Core {
                    core,
                    allowed: in_words(&allowed),
                });
            }
            used.set(index);
        }
        let mut others = allowed;
        if used.count() < allowed.count() {
            for &core in cores {
                others.unset(usize::from(core));
            }
        }
        let grants = match pinning {
            Pinning::Free => Grants::All(used),
            Pinning::Granted => Grants::Each(cores.iter().map(|&core| single(core)).collect()),
        };
        Ok(Self { grants, others })
    }

    /// Lets a thread (none: the calling one) run where the dispatcher's core stands for.
    ///
    /// # Errors
    /// If the kernel refuses: the core went offline, or out of the affinity mask.
    pub fn place(&self, thread: Option<i32>, core: usize) -> io::Result<()> {
        let set = match &self.grants {
            Grants::All(set) => set,
            Grants::Each(sets) => &sets[core],
        };
        sched_setaffinity(thread.and_then(Pid::from_raw), set).map_err(io::Error::from)
    }

    /// Keeps the calling thread, which runs no vCPU, off the cores of the plan if there are others.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn place_apart(&self) -> io::Result<()> {
        sched_setaffinity(None, &self.others).map_err(io::Error::from)
    }

    /// Whether a thread's place depends on what it is granted.
    #[must_use]
    pub const fn pins(&self) -> Pinning {
        match self.grants {
            Grants::Each(_) => Pinning::Granted,
            Grants::All(_) => Pinning::Free,
        }
    }
}

/// The affinity of the calling thread, to be given back later.
#[derive(Debug)]
pub struct Affinity(Option<CpuSet>);

impl Affinity {
    /// Remembers it.
    #[must_use]
    pub fn remember() -> Self {
        Self(sched_getaffinity(None).ok())
    }
}

impl Drop for Affinity {
    fn drop(&mut self) {
        if let Some(set) = &self.0 {
            // What was allowed before is allowed again; if not, the thread stays where it is.
            let _ = sched_setaffinity(None, set);
        }
    }
}

fn single(core: u16) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(usize::from(core));
    set
}

/// `0-3,8`.
fn in_words(set: &CpuSet) -> String {
    let cores: Vec<_> = (0..CpuSet::MAX_CPU).filter(|c| set.is_set(*c)).collect();
    let mut text = String::new();
    for run in cores.chunk_by(|a, b| a + 1 == *b) {
        let comma = if text.is_empty() { "" } else { "," };
        text += &match run {
            [only] => format!("{comma}{only}"),
            [first, .., last] => format!("{comma}{first}-{last}"),
            [] => String::new(),
        };
    }
    text
}

/// Puts the calling thread above all ordinary ones, at the lowest real-time priority.
///
/// # Errors
/// If the process has no right to do so (root, CAP_SYS_NICE or an rtprio limit).
#[expect(unsafe_code, reason = "no safe form of sched_setscheduler is at hand")]
pub fn become_realtime() -> io::Result<()> {
    let param = libc::sched_param { sched_priority: 1 };
    // SAFETY: the pointer is to a live value of the type that the call reads; 0 is the caller itself.
    let done = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const param) };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Timed waits of the calling thread end when they are due and not up to 50 µs later.
pub fn want_exact_timers() {
    // Only precision is lost if the kernel refuses, and it has no reason to.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn a_core_that_is_not_ours_is_refused_with_those_that_are() {
        let error = Placement::new(&[1023], Pinning::Granted).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("core 1023 cannot be used"), "{text}");
        assert!(Placement::new(&[u16::MAX], Pinning::Free).is_err());
    }

    #[test]
    fn cores_are_written_as_ranges() {
        let mut set = CpuSet::new();
        for core in [0, 1, 2, 5, 7, 8] {
            set.set(core);
        }
        assert_eq!(in_words(&set), "0-2,5,7-8");
    }

    #[test]
    fn the_clock_of_a_run_starts_at_zero_and_cpu_time_grows_with_work() {
        assert_eq!(RunClock::starting_at(u64::MAX).now(), Nanos::ZERO);
        let (start, wall) = (thread_cpu_time(), monotonic_ns());
        while thread_cpu_time() == start && monotonic_ns() < wall + 1_000_000_000 {}
        assert!(thread_cpu_time() > start);
    }
}
