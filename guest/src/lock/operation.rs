//! What a program wants of a lock, step by step.

use super::channel::{Transfer, Way};
use super::rwlock::{self, Mode};
use super::{
    Context, Kind, Step, barrier, mcs, mutex, preemptable_ticket, pv, test_and_set, ticket,
};
use crate::call::Refusal;
use core::sync::atomic::Ordering;

/// What a program wants of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Want {
    /// To take it; a reader-writer lock: alone.
    Take,
    /// To take a reader-writer lock with other readers.
    Read,
    /// To release it.
    Release,
    /// To send a message into a channel.
    Send,
    /// To receive one.
    Receive,
    /// To meet the others at a barrier.
    Meet,
}

/// An operation on a lock that is under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation {
    number: u16,
    machine: Machine,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Machine {
    TakeTestAndSet,
    ReleaseTestAndSet,
    TakeTicket(ticket::Take),
    ReleaseTicket,
    TakeMcs(mcs::Take),
    ReleaseMcs,
    TakeMutex(mutex::Take),
    ReleaseMutex(mutex::Release),
    Transfer(Transfer),
    TakePreemptable(preemptable_ticket::Take),
    ReleasePreemptable,
    TakePv(pv::Take),
    ReleasePv(pv::Release),
    TakeReadWrite(rwlock::Take),
    ReleaseReadWrite(Mode),
    Meet(barrier::Meet),
}

impl Operation {
    /// Begins one. Nothing is done yet.
    ///
    /// # Errors
    /// If there is no such lock, if it is held by this vCPU already (to take it) or not (to release
    /// it), or if it is no lock of a kind that is used like this.
    pub fn begin(cx: &Context<'_>, want: Want, number: u16) -> Result<Self, Refusal> {
        let lock = cx.memory.locks.get(usize::from(number));
        let lock = lock.ok_or(Refusal::NoSuchLock(number))?;
        let kind = lock.kind().ok_or(Refusal::NoSuchLock(number))?;
        let owns = lock.owner.load(Ordering::Relaxed) == cx.mark();
        let machine = match (want, kind) {
            (Want::Take | Want::Read, _) if owns => return Err(Refusal::AlreadyHeld(number)),
            (Want::Take | Want::Read, _) if cx.state().held == u16::MAX => {
                return Err(Refusal::TooDeep);
            }
            (Want::Release, Kind::Channel | Kind::Barrier) => {
                return Err(Refusal::WrongKind(number));
            }
            (Want::Release, Kind::ReadWrite) if !owns && rwlock::has_readers(lock) => {
                Machine::ReleaseReadWrite(Mode::Read)
            }
            (Want::Release, _) if !owns => return Err(Refusal::NotHeld(number)),
            (Want::Take, Kind::TestAndSet) => Machine::TakeTestAndSet,
            (Want::Release, Kind::TestAndSet) => Machine::ReleaseTestAndSet,
            (Want::Take, Kind::Ticket) => Machine::TakeTicket(ticket::Take::Draw),
            (Want::Release, Kind::Ticket) => Machine::ReleaseTicket,
            (Want::Take, Kind::Mcs) => Machine::TakeMcs(mcs::Take::Come),
            (Want::Release, Kind::Mcs) => Machine::ReleaseMcs,
            (Want::Take, Kind::Mutex | Kind::MutexHandOff) => Machine::TakeMutex(mutex::Take::Come),
            (Want::Release, Kind::Mutex | Kind::MutexHandOff) => {
                Machine::ReleaseMutex(mutex::Release::Unlock)
            }
            (Want::Take, Kind::PreemptableTicket) => {
                Machine::TakePreemptable(preemptable_ticket::Take::Draw)
            }
            (Want::Release, Kind::PreemptableTicket) => Machine::ReleasePreemptable,
            (Want::Take, Kind::Pv) => Machine::TakePv(pv::Take::Come),
            (Want::Release, Kind::Pv) => Machine::ReleasePv(pv::Release::Unlock),
            (Want::Take, Kind::ReadWrite) => Machine::TakeReadWrite(rwlock::Take::new(Mode::Write)),
            (Want::Read, Kind::ReadWrite) => Machine::TakeReadWrite(rwlock::Take::new(Mode::Read)),
            (Want::Release, Kind::ReadWrite) => Machine::ReleaseReadWrite(Mode::Write),
            (Want::Meet, Kind::Barrier) => Machine::Meet(barrier::Meet::Come),
            (Want::Send, Kind::Channel) => Machine::Transfer(Transfer::new(Way::Send)),
            (Want::Receive, Kind::Channel) => Machine::Transfer(Transfer::new(Way::Receive)),
            _ => return Err(Refusal::WrongKind(number)),
        };
        Ok(Self { number, machine })
    }

    /// The lock that the operation is about. A step may be about the mutex of a channel instead: what a
    /// vCPU waits for, it publishes ([`super::State::waits_for`]).
    #[must_use]
    pub const fn number(&self) -> u16 {
        self.number
    }

    /// Takes the next step.
    pub fn step(&mut self, cx: &mut Context<'_>) -> Step {
        let number = self.number;
        match &mut self.machine {
            Machine::TakeTestAndSet => test_and_set::take(cx, number),
            Machine::ReleaseTestAndSet => test_and_set::release(cx, number),
            Machine::TakeTicket(take) => take.step(cx, number),
            Machine::ReleaseTicket => ticket::release(cx, number),
            Machine::TakeMcs(take) => take.step(cx, number),
            Machine::ReleaseMcs => mcs::release(cx, number),
            Machine::TakeMutex(take) => take.step(cx, number),
            Machine::ReleaseMutex(release) => release.step(cx, number),
            Machine::Transfer(transfer) => transfer.step(cx, number),
            Machine::TakePreemptable(take) => take.step(cx, number),
            Machine::ReleasePreemptable => preemptable_ticket::release(cx, number),
            Machine::TakePv(take) => take.step(cx, number),
            Machine::ReleasePv(release) => release.step(cx, number),
            Machine::TakeReadWrite(take) => take.step(cx, number),
            Machine::ReleaseReadWrite(mode) => rwlock::release(cx, number, *mode),
            Machine::Meet(meet) => meet.step(cx, number),
        }
    }
}
