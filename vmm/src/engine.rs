//! The dispatcher behind one lock, and the stream of what it was told, asked for and said.
//!
//! Threads of vCPUs, the timer thread and the main thread call [`Engine::report`] directly: there is
//! no thread in the middle, because handing something to a thread on another core costs more than all
//! the dispatcher does. The clock is read under the lock, so times never go backwards.
//!
//! Effects are carried out in two steps. Under the lock, in order, everything that decides: run-state
//! words, timers, interrupts, affinities. After it, what only wakes and signals, so that a woken
//! thread does not run into the lock; in which order that happens, and how late, decides nothing.

use crate::clock::{Armed, TimerQueue};
use crate::cpu::Watch;
use crate::host::{Pinning, Placement, RunClock};
use crate::runstate::{End, Nudge};
use crate::seat::Seat;
use crate::told::Told;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use stealtime_scheduler::dispatcher::{Dispatcher, Output, ViolationReport};
use stealtime_scheduler::effect::Effect;
use stealtime_scheduler::ids::{CoreId, VcpuId, VmId};
use stealtime_scheduler::input::{Input, Timer};
use stealtime_scheduler::time::Nanos;
use stealtime_workloads::run::{Entry, VmFailure};

/// The engine of a run.
#[derive(Debug)]
pub struct Engine {
    /// The run's clock.
    pub clock: RunClock,
    /// The timers that the dispatcher armed.
    pub timers: TimerQueue,
    /// Where threads run.
    pub placement: Placement,
    inner: Mutex<Inner>,
    seats: Vec<Seat>,
    host_delay: AtomicU64,
}

#[derive(Debug)]
struct Inner {
    dispatcher: Dispatcher,
    out: Output,
    entries: Vec<Entry>,
    told: Told,
    /// Kept for its memory: what is told before an input.
    news: Vec<Input>,
    /// Where each thread was last placed.
    placed: Vec<Option<CoreId>>,
    /// Whose preempt-pending word is set.
    owed: Vec<bool>,
    /// Whose word was set just now, and who is to be looked at again.
    asked: Vec<VcpuId>,
    failures: Vec<VmFailure>,
    notes: Vec<String>,
    figures: Figures,
    broken: Option<String>,
}

/// What the engine counts of itself.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Figures {
    /// Time during which the lock was held.
    pub overhead: Nanos,
    /// Inputs handled.
    pub calls: u64,
    /// Events put into the stream.
    pub events: u64,
}

/// What the engine has to say when the run is over.
#[derive(Debug, Default)]
pub struct Verdict {
    /// VMs that ended before their time.
    pub failures: Vec<VmFailure>,
    /// The first rules that the policy broke.
    pub violations: Vec<ViolationReport>,
    /// How many in all.
    pub violation_count: u64,
    /// Counts.
    pub figures: Figures,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// Wake-ups and signals that are still owed.
#[derive(Default)]
struct Owed {
    nudges: Vec<(VcpuId, Nudge)>,
    timers: bool,
}

impl Engine {
    /// An engine at the start of a run, for vCPUs given by their VM and shared page.
    #[must_use]
    pub fn new(
        dispatcher: Dispatcher,
        clock: RunClock,
        placement: Placement,
        vcpus: Vec<(VmId, Arc<dyn Watch>)>,
    ) -> Self {
        let count = vcpus.len();
        let told = Told::new(vcpus.iter().map(|(vm, _)| *vm));
        let seats = vcpus.into_iter().map(|(vm, watch)| Seat::new(vm, watch));
        Self {
            clock,
            timers: TimerQueue::default(),
            placement,
            seats: seats.collect(),
            host_delay: AtomicU64::new(0),
            inner: Mutex::new(Inner {
                dispatcher,
                out: Output::default(),
                entries: Vec::new(),
                told,
                news: Vec::new(),
                placed: vec![None; count],
                owed: vec![false; count],
                asked: Vec::new(),
                failures: Vec::new(),
                notes: Vec::new(),
                figures: Figures::default(),
                broken: None,
            }),
        }
    }

    /// A panic cannot leave the state half-changed: the dispatcher's are caught inside.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A vCPU's seat.
    #[must_use]
    pub fn seat(&self, vcpu: VcpuId) -> &Seat {
        &self.seats[vcpu.index()]
    }

    /// All seats, by number.
    #[must_use]
    pub fn seats(&self) -> &[Seat] {
        &self.seats
    }

    /// Tells the dispatcher what has happened just now, in this order, and carries out what it asks.
    pub fn report(&self, inputs: &[Input]) {
        let mut owed = Owed::default();
        let mut inner = self.lock();
        let began = self.clock.now();
        let mut now = began;
        for &input in inputs {
            self.take(&mut inner, now, input, &mut owed);
            now = self.clock.now();
        }
        inner.figures.overhead += now.since(began);
        drop(inner);
        self.settle(&owed);
    }

    /// Timers are due.
    pub fn report_due(&self, due: &[Timer]) {
        for &timer in due {
            self.report(&[Input::TimerDue { timer }]);
        }
    }

    /// Exchanges what was recorded since the last time for an empty buffer.
    pub fn swap_entries(&self, buffer: &mut Vec<Entry>) {
        buffer.clear();
        std::mem::swap(&mut self.lock().entries, buffer);
    }

    fn take(&self, inner: &mut Inner, now: Nanos, mut input: Input, owed: &mut Owed) {
        if inner.broken.is_some() {
            return;
        }
        if let Input::InterruptsTaken { vcpu, more, .. } = &mut input {
            // All are raised under the lock, so this is exact.
            *more = !self.seat(*vcpu).vectors.is_empty();
        }
        let mut news = std::mem::take(&mut inner.news);
        let (told, dispatcher) = (&mut inner.told, &inner.dispatcher);
        told.news(dispatcher, input, &self.seats, &mut news);
        for told in news.drain(..) {
            self.handle(inner, now, told, owed);
        }
        inner.news = news;
        self.handle(inner, now, input, owed);
        self.look_again(inner, owed);
    }

    /// Whoever was told just now that a preemption is pending may have become safe between the look at its locks and the
    /// word, and then says nothing: it is taken as having said so. Either this look sees that, or the guest sees the
    /// word. One in line for a lock is not safe, though it holds nothing; one whose thread is not there yet may be told of
    /// here for nothing, as by a guest that is late.
    fn look_again(&self, inner: &mut Inner, owed: &mut Owed) {
        while let Some(vcpu) = inner.asked.pop() {
            fence(Ordering::SeqCst);
            let locks = self.seat(vcpu).watch.locks();
            if locks.held == 0 && locks.critical == 0 && !locks.in_line {
                let now = self.clock.now();
                self.take(inner, now, Input::CriticalLeft { vcpu }, owed);
            }
        }
    }

    /// The vCPU of the same VM that has this number within it.
    #[must_use]
    pub fn sibling(&self, vcpu: VcpuId, index: u32) -> Option<VcpuId> {
        self.lock().told.sibling(self.seat(vcpu).vm, index)
    }

    fn handle(&self, inner: &mut Inner, now: Nanos, input: Input, owed: &mut Owed) {
        let mut out = std::mem::take(&mut inner.out);
        out.clear();
        inner.entries.push(Entry::Input(now, input));
        inner.figures.calls += 1;
        let dispatcher = &mut inner.dispatcher;
        let handled = catch_unwind(AssertUnwindSafe(|| {
            dispatcher.handle(now, input, &mut out);
        }));
        if let Err(panic) = handled {
            self.give_up(inner, panic.as_ref(), owed);
        }
        for &effect in &out.effects {
            inner.entries.push(Entry::Effect(effect));
            self.carry_out(inner, effect, owed);
        }
        inner
            .entries
            .extend(out.events.iter().copied().map(Entry::Event));
        inner.figures.events += out.events.len() as u64;
        inner.out = out;
    }

    fn carry_out(&self, inner: &mut Inner, effect: Effect, owed: &mut Owed) {
        match effect {
            Effect::Run { core, vcpu } => {
                self.place(inner, core, vcpu);
                self.pending(inner, vcpu, false);
                self.seat(vcpu).watch.set_running(true);
                owed.nudges.push((vcpu, self.seat(vcpu).state.grant(core)));
            }
            Effect::Park { vcpu, .. } => {
                self.pending(inner, vcpu, false);
                self.seat(vcpu).watch.set_running(false);
                self.seat(vcpu).state.park();
            }
            Effect::Kick { vcpu, .. } => owed.nudges.push((vcpu, self.seat(vcpu).state.kick())),
            Effect::Owe { vcpu, .. } => {
                self.pending(inner, vcpu, true);
                inner.asked.push(vcpu);
            }
            Effect::Lent { to, donor } => {
                let donor = donor.map(|donor| inner.told.index(donor));
                self.seat(to).watch.set_donor(donor);
            }
            Effect::Arm { timer, at } => {
                owed.timers |= self.timers.arm(timer, at) == Armed::Earlier;
            }
            Effect::Cancel { timer } => self.timers.cancel(timer),
            Effect::Inject { vcpu, vector } => {
                let seat = self.seat(vcpu);
                seat.vectors.insert(vector);
                owed.nudges.push((vcpu, seat.state.interrupt()));
            }
        }
    }

    fn pending(&self, inner: &mut Inner, vcpu: VcpuId, pending: bool) {
        if std::mem::replace(&mut inner.owed[vcpu.index()], pending) != pending {
            self.seat(vcpu).watch.set_preempt_pending(pending);
        }
    }

    /// Moves a thread before it wakes: a sleeping thread moves for nothing, a running one does not.
    /// Under the lock, so that no late move undoes a newer one.
    fn place(&self, inner: &mut Inner, core: CoreId, vcpu: VcpuId) {
        let placed = inner.placed[vcpu.index()];
        if self.placement.pins() == Pinning::Free || placed == Some(core) {
            return;
        }
        let Some(thread) = self.seat(vcpu).thread() else {
            return;
        };
        match self.placement.place(Some(thread), core.index()) {
            Ok(()) => inner.placed[vcpu.index()] = Some(core),
            Err(error) => {
                inner.placed[vcpu.index()] = None;
                inner.note_once(format!(
                    "a vCPU thread could not be moved to {core}: {error}"
                ));
            }
        }
    }

    /// The dispatcher or its policy panicked: nothing it says can be used any more.
    fn give_up(&self, inner: &mut Inner, panic: &(dyn std::any::Any + Send), owed: &mut Owed) {
        let what = panic_message(panic);
        let policy = inner.dispatcher.policy_info().name;
        let epitaph =
            format!("the run was ended: policy {policy} or the dispatcher failed: {what}");
        inner.dispatcher.failed(&epitaph);
        inner.broken = Some(epitaph);
        self.want_end(|_| true, End::RunOver, &mut owed.nudges);
    }

    fn settle(&self, owed: &Owed) {
        for &(vcpu, nudge) in &owed.nudges {
            self.seat(vcpu).nudge(nudge);
        }
        if owed.timers {
            self.timers.wake();
        }
    }

    fn want_end(&self, which: impl Fn(&Seat) -> bool, why: End, nudges: &mut Vec<(VcpuId, Nudge)>) {
        for (vcpu, seat) in (0..).map(VcpuId).zip(&self.seats) {
            if which(seat) {
                nudges.push((vcpu, seat.state.end(why)));
            }
        }
    }

    /// Ends all vCPUs of a VM for a fault of its guest. The first message counts.
    pub fn fail(&self, vm: VmId, message: String) {
        let mut inner = self.lock();
        if inner.failures.iter().all(|failure| failure.vm != vm) {
            let at = self.clock.now();
            inner.failures.push(VmFailure { vm, at, message });
        }
        drop(inner);
        let mut owed = Owed::default();
        self.want_end(|seat| seat.vm == vm, End::Fault, &mut owed.nudges);
        self.settle(&owed);
    }

    /// Asks all vCPUs to end. May be repeated.
    pub fn end_all(&self) {
        let mut owed = Owed::default();
        self.want_end(|_| true, End::RunOver, &mut owed.nudges);
        self.settle(&owed);
    }

    /// The time that the vCPU's thread waited for the host since this was last asked.
    #[must_use]
    pub fn host_delay(&self, vcpu: VcpuId) -> Option<Input> {
        let delay = self.seat(vcpu).delay_since_last_told()?;
        self.host_delay.fetch_add(delay.get(), Ordering::Relaxed);
        Some(Input::HostDelay { vcpu, delay })
    }

    /// All that was told by [`Self::host_delay`] so far.
    #[must_use]
    pub fn host_delay_total(&self) -> Nanos {
        Nanos(self.host_delay.load(Ordering::Relaxed))
    }

    /// Something the user should know; said once.
    pub fn note(&self, note: String) {
        self.lock().note_once(note);
    }

    /// Whether the run cannot go on.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.lock().broken.is_some()
    }

    /// What there is to say at the end.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let mut inner = self.lock();
        let mut notes = std::mem::take(&mut inner.notes);
        notes.extend(inner.broken.clone());
        Verdict {
            failures: std::mem::take(&mut inner.failures),
            violations: inner.dispatcher.violations().to_vec(),
            violation_count: inner.dispatcher.violation_count(),
            figures: inner.figures,
            notes,
        }
    }
}

impl Inner {
    fn note_once(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}

/// What a panic said.
pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "a panic without a message".to_owned())
}
