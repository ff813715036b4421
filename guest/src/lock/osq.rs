//! The queue of those that spin for a mutex: only its first looks at the mutex itself.
//!
//! As Linux's `osq_lock`: an MCS queue that can be left. A vCPU leaves it when the one before it has no
//! core: that one could not pass the first place on. It leaves in three steps: it takes itself out of the
//! sight of the one before it, learns who is behind it, and ties these two together.

use super::Context;
use core::sync::atomic::Ordering;

/// What came of a step.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Queued {
    /// The vCPU is the first.
    First,
    /// It is not; look again when something changes, or when this vCPU has no core.
    Waits(Option<u32>),
    /// It has left the queue.
    Left,
}

/// How far a comer is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Join {
    /// It has done nothing.
    Come,
    /// It waits behind another.
    Wait,
    /// It is out of the sight of the one before it (number and 1).
    Leave(u32),
}

impl Join {
    pub(super) fn step(&mut self, cx: &mut Context<'_>, number: u16) -> Queued {
        match *self {
            Self::Come => self.come(cx, number),
            Self::Wait => self.wait(cx),
            Self::Leave(before) => leave(cx, number, before),
        }
    }

    fn come(&mut self, cx: &Context<'_>, number: u16) -> Queued {
        let node = cx.node();
        node.next.store(0, Ordering::Relaxed);
        node.head.store(0, Ordering::Relaxed);
        // Release: the node is in order before it can be found. Acquire: so is the one before it.
        let before = cx.lock(number).tail.swap(cx.mark(), Ordering::AcqRel);
        let Some(vcpu) = before.checked_sub(1) else {
            return Queued::First;
        };
        node.prev.store(before, Ordering::Relaxed);
        // Release: who finds this vCPU there finds its `prev`.
        cx.sibling(vcpu).next.store(cx.mark(), Ordering::Release);
        *self = Self::Wait;
        Queued::Waits(Some(vcpu))
    }

    fn wait(&mut self, cx: &Context<'_>) -> Queued {
        let node = cx.node();
        if node.head.load(Ordering::Acquire) != 0 {
            return Queued::First;
        }
        // The one before may leave too, and names the one before itself then.
        let before = node.prev.load(Ordering::Acquire);
        let vcpu = before - 1;
        if cx.runs(vcpu) {
            return Queued::Waits(Some(vcpu));
        }
        let next = &cx.sibling(vcpu).next;
        let unlinked = next.compare_exchange(cx.mark(), 0, Ordering::AcqRel, Ordering::Relaxed);
        if unlinked.is_ok() {
            *self = Self::Leave(before);
        }
        Queued::Waits(None)
    }
}

/// Leaves the queue behind `before` (number and 1), or as the first if that is 0. Waits while somebody
/// is between entering the queue and saying so.
pub(super) fn leave(cx: &mut Context<'_>, number: u16, before: u32) -> Queued {
    let tail = &cx.lock(number).tail;
    let last = tail.compare_exchange(cx.mark(), before, Ordering::AcqRel, Ordering::Relaxed);
    if last.is_ok() {
        return Queued::Left;
    }
    let Some(next) = cx.node().next.swap(0, Ordering::AcqRel).checked_sub(1) else {
        return Queued::Waits(None);
    };
    let behind = cx.sibling(next);
    match before.checked_sub(1) {
        None => behind.head.store(1, Ordering::Release),
        Some(vcpu) => {
            behind.prev.store(before, Ordering::Release);
            cx.sibling(vcpu).next.store(next + 1, Ordering::Release);
        }
    }
    cx.touched = Some(number);
    Queued::Left
}
