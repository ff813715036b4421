//! What this process may do and what there is to do it on.

use crate::host::become_realtime;
use rustix::thread::{CpuSet, sched_getaffinity};
use rustix::time::{ClockId, clock_getres};
use std::thread;

/// What this process may do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rights {
    /// The cores that it may run on, by the host's numbers.
    pub cores: Vec<u16>,
    /// Why it may not run threads at real-time priority; none if it may. Without it, everything
    /// works, with timers less exact while the machine is busy.
    pub no_realtime: Option<String>,
    /// Resolution of the clock that timers go by, in nanoseconds: 1 with high-resolution timers.
    pub timer_resolution_ns: u64,
}

/// Finds out, by trying.
#[must_use]
pub fn rights() -> Rights {
    // In a thread of its own, which takes the priority with it.
    let tried = thread::spawn(become_realtime).join();
    let no_realtime = match tried {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(format!(
            "{error}: run as root, or with CAP_SYS_NICE or an rtprio limit of at least 1"
        )),
        Err(_) => Some("trying failed".into()),
    };
    let resolution = clock_getres(ClockId::Monotonic);
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    Rights {
        cores: cores(),
        no_realtime,
        timer_resolution_ns: part(resolution.tv_sec) * 1_000_000_000 + part(resolution.tv_nsec),
    }
}

/// The cores that the calling thread may run on.
pub(super) fn cores() -> Vec<u16> {
    let set = sched_getaffinity(None).unwrap_or_default();
    (0..CpuSet::MAX_CPU)
        .filter(|core| set.is_set(*core))
        .filter_map(|core| u16::try_from(core).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_at_least_the_core_that_this_test_runs_on() {
        let rights = rights();
        assert!(!rights.cores.is_empty());
        assert!(rights.timer_resolution_ns >= 1);
    }
}
