//! A spinning reader-writer lock with a fair queue, as Linux's `qrwlock`.
//!
//! 1. A reader takes it at once if no writer has it or waits at its front.
//! 2. A writer takes it at once if nobody has it.
//! 3. Who cannot queues, readers and writers alike, first come, first served. A writer at the front keeps
//!    new readers off and waits until those that have it are gone; a reader at the front waits until the
//!    writer is gone. So neither starves.
//!
//! Its owner is known while a writer has it; of readers it is only known how many there are.

use super::{Context, Spin, Step};
use core::sync::atomic::Ordering;

/// A writer has it.
const WRITER: u32 = 1;
/// A writer waits at the front of the queue.
const WANTED: u32 = 2;
/// A reader.
const READER: u32 = 4;

/// How it is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    /// With other readers.
    Read,
    /// Alone.
    Write,
}

/// How far a comer is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// It has done nothing.
    Come,
    /// It queues with this ticket.
    Queue(u32),
    /// It is at the front of the queue.
    Front,
}

/// A comer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Take {
    mode: Mode,
    phase: Phase,
}

impl Take {
    pub(super) const fn new(mode: Mode) -> Self {
        let phase = Phase::Come;
        Self { mode, phase }
    }

    pub(super) fn step(&mut self, cx: &mut Context<'_>, number: u16) -> Step {
        let lock = cx.lock(number);
        match self.phase {
            Phase::Come => {
                let refused = match self.mode {
                    Mode::Read => WRITER | WANTED,
                    Mode::Write => u32::MAX,
                };
                if self.take(cx, number, refused) {
                    return Step::Done;
                }
                cx.waits(number);
                let ticket = lock.arrivals.fetch_add(1, Ordering::Relaxed);
                self.phase = Phase::Queue(ticket);
                Step::Again
            }
            Phase::Queue(ticket) => {
                // Acquire: what the last one at the front did comes before.
                if lock.serving.load(Ordering::Acquire) != ticket {
                    return Step::Spin(Spin::default());
                }
                self.phase = Phase::Front;
                if self.mode == Mode::Write {
                    lock.word.fetch_or(WANTED, Ordering::Relaxed);
                }
                Step::Again
            }
            Phase::Front => {
                let refused = match self.mode {
                    Mode::Read => WRITER,
                    Mode::Write => !WANTED,
                };
                if !self.take(cx, number, refused) {
                    return Step::Spin(Spin::default());
                }
                // Only the one at the front writes this word.
                let next = lock.serving.load(Ordering::Relaxed).wrapping_add(1);
                lock.serving.store(next, Ordering::Release);
                cx.touched = Some(number);
                Step::Done
            }
        }
    }

    /// Takes it unless any of these is set.
    fn take(self, cx: &mut Context<'_>, number: u16, refused: u32) -> bool {
        let word = &cx.lock(number).word;
        let mut announced = false;
        loop {
            let now = word.load(Ordering::Relaxed);
            if now & refused != 0 {
                if announced {
                    cx.missed(number);
                }
                return false;
            }
            if !core::mem::replace(&mut announced, true) {
                cx.taking();
            }
            let new = match self.mode {
                Mode::Read => now + READER,
                Mode::Write => WRITER,
            };
            // Acquire: what the last owner wrote is seen by this one.
            let taken = word.compare_exchange(now, new, Ordering::Acquire, Ordering::Relaxed);
            if taken.is_ok() {
                match self.mode {
                    Mode::Read => cx.took_shared(),
                    Mode::Write => cx.took(number),
                }
                return true;
            }
        }
    }
}

/// Releases it for a reader or the writer.
pub(super) fn release(cx: &mut Context<'_>, number: u16, mode: Mode) -> Step {
    let lock = cx.lock(number);
    match mode {
        Mode::Read => lock.word.fetch_sub(READER, Ordering::Release),
        Mode::Write => {
            lock.owner.store(0, Ordering::Relaxed);
            lock.word.fetch_and(!WRITER, Ordering::Release)
        }
    };
    cx.released(number);
    Step::Done
}

/// Whether readers have it.
pub(super) fn has_readers(lock: &super::Lock) -> bool {
    lock.word.load(Ordering::Relaxed) >= READER
}
