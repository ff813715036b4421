//! A vCPU's thread as the others see it: where it is, what waits for it, how to wake and kick it.

use crate::cpu::Watch;
use crate::kick::Target;
use crate::run_delay::RunDelay;
use crate::runstate::{Nudge, RunState};
use crate::vectors::VectorSet;
use std::sync::{Arc, OnceLock};
use stealtime_scheduler::ids::VmId;
use stealtime_scheduler::time::Nanos;

/// A vCPU's thread as the others see it.
#[derive(Debug)]
pub struct Seat {
    /// The hand-over.
    pub state: RunState,
    /// Interrupts to pick up.
    pub vectors: VectorSet,
    /// Its guest's shared page.
    pub watch: Arc<dyn Watch>,
    /// Its VM.
    pub vm: VmId,
    host: OnceLock<HostThread>,
}

/// What the host knows a thread by.
#[derive(Debug)]
struct HostThread {
    target: Target,
    /// None if the kernel keeps no such figures.
    delay: Option<RunDelay>,
}

impl Seat {
    /// A seat whose thread has not come yet.
    #[must_use]
    pub fn new(vm: VmId, watch: Arc<dyn Watch>) -> Self {
        Self {
            state: RunState::default(),
            vectors: VectorSet::default(),
            watch,
            vm,
            host: OnceLock::new(),
        }
    }

    /// The calling thread takes the seat. False if the host does not tell its run delay.
    #[must_use]
    pub fn occupy(&self) -> bool {
        let target = Target::current();
        let delay = RunDelay::of(target.thread()).ok();
        let told = delay.is_some();
        let _ = self.host.set(HostThread { target, delay });
        self.state.attach_current();
        told
    }

    /// Does what is owed to the thread.
    pub fn nudge(&self, nudge: Nudge) {
        match nudge {
            Nudge::None => {}
            Nudge::Unpark => self.state.wake(),
            Nudge::Signal => {
                if let Some(host) = self.host.get() {
                    host.target.kick();
                }
            }
        }
    }

    /// The number by which the host knows the thread, once it has come.
    #[must_use]
    pub fn thread(&self) -> Option<i32> {
        self.host.get().map(|host| host.target.thread())
    }

    /// The time that the thread waited for the host since this was last asked.
    #[must_use]
    pub fn delay_since_last_told(&self) -> Option<Nanos> {
        let delay = self.host.get()?.delay.as_ref()?.since_last_told();
        (delay > Nanos::ZERO).then_some(delay)
    }

    /// Drops what the thread waited since this was last asked: nobody had given it a core.
    pub fn forget_delay(&self) {
        let _ = self.delay_since_last_told();
    }
}
