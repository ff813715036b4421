//! What a step of a lock's machine sees and says.

use super::{Lock, Memory, Node, State};
use core::sync::atomic::Ordering;

/// What follows a step.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// The operation is over: the lock is taken, released, the message sent.
    Done,
    /// The next step follows at once.
    Again,
    /// Guest code that takes so long, in nanoseconds; then the next step follows.
    Work(u64),
    /// The next step is a look whether anything has changed. Time passes.
    Spin(Spin),
    /// The vCPU sleeps for this lock until it is woken, then the next step follows. If it was woken
    /// since it last slept, at once: wake-ups are kept, and may be stale, so each is only a hint.
    Sleep(u16),
    /// The vCPU with this number within the VM is to be woken, for this lock; then the next step
    /// follows.
    Wake(u32, u16),
}

/// What a spinner waits for. It may look as often as it likes, and must when one of these happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Spin {
    /// When it has spun for so long in all ([`Context::spun`]), in nanoseconds.
    pub until: Option<u64>,
    /// When the vCPU with this number within the VM has no core any more.
    pub while_runs: Option<u32>,
}

/// A step's surroundings: the memory, who takes it, and what is to be known of it afterwards.
#[derive(Debug)]
pub struct Context<'a> {
    /// The VM's locks and vCPUs.
    pub memory: Memory<'a>,
    /// The vCPU's number within the VM.
    pub me: u32,
    /// Whether a mutex that leaves it open is handed on.
    pub hand_off: bool,
    /// How long this operation has spun so far, in nanoseconds of the vCPU's own running time.
    pub spun: u64,
    /// Told by the step: those that spin for this lock may see something new.
    pub touched: Option<u16>,
    /// Told by the step: locks that it took.
    pub taken: u64,
    /// Told by the step: no lock is held and no critical section entered any more.
    pub safe_again: bool,
}

impl<'a> Context<'a> {
    /// For a vCPU of a VM; nothing told.
    #[must_use]
    pub const fn new(memory: Memory<'a>, me: u32) -> Self {
        Self {
            memory,
            me,
            hand_off: false,
            spun: 0,
            touched: None,
            taken: 0,
            safe_again: false,
        }
    }

    pub(super) fn lock(&self, number: u16) -> &'a Lock {
        &self.memory.locks[usize::from(number)]
    }

    pub(super) fn node(&self) -> &'a Node {
        self.sibling(self.me)
    }

    pub(super) fn sibling(&self, vcpu: u32) -> &'a Node {
        &self.memory.nodes[vcpu as usize]
    }

    /// The vCPU's mark in words that name a vCPU.
    pub(super) const fn mark(&self) -> u32 {
        self.me + 1
    }

    /// Whether a vCPU has a core.
    pub(super) fn runs(&self, vcpu: u32) -> bool {
        self.sibling(vcpu).running.load(Ordering::Acquire) != 0
    }

    /// What the vCPU says of its locks.
    #[must_use]
    pub fn state(&self) -> State {
        State::decode(self.node().state.load(Ordering::Relaxed))
    }

    /// SeqCst, a full barrier: the host has the count of held locks before anyone can see the lock
    /// taken. And of a state that is safe again and a preemption that is pending, either the host sees
    /// the one or the guest sees the other.
    fn publish(&self, state: State) {
        self.node().state.store(state.encode(), Ordering::SeqCst);
    }

    /// The next instruction may take the lock.
    pub(super) fn taking(&self) {
        let mut state = self.state();
        state.held += 1;
        state.waits_for = None;
        self.publish(state);
    }

    /// It did not take it.
    pub(super) fn missed(&mut self, number: u16) {
        let mut state = self.state();
        state.held -= 1;
        state.waits_for = Some(number);
        self.publish(state);
        // The host may have taken the announcement for a lock held.
        self.safe_again |= state.is_safe();
    }

    /// It waits for the lock.
    pub(super) fn waits(&self, number: u16) {
        let mut state = self.state();
        if state.waits_for != Some(number) {
            state.waits_for = Some(number);
            self.publish(state);
        }
    }

    /// The lock is taken, as [`Self::taking`] announced.
    pub(super) fn took(&mut self, number: u16) {
        self.lock(number)
            .owner
            .store(self.mark(), Ordering::Release);
        self.taken += 1;
    }

    /// The lock is taken with others: it has no owner.
    pub(super) const fn took_shared(&mut self) {
        self.taken += 1;
    }

    /// It waits for nothing any more, without having taken anything.
    pub(super) fn waits_no_more(&self) {
        let mut state = self.state();
        if state.waits_for.take().is_some() {
            self.publish(state);
        }
    }

    /// The lock is released. Those that spin for it may see something new.
    pub(super) fn released(&mut self, number: u16) {
        let mut state = self.state();
        state.held -= 1;
        self.publish(state);
        self.safe_again |= state.is_safe();
        self.touched = Some(number);
    }

    /// A critical section is entered; none if there are too many around each other.
    #[must_use]
    pub fn enter_critical(&self) -> Option<()> {
        let mut state = self.state();
        state.critical = state.critical.checked_add(1)?;
        self.publish(state);
        Some(())
    }

    /// The innermost critical section is left; none if there is none.
    #[must_use]
    pub fn leave_critical(&mut self) -> Option<()> {
        let mut state = self.state();
        state.critical = state.critical.checked_sub(1)?;
        self.publish(state);
        self.safe_again |= state.is_safe();
        Some(())
    }
}
