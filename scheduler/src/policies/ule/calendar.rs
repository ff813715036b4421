//! The calendar queue: 64 lists, where a worse priority means a later day.
//!
//! Two indices go round: `insert`, from which days are counted, and `remove`, from which the first list that
//! is not empty is served.
//!
//! 1. A thread of priority p goes to list ⌊64 · (p − first) / B⌋ days after `insert`; should that be
//!    `remove` while the two differ, to the day before it: as late as can be.
//! 2. A preempted thread goes to the head of `remove`.
//! 3. With each statistics tick, if both indices are equal, `insert` goes on by one; if list `remove` is
//!    empty, `remove` follows.
//! 4. A removal that empties list `remove` while the indices differ moves `remove` on by one.
//!
//! So `insert` is never more than a day ahead, and everybody's day comes.
//!
//! Source: FreeBSD `sched_ule.c`.

use crate::ids::VcpuId;
use crate::policies::freebsd::bands::Band;
use crate::policies::freebsd::runq::{LISTS, RunQueue};

/// The calendar of a core.
#[derive(Debug, Default)]
pub(super) struct Calendar {
    queue: RunQueue,
    insert: u8,
    remove: u8,
}

/// How many days after today a priority of the batch band comes.
pub(super) fn offset(batch: Band, priority: u8) -> u8 {
    let size = u16::from(batch.last - batch.first) + 1;
    let days = u16::from(LISTS) * u16::from(priority.saturating_sub(batch.first)) / size;
    u8::try_from(days).unwrap_or(LISTS - 1)
}

impl Calendar {
    /// Queues a thread on its day.
    pub(super) fn add(&mut self, vcpu: VcpuId, batch: Band, priority: u8) {
        let mut list = (offset(batch, priority) + self.insert) % LISTS;
        if self.insert != self.remove && list == self.remove {
            list = (list + LISTS - 1) % LISTS;
        }
        self.queue.push_back(vcpu, list);
    }

    /// Queues a preempted thread first of all.
    pub(super) fn add_first(&mut self, vcpu: VcpuId) {
        self.queue.push_front(vcpu, self.remove);
    }

    /// A statistics tick.
    pub(super) const fn tick(&mut self) {
        if self.insert == self.remove {
            self.insert = (self.insert + 1) % LISTS;
            if self.queue.vacant(self.remove) {
                self.remove = self.insert;
            }
        }
    }

    /// Who is next.
    pub(super) fn first(&self) -> Option<VcpuId> {
        self.queue.first_from(self.remove)
    }

    /// Whom another core may take: the second, for the first will be served here soon; else the first.
    pub(super) fn second(&self) -> Option<VcpuId> {
        self.queue.from(self.remove).nth(1).or_else(|| self.first())
    }

    /// Takes a thread out; whether it was queued.
    pub(super) fn take(&mut self, vcpu: VcpuId) -> bool {
        let Some(list) = self.queue.remove(vcpu) else {
            return false;
        };
        if self.insert != self.remove && list == self.remove && self.queue.vacant(list) {
            self.remove = (self.remove + 1) % LISTS;
        }
        true
    }

    pub(super) const fn len(&self) -> usize {
        self.queue.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BATCH: Band = Band {
        first: 152,
        last: 223,
    };
    const HOG: VcpuId = VcpuId(0);

    #[test]
    fn a_worse_priority_comes_later() {
        let days = [152, 172, 187, 203, 223].map(|priority| offset(BATCH, priority));
        assert_eq!(days, [0, 17, 31, 45, 63]);
    }

    #[test]
    fn while_the_indices_differ_nobody_is_put_on_the_day_that_is_served() {
        let mut calendar = Calendar::default();
        calendar.add(VcpuId(9), BATCH, 152);
        calendar.tick();
        assert_eq!((calendar.insert, calendar.remove), (1, 0));
        // 63 days after 1 would be the list that is served: it goes to the day before.
        calendar.add(HOG, BATCH, 223);
        assert_eq!(calendar.queue.list(HOG), Some(63));
        calendar.add_first(VcpuId(1));
        assert_eq!(calendar.first(), Some(VcpuId(1)));
        assert_eq!(calendar.second(), Some(VcpuId(9)));
    }

    #[test]
    fn with_a_nice_20_hog_behind_ever_new_better_ones_its_day_comes_within_64_advances() {
        let mut calendar = Calendar::default();
        calendar.add(HOG, BATCH, 223);
        for (fresh, advance) in (1..).zip(0..=64) {
            calendar.add(VcpuId(fresh), BATCH, 172);
            calendar.tick();
            let first = calendar.first().expect("somebody waits");
            if first == HOG {
                assert!(advance > 40, "before its day: {advance}");
                return;
            }
            // A list is served in one tick at best.
            while calendar.queue.list(calendar.first().expect("waits")) == Some(calendar.remove) {
                let served = calendar.first().expect("waits");
                if served == HOG {
                    return;
                }
                calendar.take(served);
            }
        }
        panic!("the hog never came first");
    }
}
