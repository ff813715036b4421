//! What can go wrong with a lab, told apart by what the user can do about it.

use crate::channel::Stage;
use crate::channel::host::DamagedResults;
use crate::machine::MachineError;
use crate::modules::ModuleError;
use crate::program::ProgramError;
use std::time::Duration;

/// A lab that gave no results.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The machine asked for cannot be.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The running program cannot be carried into the machine.
    #[error("the program cannot be carried into the lab: {0}")]
    Program(#[from] ProgramError),
    /// The kernel's modules cannot be used.
    #[error("the lab's kernel modules cannot be used: {0}")]
    Modules(#[from] ModuleError),
    /// This host refused something small.
    #[error("cannot prepare the lab ({what}): {source}")]
    Prepare {
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: std::io::Error,
    },
    /// QEMU ended before the machine did anything.
    #[error("QEMU did not start: {message}")]
    QemuDidNotStart {
        /// What it said.
        message: String,
    },
    /// The kernel never got as far as our first program.
    #[error("the lab's kernel did not boot ({how}); the console's last lines:\n{console}")]
    KernelDidNotBoot {
        /// Whether it ended or took too long.
        how: String,
        /// The console's last lines.
        console: String,
    },
    /// The kernel booted, but KVM could not be got ready.
    #[error("the lab's machine booted, but could not {step}: {message}; console:\n{console}")]
    NotReady {
        /// What was tried.
        step: String,
        /// What came of it.
        message: String,
        /// The console's last lines.
        console: String,
    },
    /// The machine stopped in the midst of its work.
    #[error("the lab's machine stopped {stage}; the console's last lines:\n{console}")]
    Died {
        /// When.
        stage: Stage,
        /// The console's last lines.
        console: String,
    },
    /// It took too long.
    #[error(
        "the lab was ended {stage} after {} s, its time limit; the console's last lines:\n{console}",
        limit.as_secs()
    )]
    TimeLimit {
        /// When.
        stage: Stage,
        /// How long it was given.
        limit: Duration,
        /// The console's last lines.
        console: String,
    },
    /// The results are not what was sent.
    #[error("the lab's results arrived damaged: {0}")]
    Damaged(#[from] DamagedResults),
    /// The user ended it.
    #[error("ended by the user {stage}; nothing was measured")]
    Interrupted {
        /// When.
        stage: Stage,
    },
}

impl LabError {
    /// Whether this is a boot that went wrong, which is worth another try.
    #[must_use]
    pub fn is_boot_failure(&self) -> bool {
        match self {
            Self::KernelDidNotBoot { .. } => true,
            Self::Died { stage, .. } | Self::TimeLimit { stage, .. } => *stage < Stage::Running,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_happens_before_the_command_is_a_boot_failure() {
        let died = |stage| LabError::Died {
            stage,
            console: String::new(),
        };
        assert!(died(Stage::Started).is_boot_failure());
        assert!(!died(Stage::Running).is_boot_failure());
        let no_qemu = LabError::QemuDidNotStart {
            message: "no such file".into(),
        };
        assert!(!no_qemu.is_boot_failure());
    }
}
