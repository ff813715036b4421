//! Locks in guest memory.
//!
//! A [`Lock`] lies in memory that all vCPUs of a VM share; the host sets its kind. How each kind is
//! taken is in a file of its own. Whoever waits tells a [`Waiter`] what happens, which publishes it
//! in the shared page.
//!
//! # What the host may rely on
//! The published count of held locks is raised no later than a lock is taken and lowered no earlier
//! than it is released. A ticket lock is handed to a waiter by its predecessor, so a waiter may have
//! it before it knows: [`Lock::is_turn`] tells the host.

pub mod test_and_set;
pub mod ticket;

use core::sync::atomic::{AtomicU32, Ordering};

/// How a lock works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Kind {
    /// [`test_and_set`].
    TestAndSet = 0,
    /// [`ticket`].
    Ticket = 1,
}

/// A lock as it lies in guest memory, on a cache line of its own.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Lock {
    /// A [`Kind`], set by the host before the guest starts.
    pub kind: AtomicU32,
    /// Who has it: its number within the VM and 1; 0 if nobody. Written by the owner only: late by a
    /// few instructions when the lock is taken, early by as many when it is released.
    pub owner: AtomicU32,
    /// Test-and-set: 1 while taken. Ticket: the next ticket to be drawn.
    pub word: AtomicU32,
    /// Ticket: the ticket whose turn it is.
    pub serving: AtomicU32,
}

const _: () = assert!(size_of::<Lock>() == 64);

/// What happens while a lock is being taken.
pub trait Waiter {
    /// The next step may take the lock.
    fn taking(&mut self);

    /// That step did not take it. A ticket lock gave this ticket.
    fn waiting(&mut self, ticket: Option<u32>);

    /// The next step finds out whether the lock is there; time passes.
    fn spin(&mut self);
}

impl Lock {
    /// Takes the lock. In the end [`Waiter::taking`] was the last word, or the first and only one.
    pub fn acquire(&self, waiter: &mut impl Waiter) {
        if self.is_ticket() {
            ticket::acquire(self, waiter);
        } else {
            test_and_set::acquire(self, waiter);
        }
    }

    /// Releases it.
    pub fn release(&self) {
        if self.is_ticket() {
            ticket::release(self);
        } else {
            test_and_set::release(self);
        }
    }

    /// Whether the waiter with this ticket has the lock without perhaps knowing it yet.
    #[must_use]
    pub fn is_turn(&self, ticket: u32) -> bool {
        self.is_ticket() && self.serving.load(Ordering::Acquire) == ticket
    }

    fn is_ticket(&self) -> bool {
        self.kind.load(Ordering::Relaxed) == Kind::Ticket as u32
    }
}

/// A vCPU's locks as published in the shared page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct State {
    /// Guest locks held, or about to be.
    pub held: u16,
    /// Depth of critical sections.
    pub critical: u16,
    /// The guest lock it spins for.
    pub waits_for: Option<u16>,
}

impl State {
    /// As one word.
    #[must_use]
    pub const fn encode(self) -> u64 {
        let waits_for = match self.waits_for {
            Some(lock) => lock as u64 + 1,
            None => 0,
        };
        self.held as u64 | (self.critical as u64) << 16 | waits_for << 32
    }

    /// From one word.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "takes apart what `encode` put together"
    )]
    pub const fn decode(word: u64) -> Self {
        let waits_for = match (word >> 32) as u32 {
            0 => None,
            lock => Some((lock - 1) as u16),
        };
        Self {
            held: word as u16,
            critical: (word >> 16) as u16,
            waits_for,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    struct Quiet;

    impl Waiter for Quiet {
        fn taking(&mut self) {}
        fn waiting(&mut self, _ticket: Option<u32>) {}
        fn spin(&mut self) {
            std::thread::yield_now();
        }
    }

    #[derive(Default)]
    struct Counts {
        held: i32,
        waited: u32,
        ticket: Option<u32>,
    }

    impl Waiter for Counts {
        fn taking(&mut self) {
            self.held += 1;
        }
        fn waiting(&mut self, ticket: Option<u32>) {
            self.held -= 1;
            self.waited += 1;
            self.ticket = ticket;
        }
        fn spin(&mut self) {
            std::thread::yield_now();
        }
    }

    fn lock(kind: Kind) -> Lock {
        let lock = Lock::default();
        lock.kind.store(kind as u32, Ordering::Relaxed);
        lock
    }

    #[test]
    fn only_one_thread_at_a_time_has_a_lock() {
        for kind in [Kind::TestAndSet, Kind::Ticket] {
            let (lock, inside) = (lock(kind), AtomicBool::new(false));
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        for _ in 0..500 {
                            lock.acquire(&mut Quiet);
                            assert!(!inside.swap(true, Ordering::Relaxed), "{kind:?}");
                            assert!(inside.swap(false, Ordering::Relaxed), "{kind:?}");
                            lock.release();
                        }
                    });
                }
            });
        }
    }

    #[test]
    fn the_count_of_held_locks_is_one_in_the_end_however_long_the_wait() {
        for kind in [Kind::TestAndSet, Kind::Ticket] {
            let lock = lock(kind);
            let mut first = Counts::default();
            lock.acquire(&mut first);
            assert_eq!((first.held, first.waited), (1, 0), "{kind:?}");
            let second = std::thread::scope(|scope| {
                let second = scope.spawn(|| {
                    let mut second = Counts::default();
                    lock.acquire(&mut second);
                    second
                });
                std::thread::sleep(std::time::Duration::from_millis(20));
                lock.release();
                second.join().expect("the waiter ends")
            });
            assert_eq!(second.held, 1, "{kind:?}");
        }
    }

    #[test]
    fn a_ticket_lock_tells_whose_turn_it_is_before_the_waiter_knows() {
        let lock = lock(Kind::Ticket);
        lock.acquire(&mut Quiet);
        let mine = lock.word.fetch_add(1, Ordering::Relaxed);
        assert!(!lock.is_turn(mine));
        lock.release();
        assert!(lock.is_turn(mine));
    }

    #[test]
    fn the_published_state_survives_its_word() {
        for waits_for in [None, Some(0), Some(u16::MAX)] {
            let state = State {
                held: 3,
                critical: 65_535,
                waits_for,
            };
            assert_eq!(State::decode(state.encode()), state);
        }
    }
}
