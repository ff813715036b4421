//! A run queue ordered by a key.
//!
//! The vCPU with the least key comes first; among equal keys the one that was queued first. Every
//! operation takes logarithmic time.

use crate::ids::VcpuId;
use std::collections::BTreeSet;

/// The queue. A vCPU is in it at most once.
#[derive(Debug)]
pub struct KeyedQueue<K> {
    order: BTreeSet<(K, u64, VcpuId)>,
    places: Vec<Option<(K, u64)>>,
    sequence: u64,
}

impl<K: Ord + Copy> Default for KeyedQueue<K> {
    fn default() -> Self {
        Self {
            order: BTreeSet::new(),
            places: Vec::new(),
            sequence: 0,
        }
    }
}

impl<K: Ord + Copy> KeyedQueue<K> {
    /// Queues a vCPU behind its equals. One that is queued already is moved.
    pub fn insert(&mut self, vcpu: VcpuId, key: K) {
        self.remove(vcpu);
        if self.places.len() <= vcpu.index() {
            self.places.resize(vcpu.index() + 1, None);
        }
        self.sequence += 1;
        self.places[vcpu.index()] = Some((key, self.sequence));
        self.order.insert((key, self.sequence, vcpu));
    }

    /// Takes a vCPU out; its key if it was queued.
    pub fn remove(&mut self, vcpu: VcpuId) -> Option<K> {
        let (key, sequence) = self.places.get_mut(vcpu.index())?.take()?;
        self.order.remove(&(key, sequence, vcpu));
        Some(key)
    }

    /// Whether a vCPU is queued.
    #[must_use]
    pub fn contains(&self, vcpu: VcpuId) -> bool {
        self.places.get(vcpu.index()).is_some_and(Option::is_some)
    }

    /// The first with its key.
    #[must_use]
    pub fn first(&self) -> Option<(K, VcpuId)> {
        self.order.first().map(|(key, _, vcpu)| (*key, *vcpu))
    }

    /// Takes the first out.
    pub fn pop_first(&mut self) -> Option<(K, VcpuId)> {
        let (key, _, vcpu) = self.order.pop_first()?;
        self.places[vcpu.index()] = None;
        Some((key, vcpu))
    }

    /// The first whose key is greater than the given one.
    #[must_use]
    pub fn first_above(&self, key: K) -> Option<(K, VcpuId)> {
        let above = (key, u64::MAX, VcpuId(u32::MAX));
        let next = self.order.range(above..).next();
        next.map(|(key, _, vcpu)| (*key, *vcpu))
    }

    /// The last with its key.
    #[must_use]
    pub fn last(&self) -> Option<(K, VcpuId)> {
        self.order.last().map(|(key, _, vcpu)| (*key, *vcpu))
    }

    /// All in order.
    pub fn iter(&self) -> impl Iterator<Item = (K, VcpuId)> + '_ {
        self.order.iter().map(|(key, _, vcpu)| (*key, *vcpu))
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_leave_in_the_order_in_which_they_came() {
        let mut queue = KeyedQueue::default();
        for (vcpu, key) in [(5, 2), (1, 1), (3, 2), (0, 2)] {
            queue.insert(VcpuId(vcpu), key);
        }
        let order: Vec<_> = std::iter::from_fn(|| queue.pop_first())
            .map(|(_, v)| v.0)
            .collect();
        assert_eq!(order, [1, 5, 3, 0]);
        assert!(queue.is_empty());
    }

    #[test]
    fn the_first_above_a_key_skips_all_of_that_key() {
        let mut queue = KeyedQueue::default();
        for (vcpu, key) in [(0, 1), (1, 2), (2, 2), (3, 4)] {
            queue.insert(VcpuId(vcpu), key);
        }
        assert_eq!(queue.first_above(2), Some((4, VcpuId(3))));
        assert_eq!(queue.first_above(0), Some((1, VcpuId(0))));
        assert_eq!(queue.first_above(4), None);
    }

    #[test]
    fn a_vcpu_is_queued_once_and_can_be_taken_out() {
        let mut queue = KeyedQueue::default();
        queue.insert(VcpuId(1), 5);
        queue.insert(VcpuId(1), 3);
        assert_eq!(queue.len(), 1);
        assert_eq!(queue.first(), Some((3, VcpuId(1))));
        assert!(queue.contains(VcpuId(1)) && !queue.contains(VcpuId(7)));
        assert_eq!(queue.remove(VcpuId(1)), Some(3));
        assert!(!queue.contains(VcpuId(1)));
        assert_eq!(queue.remove(VcpuId(1)), None);
        assert_eq!(queue.remove(VcpuId(99)), None);
    }
}
