//! Locks and channels in a VM's memory as a scenario declares them: names, kinds, sizes, counts.
//!
//! A name that is declared several times over (`x20`) stands for `NAME-1`, `NAME-2` and so on. A step that
//! names it without a number means the one with the vCPU's own number.

use super::document::{Located, Table, Text};
use super::error::{Fault, Problem, StepFault, nearest};
use super::step::{NAME, is_name};
use super::{MAX_CHANNEL, MAX_LOCKS, MAX_PARTIES};
use crate::run::LockKind;
use stealtime_scheduler::time::Nanos;

const KINDS: &str = "a kind of lock: \"ticket\", \"test-and-set\", \"mcs\", \"mutex\", \
                     \"mutex-handoff\", \"rwlock\", \"preemptable-ticket 10us\" (the patience \
                     with each one before), \"pv 300us\" (how long to spin), \"channel 16 300ns\" (of \
                     so many messages, each copied in so long) or \"barrier 4\" (for so many), each perhaps with a number of \
                     copies, as \"mutex x4\"";

/// The kinds that need nothing said but their name.
const PLAIN: [(&str, LockKind); 8] = [
    ("ticket", LockKind::Ticket),
    ("test-and-set", LockKind::TestAndSet),
    ("mcs", LockKind::Mcs),
    ("mutex", LockKind::Mutex),
    ("mutex-handoff", LockKind::MutexHandoff),
    ("rwlock", LockKind::Rwlock),
    (
        "preemptable-ticket",
        LockKind::PreemptableTicket(PATIENCE_NS),
    ),
    ("pv", LockKind::Pv(THRESHOLD_NS)),
];

/// The patience of a preemptable ticket lock for which none is given: some short critical sections.
const PATIENCE_NS: u32 = 10_000;
/// How long the waiters of a paravirtual lock spin for which nothing is given: Linux's 32,768 turns, of
/// about 10 ns.
const THRESHOLD_NS: u32 = 327_680;

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
    /// Takes it alone, or releases it.
    Lock,
    /// Takes it as a reader.
    Read,
    /// Sends or receives.
    Message,
    /// Meets others.
    Meet,
}

/// What may be used as what.
fn fits(kind: LockKind, how: Use) -> Result<(), &'static str> {
    match (kind, how) {
        (LockKind::Channel { .. }, Use::Message)
        | (LockKind::Barrier(_), Use::Meet)
        | (LockKind::Rwlock, Use::Read) => Ok(()),
        (LockKind::Channel { .. } | LockKind::Barrier(_), Use::Lock | Use::Read) => {
            Err("a lock: this is none")
        }
        (_, Use::Lock) => Ok(()),
        (_, Use::Read) => Err("a lock that is declared as \"rwlock\""),
        (_, Use::Message) => Err("a channel: this is none"),
        (_, Use::Meet) => Err("a barrier: this is none"),
    }
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
            let guard = matches!(new.kind, LockKind::Channel { .. })
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
        match kind {
            Some(kind) => fits(kind, how).map_err(grammar),
            None => Err(self.unknown(name, how)),
        }
    }

    /// The fault that there is no such lock.
    pub(super) fn unknown(&self, name: &str, how: Use) -> StepFault {
        let known: Vec<_> = self.declared.iter().map(|one| &*one.name).collect();
        let kind = match how {
            Use::Lock => "ticket",
            Use::Read => "rwlock",
            Use::Message => "channel 16",
            Use::Meet => "barrier 4",
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
    let mut argument = || words.next_if(|word| !word.starts_with('x'));
    let count = |word: Option<&str>, most: u32| {
        let count = word?.parse().ok()?;
        Some(count).filter(|count| (1..=most).contains(count))
    };
    let plain = PLAIN.iter().find(|(name, _)| *name == word);
    let kind = match (word, plain) {
        ("channel", _) => LockKind::Channel {
            room: count(argument(), MAX_CHANNEL)?,
            copy_ns: time(argument(), 0)?,
        },
        ("barrier", _) => LockKind::Barrier(count(argument(), MAX_PARTIES)?),
        (_, Some((_, LockKind::PreemptableTicket(usual)))) => {
            LockKind::PreemptableTicket(time(argument(), *usual)?)
        }
        (_, Some((_, LockKind::Pv(usual)))) => LockKind::Pv(time(argument(), *usual)?),
        (_, plain) => plain?.1,
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

/// A time of more than 0 up to a second, in nanoseconds; the usual one if none is given.
fn time(word: Option<&str>, usual: u32) -> Option<u32> {
    let Some(word) = word else {
        return Some(usual);
    };
    let time: Nanos = word.parse().ok()?;
    let within = (Nanos(1)..=Nanos::from_secs(1)).contains(&time);
    within.then(|| u32::try_from(time.get()).ok())?
}
