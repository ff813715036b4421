//! Ticket: first come, first served.
//!
//! Each comer draws a ticket and waits until it is served. The owner serves the next one on release,
//! whether that one runs or not: a waiter that is preempted at its turn stops all behind it.

use super::{Context, Lock, Node, Spin, Step};
use core::sync::atomic::Ordering;

/// How far a comer is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Take {
    /// It has no ticket.
    Draw,
    /// It waits with this one.
    Wait(u32),
}

impl Take {
    pub(super) fn step(&mut self, cx: &mut Context<'_>, number: u16) -> Step {
        let lock = cx.lock(number);
        let ticket = match *self {
            Self::Wait(ticket) => ticket,
            Self::Draw => {
                cx.taking();
                lock.word.fetch_add(1, Ordering::Relaxed)
            }
        };
        // Acquire: what the last owner wrote is seen by this one.
        let is_turn = lock.serving.load(Ordering::Acquire) == ticket;
        match (*self, is_turn) {
            (Self::Draw, false) => {
                // The ticket first: the host reads it only if the state says that someone waits.
                cx.node().turn.store(ticket, Ordering::Relaxed);
                cx.missed(number);
                *self = Self::Wait(ticket);
            }
            (Self::Wait(_), false) => {}
            (Self::Draw, true) => {
                cx.took(number);
                return Step::Done;
            }
            (Self::Wait(_), true) => {
                cx.taking();
                cx.took(number);
                return Step::Done;
            }
        }
        Step::Spin(Spin::default())
    }
}

/// Releases it.
pub(super) fn release(cx: &mut Context<'_>, number: u16) -> Step {
    let lock = cx.lock(number);
    lock.owner.store(0, Ordering::Relaxed);
    // Only the owner writes this word.
    let next = lock.serving.load(Ordering::Relaxed).wrapping_add(1);
    lock.serving.store(next, Ordering::Release);
    cx.released(number);
    Step::Done
}

/// Whether the vCPU, which waits for the lock, has its turn.
pub(super) fn is_turn(lock: &Lock, node: &Node) -> bool {
    lock.serving.load(Ordering::Acquire) == node.turn.load(Ordering::Relaxed)
}
