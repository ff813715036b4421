//! Calls: how the guest reaches the host.
//!
//! A call writes a byte (of no meaning) to a port; which port says what is wanted. Arguments are in
//! the shared page ([`crate::page::Page::call_a`], [`crate::page::Page::call_b`]), written before.
//! Ports from [`FIRST_PORT`] to [`LAST_PORT`] are open to ring 3; those that no [`Port`] names are
//! nonsense, and writing there ends the VM.

use crate::interp::ProgramError;
use crate::op::{BadOp, Op};
use core::fmt;

/// The lowest port open to ring 3.
pub const FIRST_PORT: u16 = 0x500;

/// The highest port open to ring 3.
pub const LAST_PORT: u16 = 0x51f;

/// A port that is open to ring 3, but that no call uses.
pub const UNUSED_PORT: u16 = LAST_PORT;

/// What is wanted. Arguments `a` and `b` are 64 bits wide; times are in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Port {
    /// Nothing.
    Nothing = FIRST_PORT,
    /// Sleep for `a`.
    Sleep = FIRST_PORT + 1,
    /// Wait in the hypervisor for `a`.
    HostWait = FIRST_PORT + 2,
    /// Arm the periodic timer with period `a` (0 disarms it) and vector `b`.
    Periodic = FIRST_PORT + 3,
    /// Give up the core.
    Yield = FIRST_PORT + 4,
    /// Raise vector `b` at the vCPU with number `a` over all VMs.
    Interrupt = FIRST_PORT + 5,
    /// Take host lock `a`, with a request for kernel priority if `b` is not 0.
    HostLock = FIRST_PORT + 6,
    /// Release host lock `a`.
    HostUnlock = FIRST_PORT + 7,
    /// Hypervisor work of length `a`.
    Hypervisor = FIRST_PORT + 8,
    /// Pass through user mode of the host.
    UserReturn = FIRST_PORT + 9,
    /// No lock is held and no critical section entered any more, and a preemption is pending.
    CriticalLeft = FIRST_PORT + 10,
    /// The program is over.
    Finished = FIRST_PORT + 11,
    /// The guest is ready for the next [`Command`].
    Ready = FIRST_PORT + 12,
    /// The guest cannot go on: [`Refusal`] in `a` and `b`.
    Refused = FIRST_PORT + 13,
    /// Ring 0 took an exception that it did not expect; the shared page has the particulars.
    Exception = FIRST_PORT + 14,
    /// Take host lock `a`, which is no plain one: `b` is [`crate::op::HostMode::pack`].
    HostAcquire = FIRST_PORT + 15,
    /// Sleep until woken, for guest lock `a`. A wake-up that came since the last sleep counts.
    Wait = FIRST_PORT + 16,
    /// Wake the vCPU with number `a` within the VM, for guest lock `b`.
    Wake = FIRST_PORT + 17,
    /// Has spun for guest lock `a` for another [`crate::page::Page::spin_window_ns`].
    SpunTooLong = FIRST_PORT + 18,
}

impl Port {
    const ALL: [Self; 19] = [
        Self::Nothing,
        Self::Sleep,
        Self::HostWait,
        Self::Periodic,
        Self::Yield,
        Self::Interrupt,
        Self::HostLock,
        Self::HostUnlock,
        Self::Hypervisor,
        Self::UserReturn,
        Self::CriticalLeft,
        Self::Finished,
        Self::Ready,
        Self::Refused,
        Self::Exception,
        Self::HostAcquire,
        Self::Wait,
        Self::Wake,
        Self::SpunTooLong,
    ];

    /// The call behind a port.
    #[must_use]
    pub fn from_number(port: u16) -> Option<Self> {
        let place = port.checked_sub(FIRST_PORT)?;
        Self::ALL.get(usize::from(place)).copied()
    }
}

/// What the host has a guest do before its program starts, in [`crate::page::Page::command`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Command {
    /// Read the time-stamp counter into `result`.
    ReadClock = 1,
    /// Do `command_b` chunks of `command_a` iterations of the work loop, and put the ticks of the
    /// time-stamp counter that they took into `result`.
    Calibrate = 2,
    /// Start the program.
    Start = 3,
}

impl Command {
    /// The command with this number.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::ReadClock),
            2 => Some(Self::Calibrate),
            3 => Some(Self::Start),
            _ => None,
        }
    }
}

/// Why a guest cannot go on with its program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The program means nothing.
    Program(ProgramError),
    /// A guest lock that its VM does not have.
    NoSuchLock(u16),
    /// A guest lock that it holds already: it would wait for itself.
    AlreadyHeld(u16),
    /// Releases a guest lock that it does not hold.
    NotHeld(u16),
    /// Leaves a critical section that it did not enter.
    NotCritical,
    /// Ends a request that did not begin.
    NoRequest,
    /// More locks or critical sections at once than can be counted.
    TooDeep,
    /// The host gave a command or a shared page that the kernel does not know.
    Protocol(u32),
    /// The kernel panicked, at this line of a source file of its own.
    Panic(u32),
    /// Uses a guest lock as something that it is not.
    WrongKind(u16),
}

impl Refusal {
    /// As call arguments `a` and `b`.
    #[must_use]
    pub const fn encode(self) -> (u64, u64) {
        match self {
            Self::Program(ProgramError::BadOp(BadOp(op))) => (
                0,
                op.code as u64 | (op.small as u64) << 16 | (op.medium as u64) << 32,
            ),
            Self::Program(ProgramError::Nesting) => (1, 0),
            Self::Program(ProgramError::EmptyLoop) => (2, 0),
            Self::NoSuchLock(lock) => (3, lock as u64),
            Self::AlreadyHeld(lock) => (4, lock as u64),
            Self::NotHeld(lock) => (5, lock as u64),
            Self::NotCritical => (6, 0),
            Self::NoRequest => (7, 0),
            Self::TooDeep => (8, 0),
            Self::Protocol(what) => (9, what as u64),
            Self::Panic(line) => (10, line as u64),
            Self::WrongKind(lock) => (11, lock as u64),
        }
    }

    /// From call arguments `a` and `b`; none if they mean nothing.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "takes apart what `encode` put together"
    )]
    pub const fn decode(a: u64, b: u64) -> Option<Self> {
        Some(match a {
            0 => Self::Program(ProgramError::BadOp(BadOp(Op {
                code: b as u16,
                small: (b >> 16) as u16,
                medium: (b >> 32) as u32,
                a: 0,
                b: 0,
            }))),
            1 => Self::Program(ProgramError::Nesting),
            2 => Self::Program(ProgramError::EmptyLoop),
            3 => Self::NoSuchLock(b as u16),
            4 => Self::AlreadyHeld(b as u16),
            5 => Self::NotHeld(b as u16),
            6 => Self::NotCritical,
            7 => Self::NoRequest,
            8 => Self::TooDeep,
            9 => Self::Protocol(b as u32),
            10 => Self::Panic(b as u32),
            11 => Self::WrongKind(b as u16),
            _ => return None,
        })
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program(ProgramError::BadOp(BadOp(op))) => write!(
                f,
                "the program has an op without meaning (code {}, arguments {} and {})",
                op.code, op.small, op.medium
            ),
            Self::Program(ProgramError::Nesting) => {
                f.write_str("the program nests repeats too deeply, or ends one that did not begin")
            }
            Self::Program(ProgramError::EmptyLoop) => {
                f.write_str("the program repeats nothing for ever")
            }
            Self::NoSuchLock(lock) => {
                write!(f, "the program takes guest lock {lock}: no such lock")
            }
            Self::AlreadyHeld(lock) => {
                write!(
                    f,
                    "the program takes guest lock {lock}, which it holds already"
                )
            }
            Self::NotHeld(lock) => {
                write!(
                    f,
                    "the program releases guest lock {lock}, which it does not hold"
                )
            }
            Self::NotCritical => {
                f.write_str("the program leaves a critical section that it did not enter")
            }
            Self::NoRequest => f.write_str("the program ends a request that did not begin"),
            Self::TooDeep => {
                f.write_str("the program holds too many locks or critical sections at once")
            }
            Self::Protocol(what) => {
                write!(
                    f,
                    "the guest kernel does not understand the host (word {what:#x})"
                )
            }
            Self::WrongKind(lock) => {
                write!(
                    f,
                    "the program uses guest lock {lock} as something that it is not"
                )
            }
            Self::Panic(line) => write!(f, "the guest kernel panicked (source line {line})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_has_a_port_of_its_own_that_ring_3_may_use() {
        for port in Port::ALL {
            assert_eq!(Port::from_number(port as u16), Some(port));
            assert!((FIRST_PORT..=LAST_PORT).contains(&(port as u16)));
        }
        assert_eq!(Port::from_number(UNUSED_PORT), None);
        assert_eq!(Port::from_number(FIRST_PORT - 1), None);
    }

    #[test]
    fn every_refusal_survives_the_call_and_reads_as_one_line() {
        let op = Op {
            code: 99,
            small: 7,
            medium: 70_000,
            ..Op::default()
        };
        for refusal in [
            Refusal::Program(ProgramError::BadOp(BadOp(op))),
            Refusal::Program(ProgramError::Nesting),
            Refusal::Program(ProgramError::EmptyLoop),
            Refusal::NoSuchLock(65_535),
            Refusal::AlreadyHeld(1),
            Refusal::NotHeld(2),
            Refusal::NotCritical,
            Refusal::NoRequest,
            Refusal::TooDeep,
            Refusal::Protocol(4),
            Refusal::Panic(12),
            Refusal::WrongKind(3),
        ] {
            let (a, b) = refusal.encode();
            assert_eq!(Refusal::decode(a, b), Some(refusal));
            assert_eq!(refusal.to_string().lines().count(), 1);
        }
        assert_eq!(Refusal::decode(12, 0), None);
    }

    #[test]
    fn every_command_is_found_by_its_number() {
        for command in [Command::ReadClock, Command::Calibrate, Command::Start] {
            assert_eq!(Command::from_number(command as u32), Some(command));
        }
        assert_eq!(Command::from_number(0), None);
    }
}
