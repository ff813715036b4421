//! The dispatcher: inputs with timestamps in, effects and events out.
//!
//! It owns cores, vCPU states, host locks and timers, asks the [`Policy`] for every decision and
//! checks the answer. It reads no clock, starts no thread and does no I/O, so a recorded run's inputs
//! fed to a fresh dispatcher give the same effects, one for one.
//!
//! # Invariants
//! Whatever a policy answers:
//! * a core has at most one vCPU, and a vCPU at most one core;
//! * a vCPU leaves a core only after it said so itself (stopped, blocked, yielded, retired);
//! * no core is idle while a vCPU is ready, unless the policy says that it is meant to be;
//! * the time charged to a vCPU equals the time from its entering cores to its leaving them.
//!
//! # Order
//! Inputs are handled in the order given. Among idle cores the lowest number is filled first.
//!
//! # Two contexts
//! With a layer that follows chains of locks ([`crate::layers`]) the vCPU that executes on a core is
//! not always the one whose turn it is. The *scheduling context* is what the policy knows: whom it
//! picked, whose slice runs, who is charged. The *execution context* is who runs. They differ while a
//! *donor*, which waits for a lock, lends its turn to the owner.

mod aside;
mod books;
mod chain;
mod check;
mod deadlock;
mod donate;
mod grace;
mod guest_locks;
mod host_locks;
mod inputs;
mod leave;
mod lock_inputs;
mod moving;
mod next;
mod preempt;
mod ready;
mod spin;
#[cfg(test)]
mod tests;

pub use check::{Violation, ViolationReport};

use crate::effect::Effect;
use crate::event::{Event, EventKind, PreemptReason, Standing, Until, Waits};
use crate::ids::{CoreId, GuestLockId, HostLockId, VcpuId, VmId};
use crate::input::{GuestHints, GuestLocks, Input, Timer};
use crate::layers::Layers;
use crate::policy::{Clocks, Policy, Refused, Slice, VcpuParams, WorkConserving};
use crate::registry::{self, PolicyInfo, ScheduledBy};
use crate::spec::{PolicySpec, SpecError};
use crate::time::Nanos;
use host_locks::{Claim, HostLocks};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// All that a dispatcher must know before a run; kept with a recorded run for its replay.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Config {
    /// The policy, with options and layers.
    pub policy: PolicySpec,
    /// How many host cores there are to hand out (at least one).
    pub cores: u16,
    /// How many host locks the programs use.
    pub host_locks: u16,
    /// Every vCPU, in order of its id (at least one).
    pub vcpus: Vec<VcpuParams>,
}

/// A set-up that cannot be run.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// The policy string.
    #[error(transparent)]
    Policy(#[from] SpecError),
    /// A parameter of a vCPU.
    #[error("{vcpu}: {refused}")]
    Param {
        /// Whose.
        vcpu: VcpuId,
        /// What, and what would do.
        #[source]
        refused: Refused,
    },
    /// Nothing to schedule, or nowhere to schedule it.
    #[error("a run needs at least one {0}")]
    None(&'static str),
}

/// What came of an input. Kept by the caller and reused from call to call.
#[derive(Default, Debug)]
pub struct Output {
    /// To be carried out, in this order.
    pub effects: Vec<Effect>,
    /// For those who measure, in this order.
    pub events: Vec<Event>,
}

impl Output {
    /// Empties it, keeping its room.
    pub fn clear(&mut self) {
        self.effects.clear();
        self.events.clear();
    }
}

/// Where a vCPU is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Declared, not yet admitted.
    Unborn,
    /// On a run queue of the policy.
    Ready,
    /// A core was granted; its thread is on the way.
    Granted(CoreId, Slice),
    /// On a core.
    Running(CoreId),
    /// Its turn on the core is used by the owner of the lock that it waits for.
    Lent(CoreId),
    /// Runnable, but set aside: it spins for a lock whose owner is on a core.
    Aside,
    /// Off core, waiting.
    Blocked(Waits),
    /// Gone.
    Retired,
}

#[derive(Debug)]
struct Vcpu {
    vm: VmId,
    state: State,
    /// The core for which it is in a queue of the policy: while it is ready, and maybe while it uses the
    /// turn of another.
    queued: Option<CoreId>,
    /// Where whoever reads the events takes it to be queued when it is ready.
    told: Option<CoreId>,
    /// What it waits for, asleep, though as a donor it may be ready or have lent its turn.
    sleeps: Option<Waits>,
    /// The guest's last word on its locks.
    guest: GuestLocks,
    /// For how many windows it has spun for a lock, at the ends of which nobody was known to own it, nor
    /// between them.
    windows_in_vain: u8,
    /// It is set aside until this one leaves its core, wakes, or gives up a lock.
    behind: Option<VcpuId>,
    /// It has moved to the queue of its owner's core.
    moved: bool,
    /// Those that are set aside until this one does so.
    followers: Vec<VcpuId>,
    last_core: Option<CoreId>,
    /// Since when it is ready, to choose fairly if the policy's own choice is unusable.
    ready_since: Nanos,
    ran: Nanos,
    /// Charged to its account, whoever ran.
    charged: Nanos,
    /// What it ran beyond its turns by grace, and has not repaid.
    borrowed: Nanos,
    pending_interrupts: u32,
    /// Before this none of them can have been handled: the first was raised then, or the handler of another ran.
    interrupted_since: Nanos,
    periodic: Option<(Nanos, u8)>,
    standing: Standing,
    /// The mutex that it tries to take when it next gets a core.
    retry: Option<(HostLockId, Claim)>,
    /// A wake-up by its own guest that came before it slept.
    woken_early: bool,
    /// It is in a circle of waits that was told of.
    deadlocked: bool,
    /// It has left its guest and not yet gone back.
    exited: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Core {
    /// Who executes.
    vcpu: Option<VcpuId>,
    /// Whose turn it is, if that is another one.
    donor: Option<VcpuId>,
    /// The stay began then, of which so much was charged, up to `charged_to`.
    entered: Nanos,
    charged_to: Nanos,
    charged: Nanos,
    kicked: Option<PreemptReason>,
    /// A preemption that is remembered, and when it is to be looked at.
    owed: Option<(Until, PreemptReason)>,
    slice_armed: Option<Nanos>,
    /// A preemption is put off since then.
    grace: Option<Nanos>,
    grace_armed: Option<Nanos>,
}

/// The state machine. See the module.
#[derive(Debug)]
pub struct Dispatcher {
    policy: Box<dyn Policy>,
    info: &'static PolicyInfo,
    clocks: Clocks,
    layers: Layers,
    now: Nanos,
    cores: Vec<Core>,
    busy: usize,
    vcpus: Vec<Vcpu>,
    /// The vCPUs of each VM.
    vms: Vec<Vec<VcpuId>>,
    ready: usize,
    /// How many are set aside though they could run.
    aside: usize,
    locks: HostLocks,
    guest_owners: BTreeMap<GuestLockId, VcpuId>,
    /// Who was put on a queue elsewhere while a core was being given away: to be considered there.
    placed: Vec<(VcpuId, CoreId)>,
    /// Circles of waits that may be tricks of reading words one after the other, and since when.
    suspects: Vec<(Nanos, Vec<VcpuId>)>,
    wake_armed: Vec<Option<Nanos>>,
    periodic_armed: Vec<Option<Nanos>>,
    tick_armed: Option<Nanos>,
    period_armed: Option<Nanos>,
    policy_armed: Option<Nanos>,
    violations: Vec<ViolationReport>,
    violation_count: u64,
}

impl Dispatcher {
    /// A dispatcher at the start of a run: every vCPU declared, none admitted.
    ///
    /// # Errors
    /// If the policy string, an option or a parameter is not understood: nothing is ignored.
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        let (info, options) = registry::check(&config.policy)?;
        if config.cores == 0 {
            return Err(ConfigError::None("core"));
        }
        if config.vcpus.is_empty() {
            return Err(ConfigError::None("vCPU"));
        }
        let cores = match info.scheduled_by {
            ScheduledBy::Policy => config.cores,
            ScheduledBy::Host => u16::try_from(config.vcpus.len()).unwrap_or(u16::MAX),
        };
        let policy = (info.build)(&options, cores);
        Self::with_policy(config, info, policy, cores)
    }

    /// The same with a policy that is not in the registry (tests, experiments).
    ///
    /// # Errors
    /// If the policy refuses a parameter.
    pub fn with_policy(
        config: &Config,
        info: &'static PolicyInfo,
        mut policy: Box<dyn Policy>,
        cores: u16,
    ) -> Result<Self, ConfigError> {
        for (index, params) in config.vcpus.iter().enumerate() {
            let vcpu = VcpuId(u32::try_from(index).unwrap_or(u32::MAX));
            policy
                .declare(vcpu, params)
                .map_err(|refused| ConfigError::Param { vcpu, refused })?;
        }
        let clocks = policy.clocks();
        let vcpus = config
            .vcpus
            .iter()
            .map(|params| Vcpu::unborn(params.vm))
            .collect();
        let layers = Layers::of(&config.policy, info)?;
        let mut vms: Vec<Vec<VcpuId>> = Vec::new();
        for (vcpu, params) in (0..).map(VcpuId).zip(&config.vcpus) {
            if vms.len() <= params.vm.index() {
                vms.resize(params.vm.index() + 1, Vec::new());
            }
            vms[params.vm.index()].push(vcpu);
        }
        Ok(Self {
            policy,
            info,
            clocks,
            layers,
            now: Nanos::ZERO,
            cores: vec![Core::default(); usize::from(cores)],
            busy: 0,
            vcpus,
            vms,
            ready: 0,
            aside: 0,
            locks: HostLocks::new(config.host_locks),
            guest_owners: BTreeMap::new(),
            placed: Vec::new(),
            suspects: Vec::new(),
            wake_armed: vec![None; config.vcpus.len()],
            periodic_armed: vec![None; config.vcpus.len()],
            tick_armed: None,
            period_armed: None,
            policy_armed: None,
            violations: Vec::new(),
            violation_count: 0,
        })
    }

    /// Takes note of what happened at `now` and decides what follows. What was in `out` stays before
    /// what is added.
    ///
    /// A time before the last input's is taken as the last input's.
    pub fn handle(&mut self, now: Nanos, input: Input, out: &mut Output) {
        self.now = self.now.max(now);
        self.dispatch(input, out);
        self.consider_placed(out);
        self.fill_idle_cores(out);
        self.fill_with_those_aside(out);
        self.arm_clocks(out);
    }

    /// The policy's own word on itself.
    #[must_use]
    pub const fn policy_info(&self) -> &'static PolicyInfo {
        self.info
    }

    /// How guests are to take their locks.
    #[must_use]
    pub fn guest_hints(&self) -> GuestHints {
        self.layers.hints()
    }

    /// Whether a layer looks at guest locks: then every vCPU that waits matters, not only those on
    /// cores.
    #[must_use]
    pub const fn lock_aware(&self) -> bool {
        self.layers.any()
    }

    /// How many cores the dispatcher knows. Under a policy that leaves scheduling to the host that is
    /// the number of vCPUs.
    #[must_use]
    pub fn cores(&self) -> usize {
        self.cores.len()
    }

    /// Who is on the core, or on the way to it.
    #[must_use]
    pub fn on_core(&self, core: CoreId) -> Option<VcpuId> {
        self.cores.get(core.index()).and_then(|c| c.vcpu)
    }

    /// What puts a vCPU before or behind others just now, in the policy's own terms.
    #[must_use]
    pub fn rank(&self, vcpu: VcpuId) -> Option<String> {
        self.policy.rank(vcpu)
    }

    /// How many vCPUs wait for a core.
    #[must_use]
    pub const fn ready(&self) -> usize {
        self.ready
    }

    /// The first violations of the policy, with dumps.
    #[must_use]
    pub fn violations(&self) -> &[ViolationReport] {
        &self.violations
    }

    /// How many violations there were in all.
    #[must_use]
    pub const fn violation_count(&self) -> u64 {
        self.violation_count
    }

    /// Whether cores may be idle by the policy's intent while somebody waits.
    pub fn conserving(&self) -> WorkConserving {
        self.policy.conserving()
    }

    fn vcpu(&mut self, vcpu: VcpuId) -> &mut Vcpu {
        &mut self.vcpus[vcpu.index()]
    }

    fn emit(&self, out: &mut Output, vcpu: VcpuId, kind: EventKind) {
        out.events.push(Event {
            at: self.now,
            vcpu,
            kind,
        });
    }

    /// Tells of a changed standing after a call that may have changed it.
    fn note_standing(&mut self, vcpu: VcpuId, out: &mut Output) {
        let standing = self.policy.standing(vcpu);
        if self.vcpus[vcpu.index()].standing != standing {
            self.vcpu(vcpu).standing = standing;
            self.emit(out, vcpu, EventKind::Standing(standing));
        }
    }

    fn arm_clocks(&mut self, out: &mut Output) {
        if let (Some(tick), None, true) = (self.clocks.tick, self.tick_armed, self.busy > 0) {
            let at = next_multiple(self.now, tick);
            self.tick_armed = Some(at);
            out.effects.push(Effect::Arm {
                timer: Timer::Tick,
                at,
            });
        }
        if let (Some(period), None) = (self.clocks.period, self.period_armed) {
            let at = next_multiple(self.now, period);
            self.period_armed = Some(at);
            out.effects.push(Effect::Arm {
                timer: Timer::Period,
                at,
            });
        }
        let wanted = self.policy.wants_timer();
        if wanted != self.policy_armed {
            let timer = Timer::Policy;
            out.effects
                .push(wanted.map_or(Effect::Cancel { timer }, |at| Effect::Arm { timer, at }));
            self.policy_armed = wanted;
        }
    }
}

impl Vcpu {
    fn unborn(vm: VmId) -> Self {
        Self {
            vm,
            state: State::Unborn,
            queued: None,
            told: None,
            sleeps: None,
            guest: GuestLocks::default(),
            windows_in_vain: 0,
            behind: None,
            moved: false,
            followers: Vec::new(),
            last_core: None,
            ready_since: Nanos::ZERO,
            ran: Nanos::ZERO,
            charged: Nanos::ZERO,
            borrowed: Nanos::ZERO,
            pending_interrupts: 0,
            interrupted_since: Nanos::ZERO,
            periodic: None,
            standing: Standing::default(),
            retry: None,
            woken_early: false,
            deadlocked: false,
            exited: false,
        }
    }
}

/// The first multiple of `step` after `now`: clocks keep their phase, whatever delays a tick.
fn next_multiple(now: Nanos, step: Nanos) -> Nanos {
    Nanos((now.0 / step.0 + 1) * step.0)
}
