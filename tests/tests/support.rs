//! Starting `stealtime` with a time limit, and whether KVM is there.

use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use wait_timeout::ChildExt;

/// How long a child may take unless it is told otherwise. Generous: the machine may be busy.
const LIMIT: Duration = Duration::from_secs(60);

/// What a child left behind.
#[derive(Debug)]
pub(crate) struct Ran {
    /// Exit status; none if a signal ended it.
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// Fails with everything known unless the status is this.
    #[track_caller]
    pub(crate) fn expect_status(self, status: i32) -> Self {
        assert_eq!(self.status, Some(status), "{self:#?}");
        self
    }

    /// Standard output as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }

    /// Fails unless standard error is one line for the error (and lines for its causes) that holds
    /// all of these words, and nothing was printed.
    #[track_caller]
    pub(crate) fn expect_error(&self, words: &[&str]) {
        for word in words {
            assert!(self.stderr.contains(word), "`{word}` is missing: {self:#?}");
        }
        assert!(self.stdout.is_empty(), "{self:#?}");
        for noise in ["panicked", "RUST_BACKTRACE", "stack backtrace", "Error {"] {
            assert!(!self.stderr.contains(noise), "{self:#?}");
        }
    }
}

/// Runs `stealtime` with the usual limit.
#[track_caller]
pub(crate) fn stealtime(arguments: &[&str]) -> Ran {
    Started::new(arguments).finish(LIMIT)
}

/// A child that goes on while the test does something.
#[derive(Debug)]
pub(crate) struct Started {
    child: Child,
    stdout: JoinHandle<String>,
    stderr: JoinHandle<String>,
    what: String,
}

impl Started {
    #[track_caller]
    pub(crate) fn new(arguments: &[&str]) -> Self {
        let mut command = Command::new(program());
        // Without the costs that this machine's owner may have stored, so that `sim` is the same
        // everywhere.
        command
            .env_remove("STEALTIME_COSTS")
            .env("XDG_CONFIG_HOME", env!("CARGO_TARGET_TMPDIR"));
        Self::spawn(command.args(arguments))
    }

    #[track_caller]
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program under test starts");
        let stdout = read(child.stdout.take().expect("piped"));
        let stderr = read(child.stderr.take().expect("piped"));
        Self {
            child,
            stdout,
            stderr,
            what: format!("{command:?}"),
        }
    }

    /// Its process id.
    pub(crate) fn id(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    /// Waits for its end; a child that takes longer than `limit` is ended and the test fails.
    #[track_caller]
    pub(crate) fn finish(mut self, limit: Duration) -> Ran {
        let status = self
            .child
            .wait_timeout(limit)
            .expect("a child can be waited for");
        if status.is_none() {
            self.child.kill().expect("our own child");
            self.child.wait().expect("a child can be waited for");
        }
        let ran = Ran {
            status: status.and_then(|status| status.code()),
            stdout: self.stdout.join().expect("the reader does not panic"),
            stderr: self.stderr.join().expect("the reader does not panic"),
        };
        assert!(
            status.is_some(),
            "{} did not end within {limit:?}: {ran:#?}",
            self.what
        );
        ran
    }
}

fn read(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).expect("a pipe can be read");
        String::from_utf8(bytes).expect("reports are UTF-8")
    })
}

/// The program under test.
pub(crate) fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_stealtime-under-test"))
}

/// The right to use KVM and the cores while nobody else does.
#[derive(Debug)]
pub(crate) struct Kvm {
    #[expect(dead_code, reason = "locked for as long as it is open")]
    lock: File,
}

/// Waits until no other test uses KVM. None, with a loud line, if `/dev/kvm` is missing or may not
/// be opened; where it can be opened, the test must pass.
pub(crate) fn kvm() -> Option<Kvm> {
    match OpenOptions::new().read(true).write(true).open("/dev/kvm") {
        Ok(_) => {}
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::NotFound | ErrorKind::PermissionDenied
            ) =>
        {
            eprintln!("SKIPPED: this test needs /dev/kvm, and it cannot be opened: {error}");
            return None;
        }
        Err(error) => panic!("/dev/kvm is there and may be opened, but: {error}"),
    }
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kvm.lock");
    let file = File::create(path).expect("the build directory is writable");
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)
        .expect("a file of our own can be locked");
    Some(Kvm { lock: file })
}
