//! Locks and vCPUs of a VM in memory of our own, as the host would lay them out.

use crate::lock::{Kind, Lock, Memory, Node};
use core::sync::atomic::Ordering;

pub(super) struct Own {
    pub(super) locks: Vec<Lock>,
    pub(super) nodes: Vec<Node>,
}

impl Own {
    /// Locks of these kinds, of size 2 each, and so many vCPUs with a core each.
    pub(super) fn new(kinds: &[Kind], vcpus: usize) -> Self {
        let lock = |kind: &Kind| {
            let lock = Lock::default();
            lock.kind.store(*kind as u32, Ordering::Relaxed);
            lock.size.store(2, Ordering::Relaxed);
            lock
        };
        let node = |_| {
            let node = Node::default();
            node.running.store(1, Ordering::Relaxed);
            node
        };
        Self {
            locks: kinds.iter().map(lock).collect(),
            nodes: (0..vcpus).map(node).collect(),
        }
    }

    pub(super) fn memory(&self) -> Memory<'_> {
        Memory {
            locks: &self.locks,
            nodes: &self.nodes,
        }
    }
}
