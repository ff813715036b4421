//! What a decision costs, for every policy of the registry: `cargo bench --bench decision`. Names of
//! policies and numbers of vCPUs after `--` choose: `cargo bench --bench decision -- bvt 1000`.
//!
//! A decision is one vCPU's turn on a core: it is charged and blocks, the next is picked and enters, the
//! first one wakes and is set against the one that runs. So each has one wake, one pick, one
//! charge and one preemption check, all through the [`Policy`] contract. All other vCPUs wait.
//!
//! Ticks, timers and the periodic walk are due in virtual time, 20 us a decision. They are carried out
//! between the batches that are timed, and counted apart: what is linear by design shows there.
//! Measured by hand, since a benchmark library cannot leave part of its loop out of the count.
//!
//! The goal, which is printed and not asserted: at most 250 ns at 1,000 vCPUs, and a growth no worse than that
//! of the logarithm. From 1,000 to 100,000 vCPUs that is a factor of 1.67. Under `lottery` it is more: whom it
//! draws is anywhere, and what is known of that one is in no near cache. All others meet vCPUs in the order in
//! which they ran.
//!
//! Units: nanoseconds a decision (median of batches of 64); microseconds a walk (the dearest one); growth as a
//! factor, from the last but one size to the last.

use std::time::{Duration, Instant};
use stealtime_scheduler::event::{Waits, WakeSource};
use stealtime_scheduler::ids::{CoreId, VcpuId, VmId};
use stealtime_scheduler::policy::{Enqueue, Pick, Policy, VcpuParams};
use stealtime_scheduler::registry::{self, PolicyInfo, ScheduledBy};
use stealtime_scheduler::spec::PolicySpec;
use stealtime_scheduler::time::Nanos;

/// Virtual time of a decision.
const TURN: Nanos = Nanos::from_micros(20);
/// Decisions between two readings of the clock.
const BATCH: u32 = 64;
/// vCPUs are spread over so many VMs.
const VMS: u16 = 64;
const CORE: CoreId = CoreId(0);
/// The goal at the middle size, in nanoseconds.
const GOAL: f64 = 250.0;

/// How much is measured.
struct Effort {
    sizes: &'static [u32],
    warm_up: usize,
    batches: usize,
    /// No more than this for a policy and size.
    wall: Duration,
}

const FULL: Effort = Effort {
    sizes: &[10, 1_000, 100_000],
    warm_up: 50,
    batches: 3_000,
    wall: Duration::from_secs(2),
};

/// Enough to see that it works, for test runs.
const SMOKE: Effort = Effort {
    sizes: &[10],
    warm_up: 1,
    batches: 5,
    wall: Duration::from_secs(1),
};

/// What came of a policy at a size.
struct Cost {
    decision: f64,
    walk: Duration,
}

/// A policy with all its vCPUs on one core or waiting for it.
struct Host {
    policy: Box<dyn Policy>,
    now: Nanos,
    running: VcpuId,
    tick: Option<(Nanos, Nanos)>,
    period: Option<(Nanos, Nanos)>,
    walk: Duration,
}

impl Host {
    fn new(info: &PolicyInfo, size: u32) -> Self {
        let spec: PolicySpec = info.name.parse().expect("a registered name");
        let (info, options) = registry::check(&spec).expect("defaults fit");
        let mut policy = (info.build)(&options, 1);
        let siblings = size.div_ceil(u32::from(VMS));
        for index in 0..size {
            let vm = u16::try_from(index % u32::from(VMS)).expect("few VMs");
            let params = VcpuParams {
                siblings,
                ..VcpuParams::plain(VmId(vm))
            };
            let declared = policy.declare(VcpuId(index), &params);
            declared.expect("nothing is asked for");
        }
        let clocks = policy.clocks();
        let every = |period: Option<Nanos>| period.map(|period| (period, period));
        for index in 0..size {
            let _placed = policy.enqueue(Nanos::ZERO, VcpuId(index), Enqueue::New);
        }
        let mut host = Self {
            policy,
            now: Nanos::ZERO,
            running: VcpuId(0),
            tick: every(clocks.tick),
            period: every(clocks.period),
            walk: Duration::ZERO,
        };
        let first = host.pick();
        host.enters(first.expect("everybody waits"));
        host
    }

    fn pick(&mut self) -> Option<VcpuId> {
        match self.policy.pick(self.now, CORE) {
            Pick::Run(vcpu, _) => Some(vcpu),
            Pick::Idle => None,
        }
    }

    fn enters(&mut self, vcpu: VcpuId) {
        self.policy.entered(self.now, CORE, vcpu);
        self.running = vcpu;
    }

    fn decide(&mut self) {
        let last = self.running;
        self.now += TURN;
        self.policy.charge(self.now, last, TURN);
        self.policy.block(self.now, CORE, last, Waits::Sleep);
        let next = self.pick();
        if let Some(next) = next {
            self.enters(next);
        }
        self.policy.woken_by(self.now, last, WakeSource::Timer);
        let _placed = self.policy.enqueue(self.now, last, Enqueue::Wake);
        match next {
            Some(next) => {
                let _answer = self.policy.preempts(self.now, CORE, next, last);
            }
            // A policy that holds the core for the one that left it.
            None => {
                let again = self.pick().expect("the one that woke may run");
                self.enters(again);
            }
        }
        let _wanted = self.policy.wants_timer();
    }

    /// Everything that the clocks owe up to now.
    fn clocks(&mut self) {
        while let Some((at, every)) = self.tick.filter(|(at, _)| *at <= self.now) {
            let _answer = self.policy.tick(self.now, CORE, self.running);
            self.tick = Some((at + every, every));
        }
        let began = Instant::now();
        while let Some((at, every)) = self.period.filter(|(at, _)| *at <= self.now) {
            let _cores = self.policy.periodic(self.now);
            self.period = Some((at + every, every));
        }
        if self.policy.wants_timer().is_some_and(|at| at <= self.now) {
            let _cores = self.policy.timer(self.now);
        }
        self.walk = self.walk.max(began.elapsed());
    }
}

fn measure(info: &PolicyInfo, size: u32, effort: &Effort) -> Cost {
    let mut host = Host::new(info, size);
    let began = Instant::now();
    let mut costs = Vec::with_capacity(effort.batches);
    for batch in 0..effort.warm_up + effort.batches {
        let from = Instant::now();
        for _ in 0..BATCH {
            host.decide();
        }
        let took = from.elapsed();
        if batch >= effort.warm_up {
            costs.push(took.as_secs_f64() * 1e9 / f64::from(BATCH));
        }
        host.clocks();
        if began.elapsed() > effort.wall && !costs.is_empty() {
            break;
        }
    }
    costs.sort_by(f64::total_cmp);
    Cost {
        decision: costs[costs.len() / 2],
        walk: host.walk,
    }
}

fn main() {
    // Test runs start benchmarks without this argument.
    let in_earnest = std::env::args().any(|argument| argument == "--bench");
    let effort = if in_earnest { FULL } else { SMOKE };
    let (mut sizes, mut chosen): (Vec<u32>, Vec<String>) = Default::default();
    for word in std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with("--"))
    {
        match word.parse() {
            Ok(size) => sizes.push(size),
            Err(_) if registry::POLICIES.iter().any(|info| info.name == word) => chosen.push(word),
            // Of a test run: the name of a test.
            Err(_) if !in_earnest => {}
            Err(_) => {
                eprintln!("`{word}` is neither a policy nor a number of vCPUs");
                std::process::exit(2);
            }
        }
    }
    if sizes.is_empty() {
        sizes.extend(effort.sizes);
    }
    print!("{:<10}", "policy");
    for size in &sizes {
        print!(" {:>14}", format!("{size} vCPUs"));
    }
    println!(" {:>16} {:>8}", "dearest walk", "growth");
    let own = |info: &&&PolicyInfo| info.scheduled_by == ScheduledBy::Policy;
    let named =
        |info: &&&PolicyInfo| chosen.is_empty() || chosen.iter().any(|name| name == info.name);
    let (mut over, mut steep) = (Vec::new(), Vec::new());
    for info in registry::POLICIES.iter().filter(own).filter(named) {
        print!("{:<10}", info.name);
        let mut walk = Duration::ZERO;
        let mut costs = Vec::new();
        for size in &sizes {
            let cost = measure(info, *size, &effort);
            print!(" {:>11.0} ns", cost.decision);
            walk = cost.walk;
            if *size == 1_000 && cost.decision > GOAL {
                over.push(info.name);
            }
            costs.push((f64::from(*size), cost.decision));
        }
        print!(" {:>13.1} us", walk.as_secs_f64() * 1e6);
        if let [.., (few, before), (many, after)] = costs[..] {
            print!(" {:>8.2}", after / before);
            if after / before > many.ln() / few.ln() {
                steep.push(info.name);
            }
        }
        println!();
    }
    if !over.is_empty() {
        println!(
            "beyond {GOAL} ns a decision at 1000 vCPUs: {}",
            over.join(", ")
        );
    }
    if !steep.is_empty() {
        let steep = steep.join(", ");
        println!("dearer by more than the logarithm at the last size: {steep}");
    }
}
