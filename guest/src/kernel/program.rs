//! Carries out the program: what the interpreter says, with real work and real calls.

use super::call::{call, refuse};
use super::locks::Locks;
use super::work::Worker;
use super::{clock, entry, misdeed};
use core::sync::atomic::Ordering;
use stealtime_guest::call::{Port, Refusal};
use stealtime_guest::interp::{Action, Interpreter};
use stealtime_guest::op::Op;
use stealtime_guest::page::Page;
use stealtime_guest::rng::Rng;

struct Vcpu {
    page: &'static Page,
    worker: Worker,
    locks: Locks,
    /// When the open request began, by the guest's clock.
    request: Option<u64>,
}

/// Runs the program for ever: one that is over goes on saying so.
pub(super) fn run(page: &'static Page) -> ! {
    let program = program(page);
    let rng = Rng::new(
        page.seed.load(Ordering::Relaxed),
        page.stream.load(Ordering::Relaxed),
    );
    let mut interpreter = Interpreter::new(rng);
    let mut vcpu = Vcpu {
        page,
        worker: Worker::new(page),
        locks: Locks::new(page),
        request: None,
    };
    loop {
        let done = match interpreter.next(program) {
            Ok(action) => vcpu.act(action),
            Err(error) => Err(Refusal::Program(error)),
        };
        if let Err(refusal) = done {
            refuse(page, refusal);
        }
    }
}

fn program(page: &Page) -> &'static [Op] {
    let address = page.program.load(Ordering::Relaxed);
    let ops = page.program_ops.load(Ordering::Relaxed);
    let first = core::ptr::with_exposed_provenance::<Op>(address as usize);
    // SAFETY: the host says where it has put so many ops, aligned, which nobody ever changes.
    unsafe { core::slice::from_raw_parts(first, ops as usize) }
}

impl Vcpu {
    fn act(&mut self, action: Action) -> Result<(), Refusal> {
        match action {
            Action::Run(length) => self.worker.run(length),
            Action::Guest(want, lock) => self.locks.operate(want, lock, &mut self.worker)?,
            Action::CriticalEnter => self.locks.enter_critical()?,
            Action::CriticalLeave => self.locks.leave_critical(&mut self.worker)?,
            Action::RequestBegin => self.request = Some(clock::now(self.page)),
            Action::RequestEnd => {
                let begun = self.request.take().ok_or(Refusal::NoRequest)?;
                let latency = clock::now(self.page).saturating_sub(begun);
                self.page.count_request(latency);
            }
            Action::WaitInterrupt => self.wait_interrupt(),
            Action::Fault(misdeed) => misdeed::commit(misdeed),
            action => self.ask(action),
        }
        Ok(())
    }

    /// What only the host can do.
    fn ask(&mut self, action: Action) {
        let (port, a, b) = match action {
            Action::Sleep(length) => (Port::Sleep, length, 0),
            Action::HostWait(length) => (Port::HostWait, length, 0),
            Action::Periodic { period, vector } => (Port::Periodic, period, u64::from(vector)),
            Action::Yield => (Port::Yield, 0, 0),
            Action::Interrupt { vcpu, vector } => {
                (Port::Interrupt, u64::from(vcpu), u64::from(vector))
            }
            Action::HostLock {
                lock,
                kernel_priority,
            } => (Port::HostLock, u64::from(lock), u64::from(kernel_priority)),
            Action::HostAcquire {
                lock,
                mode,
                kernel_priority,
            } => {
                let how = u64::from(mode.pack(kernel_priority));
                (Port::HostAcquire, u64::from(lock), how)
            }
            Action::HostUnlock(lock) => (Port::HostUnlock, u64::from(lock), 0),
            Action::Hypervisor(length) => (Port::Hypervisor, length, 0),
            Action::UserReturn => (Port::UserReturn, 0, 0),
            Action::End => (Port::Finished, 0, 0),
            // The others were carried out in the guest.
            _ => (Port::Nothing, 0, 0),
        };
        self.call(port, a, b);
    }

    fn call(&mut self, port: Port, a: u64, b: u64) {
        call(self.page, port, a, b);
        self.worker.restart();
    }

    /// Waits until an interrupt has come since the last such wait ended.
    fn wait_interrupt(&mut self) {
        let seen = self.page.interrupts_seen.load(Ordering::Relaxed);
        let mut came = self.page.interrupts.load(Ordering::Relaxed);
        while came == seen {
            entry::halt();
            came = self.page.interrupts.load(Ordering::Relaxed);
        }
        self.page.interrupts_seen.store(came, Ordering::Relaxed);
        self.worker.restart();
    }
}
