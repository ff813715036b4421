//! Standard output and the progress bar.
//!
//! Reports go to standard output, everything else to standard error. A reader that closes the pipe
//! early (`| head`) has seen what it wanted: no error.

use crate::closed::stdout_was_closed;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{BufWriter, ErrorKind, IsTerminal, StdoutLock, Write, stderr, stdout};
use stealtime_scheduler::time::Nanos;
use stealtime_workloads::run::{Entry, Observer};

/// Prints a report.
///
/// # Errors
/// If standard output is closed or cannot be written, unless nobody reads it any more.
pub fn print(text: &str) -> std::io::Result<()> {
    open()?;
    let mut out = stdout().lock();
    let written = out
        .write_all(text.as_bytes())
        .and_then(|()| match text.ends_with('\n') {
            true => Ok(()),
            false => out.write_all(b"\n"),
        })
        .and_then(|()| out.flush());
    match written {
        Err(error) if unread(&error) => Ok(()),
        other => other,
    }
}

/// Whether standard output is there at all.
fn open() -> std::io::Result<()> {
    if stdout_was_closed() {
        return Err(std::io::Error::other("standard output is closed"));
    }
    Ok(())
}

/// Standard output for what is written piece by piece.
///
/// # Errors
/// If standard output is closed.
pub fn stream() -> std::io::Result<BufWriter<StdoutLock<'static>>> {
    open()?;
    Ok(BufWriter::with_capacity(1 << 16, stdout().lock()))
}

/// Whether nobody reads the output any more.
#[must_use]
pub fn unread(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::BrokenPipe
}

/// A bar on standard error, if that is a terminal and it is wanted.
#[derive(Debug)]
pub struct Bar(ProgressBar);

impl Bar {
    /// A bar for a run of this length.
    #[must_use]
    pub fn new(label: &str, length: Nanos, quiet: bool) -> Self {
        if quiet || !stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::with_draw_target(
            Some(millis(length)),
            ProgressDrawTarget::stderr_with_hz(10),
        );
        let style = ProgressStyle::with_template("{msg} [{bar:40}] {percent:>3} %")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style.progress_chars("=> "));
        bar.set_message(label.to_owned());
        Self(bar)
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

fn millis(time: Nanos) -> u64 {
    time.get() / 1_000_000
}

/// Passes a run's stream on and moves the bar.
#[derive(Debug)]
pub struct WithBar<'a, O> {
    /// Who listens.
    pub inner: &'a mut O,
    /// The bar.
    pub bar: Bar,
}

impl<O: Observer> Observer for WithBar<'_, O> {
    fn entries(&mut self, entries: &[Entry]) {
        self.inner.entries(entries);
    }

    fn progress(&mut self, elapsed: Nanos) {
        self.bar.0.set_position(millis(elapsed));
        self.inner.progress(elapsed);
    }
}
