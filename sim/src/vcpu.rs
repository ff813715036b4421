//! A simulated vCPU: where it is, what its guest is about, and what the guest has seen.
//!
//! ```text
//!            Run             from here on: guest code               a call, a halt
//!   Off ───────────► Switching ───────────────► Guest ─────────────────► Leaving
//!    ▲                                          ▲   │                       │
//!    │ Park                             Resumed │   │ a signal              │ Exited
//!    │                                          │   ▼                       ▼
//!    └─────────────────────────────────────── Hypervisor ◄──────────────────┘
//! ```
//!
//! Guest code makes progress in `Guest` only, and there only from `from` on: before that the entry is
//! under way.

use stealtime_guest::call::Refusal;
use stealtime_guest::gap::THRESHOLD_NS;
use stealtime_guest::hist;
use stealtime_guest::interp::{Action, Interpreter};
use stealtime_guest::op::Op;
use stealtime_guest::rng::Rng;
use stealtime_scheduler::ids::{CoreId, GuestLockId, VcpuId, VmId};
use stealtime_scheduler::input::{ExitReason, GuestLocks};
use stealtime_scheduler::time::Nanos;
use stealtime_workloads::run::{GuestView, VcpuPlan};

use crate::cost::Pace;
use crate::guest_locks::Underway;

/// Where a vCPU is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// Not admitted yet.
    Unborn,
    /// Off core: ready, or waiting.
    Off,
    /// A core was granted and its thread is on the way.
    Switching,
    /// In guest mode.
    Guest,
    /// On the way out of the guest.
    Leaving(ExitReason),
    /// On its core, with the hypervisor.
    Hypervisor,
    /// Retired.
    Gone,
}

/// What follows a stretch of guest code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Then {
    /// The next op.
    Next,
    /// This, which takes no time of its own.
    Do(Action),
    /// The next step of the operation on a lock that is under way.
    LockStep,
    /// This call.
    Call(Call),
    /// The program turns out to be nonsense.
    Refuse(Refusal),
}

/// What the guest asks of the hypervisor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    /// An action of the program.
    Action(Action),
    /// Nothing: a preemption that is pending does no harm any more.
    CriticalLeft(After),
    /// To sleep until it is woken, for a guest lock.
    Wait(u16),
    /// To wake another, for a guest lock.
    Wake(VcpuId, u16),
    /// Nothing: it has spun for a guest lock for long.
    SpunTooLong(u16),
}

/// What comes after the word that a preemption does no harm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum After {
    /// The next op.
    Next,
    /// The next step of the operation on a lock.
    Step,
    /// Sleep for a guest lock.
    Wait(u16),
}

/// What the vCPU does when it is on a core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Task {
    /// Guest code: first what the op costs beside its length, then its work, in nanoseconds left.
    Code {
        /// Cost of the op.
        overhead: u64,
        /// Its length, which counts as progress.
        work: u64,
        /// What comes then.
        then: Then,
    },
    /// Guest code that spins for a lock.
    Spin,
    /// A call that the hypervisor is to carry out.
    Call(Call),
    /// Hypervisor work on the vCPU's behalf, in nanoseconds left. The next op follows.
    Host(u64),
}

#[derive(Debug)]
pub(crate) struct Vcpu<'plan> {
    pub(crate) id: VcpuId,
    pub(crate) vm: VmId,
    pub(crate) place: Place,
    /// The core that it has, or had last.
    pub(crate) core: Option<CoreId>,
    /// The dispatcher wants the core back.
    pub(crate) kicked: bool,
    /// Its VM has failed: it retires as soon as it is out of the guest.
    pub(crate) doomed: bool,
    /// Its state is on the core: the next entry is not the first of this stay.
    pub(crate) loaded: bool,
    /// How dear the round trip into its guest is that is under way.
    pub(crate) pace: Pace,
    /// Its thread sleeps of its own accord: it blocked, or has not run yet.
    pub(crate) rested: bool,
    /// What the host took of its stays that the dispatcher was not told of, or is still taking.
    pub(crate) stolen: Nanos,
    /// A preemption is owed when no lock is held and no critical section entered any more.
    pub(crate) owed: bool,
    pub(crate) task: Task,
    /// In `Guest`: progress is accounted up to here, or begins here. In `Hypervisor`: the work began
    /// here, or would have but for what timers and the host took since.
    pub(crate) from: Nanos,
    /// Interrupts that wait to be taken, one bit a vector.
    pub(crate) pending: [u64; 4],
    /// Those that it takes, or took, with its last entry.
    taken: [u64; 4],
    /// An interrupt came since the last wait for one.
    pub(crate) interrupted: bool,
    /// When it handled interrupts of which the hypervisor does not know yet that they are taken. Later than now
    /// while the entry is under way.
    pub(crate) handled: Option<Nanos>,
    /// The operation on a guest lock that is under way.
    pub(crate) underway: Option<Underway>,
    /// What the dispatcher was last told of its locks.
    pub(crate) told: GuestLocks,
    /// It is in the list of those whose locks the dispatcher has to be told.
    pub(crate) listed: bool,
    /// The guest was interrupted at this moment and has made no progress since.
    pub(crate) gap_from: Option<Nanos>,
    pub(crate) request_from: Option<Nanos>,
    pub(crate) view: GuestView,
    interpreter: Interpreter,
    program: &'plan [Op],
}

/// A view of nothing, with room for its histogram.
pub(crate) fn empty_view() -> GuestView {
    GuestView {
        request_hist: vec![0; hist::BUCKETS],
        ..GuestView::default()
    }
}

impl<'plan> Vcpu<'plan> {
    pub(crate) fn new(id: VcpuId, plan: &'plan VcpuPlan, seed: u64) -> Self {
        Self {
            id,
            vm: plan.vm,
            place: Place::Unborn,
            core: None,
            kicked: false,
            doomed: false,
            loaded: false,
            pace: Pace::MEDIAN,
            rested: true,
            stolen: Nanos::ZERO,
            owed: false,
            task: Task::Host(0),
            from: Nanos::ZERO,
            pending: [0; 4],
            taken: [0; 4],
            interrupted: false,
            handled: None,
            underway: None,
            told: GuestLocks::default(),
            listed: false,
            gap_from: None,
            request_from: None,
            view: empty_view(),
            // The guest kernel takes the same stream, so both draw the same lengths.
            interpreter: Interpreter::new(Rng::new(seed, u64::from(id.0))),
            program: &plan.program,
        }
    }

    /// Whether it has a core.
    pub(crate) fn on_core(&self) -> bool {
        matches!(
            self.place,
            Place::Switching | Place::Guest | Place::Leaving(_) | Place::Hypervisor
        )
    }

    /// The next op becomes its task.
    pub(crate) fn fetch(&mut self, overhead: Nanos) {
        let (work, then) = match self.interpreter.next(self.program) {
            Ok(Action::Run(work)) => (work, Then::Next),
            Ok(action) => (0, Then::Do(action)),
            Err(error) => (0, Then::Refuse(Refusal::Program(error))),
        };
        self.task = Task::Code {
            overhead: overhead.0,
            work,
            then,
        };
    }

    /// How long its guest code runs if nothing comes between. A spinner needs to be looked at once
    /// when it comes on a core, then never.
    pub(crate) fn code_left(&self) -> Nanos {
        match self.task {
            Task::Code { overhead, work, .. } => Nanos(overhead.saturating_add(work)),
            Task::Spin | Task::Call(_) | Task::Host(_) => Nanos::ZERO,
        }
    }

    /// Accounts the progress of guest code up to now.
    pub(crate) fn settle(&mut self, now: Nanos) {
        if self.place != Place::Guest || now < self.from {
            return;
        }
        if let Some(since) = self.gap_from.take() {
            self.saw_gap(self.from.since(since));
        }
        let mut ran = now.since(self.from).0;
        self.from = now;
        match &mut self.task {
            Task::Code { overhead, work, .. } => {
                let first = ran.min(*overhead);
                *overhead -= first;
                ran = (ran - first).min(*work);
                *work -= ran;
                self.view.progress_ns += ran;
            }
            Task::Spin => {
                self.view.lock_spin_ns += ran;
                if let Some(underway) = &mut self.underway {
                    underway.spun += ran;
                }
            }
            Task::Call(_) | Task::Host(_) => {}
        }
    }

    /// Its core is taken from it for so long. Whatever it does there goes on later: its code, or an entry that is
    /// under way, with the interrupts that it handles when it is there.
    pub(crate) fn held_up(&mut self, now: Nanos, length: Nanos) {
        self.settle(now);
        if self.place == Place::Guest {
            self.gap_begins(now);
        }
        if let Some(at) = self.handled.as_mut().filter(|at| **at > now) {
            *at += length;
        }
        self.from += length;
    }

    /// A gap as long as the guest's own detector counts.
    fn saw_gap(&mut self, gap: Nanos) {
        if gap.0 > THRESHOLD_NS {
            self.view.gaps += 1;
            self.view.gap_total_ns += gap.0;
            self.view.gap_max_ns = self.view.gap_max_ns.max(gap.0);
        }
    }

    /// The guest was interrupted now, in the midst of its code. If it had made no progress since it
    /// was last interrupted, that gap goes on.
    pub(crate) fn gap_begins(&mut self, now: Nanos) {
        if self.gap_from.is_none() && now >= self.from {
            self.gap_from = Some(now);
        }
    }

    /// Figures count from now on.
    pub(crate) fn measure_from(&mut self, now: Nanos) {
        self.settle(now);
        self.view = empty_view();
        self.gap_from = self.gap_from.map(|_| now);
    }

    /// Figures count up to now; a gap that is still open counts too.
    pub(crate) fn measure_to(&mut self, now: Nanos) {
        self.settle(now);
        if let Some(since) = self.gap_from.take() {
            self.saw_gap(now.min(self.gap_end()).since(since));
        }
    }

    /// In guest mode the gap ends when the entry is done.
    fn gap_end(&self) -> Nanos {
        match self.place {
            Place::Guest => self.from,
            _ => Nanos::MAX,
        }
    }

    /// A request ends, if one began.
    pub(crate) fn request_ends(&mut self, now: Nanos) -> Result<(), Refusal> {
        let began = self.request_from.take().ok_or(Refusal::NoRequest)?;
        let latency = now.since(began).0;
        self.view.requests += 1;
        self.view.request_max_ns = self.view.request_max_ns.max(latency);
        let count = &mut self.view.request_hist[hist::bucket(latency)];
        *count = count.saturating_add(1);
        Ok(())
    }

    pub(crate) fn raise(&mut self, vector: u8) {
        self.pending[usize::from(vector >> 6)] |= 1 << (vector & 63);
    }

    /// The guest takes the interrupts that wait for it; the answer is how many.
    pub(crate) fn take_interrupts(&mut self) -> u32 {
        self.taken = std::mem::take(&mut self.pending);
        let count = count(self.taken);
        self.interrupted |= count > 0;
        self.view.interrupts += u64::from(count);
        count
    }

    /// If the entry ends before the handlers have run, their interrupts wait as before it. Of several the last
    /// handler counts for all.
    pub(crate) fn give_back_interrupts(&mut self, now: Nanos) {
        if self.handled.take_if(|at| *at > now).is_some() {
            let words = self.pending.iter_mut().zip(self.taken);
            words.for_each(|(pending, taken)| *pending |= taken);
            // Of an entry that began in the warm-up nothing is counted any more.
            let taken = u64::from(count(self.taken));
            self.view.interrupts = self.view.interrupts.saturating_sub(taken);
        }
    }

    pub(crate) const fn lock_id(&self, lock: u16) -> GuestLockId {
        GuestLockId::new(self.vm, lock)
    }
}

/// How many vectors these are.
fn count(vectors: [u64; 4]) -> u32 {
    vectors.iter().map(|word| word.count_ones()).sum()
}
