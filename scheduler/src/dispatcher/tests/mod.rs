//! The dispatcher's rules, one claim a test.

mod chains;
mod circles;
mod hand_over;
mod layers;
mod lock_kinds;
mod locks;
mod placement;
mod retire;
mod turns;
mod violations;
mod waits;

use super::{Config, Dispatcher, Output};
use crate::effect::Effect;
use crate::event::{EventKind, Standing, Waits};
use crate::ids::{CoreId, HostLockId, VcpuId};
use crate::input::{Input, RetireReason, Timer};
use crate::policy::{
    Clocks, Enqueue, KernelRequest, Pick, Placed, Policy, Preempt, Refused, Resched, Slice,
    SliceEnd, VcpuParams,
};
use crate::registry;
use crate::testing::{ms, plain};
use crate::time::Nanos;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

pub(super) const CORE: CoreId = CoreId(0);
pub(super) const A: VcpuId = VcpuId(0);
pub(super) const B: VcpuId = VcpuId(1);
pub(super) const C: VcpuId = VcpuId(2);
pub(super) const LOCK: HostLockId = HostLockId(0);

/// What a [`Spy`] answers, and does wrong.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    pub(super) slice: Slice,
    pub(super) preempts: Preempt,
    pub(super) fault: Option<Fault>,
}

impl Default for Manner {
    fn default() -> Self {
        Self {
            slice: Slice::For(ms(10)),
            preempts: Preempt::Keep,
            fault: None,
        }
    }
}

/// A rule to break.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    PicksTheSameAgain,
    PicksOneThatIsNot,
    StaysIdle,
    PlacesNowhere,
    GivesNoSlice,
}

/// First come, first served, and everything that it is told is written down.
#[derive(Debug)]
pub(super) struct Spy {
    manner: Manner,
    queue: VecDeque<VcpuId>,
    told: Arc<Mutex<Vec<String>>>,
}

impl Spy {
    fn note(&self, what: String) {
        self.told.lock().expect("one thread").push(what);
    }
}

impl Policy for Spy {
    fn clocks(&self) -> Clocks {
        Clocks {
            tick: Some(ms(10)),
            period: Some(ms(100)),
        }
    }

    fn declare(&mut self, _vcpu: VcpuId, _params: &VcpuParams) -> Result<(), Refused> {
        Ok(())
    }

    fn enqueue(&mut self, _now: Nanos, vcpu: VcpuId, why: Enqueue) -> Placed {
        self.note(format!("enqueue {vcpu} {why:?}"));
        self.queue.push_back(vcpu);
        match self.manner.fault {
            Some(Fault::PlacesNowhere) => Placed(CoreId(77)),
            _ => Placed(CORE),
        }
    }

    fn remove(&mut self, _now: Nanos, vcpu: VcpuId) {
        self.note(format!("remove {vcpu}"));
        self.queue.retain(|queued| *queued != vcpu);
    }

    fn pick(&mut self, _now: Nanos, _core: CoreId) -> Pick {
        let slice = match self.manner.fault {
            Some(Fault::GivesNoSlice) => Slice::For(Nanos::ZERO),
            _ => self.manner.slice,
        };
        let next = match self.manner.fault {
            Some(Fault::StaysIdle) => None,
            Some(Fault::PicksOneThatIsNot) => Some(VcpuId(9_999)),
            Some(Fault::PicksTheSameAgain) => self.queue.front().copied(),
            _ => self.queue.pop_front(),
        };
        next.map_or(Pick::Idle, |vcpu| Pick::Run(vcpu, slice))
    }

    fn charge(&mut self, _now: Nanos, vcpu: VcpuId, ran: Nanos) {
        self.note(format!("charge {vcpu} {ran}"));
    }

    fn preempts(&mut self, _now: Nanos, _core: CoreId, _run: VcpuId, _woken: VcpuId) -> Preempt {
        self.manner.preempts
    }

    fn slice_end(&mut self, _now: Nanos, _core: CoreId, _vcpu: VcpuId) -> SliceEnd {
        match (self.manner.fault, self.queue.is_empty()) {
            (Some(Fault::GivesNoSlice), _) => SliceEnd::Extend(Slice::For(Nanos::ZERO)),
            (_, true) => SliceEnd::Extend(self.manner.slice),
            (_, false) => SliceEnd::Kick,
        }
    }

    fn block(&mut self, _now: Nanos, _core: CoreId, vcpu: VcpuId, on: Waits) {
        self.note(format!("block {vcpu} {on:?}"));
    }

    fn retire(&mut self, _now: Nanos, _core: CoreId, vcpu: VcpuId) {
        self.note(format!("retire {vcpu}"));
    }

    fn retire_waiting(&mut self, _now: Nanos, vcpu: VcpuId) {
        self.note(format!("retire waiting {vcpu}"));
    }

    fn tick(&mut self, now: Nanos, _core: CoreId, vcpu: VcpuId) -> Preempt {
        self.note(format!("tick {vcpu} at {now}"));
        Preempt::Keep
    }

    fn periodic(&mut self, now: Nanos) -> Resched {
        self.note(format!("period at {now}"));
        Resched(vec![CORE])
    }

    fn kernel_priority(&mut self, _now: Nanos, vcpu: VcpuId, request: KernelRequest) {
        self.note(format!("request {vcpu} {request:?}"));
    }

    fn standing(&self, _vcpu: VcpuId) -> Standing {
        Standing::default()
    }
}

/// A dispatcher under a spy, with what came of the last input.
pub(super) struct Desk {
    pub(super) dispatcher: Dispatcher,
    pub(super) out: Output,
    told: Arc<Mutex<Vec<String>>>,
}

impl Desk {
    /// So many vCPUs on one core, none admitted.
    pub(super) fn new(vcpus: u16, manner: Manner) -> Self {
        Self::on_cores(1, vcpus, manner)
    }

    pub(super) fn on_cores(cores: u16, vcpus: u16, manner: Manner) -> Self {
        let told = Arc::new(Mutex::new(Vec::new()));
        let spy = Spy {
            manner,
            queue: VecDeque::new(),
            told: Arc::clone(&told),
        };
        let config = Config {
            policy: "rr".parse().expect("a policy"),
            cores,
            host_locks: 2,
            vcpus: (0..vcpus).map(plain).collect(),
        };
        let info = registry::find("rr").expect("registered");
        let dispatcher = Dispatcher::with_policy(&config, info, Box::new(spy), cores);
        Self {
            dispatcher: dispatcher.expect("understood"),
            out: Output::default(),
            told,
        }
    }

    /// The same with all admitted and the first on its core since the start.
    pub(super) fn running(vcpus: u16, manner: Manner) -> Self {
        let mut desk = Self::new(vcpus, manner);
        for vcpu in 0..vcpus {
            let vcpu = VcpuId(u32::from(vcpu));
            desk.tell(Nanos::ZERO, Input::Admit { vcpu });
        }
        desk.enter(Nanos::ZERO, A);
        desk
    }

    /// Tells the dispatcher; the answer is what it asks for, clocks left out.
    pub(super) fn tell(&mut self, now: Nanos, input: Input) -> Vec<Effect> {
        self.out.clear();
        self.dispatcher.handle(now, input, &mut self.out);
        let clock = |effect: &&Effect| {
            let of = |timer: &Timer| matches!(timer, Timer::Tick | Timer::Period | Timer::Policy);
            !matches!(effect, Effect::Arm { timer, .. } | Effect::Cancel { timer } if of(timer))
        };
        self.out.effects.iter().filter(clock).copied().collect()
    }

    pub(super) fn enter(&mut self, now: Nanos, vcpu: VcpuId) -> Vec<Effect> {
        self.tell(now, Input::Entered { core: CORE, vcpu })
    }

    pub(super) fn due(&mut self, now: Nanos, timer: Timer) -> Vec<Effect> {
        self.tell(now, Input::TimerDue { timer })
    }

    pub(super) fn stopped(&mut self, now: Nanos, vcpu: VcpuId) -> Vec<Effect> {
        self.tell(now, Input::Stopped { core: CORE, vcpu })
    }

    pub(super) fn retire(&mut self, now: Nanos, vcpu: VcpuId) -> Vec<Effect> {
        let why = RetireReason::Fault;
        self.tell(now, Input::Retire { vcpu, why })
    }

    pub(super) fn said(&self, kind: EventKind) -> bool {
        self.out.events.iter().any(|event| event.kind == kind)
    }

    /// What the policy was told since this was last asked.
    pub(super) fn told(&self) -> Vec<String> {
        std::mem::take(&mut *self.told.lock().expect("one thread"))
    }
}

pub(super) fn run(vcpu: VcpuId) -> Effect {
    Effect::Run { core: CORE, vcpu }
}

pub(super) fn park(vcpu: VcpuId) -> Effect {
    Effect::Park { core: CORE, vcpu }
}

pub(super) fn kick(vcpu: VcpuId) -> Effect {
    Effect::Kick { core: CORE, vcpu }
}

pub(super) fn arm(timer: Timer, at: Nanos) -> Effect {
    Effect::Arm { timer, at }
}

pub(super) fn cancel(timer: Timer) -> Effect {
    Effect::Cancel { timer }
}
