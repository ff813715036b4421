//! One boot of the machine: started, watched, ended; tried once more if it was the boot that failed.

use crate::channel::Stage;
use crate::channel::host::DamagedResults;
use crate::channel::host::{SharedMemory, anonymous_file, path_for_child};
use crate::child::Leashed;
use crate::cpio;
use crate::error::LabError;
use crate::machine::{Given, Machine};
use crate::order::{ANSWER, Answer, LEFT, STDERR, STDOUT};
use crate::setup::Setup;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a boot may take: many times what it takes on a quiet host, since hosts are not.
const BOOT_LIMIT: Duration = Duration::from_secs(300);
/// How long a command may take to end once it was asked to.
const STOP_LIMIT: Duration = Duration::from_secs(30);
/// How often the machine is looked at.
const LOOK: Duration = Duration::from_millis(25);
/// How much of the console is shown.
const CONSOLE_LINES: usize = 12;

/// What a command in the lab left.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Done {
    /// Its exit status, or 128 + the signal that ended it, as shells say it.
    pub status: i32,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
    /// Files that it left, by path within its folder of results.
    pub files: BTreeMap<String, Vec<u8>>,
    /// What the kernel and the first program said.
    pub console: String,
    /// Real time from QEMU's start until the command's.
    pub boot_time: Duration,
    /// Real time from QEMU's start to its end.
    pub wall_time: Duration,
    /// Boots that failed before this one, each in words.
    pub failed_boots: Vec<String>,
}

/// What the watcher is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sight {
    /// How far the machine is.
    pub stage: Stage,
    /// How far the command is, in nanoseconds of its own time, if it says so.
    pub elapsed_ns: u64,
    /// Real time since QEMU's start.
    pub wall_time: Duration,
}

/// A job for a boot.
pub(crate) struct Job<'a> {
    pub setup: &'a Setup,
    pub machine: &'a Machine,
    pub initramfs: &'a [u8],
    /// Real time that the command may take beyond the boot.
    pub limit: Duration,
    pub stop: &'a AtomicBool,
}

/// Boots and carries the job out; tries again once if the boot failed.
pub(crate) fn run(job: &Job<'_>, watch: &mut dyn FnMut(Sight)) -> Result<Done, LabError> {
    match once(job, watch) {
        Err(error) if error.is_boot_failure() && !job.stop.load(Ordering::Relaxed) => {
            log::warn!("the lab's first boot failed and is tried once more: {error}");
            let mut done = once(job, watch)?;
            done.failed_boots.push(error.to_string());
            Ok(done)
        }
        result => result,
    }
}

/// Everything that belongs to one QEMU process.
struct Running {
    qemu: Leashed,
    channel: SharedMemory,
    console: File,
    errors: File,
    start: Instant,
}

fn once(job: &Job<'_>, watch: &mut dyn FnMut(Sight)) -> Result<Done, LabError> {
    let prepare = |what| move |source| LabError::Prepare { what, source };
    let initramfs =
        anonymous_file("initramfs", job.initramfs).map_err(prepare("the first file system"))?;
    let channel = SharedMemory::new().map_err(prepare("the channel"))?;
    let console = anonymous_file("console", b"").map_err(prepare("the console"))?;
    let errors = anonymous_file("errors", b"").map_err(prepare("QEMU's messages"))?;
    let given = Given {
        initramfs: path_for_child(&initramfs),
        channel: channel.path(),
        console: path_for_child(&console),
    };
    let mut command = job.machine.command(job.setup, &given);
    log::debug!("{command:?}");
    let stderr = errors.try_clone().map_err(prepare("QEMU's messages"))?;
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr);
    let start = Instant::now();
    let qemu = Leashed::spawn(&mut command).map_err(|error| LabError::QemuDidNotStart {
        message: format!("{}: {error}", job.setup.qemu.path.display()),
    })?;
    let mut running = Running {
        qemu,
        channel,
        console,
        errors,
        start,
    };
    let boot_time = running.watch(job, watch)?;
    let wall_time = running.start.elapsed();
    running.done(boot_time, wall_time)
}

impl Running {
    /// Watches until QEMU has ended; gives the time until the command ran.
    fn watch(&mut self, job: &Job<'_>, watch: &mut dyn FnMut(Sight)) -> Result<Duration, LabError> {
        let mut boot_time = None;
        let mut stop_asked = None;
        loop {
            let ended = self.qemu.ended().map_err(|source| LabError::Prepare {
                what: "waiting for QEMU",
                source,
            })?;
            let (stage, now) = (self.channel.stage(), self.start.elapsed());
            if stage >= Stage::Running && boot_time.is_none() {
                boot_time = Some(now);
            }
            watch(Sight {
                stage,
                elapsed_ns: self.channel.elapsed_ns(),
                wall_time: now,
            });
            if let Some(status) = ended {
                return self
                    .judge_end(stage, status)
                    .map(|()| boot_time.unwrap_or(now));
            }
            let limit = boot_time.map_or(BOOT_LIMIT, |boot| boot + job.limit);
            if now > limit {
                return Err(self.time_limit(stage, limit));
            }
            if job.stop.load(Ordering::Relaxed) {
                let asked = *stop_asked.get_or_insert(now);
                // Before the command runs there is nothing to wait for, and an exact run does not look.
                let hopeless = stage < Stage::Running || job.machine.exact;
                if hopeless || now > asked + STOP_LIMIT || self.channel.ask_to_stop().is_err() {
                    return Err(LabError::Interrupted { stage });
                }
            }
            std::thread::sleep(LOOK);
        }
    }

    /// QEMU has ended: was it because the machine had done its work?
    fn judge_end(&self, stage: Stage, status: std::process::ExitStatus) -> Result<(), LabError> {
        if self.channel.is_complete() {
            return Ok(());
        }
        let console = self.console_end();
        if stage > Stage::Booting {
            return Err(LabError::Died { stage, console });
        }
        if !status.success() && console.is_empty() {
            return Err(LabError::QemuDidNotStart {
                message: format!("{status}; {}", self.qemu_messages()),
            });
        }
        Err(LabError::KernelDidNotBoot {
            how: "the machine stopped".to_owned(),
            console,
        })
    }

    fn time_limit(&self, stage: Stage, limit: Duration) -> LabError {
        let console = self.console_end();
        if stage == Stage::Booting {
            let how = format!("nothing heard within {} s", limit.as_secs());
            return LabError::KernelDidNotBoot { how, console };
        }
        LabError::TimeLimit {
            stage,
            limit,
            console,
        }
    }

    fn done(&self, boot_time: Duration, wall_time: Duration) -> Result<Done, LabError> {
        let archive = self.channel.results()?;
        let mut files = cpio::read_files(&archive).map_err(DamagedResults::from)?;
        let answer = files
            .remove(ANSWER)
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .ok_or(DamagedResults::File { name: ANSWER })?;
        let status = match answer {
            Answer::Exited(status) => status,
            Answer::Killed(signal) => 128 + signal,
            Answer::NotReady { step, message } => {
                let console = self.console_end();
                return Err(LabError::NotReady {
                    step,
                    message,
                    console,
                });
            }
        };
        let missing = |name| LabError::Damaged(DamagedResults::File { name });
        Ok(Done {
            status,
            stdout: files.remove(STDOUT).ok_or(missing(STDOUT))?,
            stderr: files.remove(STDERR).ok_or(missing(STDERR))?,
            files: files
                .into_iter()
                .filter_map(|(name, data)| Some((name.strip_prefix(LEFT)?.to_owned(), data)))
                .collect(),
            console: read_text(&self.console),
            boot_time,
            wall_time,
            failed_boots: Vec::new(),
        })
    }

    fn console_end(&self) -> String {
        let text = read_text(&self.console);
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| !line.trim().is_empty())
            .collect();
        lines[lines.len().saturating_sub(CONSOLE_LINES)..].join("\n")
    }

    /// What QEMU said, without what it always says: that the emulation lacks features of the processor.
    fn qemu_messages(&self) -> String {
        let text = read_text(&self.errors);
        let lines = text
            .lines()
            .filter(|line| !line.contains("doesn't support requested feature"));
        lines.collect::<Vec<_>>().join("; ")
    }
}

fn read_text(file: &File) -> String {
    let length = file.metadata().map_or(0, |metadata| metadata.len());
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
    match file.read_exact_at(&mut bytes, 0) {
        Ok(()) => String::from_utf8_lossy(&bytes).replace('\r', ""),
        Err(error) => format!("(cannot be read: {error})"),
    }
}
