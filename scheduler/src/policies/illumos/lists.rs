//! Dispatch queues: one list for every priority, for each core and one for all cores together.
//!
//! All lists are linked through one table, a row a vCPU, so that joining, leaving from the middle and
//! finding the best take the same time however many wait.

use crate::ids::VcpuId;

/// Priorities 0 to 60.
const LEVELS: usize = 61;

/// Where a thread joins its list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::policies) enum End {
    Front,
    Back,
}

#[derive(Clone, Copy, Default, Debug)]
struct List {
    first: Option<VcpuId>,
    last: Option<VcpuId>,
    len: u32,
}

#[derive(Clone, Copy, Default, Debug)]
struct Link {
    before: Option<VcpuId>,
    after: Option<VcpuId>,
    /// Queue and priority, if it waits.
    place: Option<(usize, u8)>,
}

/// The queues.
#[derive(Debug)]
pub(super) struct Lists {
    lists: Vec<[List; LEVELS]>,
    /// Bit p is set if list p of the queue is not empty.
    occupied: Vec<u64>,
    links: Vec<Link>,
    waiting: usize,
}

impl Lists {
    pub(super) fn new(queues: usize) -> Self {
        Self {
            lists: vec![[List::default(); LEVELS]; queues],
            occupied: vec![0; queues],
            links: Vec::new(),
            waiting: 0,
        }
    }

    /// Room for one more vCPU.
    pub(super) fn add(&mut self) {
        self.links.push(Link::default());
    }

    /// Puts a vCPU that is on no list on one.
    pub(super) fn push(&mut self, queue: usize, priority: u8, vcpu: VcpuId, end: End) {
        let list = &mut self.lists[queue][usize::from(priority)];
        let (before, after) = match end {
            End::Front => (None, list.first),
            End::Back => (list.last, None),
        };
        self.links[vcpu.index()] = Link {
            before,
            after,
            place: Some((queue, priority)),
        };
        match after {
            Some(next) => self.links[next.index()].before = Some(vcpu),
            None => list.last = Some(vcpu),
        }
        match before {
            Some(previous) => self.links[previous.index()].after = Some(vcpu),
            None => list.first = Some(vcpu),
        }
        list.len += 1;
        self.occupied[queue] |= 1 << priority;
        self.waiting += 1;
    }

    /// Takes a vCPU off its list; whether it was on one.
    pub(super) fn remove(&mut self, vcpu: VcpuId) -> bool {
        let link = std::mem::take(&mut self.links[vcpu.index()]);
        let Some((queue, priority)) = link.place else {
            return false;
        };
        let list = &mut self.lists[queue][usize::from(priority)];
        match link.after {
            Some(next) => self.links[next.index()].before = link.before,
            None => list.last = link.before,
        }
        match link.before {
            Some(previous) => self.links[previous.index()].after = link.after,
            None => list.first = link.after,
        }
        list.len -= 1;
        if list.len == 0 {
            self.occupied[queue] &= !(1 << priority);
        }
        self.waiting -= 1;
        true
    }

    /// The best priority that waits in the queue.
    pub(super) fn best(&self, queue: usize) -> Option<u8> {
        let highest = self.occupied[queue].checked_ilog2()?;
        u8::try_from(highest).ok()
    }

    /// Those on a list, in order.
    pub(super) fn on(&self, queue: usize, priority: u8) -> impl Iterator<Item = VcpuId> {
        let first = self.lists[queue][usize::from(priority)].first;
        std::iter::successors(first, |vcpu| self.links[vcpu.index()].after)
    }

    pub(super) fn len(&self, queue: usize, priority: u8) -> i64 {
        i64::from(self.lists[queue][usize::from(priority)].len)
    }

    /// How many wait in all queues.
    pub(super) const fn waiting(&self) -> usize {
        self.waiting
    }

    /// Queue and priority of a vCPU that waits.
    pub(super) fn place(&self, vcpu: VcpuId) -> Option<(usize, u8)> {
        self.links[vcpu.index()].place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_priority_first_and_in_the_order_asked_for() {
        let mut lists = Lists::new(2);
        (0..6).for_each(|_| lists.add());
        let joins = [
            (0, 5, End::Back),
            (1, 5, End::Back),
            (2, 5, End::Front),
            (3, 60, End::Back),
            (4, 5, End::Back),
        ];
        for (vcpu, priority, end) in joins {
            lists.push(1, priority, VcpuId(vcpu), end);
        }
        assert_eq!((lists.best(0), lists.best(1)), (None, Some(60)));
        assert!(lists.remove(VcpuId(3)));
        assert!(!lists.remove(VcpuId(3)));
        assert_eq!(lists.best(1), Some(5));
        assert!(lists.remove(VcpuId(0)));
        let order: Vec<_> = lists.on(1, 5).map(|vcpu| vcpu.0).collect();
        assert_eq!((order, lists.len(1, 5)), (vec![2, 1, 4], 3));
        for vcpu in [4, 2, 1] {
            assert_eq!(lists.place(VcpuId(vcpu)), Some((1, 5)));
            assert!(lists.remove(VcpuId(vcpu)));
        }
        assert_eq!((lists.best(1), lists.waiting()), (None, 0));
    }
}
