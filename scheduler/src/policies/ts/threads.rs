//! The threads of `ts`: rows, waits, the kernel-priority flag, the walk of each second.

use super::table::{BEST, Row, Table};
use crate::ids::VcpuId;
use crate::policies::illumos::{
    Class, Dispatch, End, KERNEL, LISTS, Matching, Member, TURNSTILE, Turnstiles,
};
use crate::spec::Options;
use crate::time::Nanos;

/// The row of a new thread.
const NEW: u8 = 29;
/// What a step of the nice value is in priorities.
const NICE_STEP: i16 = 3;

#[derive(Debug)]
pub(in crate::policies) struct Thread {
    /// The row, which carries the history.
    pub(super) row: u8,
    /// The user's offset, -60 to 60.
    pub(super) offset: i16,
    /// Ticks of the quantum that are left.
    pub(super) left: i64,
    /// Seconds since the last fall, rise or end of a turn.
    pub(super) waited: u64,
    /// Its priority now.
    pub(super) priority: u8,
    /// To the back of the queue when it leaves the core.
    pub(super) back: bool,
    /// It has the kernel-priority flag.
    pub(super) flag: bool,
    pub(super) requests: u32,
    /// The tick in which it was last given a core.
    pub(super) dispatched: Option<u64>,
}

impl Thread {
    /// Its priority in user mode.
    pub(super) fn user(&self) -> u8 {
        let sum = i16::from(self.row) + self.offset;
        u8::try_from(sum.clamp(0, i16::from(BEST))).unwrap_or(0)
    }
}

#[derive(Debug)]
pub(super) struct Ts {
    /// Whether there is a kernel-priority flag.
    kernel_priority: bool,
    table: Table,
    pub(super) tick: Nanos,
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

impl Class for Ts {
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

    /// A second has passed for the threads of one list; whether any rose.
    fn walk(&mut self, now: Nanos, list: usize) -> bool {
        let mut rose = false;
        for index in (list..self.threads.len()).step_by(LISTS) {
            let vcpu = VcpuId(u32::try_from(index).unwrap_or(u32::MAX));
            let thread = self.thread(vcpu);
            thread.waited += 1;
            let old = thread.priority;
            if thread.flag || !self.is_due(vcpu) || !self.dispatch.queued(vcpu) {
                continue;
            }
            self.move_to(vcpu, self.row(vcpu).waited);
            rose = true;
            if self.threads[index].priority != old {
                self.refill(vcpu);
                self.settle(now, vcpu);
            }
        }
        rose
    }
}

impl Ts {
    pub(super) fn new(options: &Options, cores: u16) -> Self {
        let kernel_priority = match options.word("kpri") {
            "on" => true,
            "off" => false,
            _ => options.word("variant") == "before",
        };
        let table = match options.word("table") {
            "server" => Table::Server,
            _ => Table::Default,
        };
        Self {
            kernel_priority,
            table,
            tick: options.time("tick"),
            threads: Vec::new(),
            dispatch: Dispatch::new(options, cores, Matching::NotAsked),
            turnstiles: Turnstiles::new(options.on(TURNSTILE.name)),
            marker: 0,
        }
    }

    pub(super) fn add(&mut self, nice: i8) {
        let mut thread = Thread {
            row: NEW,
            offset: -NICE_STEP * i16::from(nice),
            left: self.table.row(NEW).quantum,
            waited: 0,
            priority: NEW,
            back: false,
            flag: false,
            requests: 0,
            dispatched: None,
        };
        thread.priority = thread.user();
        self.dispatch.add(thread.priority);
        self.turnstiles.add();
        self.threads.push(thread);
    }

    pub(super) fn thread(&mut self, vcpu: VcpuId) -> &mut Thread {
        &mut self.threads[vcpu.index()]
    }

    /// The row that the thread is in.
    fn row(&self, vcpu: VcpuId) -> Row {
        self.table.row(self.threads[vcpu.index()].row)
    }

    /// Whether the thread has waited longer than its priority allows.
    fn is_due(&self, vcpu: VcpuId) -> bool {
        let thread = &self.threads[vcpu.index()];
        thread.waited > self.table.row(thread.user()).max_wait
    }

    /// Puts the thread in another row.
    fn move_to(&mut self, vcpu: VcpuId, row: u8) {
        let thread = self.thread(vcpu);
        thread.row = row;
        thread.waited = 0;
        thread.priority = thread.user();
    }

    fn refill(&mut self, vcpu: VcpuId) {
        self.thread(vcpu).left = self.row(vcpu).quantum;
    }

    /// The quantum is used up. The fresh one is given when the thread has left its core.
    pub(super) fn expire(&mut self, vcpu: VcpuId) {
        self.move_to(vcpu, self.row(vcpu).expired);
    }

    /// To sleep, to wake and to return to user mode are rewarded after a long wait.
    pub(super) fn rise_if_due(&mut self, vcpu: VcpuId) {
        if self.is_due(vcpu) {
            self.move_to(vcpu, self.row(vcpu).slept);
            self.refill(vcpu);
        }
    }

    /// At the moments where a request is noticed, it becomes the flag.
    fn catch_flag(&mut self, vcpu: VcpuId) {
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
            thread.priority = thread.user();
        }
    }

    pub(super) fn put_to_sleep(&mut self, vcpu: VcpuId) {
        if self.threads[vcpu.index()].requests > 0 {
            self.catch_flag(vcpu);
            if self.threads[vcpu.index()].flag {
                return;
            }
        }
        self.clear_flag(vcpu);
        self.rise_if_due(vcpu);
    }

    pub(super) fn put_woken(&mut self, vcpu: VcpuId, now: Nanos) -> End {
        self.catch_flag(vcpu);
        self.thread(vcpu).back = false;
        if self.threads[vcpu.index()].flag {
            return End::Back;
        }
        self.rise_if_due(vcpu);
        let tick = now.get() / self.tick.get();
        if self.threads[vcpu.index()].dispatched == Some(tick) {
            End::Front
        } else {
            End::Back
        }
    }

    pub(super) fn put_preempted(&mut self, vcpu: VcpuId) -> End {
        self.catch_flag(vcpu);
        let thread = self.thread(vcpu);
        if !std::mem::replace(&mut thread.back, false) {
            return End::Front;
        }
        thread.waited = 0;
        if !self.threads[vcpu.index()].flag {
            self.refill(vcpu);
        }
        End::Back
    }

    pub(super) fn put_yielded(&mut self, vcpu: VcpuId) -> End {
        let thread = self.thread(vcpu);
        thread.back = false;
        if thread.left <= 0 && !thread.flag {
            self.expire(vcpu);
            self.refill(vcpu);
        }
        End::Back
    }
}
