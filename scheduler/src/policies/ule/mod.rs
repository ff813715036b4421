//! `ule`: FreeBSD's ULE scheduler as it is now, with its historical switches.
//!
//! 1. A score of 0 to 100 sets a thread's run time against its sleep time: see `interact.rs`. With nice
//!    added, below 30 is interactive.
//! 2. An interactive thread's priority follows its score; a batch thread's its usage in a window of some
//!    10 s, and nice: see `priority.rs`.
//! 3. Every core has a queue of 64 lists for all that is better than batch, and a calendar for
//!    batch: see `calendar.rs`.
//! 4. A slice is ⌊stathz/10⌋ ticks, divided by the other runnable threads of the core: see `cores.rs`. A
//!    wake-up starts a new one, a new thread gets the least.
//! 5. Who becomes runnable goes to its last core if it ran there within `affinity` and is better than all
//!    there; else to the core of the least load where it is better than all; else to the least load.
//! 6. It preempts if it is better than the running thread and its priority reaches the threshold, the
//!    first of the kernel band; from another core also if it is interactive and the running one is
//!    not. A better one that does not preempt asks for an AST on its waker's own core, and tells another
//!    core nothing.
//! 7. A batch thread that waits is raised to the best batch priority (`static-boost`) until its return to
//!    user mode, where the number is restored and nothing compared.
//! 8. A preempted thread goes to the head of its list, in the calendar to the day that is served; one that
//!    is switched off by an AST takes its user priority and goes to the tail.
//! 9. Stealing and balancing: see `cores.rs`.
//!
//! Readings fixed here. The priority for user mode is computed at each tick and each wake-up; what counts
//! is taken on at the wake-up (the thread would have passed through user mode before it slept), by an
//! AST, and on return to user mode. The waker's core is that of the vCPU that raised the interrupt or
//! gave the lock away; for timers and devices, the woken one's last. A vCPU that yields passes through user
//! mode. Vcpus have no parent, so nothing is inherited; idle-band threads and priorities lent
//! through turnstiles have no part here. An AST that would find nobody waiting is acted on without asking
//! for the core.
//!
//! Source: FreeBSD `sched_ule.c` (2025); the switches are those of `kern_intr.c` (2004).

mod calendar;
mod cores;
mod info;
mod interact;
mod priority;
mod state;
#[cfg(test)]
mod tests;

pub use info::INFO;

use crate::event::{Standing, Waits, WakeSource};
use crate::ids::{CoreId, VcpuId};
use crate::input::GuestLocks;
use crate::policies::freebsd;
use crate::policies::freebsd::seat::Ask;
use crate::policies::freebsd::thread::Priority;
use crate::policy::{
    Clocks, Enqueue, Mode, Pick, Placed, Policy, Preempt, Refused, Resched, Slice, SliceEnd,
    VcpuParams, WorkConserving,
};
use crate::time::Nanos;
use cores::End;
use interact::History;
use priority::{Did, Usage};
use state::{Boost, Home, Thread, Ule, ticks};

impl Policy for Ule {
    fn clocks(&self) -> Clocks {
        Clocks {
            tick: Some(self.statclock),
            period: None,
        }
    }

    fn declare(&mut self, vcpu: VcpuId, params: &VcpuParams) -> Result<(), Refused> {
        let nice = freebsd::nice("ule", params)?;
        self.threads.push(Thread {
            nice,
            priority: Priority::new(self.split.batch.first),
            history: History::default(),
            usage: Usage::default(),
            used: self.full - cores::least_slice(self.full),
            sleeps_since: 0,
            ran_at: 0,
            core: CoreId(0),
            home: Home::Nowhere,
            waker: None,
            chooses: false,
        });
        self.seats.declare();
        self.reprice(vcpu);
        self.thread(vcpu).priority.follow();
        Ok(())
    }

    fn woken_by(&mut self, _now: Nanos, vcpu: VcpuId, source: WakeSource) {
        let core = self.seats.core_of_waker(source);
        let (threads, device) = (self.interrupt_threads, self.bands.device);
        let thread = self.thread(vcpu);
        thread.waker = core.or(Some(thread.core));
        if threads && matches!(source, WakeSource::Interrupt(_)) {
            thread.priority.become_interrupt(device);
        }
    }

    fn enqueue(&mut self, now: Nanos, vcpu: VcpuId, why: Enqueue) -> Placed {
        let now = ticks(now);
        match why {
            Enqueue::New => {
                let thread = self.thread(vcpu);
                thread.usage.update(now, Did::Wait);
            }
            Enqueue::Wake => self.wakes(now, vcpu),
            Enqueue::Preempted(core, _) => {
                let ask = self.seats.leave(core);
                return Placed(self.requeues(now, vcpu, core, ask));
            }
            Enqueue::Yield(core) => {
                let _given_up = self.seats.leave(core);
                return Placed(self.requeues(now, vcpu, core, Ask::Ast));
            }
        }
        let core = self.place(now, vcpu);
        self.counts(vcpu, core);
        self.push(vcpu, core, End::Last);
        Placed(core)
    }

    fn remove(&mut self, _now: Nanos, vcpu: VcpuId) {
        let core = self.threads[vcpu.index()].core;
        self.queues[core.index()].take(vcpu);
        self.uncounts(vcpu);
    }

    fn take(&mut self, now: Nanos, core: CoreId, vcpu: VcpuId) -> Slice {
        let from = self.threads[vcpu.index()].core;
        self.queues[from.index()].take(vcpu);
        if from != core {
            self.counts(vcpu, core);
        }
        self.seats.sit(core, vcpu);
        self.thread(vcpu).usage.update(ticks(now), Did::Wait);
        Slice::Open
    }

    fn pick(&mut self, now: Nanos, core: CoreId) -> Pick {
        let own = self.queues[core.index()].first();
        let Some(vcpu) = own.or_else(|| self.steals.then(|| self.steal(core)).flatten()) else {
            return Pick::Idle;
        };
        Pick::Run(vcpu, self.take(now, core, vcpu))
    }

    fn entered(&mut self, _now: Nanos, _core: CoreId, vcpu: VcpuId) {
        self.seats.mode(vcpu, Mode::Guest);
        self.enters_guest(vcpu);
    }

    /// Score and slice are charged by ticks, usage when it is brought up to date.
    fn charge(&mut self, _now: Nanos, _vcpu: VcpuId, _ran: Nanos) {}

    fn preempts(&mut self, now: Nanos, core: CoreId, running: VcpuId, woken: VcpuId) -> Preempt {
        let (new, current) = (self.priority(woken), self.priority(running));
        let local = self.threads[woken.index()].waker == Some(core);
        if self.reaches(new, current, !local) {
            self.seats.ask(now, core, Ask::Preempt)
        } else if local && new < current {
            self.seats.ask(now, core, Ask::Ast)
        } else {
            Preempt::Keep
        }
    }

    fn slice_end(&mut self, _now: Nanos, _core: CoreId, _vcpu: VcpuId) -> SliceEnd {
        SliceEnd::Extend(Slice::Open)
    }

    fn block(&mut self, now: Nanos, core: CoreId, vcpu: VcpuId, on: Waits) {
        let _left = self.seats.leave(core);
        self.uncounts(vcpu);
        let (boost, batch, sleep) = (self.boost, self.split.batch, self.bands.sleep(on));
        let now = ticks(now);
        let thread = self.thread(vcpu);
        thread.usage.update(now, Did::Run);
        thread.ran_at = now;
        thread.sleeps_since = now;
        let interrupt = thread.priority.interrupt();
        let effective = thread.priority.effective();
        match boost {
            Boost::SleepPriority if !interrupt => thread.priority.sleep(sleep),
            Boost::MinBatch if !interrupt && effective > batch.first => {
                thread.priority.sleep(batch.first);
            }
            _ => thread.priority.sleep_plainly(),
        }
    }

    fn retire(&mut self, _now: Nanos, core: CoreId, vcpu: VcpuId) {
        let _left = self.seats.leave(core);
        self.uncounts(vcpu);
    }

    fn tick(&mut self, now: Nanos, core: CoreId, vcpu: VcpuId) -> Preempt {
        self.queues[core.index()].tick();
        let (tick, increment, full) = (ticks(now), self.increment, self.full);
        let plain = self.queues[core.index()].plain;
        let thread = self.thread(vcpu);
        thread.usage.update(tick, Did::Run);
        thread.ran_at = tick;
        if !thread.priority.interrupt() {
            thread.history.ran(increment);
        }
        thread.used += 1;
        let over = thread.used >= cores::slice(full, plain);
        if over {
            thread.used = 0;
        }
        self.reprice(vcpu);
        if over {
            self.slice_over(now, core, vcpu)
        } else {
            self.seats.look(core)
        }
    }

    fn wants_timer(&self) -> Option<Nanos> {
        let clocks = [self.seats.clock_due(), self.balance];
        clocks.into_iter().flatten().min()
    }

    fn timer(&mut self, now: Nanos) -> Resched {
        let mut cores = self.seats.clock(now);
        if self.balance.is_some_and(|at| at <= now) {
            let told = self.even_out();
            for core in told {
                if self.seats.ask(now, core, Ask::Preempt) == Preempt::Kick {
                    cores.push(core);
                }
            }
            self.balance = Some(self.next_balance(now));
        }
        Resched(cores)
    }

    fn locks(&mut self, _now: Nanos, vcpu: VcpuId, locks: GuestLocks) {
        self.seats.locks(vcpu, locks);
    }

    fn mode(&mut self, _now: Nanos, vcpu: VcpuId, mode: Mode) {
        self.seats.mode(vcpu, mode);
        if mode == Mode::Guest {
            self.enters_guest(vcpu);
        }
    }

    fn user_return(&mut self, _now: Nanos, core: CoreId, vcpu: VcpuId) -> Preempt {
        let model = self.userret;
        self.thread(vcpu).priority.user_return(model);
        self.seats.user_return(core)
    }

    fn rank(&self, vcpu: VcpuId) -> Option<String> {
        Some(self.threads[vcpu.index()].priority.rank())
    }

    fn standing(&self, vcpu: VcpuId) -> Standing {
        self.threads[vcpu.index()].priority.standing()
    }

    fn conserving(&self) -> WorkConserving {
        if self.steals {
            WorkConserving::Yes
        } else {
            WorkConserving::No
        }
    }
}
