//! MCS: a queue of waiters, of whom each spins at a word of its own (Mellor-Crummey and Scott 1991).
//!
//! The lock is a word beside the queue, as in Linux's queued spin locks: the first of the queue takes it
//! and leaves the queue at once, so that a vCPU needs its node only while it waits and may hold many
//! locks. Nobody takes the lock past a queue: first come, first served, and a waiter that is preempted as
//! the first stops all behind it.

use super::{Context, Lock, Node, Spin, Step};
use core::sync::atomic::Ordering;

/// How far a comer is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Take {
    /// It has done nothing.
    Come,
    /// It is in the queue.
    Queue,
    /// It is the first of the queue.
    Head,
    /// It has the lock and knows that someone is behind it, but perhaps not who.
    Pass,
}

impl Take {
    pub(super) fn step(&mut self, cx: &mut Context<'_>, number: u16) -> Step {
        match self {
            Self::Come => self.come(cx, number),
            Self::Queue if cx.node().head.load(Ordering::Acquire) == 0 => {
                Step::Spin(Spin::default())
            }
            Self::Queue => {
                *self = Self::Head;
                Step::Again
            }
            Self::Head => self.head(cx, number),
            Self::Pass => pass(cx, number),
        }
    }

    fn come(&mut self, cx: &mut Context<'_>, number: u16) -> Step {
        let lock = cx.lock(number);
        if lock.tail.load(Ordering::Relaxed) == 0 && take(cx, number) {
            return Step::Done;
        }
        cx.waits(number);
        let node = cx.node();
        node.next.store(0, Ordering::Relaxed);
        node.head.store(0, Ordering::Relaxed);
        // Release: the node is in order before it can be found. Acquire: so is the one before it.
        match lock.tail.swap(cx.mark(), Ordering::AcqRel).checked_sub(1) {
            None => {
                node.head.store(1, Ordering::Relaxed);
                *self = Self::Head;
            }
            Some(before) => {
                let next = &cx.sibling(before).next;
                next.store(cx.mark(), Ordering::Release);
                *self = Self::Queue;
            }
        }
        Step::Again
    }

    fn head(&mut self, cx: &mut Context<'_>, number: u16) -> Step {
        if !take(cx, number) {
            return Step::Spin(Spin::default());
        }
        let tail = &cx.lock(number).tail;
        let alone = tail.compare_exchange(cx.mark(), 0, Ordering::AcqRel, Ordering::Relaxed);
        if alone.is_ok() {
            return Step::Done;
        }
        *self = Self::Pass;
        Step::Again
    }
}

fn take(cx: &mut Context<'_>, number: u16) -> bool {
    let word = &cx.lock(number).word;
    if word.load(Ordering::Relaxed) != 0 {
        return false;
    }
    cx.taking();
    // Acquire: what the last owner wrote is seen by this one.
    if word.swap(1, Ordering::Acquire) != 0 {
        cx.missed(number);
        return false;
    }
    cx.took(number);
    true
}

/// Makes the one behind the first; it may be between entering the queue and saying so.
fn pass(cx: &mut Context<'_>, number: u16) -> Step {
    match cx.node().next.load(Ordering::Acquire).checked_sub(1) {
        None => Step::Spin(Spin::default()),
        Some(next) => {
            cx.sibling(next).head.store(1, Ordering::Release);
            cx.touched = Some(number);
            Step::Done
        }
    }
}

/// Releases it.
pub(super) fn release(cx: &mut Context<'_>, number: u16) -> Step {
    let lock = cx.lock(number);
    lock.owner.store(0, Ordering::Relaxed);
    lock.word.store(0, Ordering::Release);
    cx.released(number);
    Step::Done
}

/// Whether the vCPU, which waits for the lock, is the one that takes it next, and it is free.
pub(super) fn is_turn(lock: &Lock, node: &Node) -> bool {
    lock.word.load(Ordering::Acquire) == 0 && node.head.load(Ordering::Acquire) != 0
}
