//! The fair queue of `relaxed`, which decides wherever nobody is stopped.

use super::progress::Progress;
use super::skew::Rules;
use crate::heap::KeyedHeap;
use crate::ids::{CoreId, VcpuId};
use crate::policy::Slice;
use crate::queue::KeyedQueue;
use crate::spec::Options;
use crate::time::Nanos;

/// Virtual nanoseconds for a nanosecond of a vCPU that is alone in a VM with one share.
const SCALE: u64 = 1 << 16;

/// Where a vCPU is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// Halted, waiting for the hypervisor, not begun, gone.
    Away,
    /// Runnable: queued or stopped, or given a core that it has not been picked for yet.
    Waits,
    On(CoreId),
}

#[derive(Debug)]
pub(super) struct Vcpu {
    pub(super) vm: usize,
    /// Its index among the members of the VM.
    member: u32,
    pub(super) vruntime: i128,
    pub(super) progress: Progress,
    /// Set by [`Relaxed::moves`] alone.
    pub(super) place: Place,
    /// It does not run until it is released. Set by [`Relaxed::set_stopped`] alone.
    pub(super) stopped: bool,
    pub(super) home: CoreId,
    /// What it has gained of skew (ESX 2).
    pub(super) skew: Nanos,
    /// Its progress at the last poll (ESX 2).
    pub(super) seen: Nanos,
}

#[derive(Debug)]
pub(super) struct Vm {
    pub(super) shares: u64,
    pub(super) members: Vec<VcpuId>,
    /// Members that are not away.
    pub(super) runnable: u32,
    /// Those of them that wait, by progress, of which they make none.
    pub(super) waiting: KeyedHeap<Nanos>,
    /// The others.
    pub(super) on_cores: Vec<VcpuId>,
    /// How many members are stopped.
    pub(super) stopped: u32,
    /// No waiting member has made more progress than this.
    pub(super) most: Nanos,
    /// All of it is stopped (ESX 2).
    pub(super) held: bool,
}

#[derive(Clone, Default, Debug)]
pub(super) struct Core {
    pub(super) running: Option<VcpuId>,
    /// The end of the quantum.
    pub(super) until: Nanos,
    /// Who woke and preempted the one that runs, and takes its place.
    pub(super) claimed_by: Option<VcpuId>,
    /// The VM whose vCPU was stopped here: a laggard of it goes first.
    pub(super) handed_to: Option<usize>,
    /// Who starts here together with its VM (ESX 2).
    pub(super) given_to: Option<VcpuId>,
}

#[derive(Debug)]
pub(super) struct Relaxed {
    pub(super) rules: Rules,
    pub(super) poll: Nanos,
    pub(super) quantum: Nanos,
    lead: Nanos,
    lag: Nanos,
    pub(super) vms: Vec<Vm>,
    pub(super) vcpus: Vec<Vcpu>,
    pub(super) cores: Vec<Core>,
    /// Runnable vCPUs that are not stopped, by virtual run time.
    pub(super) queue: KeyedQueue<i128>,
    /// How many VMs are held.
    pub(super) held: usize,
    /// The least virtual run time of any that is queued or runs; it never goes back.
    floor: i128,
}

impl Relaxed {
    pub(super) fn new(options: &Options, cores: u16) -> Self {
        Self {
            rules: Rules::of(options),
            poll: options.time("poll"),
            quantum: options.time("quantum"),
            lead: options.time("lead"),
            lag: options.time("lag"),
            vms: Vec::new(),
            vcpus: Vec::new(),
            cores: vec![Core::default(); usize::from(cores)],
            queue: KeyedQueue::default(),
            held: 0,
            floor: 0,
        }
    }

    pub(super) fn add(&mut self, vcpu: VcpuId, vm: usize, shares: u32) {
        while self.vms.len() <= vm {
            self.vms.push(Vm {
                shares: 1,
                members: Vec::new(),
                runnable: 0,
                waiting: KeyedHeap::default(),
                on_cores: Vec::new(),
                stopped: 0,
                most: Nanos::ZERO,
                held: false,
            });
        }
        self.vms[vm].shares = u64::from(shares);
        self.vms[vm].members.push(vcpu);
        let siblings = self.vms[vm].members.len() - 1;
        self.vcpus.push(Vcpu {
            vm,
            member: u32::try_from(siblings).unwrap_or(u32::MAX),
            vruntime: 0,
            progress: Progress::default(),
            place: Place::Away,
            stopped: false,
            home: CoreId(0),
            skew: Nanos::ZERO,
            seen: Nanos::ZERO,
        });
    }

    pub(super) fn entry(&mut self, vcpu: VcpuId) -> &mut Vcpu {
        &mut self.vcpus[vcpu.index()]
    }

    /// Virtual nanoseconds for a nanosecond of the vCPU.
    fn rate(&self, vcpu: VcpuId) -> i128 {
        let vm = &self.vms[self.vcpus[vcpu.index()].vm];
        i128::from(SCALE * u64::from(vm.runnable.max(1)) / vm.shares)
    }

    /// virtual run time += ran · SCALE · (runnable vCPUs of the VM) / shares.
    pub(super) fn advance(&mut self, vcpu: VcpuId, ran: Nanos) {
        let passed = i128::from(ran.0) * self.rate(vcpu);
        self.entry(vcpu).vruntime += passed;
        let queued = self.queue.first().map(|(vruntime, _)| vruntime);
        let on = self.cores.iter().filter_map(|core| core.running);
        let running = on.map(|vcpu| self.vcpus[vcpu.index()].vruntime).min();
        if let Some(least) = queued.into_iter().chain(running).min() {
            self.floor = self.floor.max(least);
        }
    }

    /// The vCPU is runnable from now on. If it was halted it is no laggard.
    pub(super) fn arrives(&mut self, now: Nanos, vcpu: VcpuId) {
        let slowest = self.slowest(now, self.vcpus[vcpu.index()].vm);
        let least = self.floor - i128::from(self.lag.0) * self.rate(vcpu);
        let entry = self.entry(vcpu);
        entry.vruntime = entry.vruntime.max(least);
        if entry.progress.goes_on() {
            entry.progress.ends(now);
            entry.progress.lift(slowest.unwrap_or(Nanos::ZERO));
        }
    }

    /// The vCPU is elsewhere from now on.
    pub(super) fn moves(&mut self, vcpu: VcpuId, to: Place) {
        let entry = &mut self.vcpus[vcpu.index()];
        let from = std::mem::replace(&mut entry.place, to);
        let vm = &mut self.vms[entry.vm];
        match from {
            Place::Away => vm.runnable += 1,
            Place::Waits => {
                vm.waiting.remove(entry.member);
            }
            Place::On(_) => vm.on_cores.retain(|other| *other != vcpu),
        }
        match to {
            Place::Away => vm.runnable -= 1,
            Place::Waits => {
                let made = entry.progress.made();
                vm.waiting.insert(entry.member, made);
                vm.most = vm.most.max(made);
            }
            Place::On(_) => vm.on_cores.push(vcpu),
        }
    }

    /// Whether the vCPU is stopped from now on.
    pub(super) fn set_stopped(&mut self, vcpu: VcpuId, stopped: bool) {
        let entry = &mut self.vcpus[vcpu.index()];
        let was = std::mem::replace(&mut entry.stopped, stopped);
        let vm = &mut self.vms[entry.vm];
        vm.stopped = vm.stopped + u32::from(stopped) - u32::from(was);
    }

    /// The vCPU has the core: a laggard for what is left of the quantum, anybody else for a new one.
    pub(super) fn sits(&mut self, now: Nanos, core: CoreId, vcpu: VcpuId) -> Slice {
        if self.laggard_for(now, core) != Some(vcpu) {
            self.cores[core.index()].until = now + self.quantum;
        }
        self.queue.remove(vcpu);
        self.moves(vcpu, Place::On(core));
        self.set_stopped(vcpu, false);
        self.entry(vcpu).home = core;
        let core = &mut self.cores[core.index()];
        core.running = Some(vcpu);
        core.handed_to = None;
        core.claimed_by = None;
        Slice::For(core.until - now)
    }

    /// The vCPU leaves the core, for wherever.
    pub(super) fn leaves(&mut self, now: Nanos, core: CoreId, vcpu: VcpuId) {
        self.cores[core.index()].running = None;
        self.entry(vcpu).progress.ends(now);
    }

    /// The vCPU is no longer runnable.
    pub(super) fn goes_away(&mut self, vcpu: VcpuId) {
        self.set_stopped(vcpu, false);
        self.moves(vcpu, Place::Away);
    }

    /// Queues a vCPU; one that yields goes behind all others.
    pub(super) fn queue_up(&mut self, vcpu: VcpuId, yields: bool) {
        let last = self.queue.last().filter(|_| yields).map(|(key, _)| key);
        let own = self.vcpus[vcpu.index()].vruntime;
        self.queue
            .insert(vcpu, last.map_or(own, |last| last.max(own)));
    }

    /// Whether one on a core is so far ahead that the other takes its place.
    fn is_ahead(&self, running: VcpuId, of: VcpuId) -> bool {
        let ahead = self.vcpus[running.index()].vruntime - self.vcpus[of.index()].vruntime;
        ahead > i128::from(self.lead.0) * self.rate(of)
    }

    /// If one that runs is so far ahead that the other takes its place: it will, if it still waits then.
    pub(super) fn claims(&mut self, core: CoreId, running: VcpuId, by: VcpuId) -> bool {
        let claims = self.is_ahead(running, by);
        if claims {
            self.cores[core.index()].claimed_by = Some(by);
        }
        claims
    }

    /// Who claimed the core, else the first of the queue.
    pub(super) fn next(&self, core: CoreId) -> Option<VcpuId> {
        let claimed = self.cores[core.index()].claimed_by;
        let claimed = claimed.filter(|vcpu| self.queue.contains(*vcpu));
        claimed.or_else(|| self.queue.first().map(|(_, vcpu)| vcpu))
    }

    /// The core where a vCPU is to be considered: its last if that is idle, an idle one, or the one
    /// whose vCPU is furthest ahead; of equals the first.
    pub(super) fn considered(&self, vcpu: VcpuId) -> CoreId {
        let home = self.vcpus[vcpu.index()].home;
        if self.cores[home.index()].running.is_none() {
            return home;
        }
        let cores = (0..=u16::MAX).map(CoreId).zip(&self.cores);
        let used = cores.map(|(core, entry)| {
            let on = entry.running;
            let ahead = on.map_or(i128::MAX, |on| self.vcpus[on.index()].vruntime);
            (ahead, std::cmp::Reverse(core))
        });
        used.max().map_or(home, |(_, std::cmp::Reverse(core))| core)
    }
}
