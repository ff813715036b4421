//! A tiny driver in virtual time, for tests of policies and of the dispatcher.
//!
//! Every vCPU follows a [`Script`]. Nothing costs time but running and waiting: a kick is
//! acknowledged and a granted core entered at the very instant. What the driver measures (time on a
//! core, switches) is its own observation, not the dispatcher's books.
//!
//! Order at one instant: acknowledgements first, then vCPUs whose run step is over (lower number
//! first), then timers by order of arming, then inputs given beforehand.

use crate::dispatcher::{Config, Dispatcher, Output};
use crate::effect::Effect;
use crate::event::{Event, EventKind};
use crate::ids::{CoreId, VcpuId};
use crate::input::{BlockOn, ExitReason, GuestLocks, Input, RetireReason, Timer};
use crate::policy::{Policy, VcpuParams};
use crate::registry;
use crate::time::Nanos;
use std::collections::{BTreeMap, VecDeque};

mod guest_locks;
mod script;
mod witness;

pub(crate) use script::*;
pub(crate) use witness::Witness;

#[derive(Debug)]
struct Machine {
    script: Script,
    at: usize,
    /// What is left of the run step.
    left: Nanos,
    /// On this core since then.
    on: Option<(CoreId, Nanos)>,
    ran: Nanos,
    injected: bool,
    gone: bool,
    guest: guest_locks::Seat,
}

/// A dispatcher, its vCPUs and a clock.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) dispatcher: Dispatcher,
    pub(crate) now: Nanos,
    vcpus: Vec<Machine>,
    timers: BTreeMap<(Nanos, u64), Timer>,
    sequence: u64,
    acknowledge: VecDeque<Input>,
    planned: BTreeMap<(Nanos, u64), Input>,
    guest_locks: BTreeMap<u16, guest_locks::Lock>,
    /// Everything that the dispatcher was told.
    pub(crate) inputs: Vec<(Nanos, Input)>,
    /// Everything that it asked for.
    pub(crate) effects: Vec<Effect>,
    /// Everything that it told.
    pub(crate) events: Vec<Event>,
    out: Output,
}

/// How often a vCPU may do things that take no time before the test is taken to hang.
const TIMELESS: usize = 10_000;

impl World {
    /// A world under the given policy string. All vCPUs are admitted at the start, in order.
    pub(crate) fn new(policy: &str, cores: u16, vcpus: Vec<(VcpuParams, Script)>) -> Self {
        let config = Self::config(policy, cores, &vcpus);
        let dispatcher = Dispatcher::new(&config).expect("the set-up is understood");
        Self::around(dispatcher, vcpus)
    }

    /// The same with a policy that is not in the registry, under the name and options of `rr`.
    pub(crate) fn with_policy(
        policy: Box<dyn Policy>,
        cores: u16,
        vcpus: Vec<(VcpuParams, Script)>,
    ) -> Self {
        let config = Self::config("rr", cores, &vcpus);
        let info = registry::find("rr").expect("it is registered");
        let dispatcher = Dispatcher::with_policy(&config, info, policy, cores)
            .expect("the set-up is understood");
        Self::around(dispatcher, vcpus)
    }

    pub(crate) fn config(policy: &str, cores: u16, vcpus: &[(VcpuParams, Script)]) -> Config {
        Config {
            policy: policy.parse().expect("a policy string"),
            cores,
            host_locks: 6,
            vcpus: vcpus.iter().map(|(params, _)| *params).collect(),
        }
    }

    fn around(dispatcher: Dispatcher, vcpus: Vec<(VcpuParams, Script)>) -> Self {
        let machine = |(_, script)| Machine {
            script,
            at: 0,
            left: Nanos::ZERO,
            on: None,
            ran: Nanos::ZERO,
            injected: false,
            gone: false,
            guest: guest_locks::Seat::default(),
        };
        let mut world = Self {
            dispatcher,
            now: Nanos::ZERO,
            vcpus: vcpus.into_iter().map(machine).collect(),
            timers: BTreeMap::new(),
            sequence: 0,
            acknowledge: VecDeque::new(),
            planned: BTreeMap::new(),
            guest_locks: BTreeMap::new(),
            inputs: Vec::new(),
            effects: Vec::new(),
            events: Vec::new(),
            out: Output::default(),
        };
        for machine in &mut world.vcpus {
            machine.load();
        }
        for vcpu in world.ids() {
            world.at(Nanos::ZERO, Input::Admit { vcpu });
        }
        world
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = VcpuId> + use<> {
        (0..u32::try_from(self.vcpus.len()).expect("few")).map(VcpuId)
    }

    /// Tells the dispatcher this when the time comes.
    pub(crate) fn at(&mut self, time: Nanos, input: Input) {
        self.sequence += 1;
        self.planned.insert((time, self.sequence), input);
    }

    /// A device raises an interrupt at the vCPU when the time comes.
    pub(crate) fn device(&mut self, time: Nanos, to: u32) {
        let (to, vector, from) = (VcpuId(to), 33, None);
        self.at(time, Input::Interrupt { to, vector, from });
    }

    /// Lets the world run up to the given instant, all that happens at it included.
    pub(crate) fn run_until(&mut self, end: Nanos) {
        let mut timeless = 0;
        while let Some(at) = self.next_event().filter(|at| *at <= end) {
            timeless = if at > self.now { 0 } else { timeless + 1 };
            assert!(timeless < TIMELESS, "time stands still at {at}");
            self.advance(at);
            self.step();
        }
        self.advance(end);
    }

    /// How long a vCPU was on cores.
    pub(crate) fn ran(&self, vcpu: u32) -> Nanos {
        self.vcpus[vcpu as usize].ran
    }

    /// Its part of the time of one core since the start.
    pub(crate) fn share(&self, vcpu: u32) -> f64 {
        self.ran(vcpu).as_secs_f64() / self.now.as_secs_f64()
    }

    /// The part of all cores that was used since the start.
    pub(crate) fn used(&self, cores: u16) -> f64 {
        let ran: Nanos = self.vcpus.iter().map(|vcpu| vcpu.ran).sum();
        ran.as_secs_f64() / (self.now.as_secs_f64() * f64::from(cores))
    }

    /// The core that it is on.
    pub(crate) fn core_of(&self, vcpu: u32) -> Option<CoreId> {
        self.vcpus[vcpu as usize].on.map(|(core, _)| core)
    }

    /// When who began to run on the core.
    pub(crate) fn switches(&self, core: u16) -> Vec<(Nanos, u32)> {
        let on = EventKind::Running(CoreId(core));
        let entered = self.events.iter().filter(|event| event.kind == on);
        let mut all: Vec<_> = entered.map(|event| (event.at, event.vcpu.0)).collect();
        all.dedup_by_key(|(_, vcpu)| *vcpu);
        all
    }

    /// The longest time that a vCPU was ready without running.
    pub(crate) fn longest_wait(&self, vcpu: u32) -> Nanos {
        let mut since = None;
        let mut longest = Nanos::ZERO;
        for event in self.events.iter().filter(|event| event.vcpu.0 == vcpu) {
            match event.kind {
                EventKind::Admitted
                | EventKind::Woken(_)
                | EventKind::Preempted(..)
                | EventKind::Yielded(_) => since = Some(event.at),
                EventKind::Running(_) | EventKind::Retired(_) => {
                    let waited = since.take().map_or(Nanos::ZERO, |from| event.at - from);
                    longest = longest.max(waited);
                }
                _ => {}
            }
        }
        longest.max(since.map_or(Nanos::ZERO, |from| self.now - from))
    }

    fn next_event(&self) -> Option<Nanos> {
        if !self.acknowledge.is_empty() {
            return Some(self.now);
        }
        let over = self.vcpus.iter().filter(|vcpu| vcpu.on.is_some());
        let over = over.map(|vcpu| self.now + vcpu.left).min();
        let timer = self.timers.keys().next().map(|(at, _)| *at);
        let planned = self.planned.keys().next().map(|(at, _)| *at);
        [over, timer, planned].into_iter().flatten().min()
    }

    fn advance(&mut self, to: Nanos) {
        let passed = to - self.now;
        for vcpu in self.vcpus.iter_mut().filter(|vcpu| vcpu.on.is_some()) {
            vcpu.ran += passed;
            vcpu.left -= passed;
        }
        self.now = self.now.max(to);
    }

    /// One thing that happens now.
    fn step(&mut self) {
        if let Some(input) = self.acknowledge.pop_front() {
            self.acknowledged(input);
            return;
        }
        let over = |vcpu: &Machine| vcpu.on.is_some() && vcpu.left == Nanos::ZERO;
        if let Some(index) = self.vcpus.iter().position(over) {
            self.act(VcpuId(u32::try_from(index).expect("few")));
            return;
        }
        let due = self.timers.first_entry().filter(|t| t.key().0 <= self.now);
        if let Some(entry) = due {
            let timer = entry.remove();
            self.tell(Input::TimerDue { timer });
            return;
        }
        if let Some(entry) = self.planned.first_entry() {
            let input = entry.remove();
            self.tell(input);
        }
    }

    fn acknowledged(&mut self, input: Input) {
        match input {
            Input::Entered { core, vcpu } => {
                let machine = &mut self.vcpus[vcpu.index()];
                // Taken back before it came so far.
                if machine.gone || machine.on.is_none_or(|(on, _)| on != core) {
                    return;
                }
                self.tell(input);
                self.take_interrupts(vcpu);
            }
            Input::Stopped { vcpu, .. } if self.vcpus[vcpu.index()].on.is_some() => {
                self.tell(input);
            }
            Input::InterruptsTaken { vcpu, .. } if self.vcpus[vcpu.index()].on.is_some() => {
                self.take_interrupts(vcpu);
            }
            _ => {}
        }
    }

    fn take_interrupts(&mut self, vcpu: VcpuId) {
        if std::mem::take(&mut self.vcpus[vcpu.index()].injected) {
            let at = self.now;
            self.tell(Input::InterruptsTaken {
                vcpu,
                at,
                more: false,
            });
        }
    }

    /// The run step of a vCPU on a core is over: it does what comes next.
    fn act(&mut self, vcpu: VcpuId) {
        if self.still_spins(vcpu) {
            return;
        }
        let machine = &mut self.vcpus[vcpu.index()];
        let step = machine.script.steps[machine.at];
        machine.at += 1;
        if machine.at == machine.script.steps.len() {
            machine.at = machine.script.again;
        }
        machine.load();
        let now = self.now;
        self.tell(match step {
            Step::Run(_) => return,
            Step::Sleep(time) => Input::Block {
                vcpu,
                on: BlockOn::Sleep(now + time),
            },
            Step::HostWait(time) => Input::Block {
                vcpu,
                on: BlockOn::Host(now + time),
            },
            Step::Halt => Input::Block {
                vcpu,
                on: BlockOn::Idle,
            },
            Step::Yield => Input::Yield { vcpu },
            Step::UserReturn => Input::UserReturn { vcpu },
            Step::Lock(lock, priority) => Input::HostLock {
                vcpu,
                lock,
                priority,
            },
            Step::Acquire(lock, mode, priority) => Input::HostAcquire {
                vcpu,
                lock,
                mode,
                priority,
            },
            Step::Unlock(lock) => Input::HostUnlock { vcpu, lock },
            Step::Critical(critical) => {
                self.critical(vcpu, critical);
                return;
            }
            Step::GuestLock(lock) => {
                self.take_guest_lock(vcpu, lock);
                return;
            }
            Step::GuestUnlock(lock) => {
                self.release_guest_lock(vcpu, lock);
                return;
            }
            Step::Exit => Input::Exited {
                vcpu,
                why: ExitReason::Call,
            },
            Step::Resume => Input::Resumed { vcpu },
            Step::Interrupt(to) => Input::Interrupt {
                to,
                vector: 32,
                from: Some(vcpu),
            },
            Step::Retire => Input::Retire {
                vcpu,
                why: RetireReason::Finished,
            },
        });
        if self.vcpus[vcpu.index()].on.is_some() {
            self.take_interrupts(vcpu);
        }
    }

    fn critical(&mut self, vcpu: VcpuId, critical: u16) {
        let locks = GuestLocks {
            critical,
            ..GuestLocks::default()
        };
        self.tell(Input::Locks { vcpu, locks });
        if critical == 0 {
            self.tell(Input::CriticalLeft { vcpu });
        }
    }

    /// Tells the dispatcher, and carries out what it asks for.
    pub(crate) fn tell(&mut self, input: Input) {
        if let Input::Retire { vcpu, .. } = input {
            self.vcpus[vcpu.index()].gone = true;
        }
        self.inputs.push((self.now, input));
        let mut out = std::mem::take(&mut self.out);
        out.clear();
        self.dispatcher.handle(self.now, input, &mut out);
        for effect in &out.effects {
            self.carry_out(*effect);
        }
        self.effects.extend_from_slice(&out.effects);
        self.events.extend_from_slice(&out.events);
        self.out = out;
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Run { core, vcpu } => {
                let taken = self.vcpus.iter().enumerate().any(|(index, machine)| {
                    index != vcpu.index() && machine.on.is_some_and(|(on, _)| on == core)
                });
                assert!(!taken, "{core} is handed to {vcpu} while somebody is on it");
                self.vcpus[vcpu.index()].on = Some((core, self.now));
                self.vcpus[vcpu.index()].guest.owed = false;
                self.acknowledge.push_back(Input::Entered { core, vcpu });
            }
            Effect::Park { core, vcpu } => {
                let on = self.vcpus[vcpu.index()].on.take();
                assert_eq!(on.map(|(on, _)| on), Some(core), "{vcpu} parked elsewhere");
            }
            Effect::Kick { core, vcpu } => {
                self.acknowledge.push_back(Input::Stopped { core, vcpu });
            }
            Effect::Arm { timer, at } => {
                self.timers.retain(|_, armed| *armed != timer);
                self.sequence += 1;
                self.timers.insert((at.max(self.now), self.sequence), timer);
            }
            Effect::Cancel { timer } => self.timers.retain(|_, armed| *armed != timer),
            Effect::Inject { vcpu, .. } => {
                self.vcpus[vcpu.index()].injected = true;
                let at = self.now;
                self.acknowledge.push_back(Input::InterruptsTaken {
                    vcpu,
                    at,
                    more: false,
                });
            }
            Effect::Owe { vcpu, .. } => self.vcpus[vcpu.index()].guest.owed = true,
            Effect::Lent { to, donor } => self.vcpus[to.index()].guest.donor = donor,
        }
    }
}

impl Machine {
    fn load(&mut self) {
        self.left = match self.script.steps.get(self.at) {
            Some(Step::Run(time)) => *time,
            _ => Nanos::ZERO,
        };
    }
}
