//! `lottery`: randomised proportional share.
//!
//! 1. A vCPU's tickets are its weight. Whenever a core is free, a ticket is drawn among those of all
//!    waiting vCPUs; the winner runs for one quantum.
//! 2. A vCPU that used only a fraction f of its quantum holds 1/f times its tickets until it next wins
//!    (compensation tickets), so that short bursts do not cost it its share.
//! 3. A vCPU that wakes preempts nobody: it takes part in the next draw.
//! 4. One lottery for all cores.
//! 5. Draws come from a seeded generator (option `seed`), so a run in `sim` repeats.
//!
//! Source: Waldspurger and Weihl, "Lottery Scheduling: Flexible Proportional-Share Resource
//! Management", OSDI 1994.

use crate::event::Waits;
use crate::ids::{CoreId, VcpuId};
use crate::policy::{Enqueue, Pick, Placed, Policy, Preempt, Refused, Slice, SliceEnd, VcpuParams};
use crate::registry::{PolicyInfo, ScheduledBy};
use crate::spec::{OptionInfo, OptionKind};
use crate::time::Nanos;

/// What `lottery` says of itself.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "lottery",
    summary: "lottery scheduling: proportional share by drawing tickets",
    rules: &[
        "Whenever a core is free, a ticket is drawn among those of all waiting vCPUs.",
        "A vCPU's tickets are its weight; the winner runs for one quantum.",
        "A vCPU that used a fraction f of its quantum holds 1/f times its tickets until it wins.",
        "A vCPU that wakes preempts nobody: it takes part in the next draw.",
        "One lottery for all cores; draws come from a seeded generator.",
    ],
    source: "Waldspurger and Weihl, OSDI 1994",
    quirks: &["Shares hold in the mean: over n quanta they spread with the square root of n."],
    options: &[
        OptionInfo {
            name: "quantum",
            kind: OptionKind::Time {
                min: Nanos::from_micros(100),
                max: Nanos::from_secs(10),
            },
            default: "10ms",
            help: "time on a core before the next draw",
        },
        OptionInfo {
            name: "seed",
            kind: OptionKind::Int {
                min: 0,
                max: i64::MAX,
            },
            default: "1",
            help: "seed of the draws",
        },
        OptionInfo {
            name: "compensation",
            kind: crate::spec::SWITCH,
            default: "on",
            help: "compensation tickets for vCPUs that used part of their quantum",
        },
    ],
    scheduled_by: ScheduledBy::Policy,
    consistent: |_options| Ok(()),
    build: |options, _cores| {
        Box::new(Lottery {
            quantum: options.time("quantum"),
            compensation: options.on("compensation"),
            draws: fastrand::Rng::with_seed(options.int("seed").unsigned_abs()),
            players: Vec::new(),
            pot: Pot::default(),
        })
    },
};

/// Tickets are counted in thousandths, so that compensation can be fine.
const WHOLE: u64 = 1_000;

#[derive(Debug)]
struct Player {
    tickets: u64,
    /// What it runs of the quantum that it won.
    used: Nanos,
    held: u64,
    home: CoreId,
}

#[derive(Debug)]
struct Lottery {
    quantum: Nanos,
    compensation: bool,
    draws: fastrand::Rng,
    players: Vec<Player>,
    pot: Pot,
}

/// Tickets of the waiting vCPUs, as a tree of partial sums (Fenwick): changing a count and finding
/// the holder of a ticket take logarithmic time.
#[derive(Debug, Default)]
struct Pot {
    held: Vec<u64>,
    sums: Vec<u64>,
    total: u64,
}

impl Pot {
    fn grow(&mut self) {
        self.held.push(0);
        // The new node covers the nodes below its lowest set bit.
        let node = self.held.len();
        let low = node & node.wrapping_neg();
        let covered = self.held[node - low..].iter().sum();
        self.sums.push(covered);
    }

    fn set(&mut self, vcpu: VcpuId, tickets: u64) {
        let old = std::mem::replace(&mut self.held[vcpu.index()], tickets);
        self.total = self.total - old + tickets;
        let mut node = vcpu.index() + 1;
        while node <= self.sums.len() {
            self.sums[node - 1] = self.sums[node - 1] - old + tickets;
            node += node & node.wrapping_neg();
        }
    }

    /// The holder of the given ticket, counted from 0 over all vCPUs in order.
    fn holder(&self, ticket: u64) -> Option<VcpuId> {
        if ticket >= self.total {
            return None;
        }
        let (mut at, mut left) = (0, ticket);
        let mut step = self.sums.len().next_power_of_two();
        while step > 0 {
            let next = at + step;
            if next <= self.sums.len() && self.sums[next - 1] <= left {
                at = next;
                left -= self.sums[next - 1];
            }
            step /= 2;
        }
        u32::try_from(at).ok().map(VcpuId)
    }
}

impl Lottery {
    /// held = tickets · quantum / used, for a vCPU that leaves before its quantum is used up.
    fn compensate(&mut self, vcpu: VcpuId) {
        let player = &mut self.players[vcpu.index()];
        if self.compensation && player.used < self.quantum {
            // One in a thousand is the least fraction that counts.
            let used = player.used.0.max(self.quantum.0 / 1_000).max(1);
            let held = u128::from(player.tickets) * u128::from(self.quantum.0) / u128::from(used);
            player.held = u64::try_from(held).unwrap_or(u64::MAX / (1 << 20));
        }
    }
}

impl Policy for Lottery {
    fn declare(&mut self, _vcpu: VcpuId, params: &VcpuParams) -> Result<(), Refused> {
        let knows = "weight (its tickets), or shares of a VM with a single vCPU";
        params.refuse_all_but_weights("lottery", knows)?;
        let tickets = u64::from(params.flat_weight("lottery")?) * WHOLE;
        self.players.push(Player {
            tickets,
            used: Nanos::ZERO,
            held: tickets,
            home: CoreId(0),
        });
        self.pot.grow();
        Ok(())
    }

    fn enqueue(&mut self, _now: Nanos, vcpu: VcpuId, why: Enqueue) -> Placed {
        if let Enqueue::Yield(_) = why {
            self.compensate(vcpu);
        }
        let player = &self.players[vcpu.index()];
        self.pot.set(vcpu, player.held);
        Placed(player.home)
    }

    fn remove(&mut self, _now: Nanos, vcpu: VcpuId) {
        self.pot.set(vcpu, 0);
    }

    fn take(&mut self, _now: Nanos, core: CoreId, vcpu: VcpuId) -> Slice {
        self.pot.set(vcpu, 0);
        let player = &mut self.players[vcpu.index()];
        player.used = Nanos::ZERO;
        player.held = player.tickets;
        player.home = core;
        Slice::For(self.quantum)
    }

    fn pick(&mut self, now: Nanos, core: CoreId) -> Pick {
        if self.pot.total == 0 {
            return Pick::Idle;
        }
        let ticket = self.draws.u64(0..self.pot.total);
        let Some(winner) = self.pot.holder(ticket) else {
            return Pick::Idle;
        };
        Pick::Run(winner, self.take(now, core, winner))
    }

    fn charge(&mut self, _now: Nanos, vcpu: VcpuId, ran: Nanos) {
        self.players[vcpu.index()].used += ran;
    }

    fn preempts(&mut self, _now: Nanos, _core: CoreId, _run: VcpuId, _woken: VcpuId) -> Preempt {
        Preempt::Keep
    }

    fn slice_end(&mut self, _now: Nanos, _core: CoreId, _vcpu: VcpuId) -> SliceEnd {
        if self.pot.total == 0 {
            SliceEnd::Extend(Slice::For(self.quantum))
        } else {
            SliceEnd::Kick
        }
    }

    fn block(&mut self, _now: Nanos, _core: CoreId, vcpu: VcpuId, _on: Waits) {
        self.compensate(vcpu);
    }

    fn retire(&mut self, _now: Nanos, _core: CoreId, _vcpu: VcpuId) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Step, World, ms, plain, repeat, secs, spin, weighted};

    #[test]
    fn every_ticket_belongs_to_the_vcpu_that_holds_it() {
        let mut pot = Pot::default();
        for vcpu in 0..7 {
            pot.grow();
            pot.set(VcpuId(vcpu), u64::from(vcpu % 3));
        }
        // Tickets 0, 1, 2, 0, 1, 2, 0: six in all.
        let holders: Vec<_> = (0..6)
            .filter_map(|ticket| pot.holder(ticket))
            .map(|v| v.0)
            .collect();
        assert_eq!(holders, [1, 2, 2, 4, 5, 5]);
        assert_eq!(pot.holder(6), None);
        pot.set(VcpuId(2), 0);
        assert_eq!(pot.holder(1), Some(VcpuId(4)));
    }

    #[test]
    fn shares_follow_tickets_in_the_mean() {
        let vcpus = vec![(weighted(0, 1), spin()), (weighted(1, 3), spin())];
        let mut world = World::new("lottery", 1, vcpus);
        world.run_until(secs(100));
        // 10,000 draws: the standard deviation of the share is 0.43 %.
        assert!((world.share(1) - 0.75).abs() < 0.015, "{}", world.share(1));
    }

    #[test]
    fn compensation_gives_a_vcpu_of_short_bursts_its_share_and_without_it_loses() {
        let share = |policy: &str| {
            let bursts = repeat(&[Step::Run(ms(2)), Step::Yield]);
            let vcpus = vec![(plain(0), spin()), (plain(1), bursts)];
            let mut world = World::new(policy, 1, vcpus);
            world.run_until(secs(100));
            world.share(1)
        };
        let with = share("lottery");
        let without = share("lottery:compensation=off");
        // With 5 times the tickets the bursts win 5 of 6 draws, of 2 ms each against 10 ms.
        assert!((with - 0.5).abs() < 0.03, "{with}");
        assert!((without - 1.0 / 6.0).abs() < 0.03, "{without}");
    }

    #[test]
    fn the_same_seed_draws_the_same_winners() {
        let switches = |policy: &str| {
            let vcpus = (0..4).map(|vm| (plain(vm), spin())).collect();
            let mut world = World::new(policy, 1, vcpus);
            world.run_until(secs(2));
            world.switches(0)
        };
        assert_eq!(switches("lottery:seed=5"), switches("lottery:seed=5"));
        assert_ne!(switches("lottery:seed=5"), switches("lottery:seed=6"));
    }
}
