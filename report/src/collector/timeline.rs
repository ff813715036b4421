//! Who had which core when, as far back as it may be needed to explain the longest wait.
//!
//! Consecutive stays of one vCPU on a core are kept as one, so that whoever keeps others waiting for
//! long takes little room. The rest is bounded: about [`KEPT`] stays for all cores. If the longest
//! wait so far is about to fall out of it, it is explained at that moment; if a wait is longer than
//! what is kept, its explanation says from when on it holds.

use std::collections::{BTreeMap, VecDeque};

/// Stays kept for all cores together.
const KEPT: usize = 65_536;

/// Stays kept for a core, however many cores there are.
const KEPT_PER_CORE: usize = 256;

/// A vCPU that leaves its core and comes back to it within this time, with nobody in between, is
/// still on the same stay. In nanoseconds.
const SAME_STAY: u64 = 1_000_000;

#[derive(Debug, Clone, Copy)]
struct Stay {
    vcpu: usize,
    /// It held a kernel priority all the time.
    kernel_priority: bool,
    from: u64,
    to: u64,
    /// Time on the core between the two.
    ran: u64,
    turns: u64,
    /// The core was granted to it, and its thread was not there yet: all of the time, and none of its own.
    on_its_way: bool,
}

#[derive(Debug, Default)]
struct CoreLine {
    past: VecDeque<Stay>,
    /// The stay that goes on, and since when it is on the core without a break.
    open: Option<(Stay, u64)>,
    /// Stays that ended before this are no longer known.
    forgotten: u64,
}

/// A wait for a core, with what happened meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wait {
    /// Who waited.
    pub(crate) vcpu: usize,
    /// From when.
    pub(crate) from: u64,
    /// Until when.
    pub(crate) to: u64,
    /// It got its core in the end.
    pub(crate) ended: bool,
    /// The last part of it, from the granting of the core to the entering of it.
    pub(crate) granted_for: u64,
}

/// Who had the cores during a wait.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Meanwhile {
    /// The greatest first.
    pub(crate) occupants: Vec<Occupancy>,
    /// Core time for which a core was granted to somebody whose thread was not there yet: no core that the policy left
    /// idle. Only what lasted a millisecond or more.
    pub(crate) on_the_way: u64,
    /// From when on this is known.
    pub(crate) known_from: u64,
}

/// What one vCPU had of the cores during a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Occupancy {
    pub(crate) vcpu: usize,
    pub(crate) on_core: u64,
    /// The part of it at kernel priority.
    pub(crate) at_kernel_priority: u64,
    /// How often it was given a core, the turn that was under way included.
    pub(crate) turns: u64,
}

/// The stays on all cores and the longest wait so far.
#[derive(Debug)]
pub(crate) struct Timeline {
    cores: Vec<CoreLine>,
    kept: usize,
    worst: Option<Wait>,
    meanwhile: Option<Meanwhile>,
}

impl Stay {
    /// The time on the core between two instants. Within a stay with breaks they are taken as spread
    /// evenly.
    fn within(&self, from: u64, to: u64) -> u64 {
        let length = self.to.saturating_sub(self.from);
        let overlap = self.to.min(to).saturating_sub(self.from.max(from));
        if length == 0 || overlap == length {
            return if length == 0 { 0 } else { self.ran };
        }
        let part = u128::from(self.ran) * u128::from(overlap) / u128::from(length);
        u64::try_from(part).unwrap_or(u64::MAX)
    }
}

impl CoreLine {
    /// The stays that overlap with a wait, the latest first.
    fn during(&self, from: u64, to: u64) -> impl Iterator<Item = Stay> {
        let open = self.open.map(|(stay, since)| Stay {
            to,
            ran: stay.ran + to.saturating_sub(since),
            ..stay
        });
        let past = self.past.iter().rev().copied();
        open.into_iter()
            .chain(past)
            .take_while(move |stay| stay.to > from)
            .filter(move |stay| stay.from < to)
    }
}

impl Timeline {
    pub(crate) fn new(cores: usize) -> Self {
        Self {
            cores: Vec::new(),
            kept: (KEPT / cores.max(1)).max(KEPT_PER_CORE),
            worst: None,
            meanwhile: None,
        }
    }

    /// A vCPU enters a core that it was granted a while ago.
    pub(crate) fn arrive(
        &mut self,
        granted: u64,
        at: u64,
        core: usize,
        vcpu: usize,
        priority: bool,
    ) {
        let way = at.saturating_sub(granted);
        if way >= SAME_STAY {
            self.leave(granted, core);
            let stay = Stay {
                vcpu,
                kernel_priority: false,
                from: granted,
                to: at,
                ran: way,
                turns: 0,
                on_its_way: true,
            };
            self.keep(core, stay);
        }
        self.enter(at, core, vcpu, priority);
    }

    /// A vCPU enters a core.
    pub(crate) fn enter(&mut self, at: u64, core: usize, vcpu: usize, kernel_priority: bool) {
        self.leave(at, core);
        let line = self.line(core);
        let same = line.past.back().is_some_and(|last| {
            last.vcpu == vcpu
                && !last.on_its_way
                && last.kernel_priority == kernel_priority
                && at.saturating_sub(last.to) < SAME_STAY
        });
        let last = if same { line.past.pop_back() } else { None };
        let mut stay = last.unwrap_or(Stay {
            vcpu,
            kernel_priority,
            from: at,
            to: at,
            ran: 0,
            turns: 0,
            on_its_way: false,
        });
        stay.turns += 1;
        line.open = Some((stay, at));
    }

    /// Whoever is on the core leaves it.
    pub(crate) fn leave(&mut self, at: u64, core: usize) {
        let Some(line) = self.cores.get_mut(core) else {
            return;
        };
        let Some((stay, since)) = line.open.take() else {
            return;
        };
        let stay = Stay {
            to: at,
            ran: stay.ran + at.saturating_sub(since),
            ..stay
        };
        self.keep(core, stay);
    }

    fn line(&mut self, core: usize) -> &mut CoreLine {
        if self.cores.len() <= core {
            self.cores.resize_with(core + 1, CoreLine::default);
        }
        &mut self.cores[core]
    }

    fn keep(&mut self, core: usize, stay: Stay) {
        let past = &mut self.line(core).past;
        past.push_back(stay);
        if past.len() > self.kept {
            self.forget_oldest(core);
        }
    }

    /// The vCPU on the core gains or loses a kernel priority.
    pub(crate) fn change(&mut self, at: u64, core: usize, kernel_priority: bool) {
        let open = self.cores.get(core).and_then(|line| line.open);
        if let Some((stay, _)) = open
            && stay.kernel_priority != kernel_priority
        {
            self.enter(at, core, stay.vcpu, kernel_priority);
        }
    }

    fn forget_oldest(&mut self, core: usize) {
        let oldest = self.cores[core].past.front().map_or(0, |stay| stay.to);
        let needed = self.worst.as_ref().is_some_and(|wait| wait.from < oldest);
        if needed && self.meanwhile.is_none() {
            self.explain();
        }
        let line = &mut self.cores[core];
        line.past.pop_front();
        line.forgotten = oldest;
    }

    /// Takes note of a wait if it is the longest so far.
    pub(crate) fn waited(&mut self, wait: Wait) {
        let length = |wait: &Wait| wait.to.saturating_sub(wait.from);
        if self
            .worst
            .as_ref()
            .is_none_or(|worst| length(&wait) > length(worst))
        {
            self.worst = Some(wait);
            self.meanwhile = None;
        }
    }

    /// Forgets the longest wait so far.
    pub(crate) fn reset(&mut self) {
        self.worst = None;
        self.meanwhile = None;
    }

    /// The longest wait and what happened meanwhile.
    pub(crate) fn worst(&mut self) -> Option<(Wait, Meanwhile)> {
        if self.meanwhile.is_none() {
            self.explain();
        }
        self.worst.clone().zip(self.meanwhile.clone())
    }

    fn explain(&mut self) {
        let Some(wait) = &self.worst else { return };
        let mut sums: BTreeMap<usize, Occupancy> = BTreeMap::new();
        let (mut known_from, mut on_the_way) = (wait.from, 0);
        for line in &self.cores {
            known_from = known_from.max(line.forgotten.min(wait.to));
            for stay in line.during(wait.from, wait.to) {
                let on_core = stay.within(wait.from, wait.to);
                if stay.on_its_way {
                    on_the_way += on_core;
                    continue;
                }
                let sum = sums.entry(stay.vcpu).or_default();
                sum.vcpu = stay.vcpu;
                sum.on_core += on_core;
                sum.turns += stay.turns;
                if stay.kernel_priority {
                    sum.at_kernel_priority += on_core;
                }
            }
        }
        let mut occupants: Vec<_> = sums.into_values().filter(|o| o.on_core > 0).collect();
        occupants.sort_by_key(|o| (std::cmp::Reverse(o.on_core), o.vcpu));
        self.meanwhile = Some(Meanwhile {
            occupants,
            on_the_way,
            known_from,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(vcpu: usize, from: u64, to: u64) -> Wait {
        Wait {
            vcpu,
            from,
            to,
            ended: true,
            granted_for: 0,
        }
    }

    #[test]
    fn it_tells_who_had_the_cores_during_the_longest_wait_and_how_much() {
        let mut timeline = Timeline::new(2);
        timeline.enter(0, 0, 1, false);
        timeline.enter(50, 1, 2, false);
        timeline.change(100, 0, true);
        timeline.leave(300, 1);
        timeline.waited(wait(0, 40, 200));
        timeline.waited(wait(0, 40, 140));
        let (worst, meanwhile) = timeline.worst().expect("one waited");
        assert_eq!((worst.from, worst.to), (40, 200));
        let expected = [(1, 160, 100), (2, 150, 0)];
        let found: Vec<_> = meanwhile
            .occupants
            .iter()
            .map(|o| (o.vcpu, o.on_core, o.at_kernel_priority))
            .collect();
        assert_eq!(found, expected);
        assert_eq!(meanwhile.known_from, 40);
    }

    #[test]
    fn a_core_that_was_granted_is_not_idle_though_nobody_is_there_yet() {
        const MS: u64 = 1_000_000;
        let mut timeline = Timeline::new(1);
        timeline.arrive(0, 500, 0, 1, false);
        timeline.leave(2 * MS, 0);
        timeline.arrive(2 * MS, 8 * MS, 0, 1, true);
        timeline.leave(10 * MS, 0);
        timeline.waited(wait(0, 0, 10 * MS));
        let (_, meanwhile) = timeline.worst().expect("one waited");
        assert_eq!(meanwhile.on_the_way, 6 * MS);
        let found = &meanwhile.occupants[0];
        assert_eq!((found.on_core, found.turns), (4 * MS - 500, 2));
        assert_eq!(found.at_kernel_priority, 2 * MS);
    }

    #[test]
    fn many_turns_of_one_vcpu_take_the_room_of_one() {
        let mut timeline = Timeline::new(1);
        for turn in 0..100_000_u64 {
            timeline.enter(turn * 10, 0, 7, false);
            timeline.leave(turn * 10 + 9, 0);
        }
        assert_eq!(timeline.cores[0].past.len(), 1);
        timeline.waited(wait(0, 0, 1_000_000));
        let (_, meanwhile) = timeline.worst().expect("one waited");
        assert_eq!(meanwhile.occupants[0].on_core, 900_000);
        assert_eq!(meanwhile.occupants[0].turns, 100_000);
    }

    #[test]
    fn a_wait_is_explained_before_its_time_is_forgotten() {
        let mut timeline = Timeline::new(1);
        timeline.enter(0, 0, 9, true);
        timeline.leave(1_000, 0);
        timeline.waited(wait(0, 0, 1_000));
        for turn in 0..200_000_u64 {
            let vcpu = usize::try_from(turn % 3).expect("small");
            timeline.enter(1_000 + turn * 10, 0, vcpu, false);
        }
        assert!(timeline.cores[0].past.len() <= KEPT);
        let (_, meanwhile) = timeline.worst().expect("one waited");
        assert_eq!(meanwhile.occupants.len(), 1);
        assert_eq!(meanwhile.occupants[0].at_kernel_priority, 1_000);
        assert_eq!(meanwhile.known_from, 0);
    }

    #[test]
    fn of_a_wait_longer_than_what_is_kept_it_says_from_when_on_it_knows() {
        let mut timeline = Timeline::new(1);
        for turn in 0..200_000_u64 {
            let vcpu = usize::try_from(1 + turn % 3).expect("small");
            timeline.enter(turn * 10, 0, vcpu, false);
        }
        timeline.waited(wait(0, 0, 2_000_000));
        let (_, meanwhile) = timeline.worst().expect("one waited");
        let known = 2_000_000 - meanwhile.known_from;
        assert!(known > 600_000 && known < 700_000, "{known}");
        let sum: u64 = meanwhile.occupants.iter().map(|o| o.on_core).sum();
        assert_eq!(sum, known);
    }
}
