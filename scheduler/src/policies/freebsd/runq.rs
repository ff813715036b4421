//! A run queue of 64 lists and a word that says which of them are not empty.
//!
//! Every operation takes constant time: a vCPU is a node of a doubly linked list, in tables by its
//! number. Four priorities share a list (`PPQ`).

use crate::ids::VcpuId;

/// Number of lists.
pub(in crate::policies) const LISTS: u8 = 64;
/// Priorities to a list.
const PPQ: u8 = 4;

/// The list of a priority.
pub(in crate::policies) const fn list_of(priority: u8) -> u8 {
    priority / PPQ
}

#[derive(Clone, Copy, Default, Debug)]
struct List {
    first: Option<VcpuId>,
    last: Option<VcpuId>,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    list: u8,
    before: Option<VcpuId>,
    after: Option<VcpuId>,
}

/// The queue. A vCPU is in it at most once.
#[derive(Debug)]
pub(in crate::policies) struct RunQueue {
    lists: [List; LISTS as usize],
    nodes: Vec<Option<Node>>,
    /// Bit n is set if list n is not empty.
    occupied: u64,
    len: usize,
}

impl Default for RunQueue {
    fn default() -> Self {
        Self {
            lists: [List::default(); LISTS as usize],
            nodes: Vec::new(),
            occupied: 0,
            len: 0,
        }
    }
}

impl RunQueue {
    fn node(&mut self, vcpu: VcpuId) -> &mut Option<Node> {
        if self.nodes.len() <= vcpu.index() {
            self.nodes.resize(vcpu.index() + 1, None);
        }
        &mut self.nodes[vcpu.index()]
    }

    pub(in crate::policies) fn push_back(&mut self, vcpu: VcpuId, list: u8) {
        self.remove(vcpu);
        let before = self.lists[usize::from(list)].last.replace(vcpu);
        let after = None;
        *self.node(vcpu) = Some(Node {
            list,
            before,
            after,
        });
        match before {
            Some(before) => self.link(before, |node| node.after = Some(vcpu)),
            None => self.lists[usize::from(list)].first = Some(vcpu),
        }
        self.added(list);
    }

    pub(in crate::policies) fn push_front(&mut self, vcpu: VcpuId, list: u8) {
        self.remove(vcpu);
        let after = self.lists[usize::from(list)].first.replace(vcpu);
        let before = None;
        *self.node(vcpu) = Some(Node {
            list,
            before,
            after,
        });
        match after {
            Some(after) => self.link(after, |node| node.before = Some(vcpu)),
            None => self.lists[usize::from(list)].last = Some(vcpu),
        }
        self.added(list);
    }

    fn link(&mut self, vcpu: VcpuId, change: impl FnOnce(&mut Node)) {
        if let Some(node) = self.node(vcpu) {
            change(node);
        }
    }

    const fn added(&mut self, list: u8) {
        self.occupied |= 1 << list;
        self.len += 1;
    }

    /// Takes a vCPU out; the list that it was in, if it was queued.
    pub(in crate::policies) fn remove(&mut self, vcpu: VcpuId) -> Option<u8> {
        let node = self.nodes.get_mut(vcpu.index())?.take()?;
        match node.before {
            Some(before) => self.link(before, |other| other.after = node.after),
            None => self.lists[usize::from(node.list)].first = node.after,
        }
        match node.after {
            Some(after) => self.link(after, |other| other.before = node.before),
            None => self.lists[usize::from(node.list)].last = node.before,
        }
        if self.lists[usize::from(node.list)].first.is_none() {
            self.occupied &= !(1 << node.list);
        }
        self.len -= 1;
        Some(node.list)
    }

    /// The list that a vCPU is in, if it is queued.
    pub(in crate::policies) fn list(&self, vcpu: VcpuId) -> Option<u8> {
        Some(self.nodes.get(vcpu.index())?.as_ref()?.list)
    }

    /// The first of the best list.
    pub(in crate::policies) fn first(&self) -> Option<VcpuId> {
        self.first_from(0)
    }

    /// The first of the first list that is not empty, from `list` on and round.
    pub(in crate::policies) fn first_from(&self, list: u8) -> Option<VcpuId> {
        self.from(list).next()
    }

    /// Everybody, from `list` on and round.
    pub(in crate::policies) fn from(&self, list: u8) -> impl Iterator<Item = VcpuId> + '_ {
        // Bit 0 of the rotated word is `list` itself.
        let mut left = self.occupied.rotate_right(u32::from(list));
        let lists = std::iter::from_fn(move || {
            let step = u8::try_from(left.trailing_zeros()).ok()?;
            if step >= LISTS {
                return None;
            }
            left &= left - 1;
            Some((list + step) % LISTS)
        });
        lists.flat_map(move |list| {
            let first = self.lists[usize::from(list)].first;
            std::iter::successors(first, |vcpu| {
                self.nodes[vcpu.index()].as_ref().and_then(|n| n.after)
            })
        })
    }

    /// Takes out the first of the best list.
    pub(in crate::policies) fn pop(&mut self) -> Option<VcpuId> {
        let first = self.first()?;
        self.remove(first);
        Some(first)
    }

    /// Whether nobody waits in a list.
    pub(in crate::policies) const fn vacant(&self, list: u8) -> bool {
        self.occupied & (1 << list) == 0
    }

    /// How many wait.
    pub(in crate::policies) const fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(queue: &RunQueue, list: u8) -> Vec<u32> {
        queue.from(list).map(|vcpu| vcpu.0).collect()
    }

    #[test]
    fn the_best_list_goes_first_and_a_list_in_its_order() {
        let mut queue = RunQueue::default();
        for (vcpu, list) in [(0, 9), (1, 3), (2, 9), (3, 63)] {
            queue.push_back(VcpuId(vcpu), list);
        }
        queue.push_front(VcpuId(4), 9);
        assert_eq!(order(&queue, 0), [1, 4, 0, 2, 3]);
        assert_eq!(order(&queue, 10), [3, 1, 4, 0, 2]);
        assert_eq!(queue.first_from(4), Some(VcpuId(4)));
        assert_eq!(queue.len(), 5);
    }

    #[test]
    fn whoever_is_taken_out_leaves_the_others_in_order() {
        let mut queue = RunQueue::default();
        for vcpu in 0..5 {
            queue.push_back(VcpuId(vcpu), 7);
        }
        for (vcpu, left) in [(2, vec![0, 1, 3, 4]), (0, vec![1, 3, 4]), (4, vec![1, 3])] {
            assert_eq!(queue.remove(VcpuId(vcpu)), Some(7));
            assert_eq!(order(&queue, 0), left);
        }
        assert_eq!(queue.remove(VcpuId(4)), None);
        assert_eq!(queue.remove(VcpuId(99)), None);
        queue.push_back(VcpuId(1), 2);
        assert_eq!(
            (queue.pop(), queue.pop(), queue.pop()),
            (Some(VcpuId(1)), Some(VcpuId(3)), None)
        );
        assert!(queue.vacant(7) && queue.vacant(2));
    }

    #[test]
    fn four_priorities_share_a_list() {
        assert_eq!([0, 3, 4, 255].map(list_of), [0, 0, 1, 63]);
    }
}
