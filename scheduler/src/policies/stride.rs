//! `stride`: deterministic proportional share.
//!
//! 1. A vCPU's tickets are its weight; its stride is a constant divided by its tickets.
//! 2. The vCPU with the least pass runs next, for one quantum.
//! 3. Running for a fraction of a quantum adds that fraction of its stride to its pass.
//! 4. The global pass advances, with all CPU time used, by the stride of all active tickets together.
//! 5. A vCPU that goes to sleep keeps its distance to the global pass and is put back at that distance
//!    when it wakes.
//! 6. A vCPU that wakes preempts nobody: it waits for the end of a quantum.
//! 7. One queue for all cores. Its pass is a vCPU's only account, so cores need no balancing.
//!
//! Source: Waldspurger and Weihl, "Stride Scheduling: Deterministic Proportional-Share Resource
//! Management", MIT/LCS/TM-528, 1995.

use crate::event::Waits;
use crate::ids::{CoreId, VcpuId};
use crate::policy::{Enqueue, Pick, Placed, Policy, Preempt, Refused, Slice, SliceEnd, VcpuParams};
use crate::queue::KeyedQueue;
use crate::registry::{PolicyInfo, ScheduledBy};
use crate::spec::{OptionInfo, OptionKind};
use crate::time::Nanos;

/// What `stride` says of itself.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "stride",
    summary: "stride scheduling: deterministic proportional share",
    rules: &[
        "A vCPU's tickets are its weight; its stride is a constant divided by its tickets.",
        "The vCPU with the least pass runs next, for one quantum.",
        "Running for a fraction of a quantum adds that fraction of its stride to its pass.",
        "The global pass advances, with all CPU time used, by the stride of all active tickets.",
        "A sleeper keeps its distance to the global pass and is put back there when it wakes.",
        "A vCPU that wakes preempts nobody: it waits for the end of a quantum.",
        "One queue for all cores.",
    ],
    source: "Waldspurger and Weihl, MIT/LCS/TM-528, 1995",
    quirks: &[
        "A vCPU that owes time when it falls asleep still owes it when it wakes, however long it slept.",
    ],
    options: &[OptionInfo {
        name: "quantum",
        kind: OptionKind::Time {
            min: Nanos::from_micros(100),
            max: Nanos::from_secs(10),
        },
        default: "10ms",
        help: "time on a core before the choice is made anew",
    }],
    scheduled_by: ScheduledBy::Policy,
    consistent: |_options| Ok(()),
    build: |options, _cores| Box::new(Stride::new(options.time("quantum"))),
};

/// Pass units for one nanosecond of a vCPU with one ticket: the stride constant over the quantum.
const SCALE: i128 = 1 << 20;

#[derive(Debug)]
struct Client {
    tickets: i128,
    pass: i128,
    /// Distance to the global pass while away; `None` while active.
    away: Option<i128>,
    home: CoreId,
}

#[derive(Debug)]
struct Stride {
    quantum: Nanos,
    clients: Vec<Client>,
    queue: KeyedQueue<i128>,
    active_tickets: i128,
    global_pass: i128,
}

impl Stride {
    fn new(quantum: Nanos) -> Self {
        Self {
            quantum,
            clients: Vec::new(),
            queue: KeyedQueue::default(),
            active_tickets: 0,
            global_pass: 0,
        }
    }

    fn deactivate(&mut self, vcpu: VcpuId) {
        let client = &mut self.clients[vcpu.index()];
        if client.away.is_none() {
            client.away = Some(client.pass - self.global_pass);
            self.active_tickets -= client.tickets;
        }
    }
}

impl Policy for Stride {
    fn declare(&mut self, _vcpu: VcpuId, params: &VcpuParams) -> Result<(), Refused> {
        let knows = "weight (its tickets), or shares of a VM with a single vCPU";
        params.refuse_all_but_weights("stride", knows)?;
        let tickets = i128::from(params.flat_weight("stride")?);
        self.clients.push(Client {
            tickets,
            pass: 0,
            // A new client starts one stride behind the global pass, as if it had just run.
            away: Some(i128::from(self.quantum.0) * SCALE / tickets),
            home: CoreId(0),
        });
        Ok(())
    }

    fn enqueue(&mut self, _now: Nanos, vcpu: VcpuId, _why: Enqueue) -> Placed {
        let client = &mut self.clients[vcpu.index()];
        if let Some(distance) = client.away.take() {
            client.pass = self.global_pass + distance;
            self.active_tickets += client.tickets;
        }
        self.queue.insert(vcpu, client.pass);
        Placed(client.home)
    }

    fn remove(&mut self, _now: Nanos, vcpu: VcpuId) {
        self.queue.remove(vcpu);
        self.deactivate(vcpu);
    }

    fn take(&mut self, _now: Nanos, core: CoreId, vcpu: VcpuId) -> Slice {
        self.queue.remove(vcpu);
        self.clients[vcpu.index()].home = core;
        Slice::For(self.quantum)
    }

    fn pick(&mut self, _now: Nanos, core: CoreId) -> Pick {
        match self.queue.pop_first() {
            Some((_, vcpu)) => {
                self.clients[vcpu.index()].home = core;
                Pick::Run(vcpu, Slice::For(self.quantum))
            }
            None => Pick::Idle,
        }
    }

    /// pass += ran · SCALE / tickets; global pass += ran · SCALE / (all active tickets).
    fn charge(&mut self, _now: Nanos, vcpu: VcpuId, ran: Nanos) {
        let work = i128::from(ran.0) * SCALE;
        let client = &mut self.clients[vcpu.index()];
        client.pass += work / client.tickets;
        self.global_pass += work / self.active_tickets.max(1);
    }

    fn preempts(&mut self, _now: Nanos, _core: CoreId, _run: VcpuId, _woken: VcpuId) -> Preempt {
        Preempt::Keep
    }

    fn slice_end(&mut self, _now: Nanos, _core: CoreId, vcpu: VcpuId) -> SliceEnd {
        match self.queue.first() {
            Some((pass, _)) if pass <= self.clients[vcpu.index()].pass => SliceEnd::Kick,
            _ => SliceEnd::Extend(Slice::For(self.quantum)),
        }
    }

    fn block(&mut self, _now: Nanos, _core: CoreId, vcpu: VcpuId, _on: Waits) {
        self.deactivate(vcpu);
    }

    fn retire(&mut self, _now: Nanos, _core: CoreId, vcpu: VcpuId) {
        self.deactivate(vcpu);
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Step, World, ms, plain, repeat, secs, spin, weighted};

    #[test]
    fn shares_follow_tickets_to_within_a_quantum() {
        let vcpus = vec![
            (weighted(0, 1), spin()),
            (weighted(1, 2), spin()),
            (weighted(2, 4), spin()),
        ];
        let mut world = World::new("stride", 1, vcpus);
        world.run_until(secs(7));
        for (vcpu, seconds) in [(0, 1), (1, 2), (2, 4)] {
            let off = world.ran(vcpu).0.abs_diff(secs(seconds).0);
            assert!(off <= ms(10).0, "vcpu {vcpu}: {}", world.ran(vcpu));
        }
    }

    #[test]
    fn a_sleeper_neither_gains_nor_loses_by_its_sleep() {
        let sleeper = repeat(&[Step::Run(ms(30)), Step::Sleep(secs(1))]);
        let vcpus = vec![(plain(0), spin()), (plain(1), sleeper)];
        let mut world = World::new("stride", 1, vcpus);
        world.run_until(secs(20));
        // While both are awake they alternate: 30 ms of work take about 60 ms.
        let wait = world.longest_wait(1);
        assert!(wait <= ms(20), "{wait}");
        let share = world.share(1);
        assert!((0.026..0.030).contains(&share), "{share}");
    }

    #[test]
    fn on_two_cores_one_queue_gives_three_equal_vcpus_two_thirds_each() {
        let vcpus = (0..3).map(|vm| (plain(vm), spin())).collect();
        let mut world = World::new("stride", 2, vcpus);
        world.run_until(secs(6));
        for vcpu in 0..3 {
            assert!(
                (world.share(vcpu) - 2.0 / 3.0).abs() < 0.005,
                "{}",
                world.share(vcpu)
            );
        }
    }
}
