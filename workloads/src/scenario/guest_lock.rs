//! Locks and channels in a VM's memory as a scenario declares them: names, kinds, sizes, counts.
//!
//! A name that is declared several times over (`x20`) stands for `NAME-1`, `NAME-2` and so on. A step that
//! names it without a number means the one with the vCPU's own number.

use super::document::{Located, Table, Text};
use super::error::{Fault, Problem, StepFault, nearest};
use super::step::{NAME, is_name};
use super::{MAX_CHANNEL, MAX_LOCKS};
use crate::run::LockKind;

const KINDS: &str = "a kind of lock: \"ticket\", \"test-and-set\", \"mcs\", \"mutex\", \
                     \"mutex-handoff\" or \"channel 16\" (of so many messages), each perhaps with \
                     a number of copies, as \"mutex x4\"";

/// The kinds that need nothing said but their name.
const PLAIN: [(&str, LockKind); 5] = [
    ("ticket", LockKind::Ticket),
    ("test-and-set", LockKind::TestAndSet),
    ("mcs", LockKind::Mcs),
    ("mutex", LockKind::Mutex),
    ("mutex-handoff", LockKind::MutexHandoff),
];

/// A declaration.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Declared {
    name: String,
    kind: LockKind,
    /// So many with numbers, or one without.
    copies: Option<u32>,
}

/// The locks of a VM.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct GuestLocks {
    declared: Vec<Declared>,
    /// All by number: name and kind.
    all: Vec<(String, LockKind)>,
}

/// What a step does with a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Use {
    /// Takes or releases it.
    Lock,
    /// Sends or receives.
    Message,
}

impl GuestLocks {
    /// Reads a VM's `locks` table.
    pub(super) fn read(table: &mut Table<'_>) -> Result<Self, Fault> {
        let at = table.key_at("locks");
        let expected = "a table of names and kinds, as { a = \"ticket\", b = \"channel 16\" }";
        let mut locks = Self::default();
        for (name, kind) in table.pairs("locks", expected)? {
            locks.add(declared(name, &kind)?, at)?;
        }
        Ok(locks)
    }

    fn add(&mut self, new: Declared, at: usize) -> Result<(), Fault> {
        let names: Vec<_> = match new.copies {
            None => vec![new.name.clone()],
            Some(copies) => (1..=copies).map(|n| format!("{}-{n}", new.name)).collect(),
        };
        for name in names {
            if self.all.iter().any(|(known, _)| *known == name) {
                let what = "lock";
                return Err(Fault::at(at, Problem::Duplicate { what, name }));
            }
            // A channel's mutex has the number behind it, and a name that nothing else can have.
            let guard = matches!(new.kind, LockKind::Channel(_))
                .then(|| (format!("{name}/mutex"), LockKind::Mutex));
            self.all.push((name, new.kind));
            self.all.extend(guard);
        }
        if self.all.len() > MAX_LOCKS {
            let problem = Problem::TooMany {
                what: "locks in a VM",
                count: self.all.len(),
                limit: MAX_LOCKS,
            };
            return Err(Fault::at(at, problem));
        }
        self.declared.push(new);
        Ok(())
    }

    /// All by number, with names and kinds.
    pub(super) fn all(&self) -> &[(String, LockKind)] {
        &self.all
    }

    /// The number of a lock as a vCPU names it that is copy `copy` of its kind.
    pub(super) fn number(&self, name: &str, copy: usize) -> Option<u16> {
        let own = format!("{name}-{copy}");
        let find = |wanted: &str| self.all.iter().position(|(known, _)| known == wanted);
        find(name)
            .or_else(|| find(&own))
            .and_then(|number| u16::try_from(number).ok())
    }

    /// Checks that a step may use what it names.
    pub(super) fn check(&self, name: &str, how: Use) -> Result<(), StepFault> {
        let exact = self.all.iter().find(|(known, _)| known == name);
        let family = self.declared.iter().find(|declared| declared.name == name);
        let kind = exact
            .map(|(_, kind)| *kind)
            .or(family.map(|declared| declared.kind));
        let is_channel = kind.map(|kind| matches!(kind, LockKind::Channel(_)));
        match (is_channel, how) {
            (Some(true), Use::Message) | (Some(false), Use::Lock) => Ok(()),
            (Some(true), Use::Lock) => Err(grammar("a lock: this is a channel")),
            (Some(false), Use::Message) => Err(grammar("a channel: this is a lock")),
            (None, _) => Err(self.unknown(name, how)),
        }
    }

    /// The fault that there is no such lock.
    pub(super) fn unknown(&self, name: &str, how: Use) -> StepFault {
        let known: Vec<_> = self.declared.iter().map(|one| &*one.name).collect();
        let kind = match how {
            Use::Lock => "ticket",
            Use::Message => "channel 16",
        };
        StepFault::UnknownLock {
            lock: name.to_owned(),
            known: if known.is_empty() {
                format!("the VM to declare it, as locks = {{ {name} = \"{kind}\" }}")
            } else {
                format!("one of this VM's locks: {}", known.join(", "))
            },
            meant: nearest(name, known),
        }
    }
}

fn grammar(expected: &str) -> StepFault {
    StepFault::Grammar {
        expected: expected.to_owned(),
        meant: None,
    }
}

fn declared(name: Located<String>, text: &Text) -> Result<Declared, Fault> {
    let wrong = |at, key: &str, written: &str, expected: &str| {
        let problem = Problem::Value {
            key: key.to_owned(),
            written: format!("{written:?}"),
            expected: expected.to_owned(),
        };
        Fault::at(at, problem)
    };
    if !is_name(&name.value) {
        return Err(wrong(name.at, "locks", &name.value, NAME));
    }
    let (kind, copies) =
        kind(&text.value).ok_or_else(|| wrong(text.at, &name.value, &text.value, KINDS))?;
    Ok(Declared {
        name: name.value,
        kind,
        copies,
    })
}

/// `KIND [SIZE] [xCOPIES]`.
fn kind(text: &str) -> Option<(LockKind, Option<u32>)> {
    let mut words = text.split_whitespace().peekable();
    let word = words.next()?;
    let kind = match PLAIN.iter().find(|(name, _)| *name == word) {
        Some((_, kind)) => *kind,
        None if word == "channel" => {
            let size = words.next()?.parse().ok()?;
            LockKind::Channel(Some(size).filter(|size| (1..=MAX_CHANNEL).contains(size))?)
        }
        None => return None,
    };
    let copies = match words.next() {
        None => None,
        Some(word) => {
            let copies = word.strip_prefix('x')?.parse().ok()?;
            let most = u32::try_from(MAX_LOCKS).unwrap_or(u32::MAX);
            Some(Some(copies).filter(|copies| (1..=most).contains(copies))?)
        }
    };
    words.next().is_none().then_some((kind, copies))
}
