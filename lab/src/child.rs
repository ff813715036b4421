//! QEMU as a child process that cannot outlive us.

#![expect(
    unsafe_code,
    reason = "what runs between fork and exec is the caller's promise"
)]

use rustix::process::{Signal, set_parent_process_death_signal};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};

/// A process that is killed when this value, or the thread that made it, ends.
#[derive(Debug)]
pub(crate) struct Leashed(Child);

impl Leashed {
    /// Starts it in a process group of its own: Ctrl-C reaches us, and we decide.
    pub(crate) fn spawn(command: &mut Command) -> io::Result<Self> {
        command.process_group(0);
        // SAFETY: the closure makes one system call and allocates nothing, which is allowed between fork
        // and exec.
        unsafe {
            command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
        }
        command.spawn().map(Self)
    }

    /// Its status, if it has ended.
    pub(crate) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.0.try_wait()
    }
}

impl Drop for Leashed {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn dropping_ends_the_process_at_once() {
        let start = Instant::now();
        let mut child = Leashed::spawn(Command::new("sleep").arg("100")).expect("starts");
        assert!(child.ended().expect("known").is_none());
        drop(child);
        assert!(start.elapsed() < Duration::from_secs(20));
    }
}
