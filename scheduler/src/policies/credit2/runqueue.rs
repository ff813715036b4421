//! A run queue of credit2: its cores, its members, its load.

use crate::ids::{CoreId, VcpuId};
use crate::queue::KeyedQueue;
use crate::time::Nanos;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// One core's worth of load: 18 bits of fraction.
pub(super) const ONE: i64 = 1 << 18;

/// Window of the running average: about 1.07 s.
const WINDOW: i64 = 1 << 30;

#[derive(Debug)]
pub(super) struct RunQueue {
    pub(super) cores: Vec<CoreId>,
    /// Waiting units, the one with the most credit first.
    pub(super) queue: KeyedQueue<Reverse<i64>>,
    /// All units assigned here, asleep ones too.
    pub(super) members: Vec<VcpuId>,
    /// Running average of the number of runnable units, in units of [`ONE`].
    pub(super) load: i64,
    weights: BTreeMap<i64, u32>,
    active: i64,
    updated: Nanos,
}

impl RunQueue {
    pub(super) fn new(cores: Vec<CoreId>) -> Self {
        Self {
            cores,
            queue: KeyedQueue::default(),
            members: Vec::new(),
            load: 0,
            weights: BTreeMap::new(),
            active: 0,
            updated: Nanos::ZERO,
        }
    }

    pub(super) fn join(&mut self, vcpu: VcpuId, weight: i64) {
        self.members.push(vcpu);
        *self.weights.entry(weight).or_default() += 1;
    }

    pub(super) fn leave(&mut self, vcpu: VcpuId, weight: i64) {
        self.members.retain(|member| *member != vcpu);
        if let Some(count) = self.weights.get_mut(&weight) {
            *count -= 1;
            if *count == 0 {
                self.weights.remove(&weight);
            }
        }
    }

    /// The largest weight of its members.
    pub(super) fn heaviest(&self) -> i64 {
        self.weights
            .last_key_value()
            .map_or(1, |(weight, _)| *weight)
    }

    /// Members per core, in thousandths, for the first assignment.
    pub(super) fn fill(&self) -> usize {
        self.members.len() * 1_000 / self.cores.len().max(1)
    }

    /// So many more units (or fewer) are runnable from now on; brings the average up to date.
    ///
    /// load += δ · (runnable · ONE − load) / window, where δ is the time passed, at most a window. Time
    /// for which rounding leaves nothing is kept for the next call.
    pub(super) fn runnable(&mut self, now: Nanos, change: i64) {
        let passed = i64::try_from(now.since(self.updated).0).unwrap_or(WINDOW);
        let gap = self.active * ONE - self.load;
        let step = passed.min(WINDOW) * gap / WINDOW;
        self.load += step;
        self.updated = if gap == 0 || passed >= WINDOW {
            now
        } else {
            self.updated + Nanos((step * WINDOW / gap).unsigned_abs())
        };
        self.active += change;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_average_moves_however_often_it_is_brought_up_to_date() {
        let mut often = RunQueue::new(vec![CoreId(0)]);
        often.runnable(Nanos::ZERO, 1);
        for micros in 1..=500_000 {
            often.runnable(Nanos::from_micros(micros), 0);
        }
        let mut once = RunQueue::new(vec![CoreId(0)]);
        once.runnable(Nanos::ZERO, 1);
        once.runnable(Nanos::from_micros(500_000), 0);
        // In steps it approaches exponentially: 1 − e^(−0.466) = 0.372 of a core; at once, 0.466.
        assert!(
            (often.load as f64 / ONE as f64 - 0.372).abs() < 0.02,
            "{}",
            often.load
        );
        assert!(
            (once.load as f64 / ONE as f64 - 0.466).abs() < 0.01,
            "{}",
            once.load
        );
    }
}
