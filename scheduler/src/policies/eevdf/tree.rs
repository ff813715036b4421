//! Queued vCPUs in order of deadline, searched for the first that is eligible.
//!
//! One treap a core, all in one table with a node per vCPU: a binary tree ordered by (deadline, order
//! of arrival), kept shallow by giving every node a scrambled rank and a parent of higher rank. Every
//! node knows the least virtual time and the shortest slice below it, so the search for the earliest
//! deadline with a virtual time up to a limit goes down one path. All operations take a time that
//! grows with the logarithm of the number queued.

use crate::ids::VcpuId;

/// No node: index 0 of the table, with values that never win.
const NIL: u32 = 0;

#[derive(Clone, Copy, Debug)]
struct Node {
    key: (i64, u64),
    virtual_time: i64,
    slice: i64,
    least_time: i64,
    least_slice: i64,
    rank: u64,
    left: u32,
    right: u32,
}

const NOBODY: Node = Node {
    key: (0, 0),
    virtual_time: i64::MAX,
    slice: i64::MAX,
    least_time: i64::MAX,
    least_slice: i64::MAX,
    rank: 0,
    left: NIL,
    right: NIL,
};

/// The root of one core's tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Root(u32);

/// The trees of all cores.
#[derive(Debug)]
pub(super) struct Forest {
    nodes: Vec<Node>,
    arrivals: u64,
}

/// What the order and the search depend on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keys {
    pub(super) deadline: i64,
    pub(super) virtual_time: i64,
    pub(super) slice: i64,
}

/// Scrambles a number so that ranks look random but repeat from run to run.
const fn scramble(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

fn vcpu_of(node: u32) -> VcpuId {
    VcpuId(node - 1)
}

impl Forest {
    pub(super) fn new() -> Self {
        Self {
            nodes: vec![NOBODY],
            arrivals: 0,
        }
    }

    /// Room for one more vCPU, in order of their numbers.
    pub(super) fn add(&mut self) {
        self.nodes.push(NOBODY);
    }

    fn at(&self, node: u32) -> &Node {
        &self.nodes[node as usize]
    }

    /// Computes what a node knows of those below it.
    fn refresh(&mut self, node: u32) {
        let Node { left, right, .. } = *self.at(node);
        let (left, right) = (*self.at(left), *self.at(right));
        let own = &mut self.nodes[node as usize];
        let below = left.least_time.min(right.least_time);
        own.least_time = own.virtual_time.min(below);
        own.least_slice = own.slice.min(left.least_slice.min(right.least_slice));
    }

    /// Puts a vCPU behind its equals.
    pub(super) fn insert(&mut self, root: Root, vcpu: VcpuId, keys: Keys) -> Root {
        self.arrivals += 1;
        let node = vcpu.0 + 1;
        self.nodes[node as usize] = Node {
            key: (keys.deadline, self.arrivals),
            virtual_time: keys.virtual_time,
            slice: keys.slice,
            rank: scramble(self.arrivals),
            least_time: keys.virtual_time,
            least_slice: keys.slice,
            left: NIL,
            right: NIL,
        };
        Root(self.insert_below(root.0, node))
    }

    fn insert_below(&mut self, at: u32, node: u32) -> u32 {
        if at == NIL {
            return node;
        }
        let (own, new) = (*self.at(at), *self.at(node));
        if new.rank > own.rank {
            let (left, right) = self.split(at, new.key);
            let new = &mut self.nodes[node as usize];
            (new.left, new.right) = (left, right);
            self.refresh(node);
            return node;
        }
        if new.key < own.key {
            self.nodes[at as usize].left = self.insert_below(own.left, node);
        } else {
            self.nodes[at as usize].right = self.insert_below(own.right, node);
        }
        self.refresh(at);
        at
    }

    /// Those before the key and those after it.
    fn split(&mut self, at: u32, key: (i64, u64)) -> (u32, u32) {
        if at == NIL {
            return (NIL, NIL);
        }
        let own = *self.at(at);
        let halves = if own.key < key {
            let (before, after) = self.split(own.right, key);
            self.nodes[at as usize].right = before;
            (at, after)
        } else {
            let (before, after) = self.split(own.left, key);
            self.nodes[at as usize].left = after;
            (before, at)
        };
        self.refresh(at);
        halves
    }

    /// Takes a vCPU out of the tree that it is in.
    pub(super) fn remove(&mut self, root: Root, vcpu: VcpuId) -> Root {
        let node = vcpu.0 + 1;
        let key = self.at(node).key;
        Root(self.remove_below(root.0, node, key))
    }

    fn remove_below(&mut self, at: u32, node: u32, key: (i64, u64)) -> u32 {
        let own = *self.at(at);
        if at == node {
            return self.join(own.left, own.right);
        }
        if at == NIL {
            return NIL;
        }
        if key < own.key {
            self.nodes[at as usize].left = self.remove_below(own.left, node, key);
        } else {
            self.nodes[at as usize].right = self.remove_below(own.right, node, key);
        }
        self.refresh(at);
        at
    }

    /// One tree of two, of which the first comes before the second.
    fn join(&mut self, before: u32, after: u32) -> u32 {
        if before == NIL {
            return after;
        }
        if after == NIL {
            return before;
        }
        let (first, second) = (*self.at(before), *self.at(after));
        if first.rank > second.rank {
            self.nodes[before as usize].right = self.join(first.right, after);
            self.refresh(before);
            before
        } else {
            self.nodes[after as usize].left = self.join(before, second.left);
            self.refresh(after);
            after
        }
    }

    /// The earliest deadline among those whose virtual time is eligible. `eligible` must hold for
    /// every time before one for which it holds.
    pub(super) fn first(&self, root: Root, eligible: impl Fn(i64) -> bool) -> Option<VcpuId> {
        let mut at = root.0;
        while at != NIL {
            let own = self.at(at);
            if own.left != NIL && eligible(self.at(own.left).least_time) {
                at = own.left;
            } else if eligible(own.virtual_time) {
                return Some(vcpu_of(at));
            } else {
                at = own.right;
            }
        }
        None
    }

    /// The shortest slice in the tree.
    pub(super) fn least_slice(&self, root: Root) -> Option<i64> {
        (root.0 != NIL).then(|| self.at(root.0).least_slice)
    }

    /// Everybody in the tree, in order of deadline.
    pub(super) fn members(&self, root: Root) -> Vec<VcpuId> {
        let mut members = Vec::new();
        let mut path = Vec::new();
        let mut at = root.0;
        while at != NIL || !path.is_empty() {
            while at != NIL {
                path.push(at);
                at = self.at(at).left;
            }
            if let Some(node) = path.pop() {
                members.push(vcpu_of(node));
                at = self.at(node).right;
            }
        }
        members
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn depth(forest: &Forest, at: u32) -> usize {
        if at == NIL {
            return 0;
        }
        let own = forest.at(at);
        1 + depth(forest, own.left).max(depth(forest, own.right))
    }

    #[test]
    fn equals_keep_the_order_of_their_arrival() {
        let mut forest = Forest::new();
        let mut root = Root::default();
        for n in 0..100 {
            forest.add();
            let keys = Keys {
                deadline: 7,
                virtual_time: 0,
                slice: 1,
            };
            root = forest.insert(root, VcpuId(n), keys);
        }
        let order: Vec<_> = (0..100).map(VcpuId).collect();
        assert_eq!(forest.members(root), order);
        assert_eq!(forest.first(root, |_| true), Some(VcpuId(0)));
    }

    #[test]
    fn depth_grows_with_the_logarithm_of_the_number() {
        for (number, most) in [(1_000, 30), (16_000, 40)] {
            let mut forest = Forest::new();
            let mut root = Root::default();
            for n in 0..number {
                forest.add();
                // Ascending order: the worst case of a plain tree.
                let keys = Keys {
                    deadline: n.into(),
                    virtual_time: 0,
                    slice: 1,
                };
                root = forest.insert(root, VcpuId(n), keys);
            }
            let depth = depth(&forest, root.0);
            assert!(depth <= most, "{depth} for {number}");
        }
    }

    proptest! {
        #[test]
        fn the_tree_finds_what_a_search_of_all_would_find(
            steps in prop::collection::vec((0..40u32, -50i64..50, -50i64..50, 1i64..9, -60i64..60), 1..300),
        ) {
            let mut forest = Forest::new();
            (0..40).for_each(|_| forest.add());
            let mut root = Root::default();
            let mut model: Vec<(i64, u64, VcpuId, i64, i64)> = Vec::new();
            for (arrival, (n, deadline, virtual_time, slice, limit)) in (0..).zip(steps) {
                let vcpu = VcpuId(n);
                if let Some(place) = model.iter().position(|queued| queued.2 == vcpu) {
                    model.remove(place);
                    root = forest.remove(root, vcpu);
                } else {
                    model.push((deadline, arrival, vcpu, virtual_time, slice));
                    root = forest.insert(root, vcpu, Keys { deadline, virtual_time, slice });
                }
                model.sort_unstable();
                let order: Vec<_> = model.iter().map(|queued| queued.2).collect();
                prop_assert_eq!(forest.members(root), order);
                let first = model.iter().find(|queued| queued.3 <= limit).map(|queued| queued.2);
                prop_assert_eq!(forest.first(root, |time| time <= limit), first);
                let least = model.iter().map(|queued| queued.4).min();
                prop_assert_eq!(forest.least_slice(root), least);
            }
        }
    }
}
