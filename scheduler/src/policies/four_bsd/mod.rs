//! `4bsd`: FreeBSD's traditional scheduler, decay usage with kernel priorities.
//!
//! 1. A vCPU's thread has a usage (estcpu) that grows with every statistics tick it is found running, and
//!    decays each second by the load average: see `estcpu.rs`. From it and nice follows its priority
//!    for user mode; the smaller number goes first.
//! 2. One queue of 64 lists serves all cores, four priorities a list.
//! 3. Who waits in the kernel competes on waking with the sleep priority of that wait, before all of
//!    user mode, until its return to user mode. There the number is restored and nothing is compared, so
//!    it goes on although a better one may wait (`userret` has the popular account). Usage decays
//!    for the time asleep, the slice is full again.
//! 4. Who becomes runnable goes to an idle core; else to the core of who woke it, if it is better than
//!    what runs there; else to the core that runs the worst.
//! 5. It preempts the running thread if it stands for an interrupt (or with `full-preemption`).
//!    Otherwise a better one only asks for an AST. When each takes effect: `freebsd/seat.rs`.
//! 6. A preempted thread keeps its slice and goes to the head of its list; one that is switched off by an
//!    AST takes its user priority and goes to the tail.
//! 7. Slices: `ticks` (now) counts down statistics ticks and, at the end, asks for an AST; `elapsed`
//!    (8.x) compares the time since the last switch at each statistics tick; `roundrobin` (4.x) asks on
//!    all cores every quantum, whoever runs. An interrupt's thread that uses up a slice is preempted
//!    and demoted by four, in its band.
//! 8. Each second all who are awake, or asleep for no more than a second, decay. A queued thread whose list
//!    changes goes to the new one's tail. Nobody is asked to make room.
//!
//! Readings fixed here. A sleep of n seconds costs n − 1 decays in all: the first by the walk, the others on
//! waking. An AST that would pick the same vCPU again is acted on without asking for the core. A vCPU that
//! yields passes through user mode. A new one starts with usage 0 and a slice of one tick. Queues per
//! core (they hold bound threads alone), priorities lent through turnstiles and idle-band threads have
//! no part here.
//!
//! Source: FreeBSD `sched_4bsd.c` (8.0 and 2025), `kern_switch.c` and `kern_intr.c` (2004).

mod estcpu;
mod info;
mod slice;
#[cfg(test)]
mod tests;

pub use info::INFO;

use crate::event::{Standing, Waits, WakeSource};
use crate::ids::{CoreId, VcpuId};
use crate::input::GuestLocks;
use crate::policies::freebsd;
use crate::policies::freebsd::bands::Bands;
use crate::policies::freebsd::runq::{RunQueue, list_of};
use crate::policies::freebsd::seat::{Ask, Seats};
use crate::policies::freebsd::thread::{Priority, UserReturn};
use crate::policy::{
    Clocks, Enqueue, Mode, Pick, Placed, Policy, Preempt, Refused, Resched, Slice, SliceEnd,
    VcpuParams,
};
use crate::spec::Options;
use crate::time::Nanos;
use slice::Quantum;

/// Whether a thread takes part in the decay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Awake {
    /// Not admitted yet, or gone.
    No,
    Runnable,
    /// For so many walks.
    Asleep(u64),
}

#[derive(Debug)]
struct Thread {
    nice: i64,
    estcpu: u64,
    priority: Priority,
    /// Ticks of its slice that are left.
    slice: u32,
    awake: Awake,
    home: CoreId,
    /// The core of who woke it.
    waker: Option<CoreId>,
    /// On its core since then.
    since: Nanos,
}

#[derive(Debug)]
struct FourBsd {
    bands: Bands,
    statclock: Nanos,
    weight: u64,
    quantum: Quantum,
    userret: UserReturn,
    interrupt_threads: bool,
    full_preemption: bool,
    threads: Vec<Thread>,
    queue: RunQueue,
    seats: Seats,
    /// Load average of a minute, in units of 1/2048.
    load: u64,
    /// Walks until it is next computed.
    load_in: u8,
    /// Runnable threads, those of interrupts left out.
    runnable: u64,
}

/// The load average is computed every so many walks.
const LOAD_EVERY: u8 = 5;

impl FourBsd {
    fn new(options: &Options, cores: u16) -> Self {
        let statclock = freebsd::statclock(options.int("stathz"));
        Self {
            bands: Bands::of(options.word("bands")),
            statclock,
            weight: estcpu::weight(cores),
            quantum: Quantum::new(options, statclock),
            userret: UserReturn::of(options.word("userret")),
            interrupt_threads: options.on("interrupt-threads"),
            full_preemption: options.on("full-preemption"),
            threads: Vec::new(),
            queue: RunQueue::default(),
            seats: Seats::new(options, cores),
            load: 0,
            load_in: LOAD_EVERY,
            runnable: 0,
        }
    }

    fn thread(&mut self, vcpu: VcpuId) -> &mut Thread {
        &mut self.threads[vcpu.index()]
    }

    fn priority(&self, vcpu: VcpuId) -> u8 {
        self.threads[vcpu.index()].priority.effective()
    }

    /// Computes the priority for user mode; it counts at once if nothing is lent.
    fn reprice(&mut self, vcpu: VcpuId) {
        let (band, weight) = (self.bands.timeshare, self.weight);
        let thread = self.thread(vcpu);
        let user = estcpu::user_priority(band, thread.estcpu, weight, thread.nice);
        thread.priority.set_user(user);
        thread.priority.follow();
    }

    fn push_back(&mut self, vcpu: VcpuId) {
        self.queue.push_back(vcpu, list_of(self.priority(vcpu)));
    }

    fn wakes(&mut self, vcpu: VcpuId) {
        let (load, slice) = (self.load, self.quantum.ticks());
        let interrupt = self.threads[vcpu.index()].priority.interrupt();
        self.runnable += u64::from(!interrupt);
        let thread = self.thread(vcpu);
        if let Awake::Asleep(seconds) = thread.awake {
            // One was done by the walk.
            thread.estcpu = estcpu::decays(thread.estcpu, load, seconds.saturating_sub(2));
        }
        thread.awake = Awake::Runnable;
        thread.slice = slice;
        self.reprice(vcpu);
        self.push_back(vcpu);
    }

    /// Taken off its core, or gave it up, and still runnable.
    fn requeues(&mut self, vcpu: VcpuId, ask: Ask) {
        let thread = self.thread(vcpu);
        thread.priority.leave();
        if ask == Ask::Ast {
            thread.priority.restore();
        }
        let list = list_of(thread.priority.effective());
        match ask {
            Ask::Ast => self.queue.push_back(vcpu, list),
            Ask::Preempt => self.queue.push_front(vcpu, list),
        }
    }

    /// No longer runnable.
    fn stops(&mut self, vcpu: VcpuId, awake: Awake) {
        let thread = self.thread(vcpu);
        let counted = thread.awake == Awake::Runnable && !thread.priority.interrupt();
        thread.awake = awake;
        self.runnable -= u64::from(counted);
    }

    fn place(&self, vcpu: VcpuId) -> CoreId {
        let thread = &self.threads[vcpu.index()];
        let idle = |core: &CoreId| self.seats.on(*core).is_none();
        if idle(&thread.home) {
            return thread.home;
        }
        let runs = |core: CoreId| self.seats.on(core).map_or(u8::MAX, |v| self.priority(v));
        let local = thread.waker.unwrap_or(thread.home);
        if runs(local) > self.priority(vcpu) && !self.seats.all().any(|(_, on)| on.is_none()) {
            return local;
        }
        // An idle core, or else the one that runs the worst; of equals the first.
        let rank = |core: &CoreId| (idle(core), runs(*core), std::cmp::Reverse(core.0));
        let cores = self.seats.all().map(|(core, _)| core);
        cores.max_by_key(rank).unwrap_or(local)
    }

    /// The thread, no longer queued, has the core.
    fn sits(&mut self, core: CoreId, vcpu: VcpuId) -> Slice {
        self.seats.sit(core, vcpu);
        self.thread(vcpu).home = core;
        Slice::Open
    }

    /// Entering the guest is a return to user mode, if it is so read.
    fn enters_guest(&mut self, vcpu: VcpuId) {
        if self.seats.guest_is_user() {
            let model = self.userret;
            self.thread(vcpu).priority.user_return(model);
        }
    }
}

impl Policy for FourBsd {
    fn clocks(&self) -> Clocks {
        Clocks {
            tick: Some(self.statclock),
            period: Some(Nanos::from_secs(1)),
        }
    }

    fn declare(&mut self, _vcpu: VcpuId, params: &VcpuParams) -> Result<(), Refused> {
        let nice = freebsd::nice("4bsd", params)?;
        let user = estcpu::user_priority(self.bands.timeshare, 0, self.weight, nice);
        self.threads.push(Thread {
            nice,
            estcpu: 0,
            priority: Priority::new(user),
            slice: 1,
            awake: Awake::No,
            home: CoreId(0),
            waker: None,
            since: Nanos::ZERO,
        });
        self.seats.declare();
        Ok(())
    }

    fn woken_by(&mut self, _now: Nanos, vcpu: VcpuId, source: WakeSource) {
        let core = self.seats.core_of_waker(source);
        let (threads, device) = (self.interrupt_threads, self.bands.device);
        let thread = self.thread(vcpu);
        thread.waker = core;
        if threads && matches!(source, WakeSource::Interrupt(_)) {
            thread.priority.become_interrupt(device);
        }
    }

    fn enqueue(&mut self, _now: Nanos, vcpu: VcpuId, why: Enqueue) -> Placed {
        match why {
            Enqueue::New => {
                self.thread(vcpu).awake = Awake::Runnable;
                self.runnable += 1;
                self.push_back(vcpu);
            }
            Enqueue::Wake => self.wakes(vcpu),
            Enqueue::Preempted(core, _) => {
                let ask = self.seats.leave(core);
                self.requeues(vcpu, ask);
                return Placed(core);
            }
            Enqueue::Yield(core) => {
                let _given_up = self.seats.leave(core);
                self.requeues(vcpu, Ask::Ast);
                return Placed(core);
            }
        }
        Placed(self.place(vcpu))
    }

    fn remove(&mut self, _now: Nanos, vcpu: VcpuId) {
        self.queue.remove(vcpu);
        self.stops(vcpu, Awake::No);
    }

    fn take(&mut self, _now: Nanos, core: CoreId, vcpu: VcpuId) -> Slice {
        self.queue.remove(vcpu);
        self.sits(core, vcpu)
    }

    fn pick(&mut self, _now: Nanos, core: CoreId) -> Pick {
        let Some(vcpu) = self.queue.pop() else {
            return Pick::Idle;
        };
        Pick::Run(vcpu, self.sits(core, vcpu))
    }

    fn entered(&mut self, now: Nanos, _core: CoreId, vcpu: VcpuId) {
        self.thread(vcpu).since = now;
        self.seats.mode(vcpu, Mode::Guest);
        self.enters_guest(vcpu);
    }

    /// Time is charged by ticks alone.
    fn charge(&mut self, _now: Nanos, _vcpu: VcpuId, _ran: Nanos) {}

    fn preempts(&mut self, now: Nanos, core: CoreId, running: VcpuId, woken: VcpuId) -> Preempt {
        let (new, current) = (self.priority(woken), self.priority(running));
        if new >= current {
            return Preempt::Keep;
        }
        let interrupt = new <= self.bands.interrupt.last;
        let ask = if self.full_preemption || interrupt || current >= self.bands.idle.first {
            Ask::Preempt
        } else {
            Ask::Ast
        };
        self.seats.ask(now, core, ask)
    }

    fn slice_end(&mut self, _now: Nanos, _core: CoreId, _vcpu: VcpuId) -> SliceEnd {
        SliceEnd::Extend(Slice::Open)
    }

    fn block(&mut self, _now: Nanos, core: CoreId, vcpu: VcpuId, on: Waits) {
        let _left = self.seats.leave(core);
        self.stops(vcpu, Awake::Asleep(0));
        let sleep = self.bands.sleep(on);
        self.thread(vcpu).priority.sleep(sleep);
    }

    fn retire(&mut self, _now: Nanos, core: CoreId, vcpu: VcpuId) {
        let _left = self.seats.leave(core);
        self.stops(vcpu, Awake::No);
    }

    fn retire_waiting(&mut self, _now: Nanos, vcpu: VcpuId) {
        self.stops(vcpu, Awake::No);
    }

    fn tick(&mut self, now: Nanos, core: CoreId, vcpu: VcpuId) -> Preempt {
        let (limit, weight) = (estcpu::limit(self.weight), self.weight);
        let thread = self.thread(vcpu);
        thread.estcpu = limit.min(thread.estcpu + 1);
        if thread.estcpu.is_multiple_of(weight) {
            self.reprice(vcpu);
        }
        self.slice_tick(now, core, vcpu)
    }

    fn wants_timer(&self) -> Option<Nanos> {
        let clocks = [self.seats.clock_due(), self.quantum.round_robin_due()];
        clocks.into_iter().flatten().min()
    }

    fn timer(&mut self, now: Nanos) -> Resched {
        let mut cores = self.seats.clock(now);
        cores.extend(self.round_robin(now));
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

    fn periodic(&mut self, _now: Nanos) -> Resched {
        self.load_in -= 1;
        if self.load_in == 0 {
            self.load_in = LOAD_EVERY;
            self.load = estcpu::load(self.load, self.runnable);
        }
        for index in 0..self.threads.len() {
            self.second(VcpuId(u32::try_from(index).unwrap_or(u32::MAX)));
        }
        Resched::default()
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
}

impl FourBsd {
    /// A second passes for one thread.
    fn second(&mut self, vcpu: VcpuId) {
        let load = self.load;
        let thread = self.thread(vcpu);
        match &mut thread.awake {
            Awake::No => return,
            Awake::Runnable => {}
            Awake::Asleep(walks) => {
                *walks += 1;
                if *walks > 1 {
                    return;
                }
            }
        }
        thread.estcpu = estcpu::decay(thread.estcpu, load);
        self.reprice(vcpu);
        let list = list_of(self.priority(vcpu));
        if self.queue.list(vcpu).is_some_and(|queued| queued != list) {
            self.queue.push_back(vcpu, list);
        }
    }
}
