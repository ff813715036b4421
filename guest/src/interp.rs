//! What a program does next.
//!
//! The interpreter keeps the place in the program, the open repeats and the generator of random
//! lengths. It does nothing itself: it answers with an [`Action`], which the guest carries out with
//! real work and real calls, and the simulator in virtual time. So both run the same program in the
//! same order with the same lengths.

use crate::lock::Want;
use crate::op::{BadOp, HostMode, Length, Misdeed, Op, Step};
use crate::rng::Rng;

/// How deep repeats may be nested.
pub const MAX_NESTING: usize = 8;

/// A step with its length drawn. Lengths in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// CPU work.
    Run(u64),
    /// Nothing to do until a timer of its own.
    Sleep(u64),
    /// A wait in the hypervisor.
    HostWait(u64),
    /// Arm the periodic timer; 0 disarms it.
    Periodic {
        /// The period.
        period: u64,
        /// The vector raised.
        vector: u8,
    },
    /// Halt until an interrupt has come.
    WaitInterrupt,
    /// Give up the core, staying runnable.
    Yield,
    /// Raise an interrupt at a vCPU.
    Interrupt {
        /// Its number over all VMs.
        vcpu: u32,
        /// The vector raised.
        vector: u8,
    },
    /// Do something with a guest lock.
    Guest(Want, u16),
    /// Take a lock in the hypervisor.
    HostLock {
        /// Which.
        lock: u16,
        /// With a request for kernel priority.
        kernel_priority: bool,
    },
    /// Take a lock in the hypervisor that is a mutex or a reader-writer lock.
    HostAcquire {
        /// Which.
        lock: u16,
        /// How.
        mode: HostMode,
        /// With a request for kernel priority.
        kernel_priority: bool,
    },
    /// Release it, of whatever kind.
    HostUnlock(u16),
    /// The hypervisor works on this vCPU's behalf.
    Hypervisor(u64),
    /// Pass through user mode of the host.
    UserReturn,
    /// A request begins.
    RequestBegin,
    /// A request ends.
    RequestEnd,
    /// A call that does nothing.
    Exit,
    /// A fault on purpose.
    Fault(Misdeed),
    /// Enter a critical section.
    CriticalEnter,
    /// Leave it.
    CriticalLeave,
    /// The program is over; it stays so.
    End,
}

/// A program that cannot go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProgramError {
    /// An op that means nothing.
    BadOp(BadOp),
    /// Repeats nested too deeply, or an end without a beginning.
    Nesting,
    /// An endless repeat that contains nothing at all.
    EmptyLoop,
}

#[derive(Clone, Copy, Debug, Default)]
struct Frame {
    /// The first op of the body.
    body: u32,
    /// How many rounds are left, the current one included; 0 for ever.
    left: u32,
}

/// The place in a program.
#[derive(Clone, Debug)]
pub struct Interpreter {
    at: u32,
    frames: [Frame; MAX_NESTING],
    depth: usize,
    rng: Rng,
}

impl Interpreter {
    /// At the start of a program, with a stream of random lengths of its own.
    #[must_use]
    pub const fn new(rng: Rng) -> Self {
        Self {
            at: 0,
            frames: [Frame { body: 0, left: 0 }; MAX_NESTING],
            depth: 0,
            rng,
        }
    }

    /// The next action. A program that runs past its last op is over.
    ///
    /// # Errors
    /// If the program is nonsense.
    pub fn next(&mut self, program: &[Op]) -> Result<Action, ProgramError> {
        // Repeats take no time: a body that yields no action must not hang the guest or the simulator.
        let mut turns = 0;
        loop {
            let Some(op) = program.get(self.at as usize) else {
                return Ok(Action::End);
            };
            let step = Step::decode(*op).map_err(ProgramError::BadOp)?;
            if let Step::End = step {
                return Ok(Action::End);
            }
            self.at += 1;
            match step {
                Step::Repeat(count) => self.open(count)?,
                Step::EndRepeat => {
                    turns += 1;
                    if turns > 1_000 {
                        return Err(ProgramError::EmptyLoop);
                    }
                    self.close()?;
                }
                step => return Ok(self.act(step)),
            }
        }
    }

    fn open(&mut self, count: u32) -> Result<(), ProgramError> {
        let frame = self
            .frames
            .get_mut(self.depth)
            .ok_or(ProgramError::Nesting)?;
        *frame = Frame {
            body: self.at,
            left: count,
        };
        self.depth += 1;
        Ok(())
    }

    fn close(&mut self) -> Result<(), ProgramError> {
        let top = self.depth.checked_sub(1).ok_or(ProgramError::Nesting)?;
        let frame = &mut self.frames[top];
        if frame.left == 1 {
            self.depth = top;
        } else {
            frame.left = frame.left.saturating_sub(1);
            self.at = frame.body;
        }
        Ok(())
    }

    fn draw(&mut self, length: Length) -> u64 {
        match length {
            Length::Fixed(n) => n,
            Length::Uniform(low, high) => self.rng.between(low, high),
            Length::Exponential(mean) => self.rng.exponential(mean),
        }
    }

    fn act(&mut self, step: Step) -> Action {
        match step {
            Step::Run(length) => Action::Run(self.draw(length)),
            Step::Sleep(length) => Action::Sleep(self.draw(length)),
            Step::HostWait(length) => Action::HostWait(self.draw(length)),
            Step::Hypervisor(length) => Action::Hypervisor(self.draw(length)),
            Step::Periodic { period, vector } => Action::Periodic { period, vector },
            Step::WaitInterrupt => Action::WaitInterrupt,
            Step::Yield => Action::Yield,
            Step::Interrupt { vcpu, vector } => Action::Interrupt { vcpu, vector },
            Step::Lock(lock) => Action::Guest(Want::Take, lock),
            Step::Unlock(lock) => Action::Guest(Want::Release, lock),
            Step::Send(channel) => Action::Guest(Want::Send, channel),
            Step::Receive(channel) => Action::Guest(Want::Receive, channel),
            Step::ReadLock(lock) => Action::Guest(Want::Read, lock),
            Step::Barrier(barrier) => Action::Guest(Want::Meet, barrier),
            Step::HostLock {
                lock,
                kernel_priority,
            } => Action::HostLock {
                lock,
                kernel_priority,
            },
            Step::HostAcquire {
                lock,
                mode,
                kernel_priority,
            } => Action::HostAcquire {
                lock,
                mode,
                kernel_priority,
            },
            Step::HostUnlock(lock) => Action::HostUnlock(lock),
            Step::UserReturn => Action::UserReturn,
            Step::RequestBegin => Action::RequestBegin,
            Step::RequestEnd => Action::RequestEnd,
            Step::Exit => Action::Exit,
            Step::Fault(misdeed) => Action::Fault(misdeed),
            Step::CriticalEnter => Action::CriticalEnter,
            Step::CriticalLeave => Action::CriticalLeave,
            Step::Repeat(_) | Step::EndRepeat | Step::End => Action::End,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(steps: &[Step], n: usize) -> Vec<Result<Action, ProgramError>> {
        let program: Vec<Op> = steps.iter().map(|step| step.encode()).collect();
        let mut interpreter = Interpreter::new(Rng::new(1, 0));
        (0..n).map(|_| interpreter.next(&program)).collect()
    }

    fn run(n: u64) -> Step {
        Step::Run(Length::Fixed(n))
    }

    #[test]
    fn a_repeat_runs_its_body_as_often_as_it_says_and_nests() {
        let steps = [
            Step::Repeat(2),
            run(1),
            Step::Repeat(2),
            run(2),
            Step::EndRepeat,
            Step::EndRepeat,
            run(3),
        ];
        let lengths: Vec<_> = first(&steps, 8)
            .into_iter()
            .map(|action| match action {
                Ok(Action::Run(n)) => n,
                Ok(Action::End) => 0,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(lengths, [1, 2, 2, 1, 2, 2, 3, 0]);
    }

    #[test]
    fn an_endless_repeat_goes_on_and_an_ended_program_stays_ended() {
        let endless = first(&[Step::Repeat(0), run(1), Step::EndRepeat], 5_000);
        assert!(endless.iter().all(|action| *action == Ok(Action::Run(1))));
        let ended = first(&[run(1), Step::End, run(2)], 4);
        assert_eq!(ended[1..], [Ok(Action::End); 3]);
    }

    #[test]
    fn nonsense_is_an_error_and_never_a_hang() {
        assert_eq!(first(&[Step::EndRepeat], 1), [Err(ProgramError::Nesting)]);
        let empty = [Step::Repeat(0), Step::EndRepeat];
        assert_eq!(first(&empty, 1), [Err(ProgramError::EmptyLoop)]);
        let deep = [Step::Repeat(1); MAX_NESTING + 1];
        assert_eq!(first(&deep, 1), [Err(ProgramError::Nesting)]);
        let bad = Op {
            code: 999,
            ..Op::default()
        };
        let got = Interpreter::new(Rng::new(1, 0)).next(&[bad]);
        assert_eq!(got, Err(ProgramError::BadOp(BadOp(bad))));
    }

    #[test]
    fn random_lengths_repeat_with_the_seed() {
        let steps = [
            Step::Repeat(0),
            Step::Run(Length::Uniform(1, 1 << 40)),
            Step::EndRepeat,
        ];
        assert_eq!(first(&steps, 50), first(&steps, 50));
    }
}
