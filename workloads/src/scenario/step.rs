//! The steps of a program: their grammar, read and written.
//!
//! A step is one line: a word and its arguments, apart by blanks. [`Statement`] is its meaning with
//! names as written; numbers come in when the plan is built. `docs/scenarios.md` has the grammar.
//! What is printed reads back as the same statement.

use super::error::{StepFault, nearest};
use std::fmt;
use std::num::NonZeroU32;
use stealtime_guest::op::{Length, Misdeed};
use stealtime_scheduler::time::Nanos;

/// The longest single length of time in a step.
pub const LONGEST_STEP: Nanos = Nanos::from_secs(3_600);
/// The shortest period of a periodic timer: shorter ones would leave no time for anything else.
pub const SHORTEST_PERIOD: Nanos = Nanos::from_micros(10);

/// All first words, in the order in which messages list them.
pub const WORDS: [&str; 27] = [
    "run",
    "spin",
    "sleep",
    "host-wait",
    "hypervisor",
    "timer",
    "wait",
    "yield",
    "interrupt",
    "lock",
    "read-lock",
    "unlock",
    "barrier",
    "send",
    "receive",
    "host-lock",
    "host-read-lock",
    "host-unlock",
    "user-return",
    "begin",
    "end",
    "critical-enter",
    "critical-leave",
    "exit",
    "repeat",
    "end-repeat",
    "fault",
];

const FAULTS: [(&str, Misdeed); 4] = [
    ("triple-fault", Misdeed::TripleFault),
    ("bad-memory", Misdeed::BadMemory),
    ("bad-port", Misdeed::BadPort),
    ("bad-instruction", Misdeed::BadInstruction),
];

const LENGTH: &str = "a length of time: `500us`, `200us..800us` (uniform) or `exponential 500us` \
                      (its mean), more than 0 and at most 60m";

/// At whom an interrupt is raised.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// The VM; its own if none is named.
    pub vm: Option<String>,
    /// The vCPU in it.
    pub vcpu: String,
}

/// What a step means, with names as written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Statement {
    /// CPU work.
    Run(Length),
    /// CPU work for ever.
    Spin,
    /// Nothing to do until a timer of its own.
    Sleep(Length),
    /// A wait in the hypervisor.
    HostWait(Length),
    /// Work of the hypervisor.
    Hypervisor(Length),
    /// Arm the periodic timer, or stop it.
    Timer(Option<Nanos>),
    /// Halt until an interrupt.
    Wait,
    /// Give up the core.
    Yield,
    /// Raise an interrupt.
    Interrupt(Target),
    /// Take a guest lock.
    Lock(String),
    /// Release it.
    Unlock(String),
    /// Take a reader-writer lock as a reader.
    ReadLock(String),
    /// Meet others at a barrier.
    Barrier(String),
    /// Send a message into a channel.
    Send(String),
    /// Receive one.
    Receive(String),
    /// Take a lock in the hypervisor.
    HostLock {
        /// Its name.
        lock: String,
        /// With a request for kernel priority.
        kernel_priority: bool,
    },
    /// Take a reader-writer lock in the hypervisor as a reader.
    HostReadLock {
        /// Its name.
        lock: String,
        /// With a request for kernel priority.
        kernel_priority: bool,
    },
    /// Release it, of whatever kind.
    HostUnlock(String),
    /// Pass through user mode of the host.
    UserReturn,
    /// A request begins.
    Begin,
    /// It ends.
    End,
    /// A critical section begins.
    CriticalEnter,
    /// It ends.
    CriticalLeave,
    /// A call that does nothing.
    Exit,
    /// So many rounds, or for ever.
    Repeat(Option<NonZeroU32>),
    /// The end of a repeat.
    EndRepeat,
    /// A fault on purpose.
    Fault(Misdeed),
}

/// A step that does not follow the grammar: the byte at which it goes wrong, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StepError {
    /// Where in the step.
    pub at: usize,
    /// What was expected.
    pub fault: StepFault,
}

/// The words of a step that are still to be read.
struct Words<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Words<'a> {
    /// The next word and its place; an empty one at the end.
    fn next(&mut self) -> (usize, &'a str) {
        let rest = &self.text[self.at..];
        let start = self.at + (rest.len() - rest.trim_start().len());
        let word = self.text[start..].split_whitespace().next().unwrap_or("");
        self.at = start + word.len();
        (start, word)
    }

    fn time(&mut self) -> Option<Nanos> {
        self.next().1.parse().ok()
    }

    fn length(&mut self) -> Result<Length, StepError> {
        let (at, word) = self.next();
        let length = if word == "exponential" {
            self.time().map(|mean| Length::Exponential(mean.get()))
        } else if let Some((low, high)) = word.split_once("..") {
            let ends = (low.parse::<Nanos>(), high.parse::<Nanos>());
            match ends {
                (Ok(low), Ok(high)) if low <= high => Some(Length::Uniform(low.get(), high.get())),
                _ => None,
            }
        } else {
            word.parse().ok().map(|Nanos(fixed)| Length::Fixed(fixed))
        };
        let most = |length: &Length| match *length {
            Length::Fixed(n) | Length::Uniform(_, n) | Length::Exponential(n) => n,
        };
        length
            .filter(|length| (1..=LONGEST_STEP.get()).contains(&most(length)))
            .ok_or_else(|| expected(at, LENGTH))
    }

    fn name(&mut self, what: &str) -> Result<String, StepError> {
        let (at, word) = self.next();
        if is_name(word) {
            Ok(word.to_owned())
        } else {
            Err(expected(at, format!("{what} ({NAME})")))
        }
    }

    fn target(&mut self) -> Result<Target, StepError> {
        let (at, word) = self.next();
        let (vm, vcpu) = match word.split_once('/') {
            Some((vm, vcpu)) => (Some(vm), vcpu),
            None => (None, word),
        };
        if vm.is_none_or(is_name) && is_name(vcpu) {
            let vm = vm.map(str::to_owned);
            let vcpu = vcpu.to_owned();
            Ok(Target { vm, vcpu })
        } else {
            Err(expected(at, "VM/VCPU or, within the same VM, VCPU"))
        }
    }

    fn timer(&mut self) -> Result<Option<Nanos>, StepError> {
        let (at, word) = self.next();
        if word == "off" {
            return Ok(None);
        }
        word.parse()
            .ok()
            .filter(|period| (SHORTEST_PERIOD..=LONGEST_STEP).contains(period))
            .map(Some)
            .ok_or_else(|| expected(at, "a period from 10us to 60m, such as `10ms`, or `off`"))
    }

    fn rounds(&mut self) -> Result<Option<NonZeroU32>, StepError> {
        let (at, word) = self.next();
        if word == "forever" {
            return Ok(None);
        }
        word.parse()
            .map(Some)
            .map_err(|_| expected(at, "a whole number from 1 to 4294967295, or `forever`"))
    }

    fn misdeed(&mut self) -> Result<Misdeed, StepError> {
        let (at, word) = self.next();
        let names = FAULTS.map(|(name, _)| name);
        let found = FAULTS.iter().find(|(name, _)| *name == word);
        found.map(|(_, misdeed)| *misdeed).ok_or_else(|| StepError {
            at,
            fault: StepFault::Grammar {
                expected: format!("one of {}", names.join(", ")),
                meant: nearest(word, names),
            },
        })
    }

    fn kernel_priority(&mut self) -> Result<bool, StepError> {
        match self.next() {
            (_, "") => Ok(false),
            (_, "kernel-priority") => Ok(true),
            (at, word) => Err(StepError {
                at,
                fault: StepFault::Grammar {
                    expected: "`kernel-priority` or nothing after the name".into(),
                    meant: nearest(word, ["kernel-priority"]),
                },
            }),
        }
    }
}

fn expected(at: usize, expected: impl Into<String>) -> StepError {
    StepError {
        at,
        fault: StepFault::Grammar {
            expected: expected.into(),
            meant: None,
        },
    }
}

/// What a name is, in words.
pub(super) const NAME: &str = "a name of letters, digits, `-`, `_` and `.`";

/// Whether a word can name a VM, a vCPU or a lock.
pub(super) fn is_name(word: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    !word.is_empty() && word.bytes().all(fits)
}

impl Statement {
    /// Reads a step.
    ///
    /// # Errors
    /// Where it does not follow the grammar, with what was expected there.
    pub fn parse(text: &str) -> Result<Self, StepError> {
        let mut words = Words { text, at: 0 };
        let (at, word) = words.next();
        let statement = match word {
            "run" => Self::Run(words.length()?),
            "spin" => Self::Spin,
            "sleep" => Self::Sleep(words.length()?),
            "host-wait" => Self::HostWait(words.length()?),
            "hypervisor" => Self::Hypervisor(words.length()?),
            "timer" => Self::Timer(words.timer()?),
            "wait" => Self::Wait,
            "yield" => Self::Yield,
            "interrupt" => Self::Interrupt(words.target()?),
            "lock" => Self::Lock(words.name("the name of a lock of this VM")?),
            "unlock" => Self::Unlock(words.name("the name of a lock of this VM")?),
            "read-lock" => Self::ReadLock(words.name("the name of a lock of this VM")?),
            "barrier" => Self::Barrier(words.name("the name of a barrier of this VM")?),
            "send" => Self::Send(words.name("the name of a channel of this VM")?),
            "receive" => Self::Receive(words.name("the name of a channel of this VM")?),
            "host-lock" => Self::HostLock {
                lock: words.name("the name of a lock in the hypervisor")?,
                kernel_priority: words.kernel_priority()?,
            },
            "host-read-lock" => Self::HostReadLock {
                lock: words.name("the name of a lock in the hypervisor")?,
                kernel_priority: words.kernel_priority()?,
            },
            "host-unlock" => Self::HostUnlock(words.name("the name of a lock in the hypervisor")?),
            "user-return" => Self::UserReturn,
            "begin" => Self::Begin,
            "end" => Self::End,
            "critical-enter" => Self::CriticalEnter,
            "critical-leave" => Self::CriticalLeave,
            "exit" => Self::Exit,
            "repeat" => Self::Repeat(words.rounds()?),
            "end-repeat" => Self::EndRepeat,
            "fault" => Self::Fault(words.misdeed()?),
            other => {
                let fault = StepFault::Grammar {
                    expected: format!("one of {}", WORDS.join(", ")),
                    meant: nearest(other, WORDS),
                };
                return Err(StepError { at, fault });
            }
        };
        match words.next() {
            (_, "") => Ok(statement),
            (at, _) => Err(expected(
                at,
                format!("nothing more after `{}`", &text[..at].trim()),
            )),
        }
    }
}

/// A length of time in the largest unit in which it is a whole number: nothing is rounded.
pub(super) fn exact(Nanos(nanos): Nanos) -> String {
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
    match units.iter().find(|(size, _)| nanos % size == 0) {
        _ if nanos == 0 => "0".into(),
        Some((size, unit)) => format!("{}{unit}", nanos / size),
        None => format!("{nanos}ns"),
    }
}

const fn asking(kernel_priority: bool) -> &'static str {
    if kernel_priority {
        " kernel-priority"
    } else {
        ""
    }
}

struct Shown(Length);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = |n| exact(Nanos(n));
        match self.0 {
            Length::Fixed(n) => write!(f, "{}", exact(n)),
            Length::Uniform(low, high) => write!(f, "{}..{}", exact(low), exact(high)),
            Length::Exponential(mean) => write!(f, "exponential {}", exact(mean)),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.vm {
            Some(vm) => write!(f, "{vm}/{}", self.vcpu),
            None => f.write_str(&self.vcpu),
        }
    }
}

impl fmt::Display for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(length) => write!(f, "run {}", Shown(*length)),
            Self::Spin => f.write_str("spin"),
            Self::Sleep(length) => write!(f, "sleep {}", Shown(*length)),
            Self::HostWait(length) => write!(f, "host-wait {}", Shown(*length)),
            Self::Hypervisor(length) => write!(f, "hypervisor {}", Shown(*length)),
            Self::Timer(Some(period)) => write!(f, "timer {}", exact(*period)),
            Self::Timer(None) => f.write_str("timer off"),
            Self::Wait => f.write_str("wait"),
            Self::Yield => f.write_str("yield"),
            Self::Interrupt(target) => write!(f, "interrupt {target}"),
            Self::Lock(lock) => write!(f, "lock {lock}"),
            Self::Unlock(lock) => write!(f, "unlock {lock}"),
            Self::ReadLock(lock) => write!(f, "read-lock {lock}"),
            Self::Barrier(barrier) => write!(f, "barrier {barrier}"),
            Self::Send(channel) => write!(f, "send {channel}"),
            Self::Receive(channel) => write!(f, "receive {channel}"),
            Self::HostLock {
                lock,
                kernel_priority,
            } => write!(f, "host-lock {lock}{}", asking(*kernel_priority)),
            Self::HostReadLock {
                lock,
                kernel_priority,
            } => write!(f, "host-read-lock {lock}{}", asking(*kernel_priority)),
            Self::HostUnlock(lock) => write!(f, "host-unlock {lock}"),
            Self::UserReturn => f.write_str("user-return"),
            Self::Begin => f.write_str("begin"),
            Self::End => f.write_str("end"),
            Self::CriticalEnter => f.write_str("critical-enter"),
            Self::CriticalLeave => f.write_str("critical-leave"),
            Self::Exit => f.write_str("exit"),
            Self::Repeat(Some(rounds)) => write!(f, "repeat {rounds}"),
            Self::Repeat(None) => f.write_str("repeat forever"),
            Self::EndRepeat => f.write_str("end-repeat"),
            Self::Fault(misdeed) => {
                let name = FAULTS.iter().find(|(_, known)| known == misdeed);
                write!(f, "fault {}", name.map_or("", |(name, _)| name))
            }
        }
    }
}
