//! The simulated machine: virtual time, the dispatcher, and its effects carried out.
//!
//! # Invariants
//! * Time is that of the slot taken off the queue, and never goes back.
//! * Effects only arm slots and set flags; they never call the dispatcher, so an input is over when
//!   the next one comes.
//! * A vCPU is off its core only by `Park`, and only while an input of its own is handled.
//! * A policy that panics ends the run, and what was measured is kept, as with KVM.

use crate::cost::{CostModel, Pace};
use crate::guest_locks::AllLocks;
use crate::interference::Interference;
use crate::queue::{Queue, Slot};
use crate::stream::Stream;
use crate::timers::TimerThread;
use crate::vcpu::{Place, Vcpu};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use stealtime_guest::rng::Rng;
use stealtime_scheduler::dispatcher::{Dispatcher, Output};
use stealtime_scheduler::effect::Effect;
use stealtime_scheduler::ids::{CoreId, VcpuId};
use stealtime_scheduler::input::{Input, MutexMode, Timer};
use stealtime_scheduler::time::Nanos;
use stealtime_workloads::run::{Plan, VmFailure};

/// Slots taken between two looks at the stop flag and words on progress.
const LOOK: u32 = 4_096;
/// Which of the seed's streams chance takes: none of a vCPU's.
const CHANCE: u64 = u64::MAX - 1;
/// The same for the run's clocks, by instant.
const CLOCKS: u64 = 1 << 63;

pub(crate) struct Machine<'run> {
    pub(crate) plan: &'run Plan,
    pub(crate) costs: &'run CostModel,
    pub(crate) dispatcher: Dispatcher,
    pub(crate) stream: Stream<'run>,
    pub(crate) queue: Queue,
    pub(crate) now: Nanos,
    pub(crate) vcpus: Vec<Vcpu<'run>>,
    pub(crate) locks: AllLocks,
    /// vCPUs whose locks have changed since the dispatcher was told.
    pub(crate) changed: Vec<VcpuId>,
    pub(crate) failures: Vec<VmFailure>,
    pub(crate) timer_thread: TimerThread,
    pub(crate) interference: Interference,
    /// What is late by chance, or takes longer.
    chance: Rng,
    /// The vCPU that gives its core back at this moment because it was asked to.
    pub(crate) leaver: Option<VcpuId>,
    /// By core: whose thread was overtaken by the next one before it slept.
    overtaken: Vec<Option<VcpuId>>,
    /// vCPUs that are not retired.
    pub(crate) alive: usize,
    pub(crate) measuring: bool,
    /// The policy or the dispatcher panicked: what it said. Nothing it says counts from then on.
    pub(crate) broken: Option<String>,
    out: Output,
}

impl<'run> Machine<'run> {
    pub(crate) fn new(
        plan: &'run Plan,
        costs: &'run CostModel,
        dispatcher: Dispatcher,
        stream: Stream<'run>,
        queue: Queue,
    ) -> Self {
        let cores = dispatcher.cores();
        let numbered = (0..).map(VcpuId).zip(&plan.vcpus);
        let hints = dispatcher.guest_hints();
        let hand_off = hints.mutex == MutexMode::HandOff;
        Self {
            plan,
            costs,
            dispatcher,
            stream,
            queue,
            now: Nanos::ZERO,
            vcpus: numbered
                .map(|(id, vcpu)| Vcpu::new(id, vcpu, plan.seed))
                .collect(),
            locks: AllLocks::new(plan, hand_off, hints.spin_window),
            changed: Vec::new(),
            failures: Vec::new(),
            timer_thread: TimerThread::default(),
            interference: Interference::new(&costs.interference, cores, plan.seed),
            chance: Rng::new(plan.seed, CHANCE),
            leaver: None,
            overtaken: vec![None; cores],
            alive: plan.vcpus.len(),
            measuring: false,
            broken: None,
            out: Output::default(),
        }
    }

    /// Runs to the end of the plan, the end of all programs, or until `stop` is set. The answer is
    /// whether it was stopped.
    pub(crate) fn run(&mut self, stop: &AtomicBool) -> bool {
        self.queue.set(Slot::Mark, self.plan.warmup);
        self.expect_thefts();
        for (index, vcpu) in (0..).map(VcpuId).zip(&self.plan.vcpus) {
            self.queue.set(Slot::Step(index), vcpu.start);
        }
        let mut until_look = 1;
        let mut stopped = false;
        while self.alive > 0 && self.broken.is_none() {
            until_look -= 1;
            if until_look == 0 {
                until_look = LOOK;
                self.stream.flush(self.now);
                stopped = stop.load(Ordering::Relaxed);
                if stopped {
                    break;
                }
            }
            // The mark is always in the queue until the end.
            let Some((at, slot)) = self.queue.pop() else {
                break;
            };
            self.now = at;
            match slot {
                Slot::Mark if self.measuring => break,
                Slot::Mark => self.begin_measuring(),
                Slot::Timer(timer) => self.timer_due(timer),
                Slot::TimerThread => self.woke_for_nothing(),
                Slot::Step(vcpu) => self.step(vcpu),
                Slot::Signal(vcpu) => self.signalled(vcpu),
                Slot::Theft(core) => self.theft(core),
                Slot::TellThefts => self.tell_thefts_due(),
            }
        }
        self.end();
        stopped
    }

    fn step(&mut self, vcpu: VcpuId) {
        match self.vcpu(vcpu).place {
            Place::Unborn => self.admit(vcpu),
            Place::Switching => self.entered(vcpu),
            Place::Guest => self.code_ends(vcpu),
            Place::Leaving(why) => self.exited(vcpu, why),
            Place::Hypervisor => self.hypervisor_done(vcpu),
            Place::Off | Place::Gone => {}
        }
    }

    fn admit(&mut self, vcpu: VcpuId) {
        let op = self.costs.op;
        let entry = self.vcpu(vcpu);
        entry.place = Place::Off;
        entry.fetch(op);
        self.tell(Input::Admit { vcpu }, None);
    }

    pub(crate) fn vcpu(&mut self, vcpu: VcpuId) -> &mut Vcpu<'run> {
        &mut self.vcpus[vcpu.index()]
    }

    /// Tells the dispatcher and carries out what it asks for. `on` is the core on which this happens,
    /// if it happens on one.
    pub(crate) fn tell(&mut self, input: Input, on: Option<CoreId>) {
        if input.decides() {
            self.tell_locks();
        }
        self.handle(input, on);
    }

    pub(crate) fn handle(&mut self, input: Input, on: Option<CoreId>) {
        if self.broken.is_some() {
            return;
        }
        let mut out = std::mem::take(&mut self.out);
        out.clear();
        let (dispatcher, now) = (&mut self.dispatcher, self.now);
        let handled = catch_unwind(AssertUnwindSafe(|| dispatcher.handle(now, input, &mut out)));
        if let Err(panic) = handled {
            let epitaph = self.epitaph(panic.as_ref());
            self.dispatcher.failed(&epitaph);
            self.broken = Some(epitaph);
        }
        self.stream.add(self.now, input, &out);
        for effect in &out.effects {
            self.carry_out(*effect, on);
        }
        self.out = out;
    }

    fn epitaph(&self, panic: &(dyn Any + Send)) -> String {
        let said = panic
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        format!(
            "the run was ended: policy {} or the dispatcher failed: {}",
            self.dispatcher.policy_info().name,
            said.unwrap_or("a panic without a message")
        )
    }

    fn carry_out(&mut self, effect: Effect, on: Option<CoreId>) {
        match effect {
            Effect::Run { core, vcpu } => self.granted(core, vcpu, on),
            Effect::Park { vcpu, .. } => {
                self.off_core(vcpu);
                let rested = self.leaver != Some(vcpu);
                let entry = self.vcpu(vcpu);
                entry.place = Place::Off;
                entry.rested = rested;
                self.has_core(vcpu, false);
            }
            Effect::Kick { vcpu, core } => {
                self.vcpu(vcpu).kicked = true;
                // A thread that is still on the way sees the flag before it enters.
                if self.vcpu(vcpu).place != Place::Switching {
                    self.signal(vcpu);
                    // The timer thread, or who else asks, is followed by who waits longest.
                    if self.overtaken[core.index()].take().is_some() {
                        let park = self.drawn(self.costs.park);
                        self.queue.delay(Slot::Signal(vcpu), park);
                    }
                }
            }
            Effect::Owe { vcpu, .. } => self.vcpu(vcpu).owed = true,
            Effect::Lent { to, donor } => self.lent(to, donor),
            Effect::Arm { timer, at } => self.arm(timer, at),
            Effect::Cancel { timer } => {
                self.queue.cancel(Slot::Timer(timer));
                self.timer_cancelled(timer);
            }
            Effect::Inject { vcpu, vector } => {
                self.vcpu(vcpu).raise(vector);
                if self.vcpu(vcpu).place == Place::Guest {
                    self.signal(vcpu);
                }
            }
        }
    }

    /// A timer that is due already comes one nanosecond later, so that a policy that always wants to
    /// be called at once cannot hold virtual time still.
    fn arm(&mut self, timer: Timer, at: Nanos) {
        let late = self.costs.timer + self.late_by_chance(timer, at);
        let due = (at + late).max(self.now + Nanos(1));
        self.queue.set(Slot::Timer(timer), due);
        self.timer_armed(timer, at);
    }

    /// The clocks of the whole run that are due at one instant are served in one go: they are late alike, and come
    /// in the order of [`Timer`], as in the KVM driver. The timers of one core or vCPU are late by what is its own,
    /// too.
    fn late_by_chance(&mut self, timer: Timer, at: Nanos) -> Nanos {
        let mean = self.costs.timer_spread.0;
        let place = match timer {
            Timer::Tick => 0,
            Timer::Period => 1,
            Timer::Policy => 2,
            _ => return Nanos(self.chance.exponential(mean)),
        };
        let mut of_instant = Rng::new(self.plan.seed, CLOCKS ^ at.0);
        Nanos(of_instant.exponential(mean) + place)
    }

    fn granted(&mut self, core: CoreId, vcpu: VcpuId, on: Option<CoreId>) {
        self.off_core(vcpu);
        let costs = self.costs;
        let pace = self.pace();
        let mut cost = if on == Some(core) {
            pace.of(costs.switch_same_core + self.farewell(core, vcpu))
        } else {
            pace.of(costs.switch_other_core)
        };
        cost += self.owed_to_timers(Some(core));
        let at = self.now;
        let taken = self.interference.left(core, at);
        cost += taken;
        let told = self.interference.left_and_told(core, at);
        let entry = self.vcpu(vcpu);
        entry.stolen += told;
        if entry.core.replace(core).is_some_and(|last| last != core) {
            cost += pace.of(costs.migration);
        }
        entry.place = Place::Switching;
        entry.loaded = false;
        self.queue.set(Slot::Step(vcpu), at + cost);
        self.has_core(vcpu, true);
    }

    /// What the thread that hands the core over does before the next one is there.
    fn farewell(&mut self, core: CoreId, next: VcpuId) -> Nanos {
        let overtaken = &mut self.overtaken[core.index()];
        if *overtaken == Some(next) {
            *overtaken = None;
        }
        match self.leaver {
            Some(leaver) if leaver == next => Nanos::ZERO,
            Some(leaver) if self.vcpus[next.index()].rested => {
                *overtaken = Some(leaver);
                Nanos::ZERO
            }
            _ => self.costs.park,
        }
    }

    /// How dear what the host does next is.
    pub(crate) fn pace(&mut self) -> Pace {
        self.costs.pace(&mut self.chance)
    }

    /// What something that the host does costs this time.
    pub(crate) fn drawn(&mut self, cost: Nanos) -> Nanos {
        self.pace().of(cost)
    }

    /// What is bound to a stay on a core ends with it.
    fn off_core(&mut self, vcpu: VcpuId) {
        self.queue.cancel(Slot::Signal(vcpu));
        let entry = self.vcpu(vcpu);
        entry.kicked = false;
        entry.owed = false;
    }

    /// Sends a signal to the vCPU's thread, unless one is on its way. It arrives when the thread has its core.
    pub(crate) fn signal(&mut self, vcpu: VcpuId) {
        let slot = Slot::Signal(vcpu);
        if self.queue.is_set(slot) {
            return;
        }
        let core = self.vcpus[vcpu.index()].core;
        let taken = core.map(|core| self.interference.left(core, self.now));
        let after = taken.unwrap_or_default().max(self.drawn(self.costs.kick));
        self.queue.set(slot, self.now + after);
    }
}
