//! The threads of `fss`: queue placement, the kernel-priority flag, the walk of each second.

use super::Variant;
use super::price::{Because, Nice, Pool, Value};
use crate::ids::{CoreId, VcpuId, VmId};
use crate::policies::illumos::{
    Class, Dispatch, End, KERNEL, LISTS, Matching, Member, TURNSTILE, Turnstiles,
};
use crate::spec::Options;
use crate::time::Nanos;

/// The priority of a new thread.
pub(super) const NEW: u8 = 29;

#[derive(Debug)]
pub(in crate::policies) struct Thread {
    pub(super) project: usize,
    pub(super) nice: Nice,
    pub(super) value: Value,
    /// Ticks of the quantum that are left.
    pub(super) left: i64,
    /// Its priority by price.
    pub(super) user: u8,
    /// Its priority now.
    pub(super) priority: u8,
    /// To the back of the queue when it leaves the core.
    pub(super) back: bool,
    /// It has the kernel-priority flag.
    pub(super) flag: bool,
    pub(super) requests: u32,
    /// It counts as runnable in its project.
    pub(super) active: bool,
    /// The tick in which it was last given a core.
    pub(super) dispatched: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Fss {
    pub(super) variant: Variant,
    /// Whether there is a kernel-priority flag.
    pub(super) kernel_priority: bool,
    pub(super) quantum: i64,
    pub(super) tick: Nanos,
    pub(super) pool: Pool,
    pub(super) zone: usize,
    pub(super) projects: Vec<(VmId, usize)>,
    pub(super) threads: Vec<Thread>,
    pub(super) dispatch: Dispatch,
    pub(super) turnstiles: Turnstiles,
    /// The list that the next walk begins with.
    marker: usize,
}

impl Member for Thread {
    fn priority(&self) -> u8 {
        self.priority
    }

    fn flagged(&self) -> bool {
        self.flag
    }

    fn requests(&mut self) -> &mut u32 {
        &mut self.requests
    }
}

impl Class for Fss {
    type Thread = Thread;

    fn parts(&self) -> (&[Thread], &Dispatch, &Turnstiles) {
        (&self.threads, &self.dispatch, &self.turnstiles)
    }

    fn parts_mut(&mut self) -> (&mut [Thread], &mut Dispatch, &mut Turnstiles) {
        (&mut self.threads, &mut self.dispatch, &mut self.turnstiles)
    }

    fn marker(&mut self) -> &mut usize {
        &mut self.marker
    }

    /// Prices the threads of one list; whether any was priced.
    fn walk(&mut self, now: Nanos, list: usize) -> bool {
        let mut priced = false;
        for index in (list..self.threads.len()).step_by(LISTS) {
            let thread = &mut self.threads[index];
            if self.kernel_priority && thread.flag {
                continue;
            }
            self.pool
                .decay_value(thread.project, thread.nice, &mut thread.value);
            let vcpu = VcpuId(u32::try_from(index).unwrap_or(u32::MAX));
            if !self.dispatch.queued(vcpu) {
                continue;
            }
            let old = thread.priority;
            let new = self.price(vcpu, Because::Second);
            priced = true;
            if new != old {
                let quantum = self.quantum;
                let thread = self.thread(vcpu);
                thread.priority = new;
                thread.left = quantum;
                self.settle(now, vcpu);
            }
        }
        priced
    }
}

impl Fss {
    pub(super) fn new(options: &Options, cores: u16) -> Self {
        let variant = match options.word("variant") {
            "classic" => Variant::Classic,
            "after" => Variant::After,
            _ => Variant::Before,
        };
        let kernel_priority = match options.word("kpri") {
            "on" => true,
            "off" => false,
            _ => variant != Variant::After,
        };
        let tick = options.time("tick");
        let ticks = options.time("quantum").get() / tick.get();
        let mut pool = Pool::new();
        // One zone: its shares against others are of no consequence.
        let zone = pool.add_zone(1);
        Self {
            variant,
            kernel_priority,
            quantum: i64::try_from(ticks).unwrap_or(i64::MAX),
            tick,
            pool,
            zone,
            projects: Vec::new(),
            threads: Vec::new(),
            dispatch: Dispatch::new(options, cores, Matching::Asked),
            turnstiles: Turnstiles::new(options.on(TURNSTILE.name)),
            marker: 0,
        }
    }

    pub(super) fn thread(&mut self, vcpu: VcpuId) -> &mut Thread {
        &mut self.threads[vcpu.index()]
    }

    pub(super) fn push(&mut self, now: Nanos, vcpu: VcpuId, end: End) -> CoreId {
        let priority = self.dispatch_priority(vcpu);
        self.dispatch.put(now, vcpu, priority, end)
    }

    pub(super) fn activate(&mut self, vcpu: VcpuId) {
        let thread = &mut self.threads[vcpu.index()];
        if !std::mem::replace(&mut thread.active, true) {
            self.pool.activate(thread.project);
        }
    }

    pub(super) fn deactivate(&mut self, vcpu: VcpuId) {
        let thread = &mut self.threads[vcpu.index()];
        if std::mem::replace(&mut thread.active, false) {
            self.pool.deactivate(thread.project);
        }
    }

    /// At the moments where a request is noticed, it becomes the flag.
    pub(super) fn catch_flag(&mut self, vcpu: VcpuId) {
        let kernel_priority = self.kernel_priority;
        let thread = self.thread(vcpu);
        if kernel_priority && !thread.flag && thread.requests > 0 {
            thread.flag = true;
            thread.priority = KERNEL;
        }
    }

    pub(super) fn clear_flag(&mut self, vcpu: VcpuId) {
        let thread = self.thread(vcpu);
        if std::mem::replace(&mut thread.flag, false) {
            thread.priority = thread.user;
        }
    }

    pub(super) fn price(&mut self, vcpu: VcpuId, because: Because) -> u8 {
        let thread = &mut self.threads[vcpu.index()];
        let pool = &mut self.pool;
        thread.user = pool.price(thread.project, &mut thread.value, because, self.variant);
        thread.user
    }

    pub(super) fn put_new(&mut self, vcpu: VcpuId) -> End {
        let quantum = self.quantum;
        let thread = self.thread(vcpu);
        thread.left = quantum;
        thread.back = false;
        thread.priority = thread.user;
        End::Back
    }

    pub(super) fn put_woken(&mut self, vcpu: VcpuId, now: Nanos) -> End {
        self.catch_flag(vcpu);
        let (quantum, tick) = (self.quantum, now.get() / self.tick.get());
        let thread = self.thread(vcpu);
        if thread.flag {
            return End::Back;
        }
        thread.back = false;
        if thread.dispatched == Some(tick) {
            return End::Front;
        }
        thread.left = quantum;
        thread.priority = thread.user;
        End::Back
    }

    pub(super) fn put_preempted(&mut self, vcpu: VcpuId) -> End {
        self.catch_flag(vcpu);
        let quantum = self.quantum;
        let thread = self.thread(vcpu);
        if !std::mem::replace(&mut thread.back, false) {
            return End::Front;
        }
        if !thread.flag {
            thread.left = quantum;
        }
        End::Back
    }

    pub(super) fn put_yielded(&mut self, vcpu: VcpuId) -> End {
        let quantum = self.quantum;
        let thread = self.thread(vcpu);
        thread.back = false;
        if thread.left < 0 {
            thread.left = quantum;
        }
        End::Back
    }
}
