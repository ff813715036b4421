//! Host interference: how long a vCPU's thread waited for the host although a core was its own.
//!
//! The kernel counts for each thread the time that it was runnable and did not run
//! (`/proc/self/task/TID/schedstat`, second field, nanoseconds). A vCPU's thread without a core
//! sleeps and is not runnable, so whatever is counted was waited while it had one: for other processes,
//! our own timer thread, and for the few microseconds in which the thread before it goes to sleep. What interrupts and a
//! hypervisor below take is not counted. On its way to sleep, though, a thread is runnable without a core: the one that it woke often
//! takes its place at once, and it may wait for that one's whole stay. This is dropped
//! ([`Seat::forget_delay`](crate::seat::Seat::forget_delay)). Under the policy `host` the same figure is the
//! host's own scheduling.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use stealtime_scheduler::time::Nanos;

/// The run delay of one thread. Any thread may read it.
#[derive(Debug)]
pub struct RunDelay {
    file: File,
    /// What was told so far, in nanoseconds.
    told: AtomicU64,
}

impl RunDelay {
    /// That of a thread of this process; counts from now.
    ///
    /// # Errors
    /// If the kernel does not keep such figures.
    pub fn of(thread: i32) -> io::Result<Self> {
        let file = File::open(format!("/proc/self/task/{thread}/schedstat"))?;
        let now = read(&file)?;
        Ok(Self {
            file,
            told: AtomicU64::new(now),
        })
    }

    /// How much was added since this was last asked, by whomever: nothing is told twice.
    #[must_use]
    pub fn since_last_told(&self) -> Nanos {
        // A thread that has ended can no longer be read, and has been told by then.
        let Ok(now) = read(&self.file) else {
            return Nanos::ZERO;
        };
        advance(&self.told, now)
    }
}

/// How much `now` is above what was told, which it then is itself. A reading that comes too late,
/// after a later one was told, adds nothing and takes nothing back.
fn advance(told: &AtomicU64, now: u64) -> Nanos {
    let before = told.fetch_max(now, Ordering::Relaxed);
    Nanos(now.saturating_sub(before))
}

fn read(file: &File) -> io::Result<u64> {
    let mut buffer = [0; 64];
    let length = file.read_at(&mut buffer, 0)?;
    parse(&buffer[..length]).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

fn parse(line: &[u8]) -> Option<u64> {
    let mut fields = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    fields.nth(1)?.parse().ok()
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn the_second_field_is_the_run_delay() {
        assert_eq!(parse(b"1038109 1988808 1\n"), Some(1_988_808));
        assert_eq!(parse(b"1038109\n"), None);
    }

    #[test]
    fn a_delay_is_told_once_and_a_late_reading_tells_nothing() {
        let told = AtomicU64::new(0);
        let tell = |now| advance(&told, now).get();
        // The second 5 was told, 4 and 7 are older than what was told when they come.
        let readings = [5, 5, 9, 4, 7, 10];
        assert_eq!(readings.map(tell), [5, 0, 4, 0, 0, 1]);
    }

    #[test]
    fn a_thread_that_is_not_there_has_no_run_delay() {
        let thread = rustix::thread::gettid().as_raw_pid();
        assert!(RunDelay::of(thread).is_ok());
        assert!(RunDelay::of(-1).is_err());
    }
}
