//! Interrupts on their way to a vCPU: a set of vectors that any thread adds to and one empties.

use std::sync::atomic::{AtomicU64, Ordering};

/// Vectors that were raised and not yet picked up. One that is raised twice in between comes once, as
/// in a local APIC's request register.
#[derive(Debug, Default)]
pub struct VectorSet {
    words: [AtomicU64; 4],
}

impl VectorSet {
    /// Adds a vector.
    pub fn insert(&self, vector: u8) {
        let (word, bit) = (usize::from(vector / 64), vector % 64);
        self.words[word].fetch_or(1 << bit, Ordering::AcqRel);
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words
            .iter()
            .all(|word| word.load(Ordering::Acquire) == 0)
    }

    /// Empties the set, and gives what was in it from the highest vector (the most urgent) down.
    pub fn take(&self, mut each: impl FnMut(u8)) {
        for index in (0..4_u8).rev() {
            let mut bits = self.words[usize::from(index)].swap(0, Ordering::AcqRel);
            while bits != 0 {
                let bit = bits.ilog2();
                bits &= !(1 << bit);
                each(index * 64 + u8::try_from(bit).unwrap_or(0));
            }
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn every_vector_comes_out_once_the_highest_first() {
        let set = VectorSet::default();
        assert!(set.is_empty());
        for vector in [0x41, 255, 32, 0x41, 64] {
            set.insert(vector);
        }
        assert!(!set.is_empty());
        let mut taken = Vec::new();
        set.take(|vector| taken.push(vector));
        assert_eq!(taken, [255, 0x41, 64, 32]);
        assert!(set.is_empty());
    }
}
