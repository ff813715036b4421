//! What time costs: usage of projects, values and priorities of their threads.
//!
//! For each project with `shares` s in a zone with `ext` shares, where `zint` is the sum of shares of
//! the zone's active projects and `pset` the sum of shares of the active zones:
//!
//! * each second: `usage = floor(usage * 96 / 128) + ticks`, and the normalised usage
//!   `shu = usage * (pset * zint / (s * ext))^2`, truncated after each of the two factors;
//! * a thread's value `f` grows by `shu * runnable * ticks` when it is priced, and decays each second
//!   by `D / 128`, D by nice value;
//! * its priority is 1 if `g = max(f, 59)` is the greatest value seen, `59 - floor(g * 58 / maxf)` below
//!   that. So as long as nobody has paid for a tick, `maxf` being 59, everybody has 1.
//!
//! The square makes time proportional to shares: equal values mean equal `(c/s)^2`.
//!
//! Sums saturate at 64 bits, where the original would wrap.

use super::Variant;

/// Denominator of every decay.
const DECAY_BASE: u64 = 128;
/// Decay of a project's usage in a second.
const USAGE_DECAY: u64 = 96;
/// Usage for a tick at nice 0.
const TICK_COST: u64 = 1000;
/// The best priority that a price gives.
pub(super) const BEST: u8 = 59;
/// The priority of a thread that has used most.
const WORST: u8 = 1;

/// A nice value as a row of the tables: 0 for −20, 39 for 19.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Nice(u64);

impl Nice {
    /// The row for a nice value from −20 to 19.
    pub(super) fn new(nice: i8) -> Self {
        Self(u64::try_from(i16::from(nice) + 20).unwrap_or(0).min(39))
    }

    /// What a tick costs.
    pub(super) const fn tick_cost(self) -> u64 {
        TICK_COST * (60 - self.0) / 40
    }

    /// What a value keeps of 128 parts in a second.
    pub(super) const fn decay(self) -> u64 {
        83 + 25 * self.0 / 39
    }
}

/// Decay of the greatest value: that of nice 0.
const MAX_DECAY: u64 = Nice(20).decay();

/// A project: for us, a VM.
#[derive(Debug)]
pub(super) struct Project {
    zone: usize,
    pub(super) shares: u64,
    pub(super) usage: u64,
    pub(super) ticks: u64,
    /// Threads running or queued.
    pub(super) runnable: u64,
    pub(super) shu: u64,
}

#[derive(Debug)]
struct Zone {
    /// Its shares against other zones.
    ext: u64,
    /// Shares of its active projects.
    int: u64,
    active: u64,
}

/// The projects and zones that compete for a set of cores.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) projects: Vec<Project>,
    zones: Vec<Zone>,
    /// Shares of the active zones.
    pset: u64,
    /// The greatest value of a thread, decayed.
    pub(super) maxf: u64,
}

/// What a thread has used.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Value {
    pub(super) f: u64,
    /// Ticks not priced yet.
    pub(super) ticks: u64,
}

/// Why a thread is priced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Because {
    /// Its quantum is used up.
    QuantumUp,
    /// A second has passed.
    Second,
}

impl Pool {
    pub(super) const fn new() -> Self {
        Self {
            projects: Vec::new(),
            zones: Vec::new(),
            pset: 0,
            maxf: BEST as u64,
        }
    }

    pub(super) fn add_zone(&mut self, ext: u64) -> usize {
        self.zones.push(Zone {
            ext,
            int: 0,
            active: 0,
        });
        self.zones.len() - 1
    }

    pub(super) fn add_project(&mut self, zone: usize, shares: u64) -> usize {
        self.projects.push(Project {
            zone,
            shares,
            usage: 0,
            ticks: 0,
            runnable: 0,
            shu: 0,
        });
        self.projects.len() - 1
    }

    /// One more thread of the project is runnable.
    pub(super) fn activate(&mut self, project: usize) {
        let project = &mut self.projects[project];
        project.runnable += 1;
        if project.runnable == 1 {
            let zone = &mut self.zones[project.zone];
            zone.int += project.shares;
            zone.active += 1;
            if zone.active == 1 {
                self.pset += zone.ext;
            }
        }
    }

    /// One thread less is.
    pub(super) fn deactivate(&mut self, project: usize) {
        let project = &mut self.projects[project];
        project.runnable -= 1;
        if project.runnable == 0 {
            let zone = &mut self.zones[project.zone];
            zone.int -= project.shares;
            zone.active -= 1;
            if zone.active == 0 {
                self.pset -= zone.ext;
            }
        }
    }

    /// A thread has run for a tick.
    pub(super) fn charge(&mut self, project: usize, nice: Nice, value: &mut Value) {
        self.projects[project].ticks += nice.tick_cost();
        value.ticks += 1;
    }

    fn without_shares(&self, project: usize) -> bool {
        let project = &self.projects[project];
        project.shares == 0 || self.zones[project.zone].ext == 0
    }

    /// A second has passed: usage decays and is set against shares.
    pub(super) fn decay(&mut self) {
        self.maxf = (self.maxf.saturating_mul(MAX_DECAY) / DECAY_BASE).max(u64::from(BEST));
        for index in 0..self.projects.len() {
            let idle = self.without_shares(index);
            let project = &mut self.projects[index];
            project.usage = project.usage * USAGE_DECAY / DECAY_BASE + project.ticks;
            project.ticks = 0;
            let zone = &self.zones[project.zone];
            project.shu = if idle {
                0
            } else {
                let all = u128::from(self.pset) * u128::from(zone.int);
                let own = u128::from(project.shares) * u128::from(zone.ext);
                let once = u128::from(project.usage).saturating_mul(all) / own;
                u64::try_from(once.saturating_mul(all) / own).unwrap_or(u64::MAX)
            };
        }
    }

    /// A second has passed for a thread.
    pub(super) fn decay_value(&self, project: usize, nice: Nice, value: &mut Value) {
        if self.projects[project].shares != 0 {
            let kept = u128::from(value.f) * u128::from(nice.decay()) / u128::from(DECAY_BASE);
            value.f = u64::try_from(kept).unwrap_or(u64::MAX);
        }
    }

    /// Prices the ticks that a thread has used since it was last priced; the answer is its priority.
    pub(super) fn price(
        &mut self,
        project: usize,
        value: &mut Value,
        because: Because,
        variant: Variant,
    ) -> u8 {
        let ticks = std::mem::take(&mut value.ticks);
        if self.without_shares(project) {
            return 0;
        }
        let Project { shu, runnable, .. } = self.projects[project];
        let jumps = because == Because::QuantumUp && runnable > 1 && variant != Variant::Classic;
        value.f = if jumps {
            self.maxf
        } else {
            let used = shu.saturating_mul(runnable).saturating_mul(ticks);
            value.f.saturating_add(used)
        };
        let floor = value.f.max(u64::from(BEST));
        if floor >= self.maxf {
            self.maxf = floor;
            return WORST;
        }
        let worse = u128::from(floor) * u128::from(BEST - WORST) / u128::from(self.maxf);
        BEST - u8::try_from(worse).unwrap_or(BEST - WORST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Variant::{After, Before, Classic};

    const NICE_0: Nice = Nice(20);

    /// One zone with the given projects, all of them active.
    fn one_zone(shares: &[u64]) -> Pool {
        let mut pool = Pool::new();
        let zone = pool.add_zone(1);
        for (index, shares) in shares.iter().enumerate() {
            pool.add_project(zone, *shares);
            pool.activate(index);
        }
        pool
    }

    /// Makes the next decay find exactly this usage.
    fn use_up(pool: &mut Pool, usage: u64) {
        for project in &mut pool.projects {
            (project.usage, project.ticks) = (0, usage);
        }
    }

    #[test]
    fn costs_and_decays_follow_the_nice_value() {
        let row = |nice| (Nice::new(nice).tick_cost(), Nice::new(nice).decay());
        assert_eq!(row(-20), (1500, 83));
        assert_eq!(row(0), (1000, 95));
        assert_eq!(row(19), (525, 108));
    }

    #[test]
    fn usage_is_set_against_zones_and_projects_and_truncated_twice() {
        let mut pool = Pool::new();
        let (a, b) = (pool.add_zone(10), pool.add_zone(30));
        for (zone, shares) in [(a, 1), (a, 3), (b, 5)] {
            let project = pool.add_project(zone, shares);
            pool.activate(project);
        }
        use_up(&mut pool, 100_000);
        pool.decay();
        let shu: Vec<_> = pool.projects.iter().map(|project| project.shu).collect();
        assert_eq!(shu, [25_600_000, 2_844_442, 177_777]);
    }

    #[test]
    fn in_one_zone_usage_is_divided_by_the_square_of_the_share() {
        let mut pool = one_zone(&[1, 2, 3]);
        use_up(&mut pool, 100_000);
        pool.decay();
        let shu: Vec<_> = pool.projects.iter().map(|project| project.shu).collect();
        assert_eq!(shu, [3_600_000, 900_000, 400_000]);
    }

    #[test]
    fn only_active_projects_count() {
        let mut pool = one_zone(&[1, 2, 3]);
        pool.deactivate(2);
        use_up(&mut pool, 90_000);
        pool.decay();
        assert_eq!(pool.projects[0].shu, 810_000);
    }

    #[test]
    fn steady_usage_of_a_whole_core_ends_just_under_400_000() {
        let mut pool = one_zone(&[1]);
        for _ in 0..100 {
            for _ in 0..100 {
                pool.charge(0, NICE_0, &mut Value::default());
            }
            pool.decay();
        }
        let usage = pool.projects[0].usage;
        assert!((399_990..400_000).contains(&usage), "{usage}");
    }

    #[test]
    fn the_greatest_value_gets_1_and_no_use_gets_59() {
        let priced = |f: u64, maxf: u64| {
            let mut pool = one_zone(&[1]);
            pool.maxf = maxf;
            let mut value = Value { f, ticks: 0 };
            let priority = pool.price(0, &mut value, Because::Second, Before);
            (priority, pool.maxf)
        };
        let million = 1_000_000;
        assert_eq!(priced(0, million), (59, million));
        assert_eq!(priced(20_000, million), (58, million));
        assert_eq!(priced(250_000, million), (45, million));
        assert_eq!(priced(500_000, million), (30, million));
        assert_eq!(priced(999_999, million), (2, million));
        assert_eq!(priced(million, million), (1, million));
        assert_eq!(priced(1_200_000, million), (1, 1_200_000));
        // Less than 59 counts as 59: until somebody pays, who has used nothing is as low as the rest.
        assert_eq!(priced(0, 59), (1, 59));
        assert_eq!(priced(0, 60), (2, 60));
        assert_eq!(priced(0, 100), (59 - 34, 100));
        assert_eq!(priced(0, 59 * 58 + 1), (59, 59 * 58 + 1));
    }

    #[test]
    fn the_greatest_value_decays_to_59_and_no_further() {
        let mut pool = one_zone(&[1]);
        pool.maxf = 1_000_000;
        let mut seen = Vec::new();
        for _ in 0..60 {
            pool.decay();
            seen.push(pool.maxf);
        }
        assert_eq!(seen[..5], [742_187, 550_841, 408_827, 303_426, 225_198]);
        assert_eq!(seen.last(), Some(&59));
    }

    #[test]
    fn a_nice_thread_is_charged_less_and_forgets_more_slowly() {
        let mut pool = one_zone(&[1, 1]);
        let mut value = Value { f: 1280, ticks: 0 };
        pool.charge(0, Nice::new(19), &mut value);
        pool.charge(1, Nice::new(-20), &mut Value::default());
        assert_eq!(
            (pool.projects[0].ticks, pool.projects[1].ticks),
            (525, 1500)
        );
        pool.decay_value(0, Nice::new(19), &mut value);
        assert_eq!(value.f, 1080);
        let mut value = Value { f: 1280, ticks: 0 };
        pool.decay_value(0, Nice::new(-20), &mut value);
        assert_eq!(value.f, 830);
    }

    #[test]
    fn without_shares_the_priority_is_0() {
        let mut pool = one_zone(&[0]);
        let mut value = Value { f: 5, ticks: 11 };
        for because in [Because::QuantumUp, Because::Second] {
            assert_eq!(pool.price(0, &mut value, because, Before), 0);
        }
    }

    #[test]
    fn a_used_up_quantum_costs_the_greatest_value_if_a_sibling_is_runnable() {
        let priced = |threads: usize, variant: Variant| {
            let mut pool = one_zone(&[1]);
            for _ in 1..threads {
                pool.activate(0);
            }
            (pool.maxf, pool.projects[0].shu) = (1_000_000, 1_000);
            let mut value = Value { f: 5, ticks: 11 };
            let priority = pool.price(0, &mut value, Because::QuantumUp, variant);
            (value.f, priority)
        };
        for variant in [Before, After] {
            assert_eq!(priced(2, variant), (1_000_000, 1));
            assert_eq!(priced(1, variant), (5 + 11 * 1_000, 59));
        }
        assert_eq!(priced(2, Classic), (5 + 2 * 11 * 1_000, 58));
    }
}
