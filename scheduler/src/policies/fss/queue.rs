//! The dispatch queue: one list for every priority, for all cores together.

use crate::ids::VcpuId;
use std::collections::VecDeque;

/// Priorities 0 to 60.
const LEVELS: usize = 61;

/// One list for every priority.
#[derive(Debug)]
pub(super) struct Queue {
    lists: Vec<VecDeque<VcpuId>>,
    /// Bit p is set if list p is not empty.
    occupied: u64,
}

impl Queue {
    pub(super) fn new() -> Self {
        Self {
            lists: vec![VecDeque::new(); LEVELS],
            occupied: 0,
        }
    }

    pub(super) fn push_back(&mut self, vcpu: VcpuId, priority: u8) {
        self.lists[usize::from(priority)].push_back(vcpu);
        self.occupied |= 1 << priority;
    }

    pub(super) fn push_front(&mut self, vcpu: VcpuId, priority: u8) {
        self.lists[usize::from(priority)].push_front(vcpu);
        self.occupied |= 1 << priority;
    }

    /// The best priority that waits.
    pub(super) fn best(&self) -> Option<u8> {
        let highest = self.occupied.checked_ilog2()?;
        u8::try_from(highest).ok()
    }

    pub(super) fn pop(&mut self) -> Option<VcpuId> {
        let best = self.best()?;
        let list = &mut self.lists[usize::from(best)];
        let vcpu = list.pop_front();
        if list.is_empty() {
            self.occupied &= !(1 << best);
        }
        vcpu
    }

    pub(super) fn remove(&mut self, vcpu: VcpuId, priority: u8) {
        let list = &mut self.lists[usize::from(priority)];
        list.retain(|queued| *queued != vcpu);
        if list.is_empty() {
            self.occupied &= !(1 << priority);
        }
    }

    /// The priorities of all that wait, best first.
    pub(super) fn priorities(&self) -> impl Iterator<Item = u8> {
        let levels = self.lists.iter().enumerate().rev();
        levels.flat_map(|(priority, list)| {
            let priority = u8::try_from(priority).unwrap_or(u8::MAX);
            list.iter().map(move |_| priority)
        })
    }
}
