//! `bvt`: borrowed virtual time.
//!
//! 1. A vCPU's actual virtual time (AVT) advances with its run time divided by its weight.
//! 2. The vCPU with the least effective virtual time (EVT) runs: EVT is its AVT, less the warp while
//!    it is warped.
//! 3. A running vCPU is preempted when a waking one's EVT is lower; without a waking one it runs until
//!    its EVT is ahead of the next one's by the context-switch allowance, in its own virtual time.
//! 4. A vCPU that wakes is brought up to the scheduler's virtual time (SVT: the least AVT of any
//!    runnable vCPU), so that sleep earns nothing.
//! 5. With `warp` above zero every vCPU that wakes is warped: it borrows that much virtual time, for at
//!    most `warp-limit` of run time, and not again until `unwarp` has passed since the warp began.
//! 6. One queue for all cores.
//!
//! Source: Duda and Cheriton, "Borrowed-virtual-time (BVT) scheduling: supporting latency-sensitive
//! threads in a general-purpose scheduler", SOSP 1999; the idea of warping on wake-up as in Xen's
//! former `bvt` scheduler.

use crate::event::{Standing, Waits};
use crate::heap::KeyedHeap;
use crate::ids::{CoreId, VcpuId};
use crate::policy::{Enqueue, Pick, Placed, Policy, Preempt, Refused, Slice, SliceEnd, VcpuParams};
use crate::queue::KeyedQueue;
use crate::registry::{PolicyInfo, ScheduledBy};
use crate::spec::{OptionInfo, OptionKind};
use crate::time::Nanos;

/// What `bvt` says of itself.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "bvt",
    summary: "borrowed virtual time: weighted fair share, latency bought by borrowing",
    rules: &[
        "Actual virtual time advances with run time divided by weight.",
        "The vCPU with the least effective virtual time runs: actual, less the warp while warped.",
        "A waking vCPU preempts one whose effective virtual time is higher.",
        "Otherwise it runs until it is ahead of the next one by the context-switch allowance.",
        "A vCPU that wakes is brought up to the least virtual time of any runnable one.",
        "With `warp` above zero a vCPU that wakes is warped, for at most `warp-limit` of run time.",
        "One queue for all cores.",
    ],
    source: "Duda and Cheriton, SOSP 1999",
    quirks: &[
        "Borrowing is repaid: what a warped vCPU runs counts in full, so shares hold over time.",
        "Unlike the original, where each thread has its own, one warp serves all vCPUs.",
    ],
    options: &[
        OptionInfo {
            name: "allowance",
            kind: OptionKind::Time {
                min: Nanos::from_micros(100),
                max: Nanos::from_secs(1),
            },
            default: "5ms",
            help: "context-switch allowance: run time by which a vCPU may get ahead",
        },
        OptionInfo {
            name: "warp",
            kind: OptionKind::Time {
                min: Nanos::ZERO,
                max: Nanos::from_secs(10),
            },
            default: "0",
            help: "virtual time that a waking vCPU borrows",
        },
        OptionInfo {
            name: "warp-limit",
            kind: OptionKind::Time {
                min: Nanos::from_micros(10),
                max: Nanos::from_secs(10),
            },
            default: "2ms",
            help: "run time after which a warp ends",
        },
        OptionInfo {
            name: "unwarp",
            kind: OptionKind::Time {
                min: Nanos::ZERO,
                max: Nanos::from_secs(10),
            },
            default: "5ms",
            help: "time from the beginning of a warp to that of the next",
        },
    ],
    scheduled_by: ScheduledBy::Policy,
    consistent: |_options| Ok(()),
    build: |options, cores| Box::new(bvt(options, cores)),
};

fn bvt(options: &crate::spec::Options, cores: u16) -> Bvt {
    Bvt {
        allowance: options.time("allowance"),
        warp: options.time("warp"),
        warp_limit: options.time("warp-limit"),
        unwarp: options.time("unwarp"),
        clients: Vec::new(),
        queue: KeyedQueue::default(),
        by_avt: KeyedHeap::default(),
        running: vec![None; usize::from(cores)],
        svt: 0,
    }
}

/// Virtual nanoseconds of a vCPU of weight 1 for a nanosecond of run time. 64 bits hold the virtual time
/// of a hundred days.
const SCALE: i64 = 1 << 10;

/// That much run time in virtual time at weight 1.
fn scaled(time: Nanos) -> i64 {
    i64::try_from(time.0)
        .unwrap_or(i64::MAX)
        .saturating_mul(SCALE)
}

#[derive(Debug)]
struct Client {
    weight: i64,
    avt: i64,
    /// Run time left of the warp, while warped.
    warped: Option<Nanos>,
    warp_again: Nanos,
    home: CoreId,
}

#[derive(Debug)]
struct Bvt {
    allowance: Nanos,
    warp: Nanos,
    warp_limit: Nanos,
    unwarp: Nanos,
    clients: Vec<Client>,
    queue: KeyedQueue<i64>,
    /// The same vCPUs by actual virtual time, for the scheduler's.
    by_avt: KeyedHeap<i64>,
    running: Vec<Option<VcpuId>>,
    svt: i64,
}

impl Bvt {
    fn evt(&self, vcpu: VcpuId) -> i64 {
        let client = &self.clients[vcpu.index()];
        let borrowed = client.warped.map_or(0, |_| scaled(self.warp));
        client.avt - borrowed
    }

    /// How long the vCPU may run before it is ahead of the first waiting one by the allowance.
    fn slice(&self, vcpu: VcpuId) -> Slice {
        let Some((next, _)) = self.queue.first() else {
            return Slice::For(self.allowance);
        };
        let behind = i128::from((next - self.evt(vcpu)).max(0));
        let behind = behind * i128::from(self.clients[vcpu.index()].weight) / i128::from(SCALE);
        let behind = u64::try_from(behind).unwrap_or(u64::MAX / 2);
        let length = Nanos(behind) + self.allowance;
        // A warp ends within the slice: it is looked at when it does.
        let warp_left = self.clients[vcpu.index()].warped.unwrap_or(Nanos::MAX);
        Slice::For(length.min(warp_left).max(Nanos(1)))
    }

    /// SVT: the least AVT of any runnable vCPU; it never goes back.
    fn advance_svt(&mut self) {
        let queued = self.by_avt.first().map(|(avt, _)| avt);
        let running = self
            .running
            .iter()
            .flatten()
            .map(|vcpu| self.clients[vcpu.index()].avt)
            .min();
        if let Some(least) = queued.into_iter().chain(running).min() {
            self.svt = self.svt.max(least);
        }
    }
}

impl Policy for Bvt {
    fn declare(&mut self, _vcpu: VcpuId, params: &VcpuParams) -> Result<(), Refused> {
        let knows = "weight, or shares of a VM with a single vCPU";
        params.refuse_all_but_weights("bvt", knows)?;
        self.clients.push(Client {
            weight: i64::from(params.flat_weight("bvt")?),
            avt: 0,
            warped: None,
            warp_again: Nanos::ZERO,
            home: CoreId(0),
        });
        Ok(())
    }

    fn enqueue(&mut self, now: Nanos, vcpu: VcpuId, why: Enqueue) -> Placed {
        let (svt, warp, limit, unwarp) = (self.svt, self.warp, self.warp_limit, self.unwarp);
        let client = &mut self.clients[vcpu.index()];
        if matches!(why, Enqueue::New | Enqueue::Wake) {
            client.avt = client.avt.max(svt);
            if why == Enqueue::Wake && warp > Nanos::ZERO && now >= client.warp_again {
                client.warped = Some(limit);
                client.warp_again = now + unwarp;
            }
        }
        let home = client.home;
        if let Enqueue::Preempted(core, _) | Enqueue::Yield(core) = why {
            self.running[core.index()] = None;
        }
        let mut key = self.evt(vcpu);
        if let (Enqueue::Yield(_), Some((last, _))) = (why, self.queue.last()) {
            key = key.max(last);
        }
        self.queue.insert(vcpu, key);
        self.by_avt.insert(vcpu.0, self.clients[vcpu.index()].avt);
        Placed(home)
    }

    fn remove(&mut self, _now: Nanos, vcpu: VcpuId) {
        self.queue.remove(vcpu);
        self.by_avt.remove(vcpu.0);
    }

    fn take(&mut self, _now: Nanos, core: CoreId, vcpu: VcpuId) -> Slice {
        self.queue.remove(vcpu);
        self.by_avt.remove(vcpu.0);
        self.running[core.index()] = Some(vcpu);
        self.clients[vcpu.index()].home = core;
        self.slice(vcpu)
    }

    fn pick(&mut self, now: Nanos, core: CoreId) -> Pick {
        let Some((_, vcpu)) = self.queue.pop_first() else {
            return Pick::Idle;
        };
        Pick::Run(vcpu, self.take(now, core, vcpu))
    }

    /// AVT += ran · SCALE / weight.
    fn charge(&mut self, _now: Nanos, vcpu: VcpuId, ran: Nanos) {
        let client = &mut self.clients[vcpu.index()];
        client.avt += scaled(ran) / client.weight;
        if let Some(left) = client.warped {
            client.warped = (left > ran).then(|| left - ran);
        }
        self.advance_svt();
    }

    fn preempts(&mut self, _now: Nanos, _core: CoreId, running: VcpuId, woken: VcpuId) -> Preempt {
        if self.evt(woken) < self.evt(running) {
            Preempt::Kick
        } else {
            Preempt::Keep
        }
    }

    fn slice_end(&mut self, _now: Nanos, _core: CoreId, vcpu: VcpuId) -> SliceEnd {
        match self.queue.first() {
            Some((next, _)) if next < self.evt(vcpu) => SliceEnd::Kick,
            _ => SliceEnd::Extend(self.slice(vcpu)),
        }
    }

    fn block(&mut self, _now: Nanos, core: CoreId, vcpu: VcpuId, _on: Waits) {
        self.running[core.index()] = None;
        self.clients[vcpu.index()].warped = None;
    }

    fn retire(&mut self, _now: Nanos, core: CoreId, _vcpu: VcpuId) {
        self.running[core.index()] = None;
    }

    fn standing(&self, vcpu: VcpuId) -> Standing {
        Standing {
            boosted: self.clients[vcpu.index()].warped.is_some(),
            ..Standing::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Step, World, ms, plain, repeat, secs, spin, us, weighted};

    #[test]
    fn shares_follow_weights() {
        let vcpus = vec![(weighted(0, 1), spin()), (weighted(1, 3), spin())];
        let mut world = World::new("bvt", 1, vcpus);
        world.run_until(secs(20));
        assert!((world.share(1) - 0.75).abs() < 0.002, "{}", world.share(1));
    }

    #[test]
    fn sleep_earns_nothing() {
        let late = repeat(&[Step::Sleep(secs(5)), Step::Run(secs(5))]);
        let mut world = World::new("bvt", 1, vec![(plain(0), spin()), (plain(1), late)]);
        world.run_until(secs(6));
        // One second after waking they share evenly, although one had slept for five.
        let ran = world.ran(1);
        assert!(ran.0.abs_diff(ms(500).0) <= ms(6).0, "{ran}");
    }

    #[test]
    fn a_warped_vcpu_waits_less_and_its_share_stays() {
        let measure = |policy: &str| {
            let interactive = repeat(&[Step::Run(ms(1)), Step::Sleep(ms(2))]);
            let vcpus = vec![
                (plain(0), interactive),
                (plain(1), spin()),
                (plain(2), spin()),
            ];
            let mut world = World::new(policy, 1, vcpus);
            world.run_until(secs(10));
            (world.longest_wait(0), world.share(0))
        };
        let (wait, share) = measure("bvt");
        let (warped_wait, warped_share) = measure("bvt:warp=50ms,unwarp=0");
        assert!(warped_wait < us(10) && wait > ms(4), "{warped_wait} {wait}");
        assert!(
            warped_share >= share && warped_share <= 1.0 / 3.0 + 0.01,
            "{warped_share}"
        );
    }

    #[test]
    fn the_virtual_time_of_the_scheduler_is_the_least_actual_one_even_when_others_are_warped() {
        let (_, options) = crate::registry::check(&"bvt:warp=50ns".parse().expect("a policy"))
            .expect("understood");
        let mut policy = bvt(&options, 1);
        for vcpu in (0..3).map(VcpuId) {
            policy.declare(vcpu, &plain(0)).expect("understood");
        }
        // One is warped and ahead by effective time, one is behind by actual time, one runs.
        for (vcpu, avt) in [(0, 100), (1, 60), (2, 120)] {
            policy.clients[vcpu].avt = avt * SCALE;
        }
        policy.clients[0].warped = Some(ms(1));
        let core = CoreId(0);
        policy.running[0] = Some(VcpuId(2));
        for vcpu in [VcpuId(0), VcpuId(1)] {
            let why = crate::event::PreemptReason::Wakeup;
            let _ = policy.enqueue(Nanos::ZERO, vcpu, Enqueue::Preempted(CoreId(0), why));
        }
        policy.running[core.index()] = Some(VcpuId(2));
        policy.charge(Nanos(1), VcpuId(2), Nanos(1));
        assert_eq!(policy.svt, 60 * SCALE);
    }
}
