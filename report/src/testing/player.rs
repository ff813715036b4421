//! A driver of a few lines: it plays vCPUs against a dispatcher and makes the stream of a run.
//!
//! Every vCPU works, exits, sleeps, and now and then takes a host lock, by a simple generator of
//! numbers, so a run is the same each time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use stealtime_scheduler::dispatcher::{Dispatcher, Output};
use stealtime_scheduler::effect::Effect;
use stealtime_scheduler::ids::{CoreId, HostLockId, VcpuId};
use stealtime_scheduler::input::{BlockOn, ExitReason, Input, KernelPriority, Mark, Timer};
use stealtime_scheduler::time::Nanos;
use stealtime_workloads::run::{Entry, Plan};

/// What is to happen, in the order of time and then of planning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    Tell(Input),
    /// The vCPU does something of its own accord, if it is still in the same stay on its core.
    Act(VcpuId, u64),
}

struct Player {
    dispatcher: Dispatcher,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    planned: HashMap<u64, Next>,
    sequence: u64,
    stays: Vec<u64>,
    holds: Vec<bool>,
    random: u64,
    now: u64,
    entries: Vec<Entry>,
}

/// The stream of a run of `plan` that lasts to `end`.
pub(crate) fn play(plan: &Plan, end: Nanos) -> Vec<Entry> {
    let vcpus = plan.vcpus.len();
    let mut player = Player {
        dispatcher: Dispatcher::new(&plan.config()).expect("a plan that can be run"),
        queue: BinaryHeap::new(),
        planned: HashMap::new(),
        sequence: 0,
        stays: vec![0; vcpus],
        holds: vec![false; vcpus],
        random: plan.seed | 1,
        now: 0,
        entries: Vec::new(),
    };
    for vcpu in 0..u32::try_from(vcpus).expect("few") {
        player.plan(0, Next::Tell(Input::Admit { vcpu: VcpuId(vcpu) }));
    }
    player.plan(end.0 / 4, Next::Tell(Input::Mark(Mark::MeasureStart)));
    player.plan(end.0, Next::Tell(Input::Mark(Mark::MeasureEnd)));
    while let Some(Reverse((at, sequence))) = player.queue.pop() {
        if at > end.0 {
            break;
        }
        player.now = at;
        match player.planned.remove(&sequence) {
            Some(Next::Tell(input)) => player.tell(input),
            Some(Next::Act(vcpu, stay)) if player.stays[vcpu.index()] == stay => player.act(vcpu),
            _ => {}
        }
    }
    player.entries
}

impl Player {
    fn plan(&mut self, at: u64, next: Next) {
        self.queue.push(Reverse((at, self.sequence)));
        self.planned.insert(self.sequence, next);
        self.sequence += 1;
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    fn tell(&mut self, input: Input) {
        let mut out = Output::default();
        self.dispatcher.handle(Nanos(self.now), input, &mut out);
        self.entries.push(Entry::Input(Nanos(self.now), input));
        self.entries
            .extend(out.effects.iter().copied().map(Entry::Effect));
        self.entries
            .extend(out.events.iter().copied().map(Entry::Event));
        if let Input::Entered { vcpu, .. } = input {
            self.act_later(vcpu);
        }
        for effect in out.effects {
            self.carry_out(effect);
        }
    }

    fn act_later(&mut self, vcpu: VcpuId) {
        let after = 50_000 + self.random(3_000_000);
        let stay = self.stays[vcpu.index()];
        self.plan(self.now + after, Next::Act(vcpu, stay));
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Run { core, vcpu } => {
                self.stays[vcpu.index()] += 1;
                let after = 5_000 + self.random(5_000);
                self.plan(self.now + after, Next::Tell(Input::Entered { core, vcpu }));
            }
            Effect::Park { vcpu, .. } => self.stays[vcpu.index()] += 1,
            Effect::Kick { core, vcpu } => {
                let after = 40_000 + self.random(40_000);
                self.plan(self.now + after, Next::Tell(Input::Stopped { core, vcpu }));
            }
            Effect::Arm { timer, at } => {
                self.plan(at.0.max(self.now), Next::Tell(Input::TimerDue { timer }));
            }
            Effect::Cancel { .. }
            | Effect::Inject { .. }
            | Effect::Owe { .. }
            | Effect::Lent { .. } => {}
        }
    }

    fn act(&mut self, vcpu: VcpuId) {
        let why = ExitReason::Call;
        self.tell(Input::Exited { vcpu, why });
        self.now += 1_000;
        let (lock, priority) = (HostLockId(0), KernelPriority::Asked);
        match (self.random(8), self.holds[vcpu.index()]) {
            (0..=2, false) => {
                let on = BlockOn::Sleep(Nanos(self.now + 1_000_000 + self.random(9_000_000)));
                return self.tell(Input::Block { vcpu, on });
            }
            (3, _) => return self.tell(Input::Yield { vcpu }),
            (4, false) => {
                self.holds[vcpu.index()] = true;
                self.tell(Input::HostLock {
                    vcpu,
                    lock,
                    priority,
                });
            }
            (5, _) => self.tell(Input::UserReturn { vcpu }),
            (_, true) => {
                self.holds[vcpu.index()] = false;
                self.tell(Input::HostUnlock { vcpu, lock });
            }
            _ => {}
        }
        // It may have lost its core to the lock's owner.
        if (0..self.dispatcher.cores()).any(|core| self.has(core, vcpu)) {
            self.tell(Input::Resumed { vcpu });
            self.act_later(vcpu);
        }
    }

    fn has(&self, core: usize, vcpu: VcpuId) -> bool {
        let core = CoreId(u16::try_from(core).expect("few"));
        self.dispatcher.on_core(core) == Some(vcpu)
    }
}

/// An input that no dispatcher with these vCPUs has seen.
pub(crate) const STRANGER: Input = Input::TimerDue {
    timer: Timer::Wake(VcpuId(1_000)),
};
