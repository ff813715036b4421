//! Those that sleep for a lock, or are about to: first come, first woken.
//!
//! There is no list to keep in order: each sleeper says in its own node for what it sleeps and as which
//! it came, and who wakes looks at all nodes. So no lock guards it that could be held by a vCPU without a
//! core; and a VM has few vCPUs.

use super::{Context, Memory};
use core::sync::atomic::Ordering;

/// For what a vCPU sleeps: for a lock, or for one side of a channel. Never 0 as a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum For {
    /// For the lock.
    Lock(u16),
    /// For a message in the channel.
    Message(u16),
    /// For room in the channel.
    Room(u16),
}

impl For {
    const fn word(self) -> u32 {
        match self {
            Self::Lock(number) => number as u32 + 1,
            Self::Message(number) => 1 << 20 | (number as u32 + 1),
            Self::Room(number) => 2 << 20 | (number as u32 + 1),
        }
    }

    const fn number(self) -> u16 {
        match self {
            Self::Lock(number) | Self::Message(number) | Self::Room(number) => number,
        }
    }
}

/// The vCPU comes as the last. It must look once more before it sleeps: whoever released before this
/// did not see it.
pub(super) fn enlist(cx: &Context<'_>, what: For) {
    let arrivals = &cx.lock(what.number()).arrivals;
    let node = cx.node();
    node.turn
        .store(arrivals.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    node.woken.store(0, Ordering::Relaxed);
    node.passed_over.store(0, Ordering::Relaxed);
    // SeqCst: either this vCPU, when it looks once more, sees the release, or the releaser sees this.
    node.queued.store(what.word(), Ordering::SeqCst);
}

/// It sleeps for nothing any more. True if it still did: nobody has called it.
pub(super) fn leave(cx: &Context<'_>) -> bool {
    cx.node().queued.swap(0, Ordering::AcqRel) != 0
}

/// The vCPU that sleeps for it and came first.
pub(super) fn first(memory: Memory<'_>, what: For) -> Option<u32> {
    let word = what.word();
    let mut first: Option<(u32, u32)> = None;
    for (vcpu, node) in (0..).zip(memory.nodes) {
        if node.queued.load(Ordering::SeqCst) == word {
            let turn = node.turn.load(Ordering::Relaxed);
            // Before by less than half of all numbers: they may wrap around.
            if first.is_none_or(|(_, least)| turn.wrapping_sub(least) > u32::MAX / 2) {
                first = Some((vcpu, turn));
            }
        }
    }
    first.map(|(vcpu, _)| vcpu)
}

/// Whether this vCPU sleeps for it.
pub(super) fn sleeps(cx: &Context<'_>, vcpu: u32, what: For) -> bool {
    let node = cx.memory.nodes.get(vcpu as usize);
    node.is_some_and(|node| node.queued.load(Ordering::SeqCst) == what.word())
}

/// Takes the first off, so that it is called once.
pub(super) fn call(cx: &Context<'_>, what: For) -> Option<u32> {
    loop {
        let vcpu = first(cx.memory, what)?;
        let queued = &cx.sibling(vcpu).queued;
        let taken = queued.compare_exchange(what.word(), 0, Ordering::AcqRel, Ordering::Relaxed);
        if taken.is_ok() {
            return Some(vcpu);
        }
    }
}

/// Marks a sleeper as woken. True if it has to be woken; false if that was done already and it has not
/// looked since.
pub(super) fn must_wake(cx: &Context<'_>, vcpu: u32) -> bool {
    // SeqCst, with `looks`: see there.
    cx.sibling(vcpu).woken.swap(1, Ordering::SeqCst) == 0
}

/// The vCPU is about to look at the lock, and sleeps if it is taken. SeqCst: if it does not see a
/// release, then the releaser comes after this and wakes it.
pub(super) fn looks(cx: &Context<'_>) {
    cx.node().woken.swap(0, Ordering::SeqCst);
}
