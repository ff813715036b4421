//! A queue lock that does not spin for long: waiters halt, a release kicks (Linux's `qspinlock_paravirt.h`).
//!
//! 1. A comer makes one attempt to steal the lock: only if it is free and its queue's first does not spin
//!    for it. Else it joins the queue.
//! 2. Who is not the first spins at its own word: for as long as the lock says, and no longer than the one
//!    before it spins itself and has a core. Then it halts until it is kicked.
//! 3. The first keeps stealers off while it spins for the lock, for as long as the lock says. Then it marks
//!    the lock as slow, so that its owner kicks at the release, and halts.
//! 4. Who takes the lock makes the next one the first. If that one has halted, it is not kicked now: the
//!    lock is marked as slow for it, and it is kicked once, at the release.
//!
//! Linux counts spins (32,768 of them); here they are a time, in the vCPU's own running time. In place of
//! Linux's hash table the lock itself names the one to kick: only the first of its queue is ever kicked.

use super::{Context, Lock, Node, Spin, Step};
use core::sync::atomic::Ordering;

/// The lock is taken.
const LOCKED: u32 = 1;
/// It is taken, and its release kicks.
const SLOW: u32 = 3;

/// A waiter runs, as far as it knows.
const RUNNING: u32 = 0;
/// It has halted, or is about to.
const HALTED: u32 = 1;
/// It has halted, and the lock knows whom to kick.
const KNOWN: u32 = 2;

/// How far a comer is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Take {
    /// It has done nothing.
    Come,
    /// It waits behind another (number), since it had spun so long.
    Queue { before: u32, since: u64 },
    /// It has said that it halts, and looks once more.
    Halt { before: u32 },
    /// It has halted and was kicked.
    Kicked { before: u32 },
    /// It is the first, since it had spun so long.
    First { since: u64 },
    /// It marked the lock as slow and looks once more before it halts.
    HaltFirst,
    /// It has the lock and knows that someone is behind it, but perhaps not who.
    Pass,
}

impl Take {
    pub(super) fn step(&mut self, cx: &mut Context<'_>, number: u16) -> Step {
        match *self {
            Self::Come => self.come(cx, number),
            Self::Queue { before, since } => self.queue(cx, number, before, since),
            Self::Halt { before } => {
                if cx.node().head.load(Ordering::SeqCst) != 0 {
                    return self.is_first(cx);
                }
                *self = Self::Kicked { before };
                Step::Sleep(number)
            }
            Self::Kicked { before } => {
                if cx.node().head.load(Ordering::SeqCst) != 0 {
                    return self.is_first(cx);
                }
                cx.node().halted.store(RUNNING, Ordering::SeqCst);
                let since = cx.spun;
                *self = Self::Queue { before, since };
                Step::Again
            }
            Self::First { since } => self.first(cx, number, since),
            Self::HaltFirst => {
                let since = cx.spun;
                *self = Self::First { since };
                if cx.lock(number).word.load(Ordering::SeqCst) == SLOW {
                    Step::Sleep(number)
                } else {
                    Step::Again
                }
            }
            Self::Pass => pass(cx, number),
        }
    }

    fn come(&mut self, cx: &mut Context<'_>, number: u16) -> Step {
        let lock = cx.lock(number);
        if lock.taken.load(Ordering::Relaxed) == 0 && take(cx, number) {
            return Step::Done;
        }
        cx.waits(number);
        let node = cx.node();
        node.next.store(0, Ordering::Relaxed);
        node.head.store(0, Ordering::Relaxed);
        node.halted.store(RUNNING, Ordering::Relaxed);
        // Release: the node is in order before it can be found. Acquire: so is the one before it.
        match lock.tail.swap(cx.mark(), Ordering::AcqRel).checked_sub(1) {
            None => {
                node.head.store(1, Ordering::Relaxed);
                self.is_first(cx)
            }
            Some(before) => {
                let next = &cx.sibling(before).next;
                next.store(cx.mark(), Ordering::Release);
                let since = cx.spun;
                *self = Self::Queue { before, since };
                Step::Again
            }
        }
    }

    fn is_first(&mut self, cx: &Context<'_>) -> Step {
        let since = cx.spun;
        *self = Self::First { since };
        Step::Again
    }

    fn queue(&mut self, cx: &mut Context<'_>, number: u16, before: u32, since: u64) -> Step {
        if cx.node().head.load(Ordering::Acquire) != 0 {
            return self.is_first(cx);
        }
        let until = since + threshold(cx.lock(number));
        let spins = cx.sibling(before).halted.load(Ordering::Relaxed) == RUNNING;
        if cx.spun < until && spins && cx.runs(before) {
            return Step::Spin(Spin {
                until: Some(until),
                while_runs: Some(before),
            });
        }
        // SeqCst: either this vCPU, when it looks once more, sees that it is the first, or who makes it
        // the first sees that it halts.
        cx.node().halted.store(HALTED, Ordering::SeqCst);
        // The one behind it stops spinning too.
        cx.touched = Some(number);
        *self = Self::Halt { before };
        Step::Again
    }

    fn first(&mut self, cx: &mut Context<'_>, number: u16, since: u64) -> Step {
        let lock = cx.lock(number);
        cx.node().halted.store(RUNNING, Ordering::Relaxed);
        lock.taken.store(1, Ordering::Relaxed);
        let until = since + threshold(lock);
        if take(cx, number) {
            return self.took(cx, number);
        }
        if cx.spun < until {
            return Step::Spin(Spin {
                until: Some(until),
                while_runs: None,
            });
        }
        lock.taken.store(0, Ordering::Relaxed);
        // If it is slow already, the lock knows this vCPU.
        if lock.word.load(Ordering::SeqCst) != SLOW {
            lock.kick.store(cx.mark(), Ordering::SeqCst);
            cx.taking();
            if lock.word.swap(SLOW, Ordering::SeqCst) == 0 {
                lock.word.store(LOCKED, Ordering::SeqCst);
                cx.took(number);
                return self.took(cx, number);
            }
            cx.missed(number);
        }
        cx.node().halted.store(KNOWN, Ordering::SeqCst);
        cx.touched = Some(number);
        *self = Self::HaltFirst;
        Step::Again
    }

    fn took(&mut self, cx: &Context<'_>, number: u16) -> Step {
        let lock = cx.lock(number);
        lock.taken.store(0, Ordering::Relaxed);
        let alone = lock
            .tail
            .compare_exchange(cx.mark(), 0, Ordering::AcqRel, Ordering::Relaxed);
        if alone.is_ok() {
            return Step::Done;
        }
        *self = Self::Pass;
        Step::Again
    }
}

fn threshold(lock: &Lock) -> u64 {
    u64::from(lock.size.load(Ordering::Relaxed))
}

fn take(cx: &mut Context<'_>, number: u16) -> bool {
    let word = &cx.lock(number).word;
    if word.load(Ordering::Relaxed) != 0 {
        return false;
    }
    cx.taking();
    // Acquire: what the last owner wrote is seen by this one.
    let taken = word.compare_exchange(0, LOCKED, Ordering::SeqCst, Ordering::Relaxed);
    if taken.is_err() {
        cx.missed(number);
        return false;
    }
    cx.took(number);
    true
}

/// Makes the one behind the first; it may be between entering the queue and saying so.
fn pass(cx: &mut Context<'_>, number: u16) -> Step {
    let Some(next) = cx.node().next.load(Ordering::Acquire).checked_sub(1) else {
        return Step::Spin(Spin::default());
    };
    let (lock, sibling) = (cx.lock(number), cx.sibling(next));
    sibling.head.store(1, Ordering::SeqCst);
    let known = sibling
        .halted
        .compare_exchange(HALTED, KNOWN, Ordering::SeqCst, Ordering::Relaxed);
    if known.is_ok() {
        lock.kick.store(next + 1, Ordering::SeqCst);
        lock.word.store(SLOW, Ordering::SeqCst);
    }
    cx.touched = Some(number);
    Step::Done
}

/// How far a releaser is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Release {
    /// It has done nothing.
    Unlock,
    /// It has released the lock and kicked.
    Done,
}

impl Release {
    pub(super) fn step(&mut self, cx: &mut Context<'_>, number: u16) -> Step {
        if *self == Self::Done {
            return Step::Done;
        }
        *self = Self::Done;
        let lock = cx.lock(number);
        lock.owner.store(0, Ordering::Relaxed);
        let fast = lock
            .word
            .compare_exchange(LOCKED, 0, Ordering::SeqCst, Ordering::Relaxed);
        // It is slow: whom to kick is read before anyone else can take the lock and write it anew.
        let mut kick = 0;
        if fast.is_err() {
            kick = lock.kick.swap(0, Ordering::SeqCst);
            lock.word.store(0, Ordering::SeqCst);
        }
        cx.released(number);
        match kick.checked_sub(1) {
            Some(first) => Step::Wake(first, number),
            None => Step::Done,
        }
    }
}

/// Whether the vCPU, which waits for the lock, is the one that takes it next, and it is free.
pub(super) fn is_turn(lock: &Lock, node: &Node) -> bool {
    lock.word.load(Ordering::Acquire) == 0
        && lock.taken.load(Ordering::Acquire) != 0
        && node.head.load(Ordering::Acquire) != 0
}
