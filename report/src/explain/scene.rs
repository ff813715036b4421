//! Where everybody and everything is at one instant of a run, taken from its stream up to then.
//!
//! States, cores and owners come from events; until when a slice lasts comes from the timers that the
//! dispatcher armed. All instants in nanoseconds since the start of the run.

use std::collections::BTreeMap;
use stealtime_scheduler::effect::Effect;
use stealtime_scheduler::event::{
    Charged, Event, EventKind, Owns, PreemptReason, Queues, Standing, Until, Waits, WakeSource,
};
use stealtime_scheduler::ids::{CoreId, GuestLockId, HostLockId, VcpuId};
use stealtime_scheduler::input::{ExitReason, Input, Timer};
use stealtime_workloads::run::Entry;

/// Where a vCPU is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum State {
    /// Not yet admitted.
    #[default]
    Unborn,
    /// It could run.
    Ready(Became),
    /// It was granted a core, which its thread has not entered yet.
    Granted(CoreId),
    /// It runs guest code.
    Running(CoreId),
    /// It is on its core while the hypervisor works for it.
    Hypervisor(CoreId, ExitReason),
    /// It waits.
    Blocked(Waits),
    /// It is gone.
    Retired,
}

/// How a vCPU became ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Became {
    Admitted,
    Woken(WakeSource),
    Preempted(PreemptReason),
    Yielded,
}

/// A standing that is not plain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Stand {
    pub(super) now: Standing,
    pub(super) since: u64,
    /// The host lock that it held when it got its kernel priority.
    pub(super) lock: Option<HostLockId>,
    /// When it released that lock.
    pub(super) released: Option<u64>,
    /// How often its thread has been in user mode since.
    pub(super) user_returns: u64,
}

/// A vCPU.
#[derive(Clone, Debug, Default)]
pub(super) struct Vcpu {
    pub(super) state: State,
    pub(super) since: u64,
    /// It is in no queue until this one moves: it is set aside for it, or lends it its turn.
    pub(super) behind: Option<VcpuId>,
    pub(super) stand: Stand,
    /// Host locks that it holds, and since when; the last taken last.
    pub(super) holds: Vec<(HostLockId, u64)>,
    /// The mutex that it was woken to take, if it has not got so far yet.
    pub(super) retries: Option<HostLockId>,
    /// By its guest's last word.
    pub(super) guest_locks: u16,
    pub(super) critical: u16,
    /// The guest lock that it waits for, spinning or asleep, and since when.
    pub(super) wants: Option<(GuestLockId, u64)>,
    /// It uses the turn of this one, and who is charged.
    pub(super) donor: Option<(VcpuId, Charged)>,
}

/// A core.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Core {
    pub(super) vcpu: Option<VcpuId>,
    /// Since when its vCPU has it, or it is idle.
    pub(super) since: u64,
    pub(super) kicked: Option<(u64, PreemptReason)>,
    pub(super) owed: Option<(u64, PreemptReason, Until)>,
    /// When the slice on it ends, if a timer is armed for that.
    pub(super) slice_ends: Option<u64>,
    /// Until when, at the latest, a preemption on it is put off.
    pub(super) grace_ends: Option<u64>,
}

/// A lock.
#[derive(Clone, Debug, Default)]
pub(super) struct Lock {
    pub(super) owners: Vec<VcpuId>,
    /// Since when it is owned by the first of them, or free.
    pub(super) since: u64,
}

/// Everything at one instant.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub(super) now: u64,
    pub(super) vcpus: Vec<Vcpu>,
    pub(super) cores: Vec<Core>,
    /// Who is queued on which core.
    pub(super) queues: Queues,
    pub(super) host_locks: Vec<Lock>,
    pub(super) guest_locks: BTreeMap<GuestLockId, Lock>,
}

impl State {
    /// The core that it is on, or on its way to.
    pub(super) const fn core(self) -> Option<CoreId> {
        match self {
            Self::Granted(core) | Self::Running(core) | Self::Hypervisor(core, _) => Some(core),
            Self::Unborn | Self::Ready(_) | Self::Blocked(_) | Self::Retired => None,
        }
    }
}

impl Scene {
    /// The scene before anything has happened.
    pub(super) fn new(vcpus: usize, cores: usize, host_locks: usize) -> Self {
        Self {
            now: 0,
            vcpus: vec![Vcpu::default(); vcpus],
            cores: vec![Core::default(); cores],
            queues: Queues::new(vcpus, cores),
            host_locks: vec![Lock::default(); host_locks],
            guest_locks: BTreeMap::new(),
        }
    }

    /// Takes note of the next entry.
    pub(super) fn entry(&mut self, entry: &Entry) {
        match entry {
            Entry::Input(at, input) => {
                self.now = self.now.max(at.0);
                if let Input::TimerDue { timer } = input {
                    self.timer(*timer, None);
                }
            }
            Entry::Effect(Effect::Arm { timer, at }) => self.timer(*timer, Some(at.0)),
            Entry::Effect(Effect::Cancel { timer }) => self.timer(*timer, None),
            Entry::Effect(_) => {}
            Entry::Event(event) => self.event(event),
        }
    }

    /// A timer is armed, or not any more.
    fn timer(&mut self, timer: Timer, ends: Option<u64>) {
        let (Timer::Slice(core) | Timer::Grace(core)) = timer else {
            return;
        };
        if let Some(core) = self.cores.get_mut(core.index()) {
            match timer {
                Timer::Slice(_) => core.slice_ends = ends,
                _ => core.grace_ends = ends,
            }
        }
    }

    fn event(&mut self, event: &Event) {
        self.now = self.now.max(event.at.0);
        let vcpu = event.vcpu;
        if vcpu.index() >= self.vcpus.len() {
            return;
        }
        self.queues.event(event);
        self.behind(vcpu, event.kind);
        match event.kind {
            EventKind::Admitted => self.ready(vcpu, Became::Admitted),
            EventKind::Woken(by) => self.woken(vcpu, by),
            EventKind::Preempted(_, why) => self.ready(vcpu, Became::Preempted(why)),
            EventKind::Yielded(_) => self.ready(vcpu, Became::Yielded),
            EventKind::Granted(core) => self.granted(vcpu, core),
            EventKind::Running(core) => self.ran(vcpu, core),
            EventKind::Exited(why) => {
                if let Some(core) = self.vcpus[vcpu.index()].state.core() {
                    self.enter(vcpu, State::Hypervisor(core, why));
                }
            }
            EventKind::Resumed => {
                if let Some(core) = self.vcpus[vcpu.index()].state.core() {
                    self.enter(vcpu, State::Running(core));
                }
            }
            EventKind::Blocked(on) => self.blocked(vcpu, on),
            EventKind::Retired(_) => {
                self.leave(vcpu);
                self.enter(vcpu, State::Retired);
            }
            EventKind::Kicked(core, why) => {
                let now = self.now;
                if let Some(core) = self.cores.get_mut(core.index()) {
                    core.kicked.get_or_insert((now, why));
                }
            }
            EventKind::Owed(core, why, until) => {
                let now = self.now;
                if let Some(core) = self.cores.get_mut(core.index()) {
                    core.owed.get_or_insert((now, why, until));
                }
            }
            EventKind::Borrows { donor, charged } => {
                self.vcpus[vcpu.index()].donor = Some((donor, charged));
            }
            kind => self.of_locks(vcpu, kind),
        }
    }

    /// For whose sake somebody is in no queue, and from when on it is in one again.
    fn behind(&mut self, vcpu: VcpuId, kind: EventKind) {
        match kind {
            EventKind::SetAside { behind } => self.vcpus[vcpu.index()].behind = behind,
            EventKind::Borrows { donor, .. } => {
                if let Some(donor) = self.vcpus.get_mut(donor.index()) {
                    donor.behind = Some(vcpu);
                }
            }
            EventKind::Placed(_) | EventKind::Granted(_) | EventKind::Blocked(_) => {
                self.vcpus[vcpu.index()].behind = None;
            }
            _ => {}
        }
    }

    /// Locks, standings, and what else befalls a vCPU without moving it.
    fn of_locks(&mut self, vcpu: VcpuId, kind: EventKind) {
        let now = self.now;
        let entry = &mut self.vcpus[vcpu.index()];
        match kind {
            EventKind::Standing(standing) => stand(entry, standing, now),
            EventKind::UserReturn => entry.stand.user_returns += 1,
            EventKind::HostLockTaken(lock) => {
                entry.holds.retain(|(held, _)| *held != lock);
                entry.holds.push((lock, now));
                entry.retries = None;
                if let Some(lock) = self.host_locks.get_mut(lock.index()) {
                    lock.taken(vcpu, now);
                }
            }
            EventKind::HostLockReleased(lock) => {
                entry.holds.retain(|(held, _)| *held != lock);
                if entry.stand.lock == Some(lock) {
                    entry.stand.released.get_or_insert(now);
                }
                if let Some(lock) = self.host_locks.get_mut(lock.index()) {
                    lock.released(vcpu, now);
                }
            }
            EventKind::Locks {
                held,
                critical,
                waits_for,
                ..
            } => {
                (entry.guest_locks, entry.critical) = (held, critical);
                let before = entry.wants;
                let same = |lock: &GuestLockId| before.filter(|(wanted, _)| wanted == lock);
                entry.wants = waits_for.map(|lock| same(&lock).unwrap_or((lock, now)));
            }
            EventKind::GuestOwner { lock, owns } => {
                let lock = self.guest_locks.entry(lock).or_default();
                match owns {
                    // One at a time: who owns it now has it from whoever did.
                    Owns::Yes => {
                        lock.owners.clear();
                        lock.taken(vcpu, now);
                    }
                    Owns::NoLonger => lock.released(vcpu, now),
                }
            }
            _ => {}
        }
    }

    fn enter(&mut self, vcpu: VcpuId, state: State) {
        let now = self.now;
        let entry = &mut self.vcpus[vcpu.index()];
        entry.state = state;
        entry.since = now;
    }

    /// Its core is free.
    fn leave(&mut self, vcpu: VcpuId) {
        let now = self.now;
        self.vcpus[vcpu.index()].donor = None;
        let on = self.vcpus[vcpu.index()].state.core();
        let core = on.and_then(|core| self.cores.get_mut(core.index()));
        if let Some(core) = core.filter(|core| core.vcpu == Some(vcpu)) {
            *core = Core {
                vcpu: None,
                since: now,
                kicked: None,
                owed: None,
                ..*core
            };
        }
    }

    fn ready(&mut self, vcpu: VcpuId, became: Became) {
        self.leave(vcpu);
        self.enter(vcpu, State::Ready(became));
    }

    fn woken(&mut self, vcpu: VcpuId, by: WakeSource) {
        let waited = match (self.vcpus[vcpu.index()].state, by) {
            (State::Blocked(Waits::HostLock(lock, _)), WakeSource::HostLock(_)) => Some(lock),
            _ => None,
        };
        // Of a lock that is handed over it is the owner already when it wakes.
        let owned = |lock: &HostLockId| {
            let holds = &self.vcpus[vcpu.index()].holds;
            holds.iter().any(|(held, _)| held == lock)
        };
        let retries = waited.filter(|lock| !owned(lock));
        self.ready(vcpu, Became::Woken(by));
        self.vcpus[vcpu.index()].retries = retries;
    }

    fn granted(&mut self, vcpu: VcpuId, core: CoreId) {
        let now = self.now;
        self.enter(vcpu, State::Granted(core));
        if let Some(core) = self.cores.get_mut(core.index()) {
            *core = Core {
                vcpu: Some(vcpu),
                since: now,
                kicked: None,
                owed: None,
                ..*core
            };
        }
    }

    fn ran(&mut self, vcpu: VcpuId, core: CoreId) {
        let now = self.now;
        self.enter(vcpu, State::Running(core));
        let entry = &mut self.vcpus[vcpu.index()];
        entry.retries = None;
        if let Some(core) = self.cores.get_mut(core.index()) {
            core.vcpu = Some(vcpu);
            core.since = now;
        }
    }

    fn blocked(&mut self, vcpu: VcpuId, on: Waits) {
        self.leave(vcpu);
        self.enter(vcpu, State::Blocked(on));
        let now = self.now;
        let entry = &mut self.vcpus[vcpu.index()];
        entry.retries = None;
        if let Waits::GuestLock(lock) = on {
            entry.wants.get_or_insert((lock, now));
        }
    }
}

fn stand(vcpu: &mut Vcpu, standing: Standing, now: u64) {
    // A boost may come and go while a kernel priority stays.
    if standing.kernel_priority && vcpu.stand.now.kernel_priority {
        vcpu.stand.now = standing;
        return;
    }
    vcpu.stand = Stand {
        now: standing,
        since: now,
        lock: vcpu.holds.last().map(|(lock, _)| *lock),
        released: None,
        user_returns: 0,
    };
}

impl Lock {
    fn taken(&mut self, vcpu: VcpuId, now: u64) {
        if self.owners.is_empty() {
            self.since = now;
        }
        self.owners.retain(|owner| *owner != vcpu);
        self.owners.push(vcpu);
    }

    fn released(&mut self, vcpu: VcpuId, now: u64) {
        self.owners.retain(|owner| *owner != vcpu);
        if self.owners.is_empty() {
            self.since = now;
        }
    }
}
