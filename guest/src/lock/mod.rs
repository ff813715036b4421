//! Locks in guest memory.
//!
//! A [`Lock`] lies in memory that all vCPUs of a VM share, and so does a [`Node`] for each vCPU; the
//! host sets kinds and sizes. How each kind works is in a file of its own, as a machine whose steps are
//! taken one by one ([`Operation`]): the guest kernel takes them on real memory, and the simulator takes
//! the very same ones in virtual time.
//!
//! # What the host may rely on
//! The published count of held locks ([`State::held`]) is raised no later than a lock is taken and
//! lowered no earlier than it is released. Some kinds are handed on, so a waiter may have a lock before
//! it knows: [`Memory::seen`] counts it as the holder.

mod barrier;
mod channel;
mod context;
mod mcs;
mod mutex;
mod operation;
mod osq;
mod preemptable_ticket;
mod pv;
mod rwlock;
mod sleepers;
mod test_and_set;
mod ticket;

pub use context::{Context, Spin, Step};
pub use mutex::PASSED_OVER;
pub use operation::{Operation, Want};

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// How a lock works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Kind {
    /// One word, whoever comes first takes it.
    TestAndSet = 0,
    /// First come, first served.
    Ticket = 1,
    /// A queue of waiters, each at a word of its own.
    Mcs = 2,
    /// Waiters spin while the owner is on a core, and sleep otherwise.
    Mutex = 3,
    /// Waiters sleep; a release hands the lock to one of them.
    MutexHandOff = 4,
    /// Not a lock: a queue of messages. The lock with the next number is the mutex that guards it.
    Channel = 5,
    /// As a ticket lock, but waiters lose patience with those before them.
    PreemptableTicket = 6,
    /// A queue of waiters that halt after a while; a release kicks.
    Pv = 7,
    /// For many readers or one writer.
    ReadWrite = 8,
    /// Not a lock: so many have to come before any goes on.
    Barrier = 9,
}

impl Kind {
    const ALL: [Self; 10] = [
        Self::TestAndSet,
        Self::Ticket,
        Self::Mcs,
        Self::Mutex,
        Self::MutexHandOff,
        Self::Channel,
        Self::PreemptableTicket,
        Self::Pv,
        Self::ReadWrite,
        Self::Barrier,
    ];

    /// Whether who waits for such a lock spins at a place in line that nobody behind it may pass: while it has no
    /// core, all of those wait, whether the lock is free or not. Who has not queued may take a free
    /// [`Kind::Pv`] or [`Kind::ReadWrite`] all the same, unless the first keeps it off: one that has come to spin as the
    /// first, and of a [`Kind::ReadWrite`] only a writer.
    #[must_use]
    pub const fn keeps_places(self) -> bool {
        matches!(self, Self::Ticket | Self::Mcs | Self::Pv | Self::ReadWrite)
    }

    /// The kind with this number.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u32 == number)
    }
}

/// A lock as it lies in guest memory, on a cache line of its own. What the words mean beside the first
/// two is each kind's own; all begin at 0.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Lock {
    /// A [`Kind`], set by the host before the guest starts.
    pub kind: AtomicU32,
    /// Who has it: its number within the VM and 1; 0 if nobody. Late by a few instructions when the
    /// lock is taken, early by as many when it is released; set by the releaser when it is handed on.
    pub owner: AtomicU32,
    /// Whether, and by whom, it is taken. A ticket lock: the next ticket to be drawn. A barrier: how many
    /// have come.
    word: AtomicU32,
    /// A ticket lock, or the queue of a reader-writer lock: the ticket whose turn it is.
    serving: AtomicU32,
    /// The last in the queue of spinners: its number and 1; 0 if there is none.
    tail: AtomicU32,
    /// How many have gone to sleep, or into the queue of a reader-writer lock, which gives their order.
    arrivals: AtomicU32,
    /// A channel: messages in it.
    count: AtomicU32,
    /// Set by the host before the guest starts. A channel: messages that it holds at most. A barrier: how
    /// many have to come. A preemptable ticket lock: the patience with each one before, in nanoseconds. A
    /// paravirtual lock: how long its waiters spin, in nanoseconds.
    pub size: AtomicU32,
    /// Set by the host before the guest starts. A channel: how long it takes to copy a message in or out,
    /// in nanoseconds.
    pub copy_ns: AtomicU32,
    /// A preemptable ticket lock: 1 while it is taken. A paravirtual lock: 1 while the first of its queue
    /// spins for it.
    taken: AtomicU32,
    /// A paravirtual lock: whom its release kicks (number and 1).
    kick: AtomicU32,
}

const _: () = assert!(size_of::<Lock>() == 64);

/// A vCPU as its siblings and the host see it, on a cache line of its own. A vCPU waits for one lock
/// at a time, so one is enough for each.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Node {
    /// Guest locks held, critical depth, lock waited for: a [`State`] in one word, so that whoever
    /// reads it reads a state that existed. Written by its own vCPU.
    state: AtomicU64,
    /// Written by the host: not 0 while the vCPU has a core.
    pub running: AtomicU32,
    /// Written by the host: who lends this vCPU its turn (number within the VM and 1), 0 if nobody.
    pub donor: AtomicU32,
    /// The next in a queue of spinners (number and 1), 0 if it is not known.
    next: AtomicU32,
    /// The one before it in a queue of spinners that may be left.
    prev: AtomicU32,
    /// Not 0: it is the first of a queue of spinners.
    head: AtomicU32,
    /// The ticket it drew, or its place in the order of sleepers.
    turn: AtomicU32,
    /// For what it sleeps, or is about to ([`sleepers`]); 0 for nothing.
    queued: AtomicU32,
    /// Not 0: somebody woke it, or is about to, since it last looked.
    woken: AtomicU32,
    /// In the queue of a paravirtual lock: whether it has halted ([`pv`]).
    halted: AtomicU32,
    /// How often it was passed over since it came to sleep for a mutex: counted by the mutex's owners.
    passed_over: AtomicU32,
}

const _: () = assert!(size_of::<Node>() == 64);

/// The locks and the vCPUs of a VM.
#[derive(Clone, Copy, Debug)]
pub struct Memory<'a> {
    /// Its locks, by number.
    pub locks: &'a [Lock],
    /// Its vCPUs, by number within it.
    pub nodes: &'a [Node],
}

impl Memory<'_> {
    /// What the vCPU says of its locks.
    #[must_use]
    pub fn state(self, vcpu: u32) -> State {
        let node = self.nodes.get(vcpu as usize);
        // SeqCst with the guest's own: see `Context::publish`.
        node.map_or(State::default(), |node| {
            State::decode(node.state.load(Ordering::SeqCst))
        })
    }

    /// The same as the host sees it: a waiter to whom a lock was handed, though it does not know yet,
    /// is its holder.
    #[must_use]
    pub fn seen(self, vcpu: u32) -> State {
        let state = self.state(vcpu);
        match state.waits_for {
            Some(number) if self.was_given(number, vcpu) => State {
                held: state.held.saturating_add(1),
                waits_for: None,
                ..state
            },
            _ => state,
        }
    }

    /// Whether a vCPU that says this waits at a place in line that nobody behind it may pass
    /// ([`Kind::keeps_places`]). Of a paravirtual lock also one that has halted there.
    #[must_use]
    pub fn in_line(self, state: State) -> bool {
        let lock = |number| self.locks.get(usize::from(number));
        let kind = state.waits_for.and_then(lock).and_then(Lock::kind);
        kind.is_some_and(Kind::keeps_places)
    }

    /// Who has a lock, or is the only one that can have it next; of a mutex that was left free, the sleeper that
    /// is woken for it, before which no other sleeper goes on.
    #[must_use]
    pub fn owner(self, number: u16) -> Option<u32> {
        let lock = self.locks.get(usize::from(number))?;
        let owner = lock.owner.load(Ordering::Acquire);
        owner.checked_sub(1).or_else(|| match lock.kind() {
            Some(Kind::Mutex | Kind::MutexHandOff) => mutex::called(self, number),
            _ => {
                let mut vcpus = (0..).take(self.nodes.len());
                vcpus.find(|vcpu| {
                    self.state(*vcpu).waits_for == Some(number) && self.was_given(number, *vcpu)
                })
            }
        })
    }

    /// Whether a waiter has the lock for which it waits without perhaps knowing it yet.
    fn was_given(self, number: u16, vcpu: u32) -> bool {
        let (Some(lock), Some(node)) = (
            self.locks.get(usize::from(number)),
            self.nodes.get(vcpu as usize),
        ) else {
            return false;
        };
        match lock.kind() {
            Some(Kind::Ticket) => ticket::is_turn(lock, node),
            Some(Kind::Mcs) => mcs::is_turn(lock, node),
            Some(Kind::Pv) => pv::is_turn(lock, node),
            Some(Kind::Mutex | Kind::MutexHandOff) => {
                lock.owner.load(Ordering::Acquire) == vcpu + 1
            }
            _ => false,
        }
    }
}

impl Lock {
    /// How it works; none if the host wrote nonsense.
    #[must_use]
    pub fn kind(&self) -> Option<Kind> {
        Kind::from_number(self.kind.load(Ordering::Relaxed))
    }
}

/// A vCPU's locks as published.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct State {
    /// Guest locks held, or about to be.
    pub held: u16,
    /// Depth of critical sections.
    pub critical: u16,
    /// The guest lock it spins or sleeps for.
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

    /// Whether a preemption does no harm: no lock is held, no critical section entered.
    #[must_use]
    pub const fn is_safe(self) -> bool {
        self.held == 0 && self.critical == 0
    }
}

#[cfg(test)]
mod tests;
