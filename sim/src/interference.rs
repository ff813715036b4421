//! Interference of the host: what takes a core away for a while.
//!
//! Every entry of [`CostModel::interference`](crate::cost::CostModel::interference) is a Poisson process of its own
//! on every core. While a core is taken nothing on it goes on: guest code, an entry, an exit, the hypervisor's work, a
//! grant, and the timer thread where it has no other core. Other cores go on, and that is what matters: they may
//! spin for a lock whose holder stands still. Of a core taken anew while it is taken already the lengths add up.
//!
//! It is told as the KVM driver tells it: before the vCPU may lose its core, before marks, and every 100 ms of those
//! that stay.

use crate::cost::Theft;
use crate::machine::Machine;
use crate::queue::Slot;
use stealtime_guest::rng::Rng;
use stealtime_scheduler::ids::{CoreId, VcpuId};
use stealtime_scheduler::input::Input;
use stealtime_scheduler::time::Nanos;

/// The first of the seed's streams for thefts: beyond those of vCPUs, and before that of late timers.
const STREAMS: u64 = 1 << 48;

/// How often it is told of vCPUs that do not leave their cores, as by the KVM driver.
const TELL: Nanos = Nanos::from_millis(100);

/// One entry of the cost model on one core.
#[derive(Debug)]
struct Source {
    theft: Theft,
    chance: Rng,
    next: Nanos,
}

impl Source {
    fn new(theft: Theft, chance: Rng) -> Self {
        let mut source = Self {
            theft,
            chance,
            next: Nanos::ZERO,
        };
        source.plan(Nanos::ZERO);
        source
    }

    fn plan(&mut self, now: Nanos) {
        let wait = self.chance.exponential(self.theft.every.get()).max(1);
        self.next = now + Nanos(wait);
    }

    /// The length of the theft that begins now.
    fn begins(&mut self, now: Nanos) -> Nanos {
        let (low, high) = self.theft.range();
        let length = self.chance.between(low.get(), high.get());
        self.plan(now);
        Nanos(length)
    }
}

/// A core.
#[derive(Debug)]
struct Core {
    sources: Vec<Source>,
    /// The core is taken until then.
    taken_until: Nanos,
    /// How much the host tells of what began since the core was last free, the last of it at the end.
    told: Nanos,
}

impl Core {
    fn next(&self) -> Option<Nanos> {
        self.sources.iter().map(|source| source.next).min()
    }
}

/// How much longer than before a core is taken.
#[derive(Clone, Copy, Default, Debug)]
struct Taken {
    length: Nanos,
    /// What of it the host tells of.
    told: Nanos,
    /// When this happens next.
    next: Option<Nanos>,
}

/// All cores.
#[derive(Debug)]
pub(crate) struct Interference {
    cores: Vec<Core>,
    /// What the dispatcher was told since the measurement began.
    pub(crate) told: Nanos,
}

impl Interference {
    /// Of so many cores. Every entry has a stream of its own on every core, so one more at the end of the list changes
    /// no other.
    pub(crate) fn new(thefts: &[Theft], cores: usize, seed: u64) -> Self {
        let core = |core: u64| Core {
            sources: (0..)
                .zip(thefts)
                .map(|(entry, theft)| {
                    let stream = STREAMS + (core << 16) + entry;
                    Source::new(*theft, Rng::new(seed, stream))
                })
                .collect(),
            taken_until: Nanos::ZERO,
            told: Nanos::ZERO,
        };
        Self {
            cores: (0..).map(core).take(cores).collect(),
            told: Nanos::ZERO,
        }
    }

    /// For how long the core is taken still.
    pub(crate) fn left(&self, core: CoreId, now: Nanos) -> Nanos {
        self.cores[core.index()].taken_until.since(now)
    }

    /// What of that the host tells of.
    pub(crate) fn left_and_told(&self, core: CoreId, now: Nanos) -> Nanos {
        self.left(core, now).min(self.cores[core.index()].told)
    }

    /// The core, which somebody has or not, is taken from now on by all sources whose time has come. Of what the host
    /// does not tell of most is done for the sake of who runs, and nothing of it comes to a core that idles.
    fn take(&mut self, core: CoreId, busy: bool, now: Nanos) -> Taken {
        let core = &mut self.cores[core.index()];
        if core.taken_until <= now {
            core.told = Nanos::ZERO;
        }
        let mut taken = Taken::default();
        for source in core.sources.iter_mut().filter(|source| source.next <= now) {
            let length = source.begins(now);
            if source.theft.told {
                taken.told += length;
            }
            if source.theft.told || busy {
                taken.length += length;
            }
        }
        core.told += taken.told;
        core.taken_until = core.taken_until.max(now) + taken.length;
        taken.next = core.next();
        taken
    }
}

impl Machine<'_> {
    /// Nothing is taken before the run begins.
    pub(crate) fn expect_thefts(&mut self) {
        for (core, entry) in (0..).map(CoreId).zip(&self.interference.cores) {
            if let Some(next) = entry.next() {
                self.queue.set(Slot::Theft(core), next);
            }
        }
        if !self.costs.interference.is_empty() {
            self.queue.set(Slot::TellThefts, TELL);
        }
    }

    /// It is time to tell of those that stay on their cores.
    pub(crate) fn tell_thefts_due(&mut self) {
        self.tell_all_thefts();
        self.queue.set(Slot::TellThefts, self.now + TELL);
    }

    /// The host takes the core. Whoever is on it goes on later; who is granted it meanwhile waits as well
    /// ([`Machine::granted`]).
    pub(crate) fn theft(&mut self, core: CoreId) {
        let now = self.now;
        let on_it = self.dispatcher.on_core(core);
        let Taken { length, told, next } = self.interference.take(core, on_it.is_some(), now);
        if let Some(next) = next {
            self.queue.set(Slot::Theft(core), next);
        }
        let Some(vcpu) = on_it else {
            return;
        };
        let entry = self.vcpu(vcpu);
        entry.held_up(now, length);
        entry.stolen += told;
        self.queue.delay(Slot::Step(vcpu), length);
        let signal = Slot::Signal(vcpu);
        let back = now + self.interference.left(core, now);
        if self.queue.due(signal).is_some_and(|due| due < back) {
            self.queue.set(signal, back);
        }
    }

    /// Tells of what was taken from the vCPU up to now and has not been told.
    pub(crate) fn tell_thefts(&mut self, vcpu: VcpuId) {
        let now = self.now;
        let entry = self.vcpu(vcpu);
        let (Some(core), stolen) = (entry.core, entry.stolen) else {
            return;
        };
        let delay = stolen.since(self.interference.left_and_told(core, now));
        if delay > Nanos::ZERO {
            self.vcpu(vcpu).stolen -= delay;
            self.interference.told += delay;
            self.tell(Input::HostDelay { vcpu, delay }, None);
        }
    }

    /// The same of all. Before a mark, so that none of it is booked on the wrong side.
    pub(crate) fn tell_all_thefts(&mut self) {
        for index in 0..self.vcpus.len() {
            self.tell_thefts(self.vcpus[index].id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const CORES: [CoreId; 2] = [CoreId(0), CoreId(1)];
    const SHORT: Theft = Theft {
        length: Nanos(90_000),
        every: Nanos(2_000_000),
        told: true,
    };
    const LONG: Theft = Theft {
        length: Nanos(3_000_000),
        every: Nanos(70_000_000),
        told: true,
    };

    #[test]
    fn what_the_host_does_not_tell_of_is_taken_all_the_same() {
        let untold = Theft {
            told: false,
            ..LONG
        };
        let begin = Nanos::from_secs(60);
        for (theft, told) in [(LONG, true), (untold, false)] {
            let mut interference = Interference::new(&[theft], 1, 1);
            let taken = interference.take(CORES[0], true, begin);
            assert!(taken.length > Nanos::ZERO);
            let expected = if told { taken.length } else { Nanos::ZERO };
            assert_eq!(taken.told, expected);
            assert_eq!(interference.left(CORES[0], begin), taken.length);
            assert_eq!(interference.left_and_told(CORES[0], begin), expected);
            // On a core that idles it is only what another thread takes.
            let mut idle = Interference::new(&[theft], 1, 1);
            assert_eq!(idle.take(CORES[0], false, begin).length, expected);
        }
    }

    #[test]
    fn where_one_that_is_told_and_one_that_is_not_overlap_each_counts_for_its_length() {
        let untold = Theft {
            told: false,
            ..LONG
        };
        let (begin, later) = (Nanos::from_secs(60), Nanos::from_secs(60) + Nanos(500_000));
        for first in [0, 1] {
            let mut both = Interference::new(&[LONG, untold], 1, 1);
            let mut length = |entry: usize, now| {
                both.cores[0].sources[entry].next = now;
                both.cores[0].sources[1 - entry].next = Nanos::from_secs(99);
                both.take(CORES[0], true, now)
            };
            let (one, other) = (length(first, begin), length(1 - first, later));
            let told = one.told + other.told;
            assert!(told > Nanos::ZERO && told < one.length + other.length);
            assert_eq!(both.left_and_told(CORES[0], later), told);
            let over = begin + one.length + other.length;
            assert_eq!(both.left_and_told(CORES[0], over - Nanos(7)), Nanos(7));
            assert_eq!(both.left_and_told(CORES[0], over), Nanos::ZERO);
            // The next one begins anew.
            both.cores[0].sources[1].next = over;
            both.cores[0].sources[0].next = Nanos::from_secs(99);
            both.take(CORES[0], true, over);
            assert_eq!(both.left_and_told(CORES[0], over), Nanos::ZERO);
        }
    }

    /// When thefts on a core begin within ten seconds, and how long they are.
    fn thefts(all: &[Theft], core: CoreId, seed: u64) -> Vec<(Nanos, Nanos)> {
        let mut interference = Interference::new(all, 2, seed);
        let mut found = Vec::new();
        let mut next = interference.cores[core.index()].next();
        while let Some(now) = next.filter(|now| *now < Nanos::from_secs(10)) {
            let taken = interference.take(core, true, now);
            found.push((now, taken.length));
            next = taken.next;
        }
        found
    }

    #[test]
    fn nothing_is_taken_without_entries() {
        assert_eq!(thefts(&[], CORES[0], 1), []);
    }

    #[test]
    fn seed_and_core_say_when_and_one_more_entry_changes_no_other() {
        let once = thefts(&[SHORT], CORES[0], 1);
        assert_eq!(once, thefts(&[SHORT], CORES[0], 1));
        assert_ne!(once, thefts(&[SHORT], CORES[1], 1));
        assert_ne!(once, thefts(&[SHORT], CORES[0], 2));
        let both = thefts(&[SHORT, LONG], CORES[0], 1);
        assert!(both.len() > once.len());
        assert!(once.iter().all(|theft| both.contains(theft)));
    }

    /// The first of an entry on a core: how long after the one before, and for how long.
    fn first(all: &[Theft], core: CoreId, entry: usize, seed: u64) -> Vec<(Nanos, Nanos)> {
        let mut interference = Interference::new(all, 2, seed);
        let source = &mut interference.cores[core.index()].sources[entry];
        let mut now = Nanos::ZERO;
        let mut one = |_| {
            let begins = source.next;
            let wait = begins.since(std::mem::replace(&mut now, begins));
            (wait, source.begins(begins))
        };
        (0..300).map(&mut one).collect()
    }

    #[test]
    fn kinds_are_independent_of_each_other_on_every_core() {
        for seed in 0..8 {
            // What comes of an entry is its own, however often the other comes.
            let once = first(&[SHORT, LONG], CORES[0], 1, seed);
            let rare = Theft {
                every: Nanos::from_secs(9),
                ..SHORT
            };
            assert_eq!(once, first(&[rare, LONG], CORES[0], 1, seed));
            // Of entries that are alike none gives what another gives sooner or later.
            let alike = [SHORT; 5];
            let mut seen = HashSet::new();
            for core in CORES {
                for entry in 0..alike.len() {
                    let found = first(&alike, core, entry, seed);
                    let new = found.iter().filter(|theft| seen.insert(**theft));
                    assert_eq!(new.count(), 300, "seed {seed}, {core:?}, entry {entry}");
                }
            }
        }
    }

    #[test]
    fn they_come_as_often_and_take_as_long_as_said() {
        let found = thefts(&[SHORT], CORES[0], 3);
        let count = found.len() as f64;
        // 5000 expected, with a standard deviation of 71.
        assert!((count - 5_000.0).abs() < 300.0, "{count}");
        let (low, high) = SHORT.range();
        assert!(
            found
                .iter()
                .all(|(_, length)| (low..=high).contains(length))
        );
        let total: Nanos = found.iter().map(|(_, length)| *length).sum();
        let mean = total.get() as f64 / count;
        // The standard error of so many is 250 ns.
        assert!((mean - 90_000.0).abs() < 1_000.0, "{mean}");
    }

    #[test]
    fn lengths_add_up_where_one_theft_falls_into_another() {
        let mut interference = Interference::new(&[LONG], 1, 1);
        let first = interference.take(CORES[0], true, Nanos::from_secs(60));
        assert!(first.length >= Nanos(2_000_000) && first.next.is_some());
        // It is due again long before, as far as the source is concerned.
        let later = Nanos::from_secs(60) + Nanos(1_000);
        interference.cores[0].sources[0].next = later;
        let second = interference.take(CORES[0], true, later);
        let left = interference.left(CORES[0], later);
        assert_eq!(left + Nanos(1_000), first.length + second.length);
        assert_eq!(
            interference.left(CORES[0], Nanos::from_secs(61)),
            Nanos::ZERO
        );
    }
}
