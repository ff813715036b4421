//! Programs: what a vCPU does, as a list of ops.
//!
//! An [`Op`] is the 24-byte form in which a program lies in guest memory; a [`Step`] is its meaning.
//! Decoding checks everything, so that a program that is nonsense is an error and not a surprise.

/// An op as it lies in guest memory.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Op {
    /// Which op.
    pub code: u16,
    /// Small argument: a vector, a lock, a kind.
    pub small: u16,
    /// Medium argument: a vCPU, a count.
    pub medium: u32,
    /// First 64-bit argument: nanoseconds.
    pub a: u64,
    /// Second 64-bit argument: nanoseconds.
    pub b: u64,
}

const _: () = assert!(size_of::<Op>() == 24);

/// A length of time, drawn anew each time the op is executed. In nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Length {
    /// Always the same.
    Fixed(u64),
    /// Uniform, both ends included.
    Uniform(u64, u64),
    /// Exponential with this mean.
    Exponential(u64),
}

/// A fault that a guest commits on purpose, to show that its VM alone ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Misdeed {
    /// Ends in a triple fault.
    TripleFault,
    /// Touches memory that is not there.
    BadMemory,
    /// Writes to a port that no call uses.
    BadPort,
    /// Executes an undefined instruction.
    BadInstruction,
}

/// How a lock in the hypervisor is taken that is not a plain one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum HostMode {
    /// As a mutex.
    Mutex = 0,
    /// As a reader of a reader-writer lock.
    Read = 1,
    /// As its writer.
    Write = 2,
}

impl HostMode {
    /// Together with whether kernel priority is asked for, as one number.
    #[must_use]
    pub const fn pack(self, kernel_priority: bool) -> u8 {
        2 * self as u8 + kernel_priority as u8
    }

    /// Both from the number; none if it means nothing.
    #[must_use]
    pub const fn unpack(packed: u64) -> Option<(Self, bool)> {
        let mode = match packed / 2 {
            0 => Self::Mutex,
            1 => Self::Read,
            2 => Self::Write,
            _ => return None,
        };
        Some((mode, packed % 2 == 1))
    }
}

/// What an op means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// CPU work: calibrated iterations, not elapsed time.
    Run(Length),
    /// Nothing to do until a timer of its own.
    Sleep(Length),
    /// A wait in the hypervisor (a device, a page), during which the guest is not idle by intent.
    HostWait(Length),
    /// Arm the periodic timer, which raises an interrupt; a period of 0 disarms it.
    Periodic {
        /// Nanoseconds.
        period: u64,
        /// The vector raised.
        vector: u8,
    },
    /// Halt until an interrupt has come since the last such wait.
    WaitInterrupt,
    /// Give up the core, staying runnable.
    Yield,
    /// Raise an interrupt at a vCPU of any VM.
    Interrupt {
        /// Its number over all VMs.
        vcpu: u32,
        /// The vector raised.
        vector: u8,
    },
    /// Take a lock in guest memory.
    Lock(u16),
    /// Release it.
    Unlock(u16),
    /// Take a reader-writer lock in guest memory as a reader.
    ReadLock(u16),
    /// Meet the others at a barrier in guest memory.
    Barrier(u16),
    /// Send a message into a channel in guest memory; wait while it is full.
    Send(u16),
    /// Receive one; wait while it is empty.
    Receive(u16),
    /// Take a lock in the hypervisor.
    HostLock {
        /// Which.
        lock: u16,
        /// Whether kernel priority is asked for while it is held.
        kernel_priority: bool,
    },
    /// Take a lock in the hypervisor that is a mutex or a reader-writer lock.
    HostAcquire {
        /// Which.
        lock: u16,
        /// How.
        mode: HostMode,
        /// Whether kernel priority is asked for while it is held.
        kernel_priority: bool,
    },
    /// Release it, of whatever kind.
    HostUnlock(u16),
    /// The hypervisor works on this vCPU's behalf: "sys" time.
    Hypervisor(Length),
    /// The vCPU's thread passes through user mode of its host.
    UserReturn,
    /// A request begins: a latency sample.
    RequestBegin,
    /// It ends.
    RequestEnd,
    /// Repeat up to the matching end: so many times, or for ever if 0.
    Repeat(u32),
    /// The end of a repeat.
    EndRepeat,
    /// A call into the hypervisor that does nothing.
    Exit,
    /// A fault on purpose.
    Fault(Misdeed),
    /// Enter a critical section: marked in the shared page, no exit.
    CriticalEnter,
    /// Leave it. On leaving the outermost one while the host has a preemption pending, the guest
    /// tells the host.
    CriticalLeave,
    /// The program is over.
    End,
}

/// An op that means nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadOp(pub Op);

impl Length {
    const fn pack(self) -> (u16, u64, u64) {
        match self {
            Self::Fixed(n) => (0, n, 0),
            Self::Uniform(low, high) => (1, low, high),
            Self::Exponential(mean) => (2, mean, 0),
        }
    }

    const fn unpack(op: Op) -> Option<Self> {
        match op.small {
            0 => Some(Self::Fixed(op.a)),
            1 if op.a <= op.b => Some(Self::Uniform(op.a, op.b)),
            2 => Some(Self::Exponential(op.a)),
            _ => None,
        }
    }
}

impl Step {
    /// The form in guest memory.
    #[must_use]
    pub const fn encode(self) -> Op {
        const fn timed(code: u16, length: Length) -> Op {
            let (small, a, b) = length.pack();
            Op {
                code,
                small,
                medium: 0,
                a,
                b,
            }
        }
        const fn plain(code: u16, small: u16, medium: u32, a: u64) -> Op {
            Op {
                code,
                small,
                medium,
                a,
                b: 0,
            }
        }
        match self {
            Self::End => plain(0, 0, 0, 0),
            Self::Run(length) => timed(1, length),
            Self::Sleep(length) => timed(2, length),
            Self::HostWait(length) => timed(3, length),
            Self::Periodic { period, vector } => plain(4, vector as u16, 0, period),
            Self::WaitInterrupt => plain(5, 0, 0, 0),
            Self::Yield => plain(6, 0, 0, 0),
            Self::Interrupt { vcpu, vector } => plain(7, vector as u16, vcpu, 0),
            Self::Lock(lock) => plain(8, lock, 0, 0),
            Self::Unlock(lock) => plain(9, lock, 0, 0),
            Self::HostLock {
                lock,
                kernel_priority,
            } => plain(10, lock, kernel_priority as u32, 0),
            Self::HostUnlock(lock) => plain(11, lock, 0, 0),
            Self::Hypervisor(length) => timed(12, length),
            Self::UserReturn => plain(13, 0, 0, 0),
            Self::RequestBegin => plain(14, 0, 0, 0),
            Self::RequestEnd => plain(15, 0, 0, 0),
            Self::Repeat(count) => plain(16, 0, count, 0),
            Self::EndRepeat => plain(17, 0, 0, 0),
            Self::Exit => plain(18, 0, 0, 0),
            Self::Fault(misdeed) => plain(19, misdeed as u16, 0, 0),
            Self::CriticalEnter => plain(20, 0, 0, 0),
            Self::CriticalLeave => plain(21, 0, 0, 0),
            Self::HostAcquire {
                lock,
                mode,
                kernel_priority,
            } => plain(22, lock, mode.pack(kernel_priority) as u32, 0),
            Self::Send(channel) => plain(23, channel, 0, 0),
            Self::Receive(channel) => plain(24, channel, 0, 0),
            Self::ReadLock(lock) => plain(25, lock, 0, 0),
            Self::Barrier(barrier) => plain(26, barrier, 0, 0),
        }
    }

    /// The meaning of an op.
    ///
    /// # Errors
    /// If it has none.
    pub const fn decode(op: Op) -> Result<Self, BadOp> {
        let length = Length::unpack(op);
        let vector = (op.small & 0xff) as u8;
        let step = match (op.code, length) {
            (0, _) => Self::End,
            (1, Some(length)) => Self::Run(length),
            (2, Some(length)) => Self::Sleep(length),
            (3, Some(length)) => Self::HostWait(length),
            (4, _) => Self::Periodic {
                period: op.a,
                vector,
            },
            (5, _) => Self::WaitInterrupt,
            (6, _) => Self::Yield,
            (7, _) => Self::Interrupt {
                vcpu: op.medium,
                vector,
            },
            (8, _) => Self::Lock(op.small),
            (9, _) => Self::Unlock(op.small),
            (10, _) => Self::HostLock {
                lock: op.small,
                kernel_priority: op.medium != 0,
            },
            (11, _) => Self::HostUnlock(op.small),
            (12, Some(length)) => Self::Hypervisor(length),
            (13, _) => Self::UserReturn,
            (14, _) => Self::RequestBegin,
            (15, _) => Self::RequestEnd,
            (16, _) => Self::Repeat(op.medium),
            (17, _) => Self::EndRepeat,
            (18, _) => Self::Exit,
            (19, _) => match op.small {
                0 => Self::Fault(Misdeed::TripleFault),
                1 => Self::Fault(Misdeed::BadMemory),
                2 => Self::Fault(Misdeed::BadPort),
                3 => Self::Fault(Misdeed::BadInstruction),
                _ => return Err(BadOp(op)),
            },
            (20, _) => Self::CriticalEnter,
            (21, _) => Self::CriticalLeave,
            (22, _) => match HostMode::unpack(op.medium as u64) {
                Some((mode, kernel_priority)) => Self::HostAcquire {
                    lock: op.small,
                    mode,
                    kernel_priority,
                },
                None => return Err(BadOp(op)),
            },
            (23, _) => Self::Send(op.small),
            (24, _) => Self::Receive(op.small),
            (25, _) => Self::ReadLock(op.small),
            (26, _) => Self::Barrier(op.small),
            _ => return Err(BadOp(op)),
        };
        Ok(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_survives_being_encoded() {
        let steps = [
            Step::Run(Length::Uniform(3, 9)),
            Step::Sleep(Length::Exponential(1_000)),
            Step::HostWait(Length::Fixed(7)),
            Step::Periodic {
                period: 5,
                vector: 0x41,
            },
            Step::WaitInterrupt,
            Step::Yield,
            Step::Interrupt {
                vcpu: 70_000,
                vector: 0x40,
            },
            Step::Lock(3),
            Step::Unlock(3),
            Step::Send(4),
            Step::Receive(5),
            Step::ReadLock(6),
            Step::Barrier(7),
            Step::HostLock {
                lock: 2,
                kernel_priority: true,
            },
            Step::HostAcquire {
                lock: 3,
                mode: HostMode::Mutex,
                kernel_priority: true,
            },
            Step::HostAcquire {
                lock: 3,
                mode: HostMode::Read,
                kernel_priority: false,
            },
            Step::HostAcquire {
                lock: 3,
                mode: HostMode::Write,
                kernel_priority: true,
            },
            Step::HostUnlock(2),
            Step::Hypervisor(Length::Fixed(20_000)),
            Step::UserReturn,
            Step::RequestBegin,
            Step::RequestEnd,
            Step::Repeat(10),
            Step::EndRepeat,
            Step::Exit,
            Step::Fault(Misdeed::BadPort),
            Step::CriticalEnter,
            Step::CriticalLeave,
            Step::End,
        ];
        for step in steps {
            assert_eq!(Step::decode(step.encode()), Ok(step));
        }
    }

    #[test]
    fn an_op_without_meaning_is_refused() {
        for (code, small) in [(99, 0), (1, 7), (19, 4)] {
            let op = Op {
                code,
                small,
                ..Op::default()
            };
            assert_eq!(Step::decode(op), Err(BadOp(op)));
        }
        let mode = Op {
            code: 22,
            medium: 6,
            ..Op::default()
        };
        assert_eq!(Step::decode(mode), Err(BadOp(mode)));
        let backwards = Op {
            code: 1,
            small: 1,
            a: 9,
            b: 3,
            ..Op::default()
        };
        assert!(Step::decode(backwards).is_err());
    }
}
