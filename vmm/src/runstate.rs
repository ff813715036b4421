//! The hand-over of a core: one word per vCPU, and the only moves it may make.
//!
//! ```text
//!                 grant (engine)          take (thread)          enter (thread)
//!      ┌────────┐ ────────────► ┌─────────┐ ─────────► ┌──────┐ ─────────────► ┌───────┐
//!      │ Parked │               │ Granted │            │ Host │                │ Guest │
//!      └────────┘ ◄──────────┐  └─────────┘ ◄────────┐ └──────┘ ◄───────────── └───────┘
//!           │                │                       │   │ │      leave (thread)
//!           │                └───────────────────────┼───┘ │
//!           │                  park (engine, asked   │     │
//!           │                  by the thread itself) └─────┘
//!           │                                         grant again (engine, the same)
//!           └──────────────► Gone ◄─────────────────────── gone (thread, from any place)
//! ```
//!
//! Beside its place the word holds what is *wanted* of the thread: that it gives the core back
//! (`kick`), that it picks up interrupts, that it ends. A want may come at any time and from any
//! thread. It is met where the thread looks next: before it enters the guest, after it has left it,
//! or while it works in the hypervisor. Only in `Guest` does it not look; so who writes a want and
//! finds the place to be `Guest` must send the signal ([`Nudge::Signal`]), and who finds `Parked` and
//! has something that a parked thread must know wakes it ([`Nudge::Unpark`]).
//!
//! # Invariants
//! * `grant` and `park` are called under the engine's lock only, `take`, `enter`, `leave` and `gone` by the
//!   vCPU's thread only; wants come from anywhere.
//! * Nobody takes a vCPU out of `Guest` but its own thread: a core is never free while guest code runs.
//! * A kick belongs to a stay on a core: `grant` and `park` clear it, as the dispatcher forgets it then.
//!
//! # Ordering
//! All changes are read-modify-writes of one word, which have one order that all threads agree on. So
//! of a want and an `enter`, either the want is first, and `enter` fails, or `enter` is first, and the
//! want finds `Guest` and signals. No other variable takes part in that argument. What a want refers
//! to (vectors of interrupts) is written before it and read after it; release and acquire order that.
//! `unpark` before `park` is remembered by the thread library, and `wait` looks at the word each time it
//! wakes, so a wake-up for something already dealt with does no harm.
//!
//! The models in `models.rs` check it for every interleaving and every allowed
//! reordering: `RUSTFLAGS="--cfg loom" cargo test -p stealtime-vmm --lib --target-dir target/loom models`.

use std::sync::OnceLock;
use stealtime_scheduler::ids::CoreId;

#[cfg(all(loom, test))]
use loom::{
    sync::atomic::{AtomicU32, Ordering},
    thread::{Thread, current, park},
};
#[cfg(not(all(loom, test)))]
use std::{
    sync::atomic::{AtomicU32, Ordering},
    thread::{Thread, current, park},
};

/// Where a vCPU's thread is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Without a core.
    Parked,
    /// A core is its own; it has not noticed yet.
    Granted(CoreId),
    /// On its core, outside guest code.
    Host(CoreId),
    /// In guest code, or on the way in or out.
    Guest(CoreId),
    /// Ended.
    Gone,
}

/// What is wanted of a vCPU's thread.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Wants(u32);

/// Why a vCPU's thread is to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Its VM is at fault.
    Fault,
    /// The run is over.
    RunOver,
}

/// What the writer of a want, or of a grant, owes the thread. To be done after the engine's lock is
/// released, so that the woken thread does not run into it.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Nudge {
    /// Nothing: it will look by itself.
    None,
    /// It may sleep: wake it.
    Unpark,
    /// It may run guest code: send the signal.
    Signal,
}

/// What a waiting thread is told.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// It has the core.
    Run(CoreId),
    /// It is to end.
    End(End),
}

/// Whether the guest may be entered.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Enter {
    /// The word says `Guest` now.
    Go,
    /// Something is wanted first, or the core is gone.
    Look,
}

const CORE: u32 = 0xffff;
const PLACE: u32 = 0xf << 16;
const PARKED: u32 = 0 << 16;
const GRANTED: u32 = 1 << 16;
const HOST: u32 = 2 << 16;
const GUEST: u32 = 3 << 16;
const GONE: u32 = 4 << 16;
const KICK: u32 = 1 << 24;
const INTERRUPTS: u32 = 1 << 25;
const FAULT: u32 = 1 << 26;
const RUN_OVER: u32 = 1 << 27;
const WANTS: u32 = KICK | INTERRUPTS | FAULT | RUN_OVER;

impl Wants {
    /// The core is wanted back.
    #[must_use]
    pub const fn kick(self) -> bool {
        self.0 & KICK != 0
    }

    /// Interrupts wait.
    #[must_use]
    pub const fn interrupts(self) -> bool {
        self.0 & INTERRUPTS != 0
    }

    /// The thread is to end. A fault counts more than the end of the run.
    #[must_use]
    pub const fn end(self) -> Option<End> {
        if self.0 & FAULT != 0 {
            Some(End::Fault)
        } else if self.0 & RUN_OVER != 0 {
            Some(End::RunOver)
        } else {
            None
        }
    }
}

fn place(word: u32) -> Place {
    let core = CoreId(u16::try_from(word & CORE).unwrap_or(u16::MAX));
    match word & PLACE {
        PARKED => Place::Parked,
        GRANTED => Place::Granted(core),
        HOST => Place::Host(core),
        GUEST => Place::Guest(core),
        _ => Place::Gone,
    }
}

/// The run state of one vCPU.
#[derive(Debug)]
pub struct RunState {
    word: AtomicU32,
    thread: OnceLock<Thread>,
}

impl Default for RunState {
    fn default() -> Self {
        Self {
            word: AtomicU32::new(PARKED),
            thread: OnceLock::new(),
        }
    }
}

impl RunState {
    /// Names the calling thread as the one that `wake` is to wake.
    pub fn attach_current(&self) {
        self.attach(current());
    }

    /// Names the thread that `wake` is to wake. Once, before or after that thread begins to wait.
    pub fn attach(&self, thread: Thread) {
        // A grant before this found nobody to wake: the thread looks once more.
        self.thread.get_or_init(|| thread).unpark();
    }

    /// Where the thread is, and what is wanted of it.
    pub fn look(&self) -> (Place, Wants) {
        let word = self.word.load(Ordering::Acquire);
        (place(word), Wants(word & WANTS))
    }

    /// The engine gives a core, to a parked thread or to the caller itself.
    pub fn grant(&self, core: CoreId) -> Nudge {
        let old = self.change(|word| (word & !(CORE | PLACE | KICK)) | GRANTED | u32::from(core.0));
        debug_assert!(
            !matches!(place(old), Place::Guest(_)),
            "granted while in guest code"
        );
        match place(old) {
            Place::Parked => Nudge::Unpark,
            _ => Nudge::None,
        }
    }

    /// The engine takes the core from the calling thread, which has said that it stopped.
    pub fn park(&self) {
        // A thread that ended by a panic is gone before the engine hears of it.
        let old = self.change(|word| match place(word) {
            Place::Gone => word,
            _ => (word & !(CORE | PLACE | KICK)) | PARKED,
        });
        debug_assert!(
            !matches!(place(old), Place::Guest(_)),
            "parked while in guest code"
        );
    }

    /// The engine asks for the core back.
    pub fn kick(&self) -> Nudge {
        // Without a core there is none to ask for. The engine's lock keeps this apart from `grant`.
        if matches!(self.look().0, Place::Parked | Place::Gone) {
            return Nudge::None;
        }
        match place(self.word.fetch_or(KICK, Ordering::AcqRel)) {
            Place::Guest(_) => Nudge::Signal,
            _ => Nudge::None,
        }
    }

    /// Interrupts wait to be picked up; they were put where the thread finds them before.
    pub fn interrupt(&self) -> Nudge {
        match place(self.word.fetch_or(INTERRUPTS, Ordering::AcqRel)) {
            Place::Guest(_) => Nudge::Signal,
            _ => Nudge::None,
        }
    }

    /// The thread is to end.
    pub fn end(&self, why: End) -> Nudge {
        let want = match why {
            End::Fault => FAULT,
            End::RunOver => RUN_OVER,
        };
        match place(self.word.fetch_or(want, Ordering::AcqRel)) {
            Place::Guest(_) => Nudge::Signal,
            Place::Parked => Nudge::Unpark,
            _ => Nudge::None,
        }
    }

    /// Wakes the thread if it waits.
    pub fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// The thread waits for a core, and takes it.
    pub fn wait(&self) -> Order {
        loop {
            let word = self.word.load(Ordering::Acquire);
            if let Some(end) = Wants(word & WANTS).end() {
                return Order::End(end);
            }
            match place(word) {
                Place::Granted(core) => {
                    let host = (word & !PLACE) | HOST;
                    if self.exchange(word, host) {
                        return Order::Run(core);
                    }
                }
                Place::Host(core) | Place::Guest(core) => return Order::Run(core),
                Place::Gone => return Order::End(End::RunOver),
                Place::Parked => park(),
            }
        }
    }

    /// The thread is about to enter the guest.
    pub fn enter(&self) -> Enter {
        loop {
            let word = self.word.load(Ordering::Acquire);
            if word & WANTS != 0 || word & PLACE != HOST {
                return Enter::Look;
            }
            if self.exchange(word, (word & !PLACE) | GUEST) {
                return Enter::Go;
            }
        }
    }

    /// The thread has left the guest.
    pub fn leave(&self) {
        let old = self.change(|word| (word & !PLACE) | HOST);
        debug_assert!(
            matches!(place(old), Place::Guest(_)),
            "left without having entered"
        );
    }

    /// The thread picks up interrupts: all that were put down before are seen after.
    pub fn take_interrupts(&self) {
        self.word.fetch_and(!INTERRUPTS, Ordering::AcqRel);
    }

    /// The thread has ended.
    pub fn gone(&self) {
        self.change(|word| (word & !(CORE | PLACE)) | GONE);
    }

    fn exchange(&self, old: u32, new: u32) -> bool {
        self.word
            .compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// The word before the change.
    fn change(&self, new: impl Fn(u32) -> u32) -> u32 {
        loop {
            let old = self.word.load(Ordering::Acquire);
            if self.exchange(old, new(old)) {
                return old;
            }
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    const C: CoreId = CoreId(3);

    #[test]
    fn a_kick_finds_the_guest_and_signals_or_is_seen_before_entering() {
        let state = RunState::default();
        assert_eq!(state.kick(), Nudge::None, "no core, nothing to ask back");
        assert_eq!(state.grant(C), Nudge::Unpark);
        assert_eq!(state.wait(), Order::Run(C));
        assert_eq!(state.enter(), Enter::Go);
        assert_eq!(state.kick(), Nudge::Signal);
        state.leave();
        assert_eq!(state.enter(), Enter::Look);
        let (place, wants) = state.look();
        assert_eq!(place, Place::Host(C));
        assert!(wants.kick() && !wants.interrupts() && wants.end().is_none());
    }

    #[test]
    fn a_kick_ends_with_the_stay_it_was_meant_for_and_other_wants_do_not() {
        let state = RunState::default();
        let _ = state.grant(C);
        let _ = state.wait();
        let _ = state.kick();
        let _ = state.interrupt();
        state.park();
        let (place, wants) = state.look();
        assert_eq!(place, Place::Parked);
        assert!(!wants.kick() && wants.interrupts());
    }

    #[test]
    fn the_end_comes_before_a_core_and_a_fault_before_the_end_of_the_run() {
        let state = RunState::default();
        let _ = state.grant(C);
        assert_eq!(state.end(End::RunOver), Nudge::None);
        assert_eq!(state.wait(), Order::End(End::RunOver));
        assert_eq!(state.end(End::Fault), Nudge::None);
        assert_eq!(state.wait(), Order::End(End::Fault));
    }

    #[test]
    fn a_thread_that_is_given_the_same_core_again_takes_it_anew() {
        let state = RunState::default();
        let _ = state.grant(C);
        let _ = state.wait();
        assert_eq!(state.grant(C), Nudge::None);
        assert_eq!(state.look().0, Place::Granted(C));
        assert_eq!(state.enter(), Enter::Look);
        assert_eq!(state.wait(), Order::Run(C));
    }
}

#[cfg(test)]
#[cfg(loom)]
mod models;
