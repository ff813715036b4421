//! Locks in the hypervisor as a scenario declares them: names and kinds.
//!
//! A lock that is not declared is a plain one, handed to the waiter that came first.

use super::document::{Located, Table, Text};
use super::error::{Fault, Problem, StepFault};
use super::model::StepLine;
use super::step::{NAME, is_name};
use stealtime_guest::op::{HostMode, Step};

/// What a lock is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HostLockKind {
    /// Handed to the waiter that came first.
    HandOff,
    /// A release wakes all that wait.
    Mutex,
    /// Shared by readers, handed over by rank.
    ReadWrite,
}

/// The declared locks.
pub(super) type HostLockKinds = Vec<(String, HostLockKind)>;

const KINDS: [(&str, HostLockKind); 3] = [
    ("handoff", HostLockKind::HandOff),
    ("mutex", HostLockKind::Mutex),
    ("rwlock", HostLockKind::ReadWrite),
];

/// Reads the `host-locks` table.
pub(super) fn kinds(root: &mut Table<'_>) -> Result<HostLockKinds, Fault> {
    let expected = "a table of names and kinds, as { a = \"mutex\", b = \"rwlock\" }";
    let pairs = root.pairs("host-locks", expected)?;
    pairs.into_iter().map(declared).collect()
}

fn declared((name, kind): (Located<String>, Text)) -> Result<(String, HostLockKind), Fault> {
    let wrong = |at, key: &str, written: &str, expected: &str| {
        let problem = Problem::Value {
            key: key.to_owned(),
            written: format!("{written:?}"),
            expected: expected.to_owned(),
        };
        Fault::at(at, problem)
    };
    if !is_name(&name.value) {
        return Err(wrong(name.at, "host-locks", &name.value, NAME));
    }
    let known = KINDS.iter().find(|(word, _)| *word == kind.value);
    let (_, known) = known.ok_or_else(|| {
        let expected = "a kind of lock: \"handoff\", \"mutex\" or \"rwlock\"";
        wrong(kind.at, &name.value, &kind.value, expected)
    })?;
    Ok((name.value, *known))
}

fn kind_of(kinds: &[(String, HostLockKind)], name: &str) -> HostLockKind {
    let declared = kinds.iter().find(|(known, _)| known == name);
    declared.map_or(HostLockKind::HandOff, |(_, kind)| *kind)
}

/// The step that takes a lock alone.
pub(super) fn take(
    kinds: &[(String, HostLockKind)],
    name: &str,
    lock: u16,
    kernel_priority: bool,
) -> Step {
    let as_mode = |mode| Step::HostAcquire {
        lock,
        mode,
        kernel_priority,
    };
    match kind_of(kinds, name) {
        HostLockKind::HandOff => Step::HostLock {
            lock,
            kernel_priority,
        },
        HostLockKind::Mutex => as_mode(HostMode::Mutex),
        HostLockKind::ReadWrite => as_mode(HostMode::Write),
    }
}

/// The step that takes a lock as a reader; only a reader-writer lock has readers.
pub(super) fn read(
    kinds: &[(String, HostLockKind)],
    name: &str,
    lock: u16,
    kernel_priority: bool,
    line: &StepLine,
) -> Result<Step, Fault> {
    if kind_of(kinds, name) == HostLockKind::ReadWrite {
        return Ok(Step::HostAcquire {
            lock,
            mode: HostMode::Read,
            kernel_priority,
        });
    }
    let fault = StepFault::Grammar {
        expected: format!(
            "a lock that the scenario declares for readers, as host-locks = {{ {name} = \"rwlock\" }}"
        ),
        meant: None,
    };
    Err(Fault::step(line.at, &line.text, fault))
}
