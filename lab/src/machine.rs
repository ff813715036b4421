//! The emulated machine as QEMU is told to build it.
//!
//! The choices, each made for a reason that was met (`docs/lab.md`):
//! * `q35`: `microvm` hung in a fifth of its boots.
//! * `thread=` always given: without it QEMU takes many threads as soon as there are two cores.
//! * `tsc=reliable` with more than one core: otherwise the kernel may drop to a slow clock.
//! * `no_timer_check`: a busy host may starve the machine for so long that the kernel believes its timer dead.
//! * `-nodefaults -no-user-config`: nothing that the user's QEMU is configured to add.
//! * exact: one core, one thread, one nanosecond an instruction, a clock that starts at the same time, the
//!   same seed, no random addresses. Then two runs are the same to the byte.

use crate::setup::Setup;
use std::ffi::OsString;
use std::process::Command;

/// Words for the kernel that every boot gets.
const KERNEL_WORDS: &str = "console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off nokaslr \
                            random.trust_cpu=on no_timer_check";

/// The machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Machine {
    /// Emulated cores; 1 if `exact`.
    pub cores: u16,
    /// Whether instructions are counted and every run is the same.
    pub exact: bool,
    /// Memory in MiB.
    pub memory_mib: u32,
}

/// Paths by which QEMU opens what we give it.
#[derive(Clone, Debug)]
pub(crate) struct Given {
    pub initramfs: String,
    pub channel: String,
    pub console: String,
}

impl Machine {
    /// A machine of so many cores. An exact one has one core.
    ///
    /// # Errors
    /// If more than one core is wanted of an exact machine, or none at all.
    pub fn new(cores: u16, exact: bool) -> Result<Self, MachineError> {
        match cores {
            0 => Err(MachineError::NoCore),
            2.. if exact => Err(MachineError::ExactWithCores { cores }),
            _ => Ok(Self {
                cores,
                exact,
                memory_mib: 1024,
            }),
        }
    }

    /// The QEMU command line.
    pub(crate) fn command(&self, setup: &Setup, given: &Given) -> Command {
        let mut command = Command::new(&setup.qemu.path);
        if !setup.qemu.libraries.is_empty() {
            command.env("LD_LIBRARY_PATH", join_paths(&setup.qemu.libraries));
        }
        for folder in &setup.qemu.firmware {
            command.arg("-L").arg(folder);
        }
        command.args([
            "-nodefaults",
            "-no-user-config",
            "-no-reboot",
            "-display",
            "none",
        ]);
        command.args(["-machine", "q35", "-cpu", "EPYC,+svm"]);
        let threads = if self.exact || self.cores == 1 {
            "single"
        } else {
            "multi"
        };
        command.args(["-accel", &format!("tcg,thread={threads}")]);
        command.args([
            "-smp",
            &self.cores.to_string(),
            "-m",
            &self.memory_mib.to_string(),
        ]);
        if self.exact {
            command.args(["-icount", "shift=0,sleep=off"]);
            command.args(["-rtc", "base=2026-01-01T00:00:00,clock=vm", "-seed", "1"]);
        }
        let backing = format!(
            "memory-backend-file,id=channel,share=on,size={},mem-path={}",
            crate::channel::SIZE,
            given.channel
        );
        command.args([
            "-object",
            &backing,
            "-device",
            "ivshmem-plain,memdev=channel",
        ]);
        command.args(["-serial", &format!("file:{}", given.console)]);
        command.arg("-kernel").arg(&setup.kernel);
        command.args(["-initrd", &given.initramfs, "-append", &self.kernel_words()]);
        command
    }

    fn kernel_words(&self) -> String {
        let mut words = KERNEL_WORDS.to_owned();
        if self.exact {
            words.push_str(" norandmaps");
        }
        if self.cores > 1 {
            words.push_str(" tsc=reliable");
        }
        // What the kernel does not know it puts into the first process's environment.
        words.push_str(" LD_LIBRARY_PATH=/");
        words.push_str(crate::program::LIBRARIES);
        words
    }
}

/// A machine that cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MachineError {
    /// Counted instructions need one core.
    #[error(
        "an exact run has one emulated core, not {cores}: leave out `--lab-cores` or `--exact`"
    )]
    ExactWithCores {
        /// What was asked for.
        cores: u16,
    },
    /// There must be a core.
    #[error("the lab needs at least one emulated core")]
    NoCore,
}

fn join_paths(paths: &[std::path::PathBuf]) -> OsString {
    // Our own cache folders; a path with a colon in it cannot be said to the loader at all.
    std::env::join_paths(paths).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::Qemu;

    fn words(machine: &Machine) -> Vec<String> {
        let setup = Setup {
            qemu: Qemu {
                path: "/q".into(),
                ..Qemu::default()
            },
            kernel: "/k".into(),
            ..Setup::default()
        };
        let given = Given {
            initramfs: "/i".into(),
            channel: "/c".into(),
            console: "/s".into(),
        };
        let command = machine.command(&setup, &given);
        command
            .get_args()
            .map(|word| word.to_string_lossy().into_owned())
            .collect()
    }

    #[test]
    fn an_exact_machine_counts_instructions_on_one_thread() {
        let words = words(&Machine::new(1, true).expect("possible")).join(" ");
        for part in [
            "shift=0,sleep=off",
            "thread=single",
            "-seed 1",
            "norandmaps",
            "clock=vm",
        ] {
            assert!(words.contains(part), "{part} is not in {words}");
        }
        assert!(!words.contains("tsc=reliable"));
    }

    #[test]
    fn several_cores_have_a_thread_each_and_a_reliable_clock() {
        let words = words(&Machine::new(2, false).expect("possible")).join(" ");
        for part in ["thread=multi", "-smp 2", "tsc=reliable"] {
            assert!(words.contains(part), "{part} is not in {words}");
        }
        assert!(!words.contains("icount"));
    }

    #[test]
    fn impossible_machines_are_refused() {
        assert_eq!(
            Machine::new(2, true),
            Err(MachineError::ExactWithCores { cores: 2 })
        );
        assert_eq!(Machine::new(0, false), Err(MachineError::NoCore));
    }
}
