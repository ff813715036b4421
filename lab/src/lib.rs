//! The lab: real AMD-V KVM on any machine, in an emulated one.
//!
//! QEMU's pure emulation offers AMD-V to a Linux kernel, whose own `kvm_amd` then runs our guests as it does
//! on hardware. [`setup`] finds or fetches QEMU and a kernel; [`Lab`] boots them with the very program that runs here as
//! first process, lets it carry out one command line, and brings back what it printed and left.
//!
//! With one emulated core and counted instructions (`exact`), two runs are the same to the byte, every
//! nanosecond included: a real KVM whose measurements are exact.

mod backend;
mod boot;
mod channel;
mod child;
pub mod cpio;
mod decompress;
mod elf;
mod error;
mod init;
mod kernel;
mod machine;
mod modules;
mod order;
mod program;
pub mod setup;
mod wire;

pub use backend::{INSIDE, InsideError, LabBackend, LabRunError, carry_out_inside};
pub use boot::{Done, Sight};
pub use channel::Stage;
pub use channel::host::DamagedResults;
pub use decompress::DecompressError;
pub use elf::NotElf;
pub use error::LabError;
pub use init::run_if_first_process;
pub use machine::{Machine, MachineError};
pub use modules::ModuleError;
pub use program::{Program, ProgramError};

use order::{FILES, MODULES, ORDER, Order};
use setup::Setup;
use std::fs;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Folder in which a command inside finds its files and starts, with a path of its own.
pub const WORKING_FOLDER: &str = "/lab/files";
/// Folder whose contents come back when a command inside has ended.
pub const RESULTS_FOLDER: &str = "/lab/results";

/// A command for the lab.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Command {
    /// The command line of our own program, without its name.
    pub arguments: Vec<String>,
    /// Files for it, by path within [`WORKING_FOLDER`].
    pub files: Vec<(String, Vec<u8>)>,
    /// Real time that it may take beyond the boot.
    pub limit: Duration,
}

/// A machine with everything that is put into it.
#[derive(Debug)]
pub struct Lab {
    setup: Setup,
    machine: Machine,
    program: Program,
}

impl Lab {
    /// A lab that runs the program that runs here.
    ///
    /// # Errors
    /// If this program cannot be carried over.
    pub fn new(setup: Setup, machine: Machine) -> Result<Self, LabError> {
        Ok(Self {
            setup,
            machine,
            program: Program::running()?,
        })
    }

    /// A lab that runs another program, which must call [`run_if_first_process`].
    #[must_use]
    pub fn with_program(setup: Setup, machine: Machine, program: Program) -> Self {
        Self {
            setup,
            machine,
            program,
        }
    }

    /// What it consists of.
    #[must_use]
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// The emulated machine.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Boots, carries the command out and brings everything back. `stop` ends the command as Ctrl-C would;
    /// `watch` hears many times a second how far it is.
    ///
    /// # Errors
    /// If the command did not run to its end. That it failed is no error here but a status.
    pub fn run(
        &self,
        command: &Command,
        stop: &AtomicBool,
        watch: &mut dyn FnMut(Sight),
    ) -> Result<Done, LabError> {
        let initramfs = self.initramfs(command)?;
        let job = boot::Job {
            setup: &self.setup,
            machine: &self.machine,
            initramfs: &initramfs,
            limit: command.limit,
            stop,
        };
        boot::run(&job, watch)
    }

    fn initramfs(&self, command: &Command) -> Result<Vec<u8>, LabError> {
        let mut archive = cpio::Writer::new();
        for folder in ["dev", "proc", "sys", "tmp"] {
            archive.directory(folder);
        }
        // The kernel opens it for the first process before that can mount anything.
        archive.character_device("dev/console", 5, 1);
        self.program.pack(&mut archive);
        let mut names = Vec::new();
        for path in &self.setup.modules {
            let bytes = fs::read(path).map_err(|source| ModuleError::Read {
                path: path.clone(),
                source,
            })?;
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            archive.file(&format!("{MODULES}/{name}"), &bytes);
            names.push(name);
        }
        for (path, bytes) in &command.files {
            archive.file(&format!("{FILES}/{path}"), bytes);
        }
        let environment = [
            ("HOME", "/tmp"),
            // What the program stores inside, its cost model for one, comes back.
            ("XDG_CONFIG_HOME", RESULTS_FOLDER),
            ("TERM", "dumb"),
            ("NO_COLOR", "1"),
            ("TZ", "UTC0"),
            ("LC_ALL", "C"),
        ];
        let order = Order {
            modules: names,
            arguments: command.arguments.clone(),
            environment: environment
                .map(|(n, v)| (n.to_owned(), v.to_owned()))
                .to_vec(),
            watch: !self.machine.exact,
        };
        let order = serde_json::to_vec(&order).map_err(|error| LabError::Prepare {
            what: "the order",
            source: error.into(),
        })?;
        archive.file(ORDER, &order);
        Ok(archive.finish())
    }
}
