//! A set in which only the least key is ever wanted.
//!
//! Members are small whole numbers: those of vCPUs, or of the vCPUs within a VM. Of several with the same
//! least key any may come first, though in every run the same: where it matters, the order of arrival is
//! part of the key. Every operation takes logarithmic time, a fraction of what it takes in a
//! [`crate::queue::KeyedQueue`], which knows the whole order.
//!
//! Every entry has four below it. That is half as many levels as with two, and what is compared at a
//! level lies side by side.

/// The number of entries right below one.
const WIDTH: usize = 4;

/// Where a member is that is not there.
const NOWHERE: u32 = u32::MAX;

/// The set. A number is in it at most once.
///
/// # Invariants
/// No key is less than that of the entry which it lies below. `places` knows the index of every entry.
#[derive(Debug)]
pub struct KeyedHeap<K> {
    entries: Vec<Entry<K>>,
    /// Index of the entry, by member.
    places: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Entry<K> {
    key: K,
    member: u32,
}

impl<K> Default for KeyedHeap<K> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            places: Vec::new(),
        }
    }
}

impl<K: Ord + Copy> KeyedHeap<K> {
    /// Puts a member in. One that is there already is moved.
    pub fn insert(&mut self, member: u32, key: K) {
        if self.places.len() <= member as usize {
            self.places.resize(member as usize + 1, NOWHERE);
        }
        let entry = Entry { key, member };
        let at = self.places[member as usize];
        if at == NOWHERE {
            self.entries.push(entry);
            self.rise(self.entries.len() - 1, entry);
        } else {
            self.sink(at as usize, entry);
        }
    }

    /// Takes a member out; its key if it was there.
    pub fn remove(&mut self, member: u32) -> Option<K> {
        let place = self.places.get_mut(member as usize)?;
        let at = std::mem::replace(place, NOWHERE) as usize;
        let removed = *self.entries.get(at)?;
        let last = self.entries.pop()?;
        if last.member != member {
            // It may belong above or below.
            self.sink(at, last);
        }
        Some(removed.key)
    }

    /// The first with its key.
    #[must_use]
    pub fn first(&self) -> Option<(K, u32)> {
        self.entries.first().map(|first| (first.key, first.member))
    }

    fn put(&mut self, at: usize, entry: Entry<K>) {
        self.entries[at] = entry;
        self.places[entry.member as usize] = u32::try_from(at).unwrap_or(NOWHERE);
    }

    /// Puts an entry where it belongs, there or above.
    fn rise(&mut self, mut at: usize, entry: Entry<K>) {
        while at > 0 {
            let above = (at - 1) / WIDTH;
            if self.entries[above].key <= entry.key {
                break;
            }
            self.put(at, self.entries[above]);
            at = above;
        }
        self.put(at, entry);
    }

    /// Puts an entry where it belongs, wherever that is from there: all below rise by one, and it rises
    /// from the end of the path. Who is put here mostly belongs near the end.
    fn sink(&mut self, mut at: usize, entry: Entry<K>) {
        loop {
            let from = at * WIDTH + 1;
            let Some(below) = self.entries.get(from..) else {
                break;
            };
            let below = &below[..below.len().min(WIDTH)];
            let mut least = 0;
            for (index, entry) in below.iter().enumerate().skip(1) {
                // Chosen without a branch, which could not be foretold.
                least = if entry.key < below[least].key {
                    index
                } else {
                    least
                };
            }
            let Some(entry) = below.get(least).copied() else {
                break;
            };
            self.put(at, entry);
            at = from + least;
        }
        self.rise(at, entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn they_leave_in_order_of_their_keys() {
        let mut heap = KeyedHeap::default();
        for member in 0..100_u32 {
            // 37 and 101 have no common factor: every key from 0 to 99 once, but for the one of 100.
            heap.insert(member, member * 37 % 101);
        }
        let mut keys = Vec::new();
        while let Some((key, member)) = heap.first() {
            assert_eq!(heap.remove(member), Some(key));
            keys.push(key);
        }
        assert!(keys.is_sorted() && keys.len() == 100, "{keys:?}");
        assert_eq!(heap.remove(0), None);
    }

    proptest! {
        /// Members are put in (again), and taken out (also when they are not there).
        #[test]
        fn the_first_has_the_least_key_that_was_put_in_and_not_taken_out(
            calls in proptest::collection::vec((0..40_u32, proptest::option::of(0..20_u8)), 1..400)
        ) {
            let mut heap = KeyedHeap::default();
            let mut keys = BTreeMap::new();
            for (member, key) in calls {
                match key {
                    Some(key) => {
                        heap.insert(member, key);
                        keys.insert(member, key);
                    }
                    None => prop_assert_eq!(heap.remove(member), keys.remove(&member)),
                }
                let first = heap.first();
                prop_assert_eq!(first.map(|(key, _)| key), keys.values().min().copied());
                prop_assert!(first.is_none_or(|(key, member)| keys[&member] == key));
            }
        }
    }
}
