//! What is known of threads and cores, and how a thread's priority follows.

use super::cores::{End, Queues};
use super::interact::{HZ, History, SHIFT, Scale};
use super::priority::{Did, Split, Usage};
use crate::ids::{CoreId, VcpuId};
use crate::policies::freebsd;
use crate::policies::freebsd::bands::Bands;
use crate::policies::freebsd::seat::{Ask, Seats};
use crate::policies::freebsd::thread::{Priority, UserReturn};
use crate::policy::Preempt;
use crate::spec::Options;
use crate::time::Nanos;

/// Whether a thread counts for the load of its core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Home {
    Nowhere,
    Counted {
        /// 1, or 0 for an interrupt's thread.
        plain: u32,
    },
}

/// What a thread that waits is raised to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Boost {
    MinBatch,
    SleepPriority,
    Off,
}

#[derive(Debug)]
pub(super) struct Thread {
    pub(super) nice: i64,
    pub(super) priority: Priority,
    pub(super) history: History,
    pub(super) usage: Usage,
    /// Ticks of its slice that are used.
    pub(super) used: u32,
    /// It waits since then, in ticks.
    pub(super) sleeps_since: u64,
    /// It last ran then, in ticks.
    pub(super) ran_at: u64,
    pub(super) core: CoreId,
    pub(super) home: Home,
    /// The core of who woke it.
    pub(super) waker: Option<CoreId>,
    /// It looks for another core when it is next switched off.
    pub(super) chooses: bool,
}

#[derive(Debug)]
pub(super) struct Ule {
    pub(super) bands: Bands,
    pub(super) split: Split,
    pub(super) scale: Scale,
    pub(super) statclock: Nanos,
    /// Ticks of a full slice.
    pub(super) full: u32,
    /// Run time that a statistics tick counts, in ticks times 2^10.
    pub(super) increment: u64,
    /// The worst priority that preempts; none does if there is none.
    pub(super) preempting: Option<u8>,
    pub(super) boost: Boost,
    pub(super) affinity: u64,
    pub(super) steals: bool,
    pub(super) userret: UserReturn,
    pub(super) interrupt_threads: bool,
    pub(super) threads: Vec<Thread>,
    pub(super) queues: Vec<Queues>,
    pub(super) seats: Seats,
    pub(super) random: fastrand::Rng,
    pub(super) balance: Option<Nanos>,
}

/// The instant in ticks of 1 ms.
pub(super) const fn ticks(now: Nanos) -> u64 {
    now.get() / (1_000_000_000 / HZ)
}

impl Ule {
    pub(super) fn new(options: &Options, cores: u16) -> Self {
        let bands = Bands::of(options.word("bands"));
        let stathz = options.int("stathz").unsigned_abs();
        let mut policy = Self {
            bands,
            split: Split::of(bands.timeshare),
            scale: Scale {
                threshold: options.int("threshold").unsigned_abs(),
                shortcut: options.on("shortcut"),
            },
            statclock: freebsd::statclock(options.int("stathz")),
            full: u32::try_from(stathz / 10).unwrap_or(u32::MAX).max(1),
            increment: (HZ << SHIFT) / stathz,
            preempting: match options.word("preemption") {
                "full" => Some(bands.idle.last),
                "never" => None,
                _ => Some(bands.kernel.first),
            },
            boost: match options.word("static-boost") {
                "sleep-priority" => Boost::SleepPriority,
                "off" => Boost::Off,
                _ => Boost::MinBatch,
            },
            affinity: ticks(options.time("affinity")),
            steals: options.on("steal"),
            userret: UserReturn::of(options.word("userret")),
            interrupt_threads: options.on("interrupt-threads"),
            threads: Vec::new(),
            queues: (0..cores).map(|_| Queues::default()).collect(),
            seats: Seats::new(options, cores),
            random: fastrand::Rng::with_seed(options.int("seed").unsigned_abs()),
            balance: None,
        };
        if options.on("balance") && cores > 1 {
            policy.balance = Some(policy.next_balance(Nanos::ZERO));
        }
        policy
    }

    pub(super) fn thread(&mut self, vcpu: VcpuId) -> &mut Thread {
        &mut self.threads[vcpu.index()]
    }

    pub(super) fn priority(&self, vcpu: VcpuId) -> u8 {
        self.threads[vcpu.index()].priority.effective()
    }

    /// Computes the priority for user mode.
    pub(super) fn reprice(&mut self, vcpu: VcpuId) {
        let (scale, split) = (self.scale, self.split);
        let thread = self.thread(vcpu);
        let score = scale.score(thread.history.run, thread.history.sleep);
        let score = score.saturating_add_signed(thread.nice);
        let user = if score < scale.threshold {
            split.interactive(score, scale.threshold)
        } else {
            split.batch(thread.usage.used(), thread.usage.length(), thread.nice)
        };
        thread.priority.set_user(user);
    }

    pub(super) fn wakes(&mut self, now: u64, vcpu: VcpuId) {
        let thread = self.thread(vcpu);
        thread
            .history
            .slept(now.saturating_sub(thread.sleeps_since) << SHIFT);
        thread.usage.update(now, Did::Wait);
        thread.used = 0;
        self.reprice(vcpu);
        let thread = self.thread(vcpu);
        // A boost that is worse than its own priority is none.
        if thread.priority.kernel() && thread.priority.user() < thread.priority.effective() {
            thread.priority.restore();
        }
        thread.priority.follow();
    }

    /// Taken off its core, or gave it up, and still runnable.
    pub(super) fn requeues(&mut self, now: u64, vcpu: VcpuId, core: CoreId, ask: Ask) -> CoreId {
        let thread = self.thread(vcpu);
        thread.usage.update(now, Did::Run);
        thread.ran_at = now;
        thread.priority.leave();
        if ask == Ask::Ast {
            thread.priority.restore();
        }
        let end = match ask {
            Ask::Ast => End::Last,
            Ask::Preempt => End::First,
        };
        let chooses = std::mem::take(&mut thread.chooses);
        let home = if chooses { self.place(now, vcpu) } else { core };
        self.counts(vcpu, home);
        self.push(vcpu, home, end);
        home
    }

    /// Whether `new` may preempt `current`.
    pub(super) fn reaches(&self, new: u8, current: u8, remote: bool) -> bool {
        if new >= current {
            return false;
        }
        if current >= self.bands.idle.first {
            return true;
        }
        let Some(worst) = self.preempting else {
            return false;
        };
        let last = self.split.interactive.last;
        new <= worst || (remote && new <= last && current > last)
    }

    /// A slice is used up.
    pub(super) fn slice_over(&mut self, now: Nanos, core: CoreId, vcpu: VcpuId) -> Preempt {
        let last = self.bands.interrupt.last;
        let thread = self.thread(vcpu);
        if thread.priority.interrupt() {
            thread.priority.demote(last);
            return self.seats.ask(now, core, Ask::Preempt);
        }
        if self.queues[core.index()].waiting() == 0 && self.seats.open(vcpu) {
            self.thread(vcpu).priority.restore();
            return Preempt::Keep;
        }
        self.seats.ask(now, core, Ask::Ast)
    }

    /// Entering the guest is a return to user mode, if it is so read.
    pub(super) fn enters_guest(&mut self, vcpu: VcpuId) {
        if self.seats.guest_is_user() {
            let model = self.userret;
            self.thread(vcpu).priority.user_return(model);
        }
    }
}
