//! What the machine's own work costs: the only thing that `sim` assumes about hardware.
//!
//! All times are nanoseconds of virtual time; how much what the host does varies by chance, how late timers are, and what the
//! host takes away is part of the model. `stealtime doctor --calibrate`
//! measures them on a machine and stores them (see [`crate::stored`]); without that the figures of
//! [`CostModel::bare_hardware`] count.

use serde::{Deserialize, Serialize};
use stealtime_guest::rng::Rng;
use stealtime_scheduler::time::Nanos;

/// The costs. In its JSON form every field that is a time ends in `_ns`, and all are required.
///
/// # Invariants
/// See [`CostModel::check`]. `op` and `lock_step` are at least 1 ns: every op takes time, so that no program can hold
/// virtual time still. Thefts take time too, and leave some to the run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostModel {
    /// Whose costs they are, as reports name them.
    pub name: String,
    /// From guest code to the VMM's code, for a call (port I/O). Counted as guest time, as it is on
    /// KVM, where the VMM learns of an exit when it has happened.
    #[serde(rename = "exit_ns")]
    pub exit: Nanos,
    /// The same for a halt.
    #[serde(rename = "halt_exit_ns")]
    pub halt_exit: Nanos,
    /// From the VMM's code to guest code. Counted as guest time, like `exit`.
    #[serde(rename = "entry_ns")]
    pub entry: Nanos,
    /// What comes on top of the first entry of a stay on a core: the vCPU's state is loaded. Counted as
    /// guest time.
    #[serde(rename = "load_ns")]
    pub load: Nanos,
    /// What the VMM's thread does between an exit and the next entry, beside what the call itself
    /// takes. Counted as hypervisor time; a vCPU that leaves its core with the call is spared it.
    #[serde(rename = "handling_ns")]
    pub handling: Nanos,
    /// What the VMM's thread asks of the host before it tells of a call with which it may lose its core, or gives
    /// the core back in the midst of one. Counted as guest time like `exit`, in the second case as hypervisor time.
    /// A halt has it in `halt_exit`, a kick in `kick`.
    #[serde(rename = "leaving_ns")]
    pub leaving: Nanos,
    /// From asking a vCPU to leave guest code until it has: the signal, its delivery and the exit.
    /// The guest goes on meanwhile.
    #[serde(rename = "kick_ns")]
    pub kick: Nanos,
    /// From the grant of a core until the vCPU's thread runs there, when the grant was made on that
    /// core: one thread hands over to the next.
    #[serde(rename = "switch_same_core_ns")]
    pub switch_same_core: Nanos,
    /// What a thread still does after that before it sleeps. One that blocks does it before the next one
    /// is there. One that makes room for a vCPU whose thread slept is overtaken by it, and does it when that
    /// core is asked back, unless it gets the core itself before.
    #[serde(rename = "park_ns")]
    pub park: Nanos,
    /// From a grant that was made elsewhere (a timer, a vCPU on another core) until the vCPU's thread runs:
    /// the core has to be woken.
    #[serde(rename = "switch_other_core_ns")]
    pub switch_other_core: Nanos,
    /// What comes on top of a switch when the vCPU was last on another core.
    #[serde(rename = "migration_ns")]
    pub migration: Nanos,
    /// What each interrupt that is delivered adds to an entry until its handler begins.
    #[serde(rename = "injection_ns")]
    pub injection: Nanos,
    /// From then until the guest's code goes on.
    #[serde(rename = "handler_ns")]
    pub handler: Nanos,
    /// How late a timer is reported.
    #[serde(rename = "timer_ns")]
    pub timer: Nanos,
    /// How much later still it is by chance, on average (exponentially distributed; the plan's seed decides). Without
    /// it slices on several cores end at the same instants for ever, which no machine keeps up, and which lock
    /// holders and waiters depend on.
    #[serde(rename = "timer_spread_ns")]
    pub timer_spread: Nanos,
    /// What serving a timer takes from the vCPU on the run's first core. 0 where the timer thread has a
    /// core beside those of the run.
    #[serde(rename = "timer_work_ns")]
    pub timer_work: Nanos,
    /// What waking the timer thread takes from the same vCPU where no timer is due: an earlier one than it
    /// sleeps for is armed, or the one that it sleeps for was taken out. 0 where `timer_work` is.
    #[serde(rename = "timer_wake_ns")]
    pub timer_wake: Nanos,
    /// By how much what the host does varies, all costs above but the timers' lateness: a cost is what it takes in half of all
    /// cases, and beyond the least that it takes, exponentially distributed, it takes on average so many thousandths
    /// of that more. At most 1000.
    pub spread_permille: u64,
    /// What every op of a guest's program costs beside its own length (at least 1).
    #[serde(rename = "op_ns")]
    pub op: Nanos,
    /// The same for every step of an operation on a lock or channel in guest memory, and for the marks of a critical
    /// section (at least 1): atomic operations, and what the guest says of itself in the shared page.
    #[serde(rename = "lock_step_ns")]
    pub lock_step: Nanos,
    /// How long the host lets a busy thread have a core that another one waits for, under its own scheduler: the clock
    /// tick at which what stands in for the policy `host` notices the end of a slice. 0 where that is not known: then it
    /// notices it at once.
    #[serde(rename = "host_slice_ns")]
    pub host_slice: Nanos,
    /// What the host takes away, on every core alike. Empty where nothing is taken.
    pub interference: Vec<Theft>,
}

/// Interference of one kind: a core of the run is taken away for a while.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Theft {
    /// For how long on average: each time for between two and four thirds of it, all equally likely. 1 ns to 1 s.
    #[serde(rename = "length_ns")]
    pub length: Nanos,
    /// How often, as the mean time from the beginning of one to that of the next, which is exponentially distributed.
    /// Counted for each core.
    #[serde(rename = "every_ns")]
    pub every: Nanos,
    /// Whether the host tells that it took this, as run delay of the thread that it took it from. It does where
    /// another thread had the core, and does not of its own interrupts, nor of what a hypervisor below takes.
    pub told: bool,
}

impl Theft {
    /// How much of a core it takes, from 0 to 1.
    #[must_use]
    pub fn part(&self) -> f64 {
        self.length.get() as f64 / self.every.get() as f64
    }

    /// The shortest and the longest.
    #[must_use]
    pub const fn range(self) -> (Nanos, Nanos) {
        let third = self.length.0 / 3;
        (Nanos(self.length.0 - third), Nanos(self.length.0 + third))
    }
}

/// The most that costs may vary, in thousandths.
pub const MOST_SPREAD: u64 = 1_000;

/// A cost model that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InvalidCosts {
    /// Every op must take time.
    #[error(
        "cost model `{name}`: op_ns and lock_step_ns must be at least 1, or an endless program would take no time"
    )]
    FreeOps {
        /// The model.
        name: String,
    },
    /// A figure that can only be a mistake.
    #[error("cost model `{name}`: {field} is {value}, more than a second")]
    TooLarge {
        /// The model.
        name: String,
        /// Its field.
        field: &'static str,
        /// The value.
        value: Nanos,
    },
    /// Costs that would be below nothing at times.
    #[error("cost model `{name}`: spread_permille is {value}, more than {MOST_SPREAD}")]
    Spread {
        /// The model.
        name: String,
        /// The value.
        value: u64,
    },
    /// Interference that takes no time, and so might come without end.
    #[error("cost model `{name}`: interference has an entry with a length_ns of 0")]
    NothingTaken {
        /// The model.
        name: String,
    },
    /// Interference that leaves too little for anything to be simulated.
    #[error("cost model `{name}`: interference takes more than nine tenths of every core")]
    MostTaken {
        /// The model.
        name: String,
    },
}

impl CostModel {
    /// A recent server processor with VT-x or AMD-V: the orders of magnitude that are published for
    /// them, rounded. An exit to user space and back costs 1.5 us, a kick by signal 2 us, a futex
    /// hand-over 1.5 us on the same core and 5 us to a core that idles. Published round trips and
    /// hand-overs are whole ones: loading, handling, leaving and parking are part of them here.
    #[must_use]
    pub fn bare_hardware() -> Self {
        Self {
            name: "bare-hardware".into(),
            exit: Nanos(1_000),
            halt_exit: Nanos(1_000),
            entry: Nanos(500),
            load: Nanos::ZERO,
            handling: Nanos::ZERO,
            leaving: Nanos::ZERO,
            kick: Nanos(2_000),
            switch_same_core: Nanos(1_500),
            park: Nanos::ZERO,
            switch_other_core: Nanos(5_000),
            migration: Nanos(2_000),
            injection: Nanos(500),
            handler: Nanos::ZERO,
            timer: Nanos(1_000),
            timer_spread: Nanos::ZERO,
            timer_work: Nanos::ZERO,
            timer_wake: Nanos::ZERO,
            spread_permille: 0,
            op: Nanos(20),
            lock_step: Nanos(20),
            host_slice: Nanos::ZERO,
            interference: Vec::new(),
        }
    }

    /// Nothing costs anything, but for the 1 ns of every op: the policy alone, for tests and for
    /// comparing with theory.
    #[must_use]
    pub fn free() -> Self {
        Self {
            name: "free".into(),
            exit: Nanos::ZERO,
            halt_exit: Nanos::ZERO,
            entry: Nanos::ZERO,
            load: Nanos::ZERO,
            handling: Nanos::ZERO,
            leaving: Nanos::ZERO,
            kick: Nanos::ZERO,
            switch_same_core: Nanos::ZERO,
            park: Nanos::ZERO,
            switch_other_core: Nanos::ZERO,
            migration: Nanos::ZERO,
            injection: Nanos::ZERO,
            handler: Nanos::ZERO,
            timer: Nanos::ZERO,
            timer_spread: Nanos::ZERO,
            timer_work: Nanos::ZERO,
            timer_wake: Nanos::ZERO,
            spread_permille: 0,
            op: Nanos(1),
            lock_step: Nanos(1),
            host_slice: Nanos::ZERO,
            interference: Vec::new(),
        }
    }

    /// The same with what is late by chance at its median instead, and nothing taken away.
    #[must_use]
    pub fn without_chance(self) -> Self {
        Self {
            timer: self.timer + median_of_chance(self.timer_spread),
            timer_spread: Nanos::ZERO,
            spread_permille: 0,
            interference: Vec::new(),
            ..self
        }
    }

    /// Checks the invariants.
    ///
    /// # Errors
    /// Names the field that cannot be right.
    pub fn check(&self) -> Result<(), InvalidCosts> {
        if self.op.min(self.lock_step) == Nanos::ZERO {
            return Err(InvalidCosts::FreeOps {
                name: self.name.clone(),
            });
        }
        let too_large = self
            .fields()
            .into_iter()
            .find(|(_, value)| *value > Nanos::from_secs(1));
        if let Some((field, value)) = too_large {
            return Err(InvalidCosts::TooLarge {
                name: self.name.clone(),
                field,
                value,
            });
        }
        if self.spread_permille > MOST_SPREAD {
            return Err(InvalidCosts::Spread {
                name: self.name.clone(),
                value: self.spread_permille,
            });
        }
        self.check_interference()
    }

    fn check_interference(&self) -> Result<(), InvalidCosts> {
        let name = || self.name.clone();
        let mut lengths = self.interference.iter().map(|theft| theft.length);
        if lengths.clone().any(|length| length == Nanos::ZERO) {
            return Err(InvalidCosts::NothingTaken { name: name() });
        }
        if let Some(value) = lengths.find(|length| *length > Nanos::from_secs(1)) {
            return Err(InvalidCosts::TooLarge {
                name: name(),
                field: "length_ns of its interference",
                value,
            });
        }
        if self.taken() > 0.9 {
            return Err(InvalidCosts::MostTaken { name: name() });
        }
        Ok(())
    }

    /// How dear what the host does is this time. The parts of what is measured as a whole have it in common.
    #[must_use]
    pub const fn pace(&self, chance: &mut Rng) -> Pace {
        if self.spread_permille == 0 {
            return Pace::MEDIAN;
        }
        let mean = self.spread_permille * Pace::MEDIAN.0 / 1_000;
        let least = Pace::MEDIAN.0 - median_of_chance(Nanos(mean)).0;
        Pace(least + chance.exponential(mean))
    }

    /// How much of each core is taken away, from 0 to 1.
    #[must_use]
    pub fn taken(&self) -> f64 {
        self.interference.iter().map(Theft::part).sum()
    }

    /// Every cost with the name of its field in JSON.
    #[must_use]
    pub const fn fields(&self) -> [(&'static str, Nanos); 20] {
        [
            ("exit_ns", self.exit),
            ("halt_exit_ns", self.halt_exit),
            ("entry_ns", self.entry),
            ("load_ns", self.load),
            ("handling_ns", self.handling),
            ("leaving_ns", self.leaving),
            ("kick_ns", self.kick),
            ("switch_same_core_ns", self.switch_same_core),
            ("park_ns", self.park),
            ("switch_other_core_ns", self.switch_other_core),
            ("migration_ns", self.migration),
            ("injection_ns", self.injection),
            ("handler_ns", self.handler),
            ("timer_ns", self.timer),
            ("timer_spread_ns", self.timer_spread),
            ("timer_work_ns", self.timer_work),
            ("timer_wake_ns", self.timer_wake),
            ("op_ns", self.op),
            ("lock_step_ns", self.lock_step),
            ("host_slice_ns", self.host_slice),
        ]
    }
}

/// How much longer, or less long, the host takes for what it does than it does in half of all cases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace(u64);

impl Pace {
    /// Half of all cases take longer.
    pub const MEDIAN: Self = Self(1 << 20);

    /// What something costs then.
    #[must_use]
    pub const fn of(self, cost: Nanos) -> Nanos {
        Nanos((cost.0 * self.0) >> 20)
    }
}

/// The median of an exponential distribution with this mean, of at most an hour: ln 2 of it.
#[must_use]
pub const fn median_of_chance(mean: Nanos) -> Nanos {
    Nanos(mean.0 * 693_147 / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_models_can_be_used_and_ops_without_cost_cannot() {
        assert_eq!(CostModel::bare_hardware().check(), Ok(()));
        let free = CostModel::free();
        assert_eq!(free.check(), Ok(()));
        for nothing in [
            CostModel {
                op: Nanos::ZERO,
                ..free.clone()
            },
            CostModel {
                lock_step: Nanos::ZERO,
                ..free.clone()
            },
        ] {
            assert!(matches!(nothing.check(), Err(InvalidCosts::FreeOps { .. })));
        }
        let slow = CostModel {
            kick: Nanos::from_secs(2),
            ..free
        };
        let message = slow.check().expect_err("two seconds").to_string();
        assert!(message.contains("kick_ns is 2.00 s"), "{message}");
    }

    #[test]
    fn interference_takes_some_time_and_leaves_some() {
        let checked = |length, every| {
            let model = CostModel {
                interference: vec![Theft {
                    length: Nanos(length),
                    every: Nanos(every),
                    told: true,
                }],
                ..CostModel::free()
            };
            model.check()
        };
        assert_eq!(checked(1_000, 1_200), Ok(()));
        assert_eq!(checked(1_000_000_000, 60_000_000_000), Ok(()));
        let nothing = checked(0, 1_000);
        assert!(matches!(nothing, Err(InvalidCosts::NothingTaken { .. })));
        for every in [1_100, 1_000, 0] {
            let most = checked(1_000, every);
            assert!(matches!(most, Err(InvalidCosts::MostTaken { .. })));
        }
        let long = checked(2_000_000_000, 60_000_000_000);
        assert!(matches!(long, Err(InvalidCosts::TooLarge { .. })));
    }

    #[test]
    fn half_of_what_is_late_by_chance_is_later_than_without_chance() {
        let spread = Nanos(10_000);
        let chancy = CostModel {
            timer_spread: spread,
            ..CostModel::free()
        };
        let without = chancy.without_chance();
        assert_eq!(without.timer_spread, Nanos::ZERO);
        let mut rng = stealtime_guest::rng::Rng::new(1, 2);
        let later = (0..10_000).filter(|_| rng.exponential(spread.0) > without.timer.0);
        let part = later.count() as f64 / 10_000.0;
        assert!((part - 0.5).abs() < 0.02, "{part}");
    }

    #[test]
    fn half_of_what_varies_costs_less_and_the_rest_is_exponential() {
        let model = CostModel {
            spread_permille: 300,
            ..CostModel::free()
        };
        assert_eq!(model.check(), Ok(()));
        let mut rng = Rng::new(7, 3);
        let cost = Nanos(20_000);
        let mut drawn: Vec<_> = (0..20_000)
            .map(|_| model.pace(&mut rng).of(cost).0)
            .collect();
        drawn.sort_unstable();
        // From 20 us (1 - 0.3 ln 2) on, with a mean of 6 us: ln 2, ln 10 and ln 100 of it are more.
        let expected = [
            (0, 15_841),
            (10_000, 20_000),
            (18_000, 29_656),
            (19_800, 43_472),
        ];
        for (place, expected) in expected {
            let off = drawn[place] as f64 / f64::from(expected) - 1.0;
            assert!(off.abs() < 0.03, "{place}: {} {expected}", drawn[place]);
        }
        let much = CostModel {
            spread_permille: 1_001,
            ..model
        };
        assert!(matches!(much.check(), Err(InvalidCosts::Spread { .. })));
        let constant = much.without_chance();
        assert_eq!(constant.pace(&mut rng).of(cost), cost);
    }

    #[test]
    fn the_fields_are_those_of_the_json_form() {
        let model = CostModel::bare_hardware();
        let json = serde_json::to_value(&model).expect("plain data");
        let object = json.as_object().expect("a struct");
        let others = ["name", "spread_permille", "interference"];
        assert_eq!(object.len(), model.fields().len() + others.len());
        for (name, value) in model.fields() {
            assert_eq!(object[name].as_u64(), Some(value.0), "{name}");
        }
    }
}
