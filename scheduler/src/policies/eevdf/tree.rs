//! Queued vCPUs in order of deadline, searched for the first that is eligible.
//!
//! One treap a core, all in one table with a node per vCPU: a binary tree ordered by (deadline, order
//! of arrival), kept shallow by giving every node a scrambled rank and a parent of higher rank. Every
//! node knows the least virtual time and the shortest slice below it, so the search for the earliest
//! deadline with a virtual time up to a limit goes down one path. All operations take a time that
//! grows with the logarithm of the number queued.
//!
//! A node fills a cache line, and knows its parent: to take it out needs no search from the root, and
//! the way up from there ends at the first node that does not owe what it knows to the one taken out.

use crate::ids::VcpuId;

/// No node: index 0 of the table, with values that never win. Its parent means nothing.
const NIL: u32 = 0;

/// The child that holds the nodes before its parent, and the one that holds those after it.
const BEFORE: usize = 0;
const AFTER: usize = 1;

/// The least of virtual times, and the least of slices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Least {
    virtual_time: i64,
    slice: i64,
}

impl Least {
    fn and(self, other: Self) -> Self {
        Self {
            virtual_time: self.virtual_time.min(other.virtual_time),
            slice: self.slice.min(other.slice),
        }
    }
}

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Node {
    key: (i64, u64),
    own: Least,
    /// Of it and all below it.
    least: Least,
    rank: u32,
    parent: u32,
    children: [u32; 2],
}

const NONE: Least = Least {
    virtual_time: i64::MAX,
    slice: i64::MAX,
};

const NOBODY: Node = Node {
    key: (0, 0),
    own: NONE,
    least: NONE,
    rank: 0,
    parent: NIL,
    children: [NIL; 2],
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
const fn scramble(n: u64) -> u32 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let [.., a, b, c, d] = (n ^ (n >> 31)).to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
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

    fn at_mut(&mut self, node: u32) -> &mut Node {
        &mut self.nodes[node as usize]
    }

    fn adopt(&mut self, parent: u32, side: usize, child: u32) {
        self.at_mut(parent).children[side] = child;
        self.at_mut(child).parent = parent;
    }

    /// Computes what a node knows of those below it; whether that is news.
    fn refresh(&mut self, node: u32) -> bool {
        let own = self.at(node);
        let [before, after] = own.children.map(|child| self.at(child).least);
        let least = own.own.and(before).and(after);
        std::mem::replace(&mut self.at_mut(node).least, least) != least
    }

    /// Puts a vCPU behind its equals.
    pub(super) fn insert(&mut self, root: Root, vcpu: VcpuId, keys: Keys) -> Root {
        self.arrivals += 1;
        let own = Least {
            virtual_time: keys.virtual_time,
            slice: keys.slice,
        };
        let (key, rank) = ((keys.deadline, self.arrivals), scramble(self.arrivals));
        let (mut parent, mut side, mut at) = (NIL, BEFORE, root.0);
        while at != NIL && self.at(at).rank >= rank {
            let above = self.at_mut(at);
            above.least = above.least.and(own);
            side = usize::from(above.key < key);
            (parent, at) = (at, above.children[side]);
        }
        let (before, after) = self.split(at, key);
        let node = vcpu.0 + 1;
        *self.at_mut(node) = Node {
            key,
            own,
            least: own,
            rank,
            ..NOBODY
        };
        self.adopt(node, BEFORE, before);
        self.adopt(node, AFTER, after);
        self.refresh(node);
        if parent == NIL {
            return Root(node);
        }
        self.adopt(parent, side, node);
        root
    }

    /// Those before the key and those after it.
    fn split(&mut self, at: u32, key: (i64, u64)) -> (u32, u32) {
        if at == NIL {
            return (NIL, NIL);
        }
        let Node {
            key: own, children, ..
        } = *self.at(at);
        let halves = if own < key {
            let (before, after) = self.split(children[AFTER], key);
            self.adopt(at, AFTER, before);
            (at, after)
        } else {
            let (before, after) = self.split(children[BEFORE], key);
            self.adopt(at, BEFORE, after);
            (before, at)
        };
        self.refresh(at);
        halves
    }

    /// Takes a vCPU out of the tree that it is in.
    pub(super) fn remove(&mut self, root: Root, vcpu: VcpuId) -> Root {
        let node = vcpu.0 + 1;
        let Node {
            parent, children, ..
        } = *self.at(node);
        let joined = self.join(children[BEFORE], children[AFTER]);
        if parent == NIL {
            self.at_mut(joined).parent = NIL;
            return Root(joined);
        }
        let side = usize::from(self.at(parent).children[AFTER] == node);
        self.adopt(parent, side, joined);
        let mut at = parent;
        while at != NIL && self.refresh(at) {
            at = self.at(at).parent;
        }
        root
    }

    /// One tree of two, of which the first comes before the second.
    fn join(&mut self, before: u32, after: u32) -> u32 {
        if before == NIL {
            return after;
        }
        if after == NIL {
            return before;
        }
        let (first, second) = (self.at(before), self.at(after));
        if first.rank > second.rank {
            let joined = self.join(first.children[AFTER], after);
            self.adopt(before, AFTER, joined);
            self.refresh(before);
            before
        } else {
            let joined = self.join(before, second.children[BEFORE]);
            self.adopt(after, BEFORE, joined);
            self.refresh(after);
            after
        }
    }

    /// The earliest deadline among those whose virtual time is eligible. `eligible` must hold for
    /// every time before one for which it holds.
    pub(super) fn first(&self, root: Root, eligible: impl Fn(i64) -> bool) -> Option<VcpuId> {
        let mut at = root.0;
        while at != NIL {
            let Node { own, children, .. } = self.at(at);
            let before = children[BEFORE];
            if before != NIL && eligible(self.at(before).least.virtual_time) {
                at = before;
            } else if eligible(own.virtual_time) {
                return Some(vcpu_of(at));
            } else {
                at = children[AFTER];
            }
        }
        None
    }

    /// The shortest slice in the tree.
    pub(super) fn least_slice(&self, root: Root) -> Option<i64> {
        (root.0 != NIL).then(|| self.at(root.0).least.slice)
    }

    /// Everybody in the tree, in order of deadline.
    pub(super) fn members(&self, root: Root) -> Vec<VcpuId> {
        let mut members = Vec::new();
        let mut path = Vec::new();
        let mut at = root.0;
        while at != NIL || !path.is_empty() {
            while at != NIL {
                path.push(at);
                at = self.at(at).children[BEFORE];
            }
            if let Some(node) = path.pop() {
                members.push(vcpu_of(node));
                at = self.at(node).children[AFTER];
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
        let [before, after] = own.children.map(|child| depth(forest, child));
        1 + before.max(after)
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
