//! The first process of the emulated machine.
//!
//! The program that runs everywhere else runs here as `/init`: it mounts what the kernel offers, loads the
//! modules, opens `/dev/kvm`, runs one command line of its own in a child process, hands the results over
//! and powers the machine off. It never returns, and it never leaves the host without a word: what
//! goes wrong before there is a channel is said on the console.

use crate::channel::Stage;
use crate::channel::inside::Channel;
use crate::cpio::Writer;
use crate::order::{ANSWER, Answer, FILES, LEFT, MODULES, ORDER, Order, RESULTS, STDERR, STDOUT};
use rustix::mount::{MountFlags, mount};
use rustix::process::{Pid, Signal, kill_process};
use rustix::system::{RebootCommand, finit_module, reboot};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// Begins what we say on the console.
pub(crate) const WORD: &str = "stealtime lab: ";

/// How often the wish to stop is looked for.
const WATCH: Duration = Duration::from_millis(50);

/// Does the first process's work if this is the first process of a lab; otherwise does nothing.
///
/// To be called before anything else in `main`.
pub fn run_if_first_process() {
    if std::process::id() == 1 && Path::new("/").join(ORDER).is_file() {
        work();
        power_off();
    }
}

fn power_off() -> ! {
    let result = reboot(RebootCommand::PowerOff);
    panic!("the machine cannot be powered off: {result:?}");
}

fn work() {
    for (what, place) in [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev")] {
        if let Err(error) = mount_one(what, place) {
            say(&format!("{what} cannot be mounted: {error}"));
        }
    }
    let mut channel = match Channel::open() {
        Ok(channel) => channel,
        Err(error) => {
            say(&format!("there is no channel to the host: {error}"));
            return;
        }
    };
    channel.set_stage(Stage::Started);
    let mut results = Writer::new();
    let answer = match carry_out(&channel) {
        Ok(status) => status,
        Err((step, error)) => Answer::NotReady {
            step: step.to_owned(),
            message: error.to_string(),
        },
    };
    channel.set_stage(Stage::Results);
    match serde_json::to_vec(&answer) {
        Ok(bytes) => results.file(ANSWER, &bytes),
        Err(error) => say(&format!("the answer cannot be written: {error}")),
    }
    if let Err(error) = collect(&mut results) {
        say(&format!("results cannot be collected: {error}"));
    }
    if let Err(error) = channel.send(&results.finish()) {
        say(&format!("results cannot be handed over: {error}"));
    }
}

fn mount_one(what: &str, place: &str) -> io::Result<()> {
    fs::create_dir_all(place)?;
    match mount(what, place, what, MountFlags::empty(), None) {
        // Some kernels mount `/dev` themselves.
        Err(rustix::io::Errno::BUSY) => Ok(()),
        result => Ok(result?),
    }
}

/// Everything up to the end of the command. An error comes with what was tried.
fn carry_out(channel: &Channel) -> Result<Answer, (&'static str, io::Error)> {
    let order = fs::read(Path::new("/").join(ORDER)).map_err(|error| ("read the order", error))?;
    let order: Order =
        serde_json::from_slice(&order).map_err(|error| ("read the order", error.into()))?;
    for module in &order.modules {
        load(module).map_err(|error| {
            (
                "load the kernel's modules",
                io::Error::new(error.kind(), format!("{module}: {error}")),
            )
        })?;
    }
    File::open("/dev/kvm").map_err(|error| ("open /dev/kvm", error))?;
    channel.set_stage(Stage::Ready);
    for folder in [FILES, RESULTS, "tmp"] {
        fs::create_dir_all(Path::new("/").join(folder))
            .map_err(|error| ("prepare folders", error))?;
    }
    let child = start(&order).map_err(|error| ("start the command", error))?;
    channel.set_stage(Stage::Running);
    let status =
        wait(child, channel, order.watch).map_err(|error| ("wait for the command", error))?;
    Ok(status.code().map_or_else(
        || Answer::Killed(status.signal().unwrap_or(0)),
        Answer::Exited,
    ))
}

fn load(module: &str) -> io::Result<()> {
    let file = File::open(Path::new("/").join(MODULES).join(module))?;
    Ok(finit_module(&file, c"", 0)?)
}

fn start(order: &Order) -> io::Result<Child> {
    let output = |name| File::create(Path::new("/lab").join(name)).map(Stdio::from);
    Command::new("/proc/self/exe")
        .args(&order.arguments)
        .envs(order.environment.iter().map(|(name, value)| (name, value)))
        .current_dir(Path::new("/").join(FILES))
        .stdin(Stdio::null())
        .stdout(output(STDOUT)?)
        .stderr(output(STDERR)?)
        .spawn()
}

/// Waits for the command; passes a wish to stop on as the signal that Ctrl-C would send, once.
fn wait(mut child: Child, channel: &Channel, watch: bool) -> io::Result<ExitStatus> {
    if !watch {
        return child.wait();
    }
    let mut told = false;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if channel.stop_asked() && !told {
            told = true;
            let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            if let Some(id) = id {
                kill_process(id, Signal::INT)?;
            }
        }
        std::thread::sleep(WATCH);
    }
}

fn collect(results: &mut Writer) -> io::Result<()> {
    for name in [STDOUT, STDERR] {
        let path = Path::new("/lab").join(name);
        if path.exists() {
            results.file(name, &fs::read(path)?);
        }
    }
    let folder = Path::new("/").join(RESULTS);
    if folder.exists() {
        collect_folder(results, &folder, LEFT)
    } else {
        Ok(())
    }
}

fn collect_folder(results: &mut Writer, folder: &Path, prefix: &str) -> io::Result<()> {
    let mut entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            collect_folder(results, &entry.path(), &format!("{name}/"))?;
        } else {
            results.file(&name, &fs::read(entry.path())?);
        }
    }
    Ok(())
}

/// A line on the console, which the host shows if the machine gives no answer.
fn say(line: &str) {
    // There is nobody left to tell if even this fails.
    let _ = writeln!(io::stdout(), "{WORD}{line}");
}
