//! The rows of a document for viewers, in the JSON form that Chrome made known.
//!
//! Everything is on a track, a thread of a process as viewers call them. Times are microseconds with
//! three digits behind the point, so that nothing of a nanosecond is lost.

use std::io::{self, Write};
use stealtime_scheduler::time::Nanos;

/// Where a track is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Track {
    pub(super) process: usize,
    pub(super) thread: usize,
}

/// An end of an arrow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    Tail,
    Head,
}

/// A document that is being written.
#[derive(Debug)]
pub(super) struct Document<W> {
    to: W,
    begun: bool,
}

struct Micros(Nanos);

impl std::fmt::Display for Micros {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0.0 / 1_000, self.0.0 % 1_000)
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

impl<W: Write> Document<W> {
    pub(super) const fn new(to: W) -> Self {
        Self { to, begun: false }
    }

    /// Whether it has a row.
    pub(super) const fn begun(&self) -> bool {
        self.begun
    }

    fn row(&mut self, row: &str) -> io::Result<()> {
        let comma = if std::mem::replace(&mut self.begun, true) {
            ",\n"
        } else {
            "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n"
        };
        write!(self.to, "{comma}{row}")
    }

    /// The name of a process (its thread 0) or of a track.
    pub(super) fn name(&mut self, track: Track, name: &str) -> io::Result<()> {
        let Track { process, thread } = track;
        let what = match thread {
            0 => "process_name",
            _ => "thread_name",
        };
        let name = quoted(name);
        self.row(&format!(
            r#"{{"ph":"M","name":"{what}","pid":{process},"tid":{thread},"args":{{"name":{name}}}}}"#
        ))
    }

    /// Something that lasts.
    pub(super) fn span(
        &mut self,
        track: Track,
        name: &str,
        from: Nanos,
        to: Nanos,
    ) -> io::Result<()> {
        let Track { process, thread } = track;
        let (name, at, length) = (quoted(name), Micros(from), Micros(to.since(from)));
        self.row(&format!(
            r#"{{"ph":"X","name":{name},"pid":{process},"tid":{thread},"ts":{at},"dur":{length}}}"#
        ))
    }

    /// Something that happens.
    pub(super) fn instant(&mut self, track: Track, name: &str, at: Nanos) -> io::Result<()> {
        let Track { process, thread } = track;
        let (name, at) = (quoted(name), Micros(at));
        self.row(&format!(
            r#"{{"ph":"i","s":"t","name":{name},"pid":{process},"tid":{thread},"ts":{at}}}"#
        ))
    }

    /// A number from now on: of what, and of which `unit`.
    pub(super) fn count(
        &mut self,
        process: usize,
        name: &str,
        unit: &str,
        at: Nanos,
        number: usize,
    ) -> io::Result<()> {
        let (name, at) = (quoted(name), Micros(at));
        self.row(&format!(
            r#"{{"ph":"C","name":{name},"pid":{process},"ts":{at},"args":{{"{unit}":{number}}}}}"#
        ))
    }

    /// An end of the arrow with this number.
    pub(super) fn arrow(&mut self, track: Track, end: End, id: u64, at: Nanos) -> io::Result<()> {
        let Track { process, thread } = track;
        let at = Micros(at);
        let phase = match end {
            End::Tail => "s",
            End::Head => "f",
        };
        self.row(&format!(
            r#"{{"ph":"{phase}","bp":"e","cat":"wake","name":"wake","id":{id},"pid":{process},"tid":{thread},"ts":{at}}}"#
        ))
    }

    /// There is nothing more.
    pub(super) fn end(&mut self) -> io::Result<()> {
        self.to.write_all(b"\n]}\n")?;
        self.to.flush()
    }
}
