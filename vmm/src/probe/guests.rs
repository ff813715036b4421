//! Costs of guests: exits, interrupts, kicks, slices. Measured with real guests of this program.

use super::costs::{MeasureError, cost};
use super::plan::plan;
use super::sample::{Budget, Cost};
use super::threads::pin;
use crate::cpu::{Call, Cpu, Exit};
use crate::host::{become_realtime, monotonic_ns, want_exact_timers};
use crate::kick::{self, Receiver, Target};
use crate::machine::{GuestCpu, Machine};
use kvm_ioctls::Kvm;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use stealtime_guest::op::{Length, Step};
use stealtime_scheduler::ids::VmId;
use stealtime_scheduler::time::Nanos;

/// A vector for the interrupts that are measured.
const VECTOR: u8 = 0x40;

/// Costs of entries and exits.
pub(super) struct Exits {
    pub(super) call: Cost,
    pub(super) halt: Cost,
    pub(super) immediate: Cost,
    pub(super) interrupt: Cost,
}

/// A booted guest of one vCPU with this program.
fn guest(kvm: &Kvm, steps: &[Step]) -> Result<GuestCpu, MeasureError> {
    // No policy ever sees it.
    let plan = plan(("host", &[]), &[0], Nanos::ZERO, &[steps]);
    let machine = Machine::new(kvm, &plan, VmId(0))?;
    let mut cpus = machine.into_cpus();
    // One vCPU in the plan, one from the machine.
    let mut cpu = cpus.remove(0);
    cpu.boot()?;
    Ok(cpu)
}

/// Enters until something else than a signal or a window comes, and wants this exit.
fn expect(cpu: &mut GuestCpu, wanted: &Exit) -> Result<(), MeasureError> {
    loop {
        match cpu.enter() {
            exit if exit == *wanted => return Ok(()),
            Exit::Interrupted | Exit::InterruptWindow => {}
            exit => return Err(MeasureError::Unexpected { exit }),
        }
    }
}

fn timed(cpu: &mut GuestCpu, wanted: &Exit) -> Result<u64, MeasureError> {
    let begin = monotonic_ns();
    expect(cpu, wanted)?;
    Ok(monotonic_ns() - begin)
}

/// Calls, interrupts on top of them, halts, and entries that are ended before they begin.
pub(super) fn exits(kvm: &Kvm) -> Result<Exits, MeasureError> {
    kick::install()?;
    let call = Exit::Call(Call::Nothing);
    let mut cpu = guest(kvm, &[Step::Repeat(0), Step::Exit, Step::EndRepeat])?;
    expect(&mut cpu, &call)?;
    let (mut plain, mut with_interrupt) = (Vec::new(), Vec::new());
    // Alternately, so that whatever else the machine does falls upon both.
    let budget = Budget::new(2_000, 500);
    while budget.wants(plain.len()) {
        plain.push(timed(&mut cpu, &call)?);
        cpu.queue_interrupt(VECTOR);
        with_interrupt.push(timed(&mut cpu, &call)?);
    }
    let call_cost = cost(plain, "calls")?;
    let above = with_interrupt
        .into_iter()
        .map(|sample| sample.saturating_sub(call_cost.median_ns))
        .collect();

    let immediate = {
        let receiver = Receiver::register(cpu.kick_handle());
        let samples = Budget::new(2_000, 100).collect(|| {
            receiver.rearm();
            Target::current().kick();
            let begin = monotonic_ns();
            match cpu.enter() {
                Exit::Interrupted => Ok(monotonic_ns() - begin),
                exit => Err(MeasureError::Unexpected { exit }),
            }
        })?;
        receiver.rearm();
        cost(samples, "entries that are ended before they begin")?
    };

    // A halt that is entered again without an interrupt halts again.
    let mut idle = guest(kvm, &[Step::WaitInterrupt])?;
    expect(&mut idle, &Exit::Halt)?;
    let halts = Budget::new(2_000, 200).collect(|| timed(&mut idle, &Exit::Halt))?;
    Ok(Exits {
        call: call_cost,
        halt: cost(halts, "halts")?,
        immediate,
        interrupt: cost(above, "interrupts")?,
    })
}

/// A guest that computes without end.
fn spinner(kvm: &Kvm) -> Result<GuestCpu, MeasureError> {
    let mut cpu = guest(
        kvm,
        &[
            Step::Repeat(0),
            Step::Run(Length::Fixed(1_000_000)),
            Step::EndRepeat,
        ],
    )?;
    let calibration = cpu.calibrate()?;
    cpu.set_calibration(&calibration);
    Ok(cpu)
}

/// Runs a spinning guest on the calling thread while `other` kicks it from a thread on core `there`.
///
/// `other` gets the vCPU's thread and a word with the time at which the guest was last left.
fn while_spinning<T: Send>(
    kvm: &Kvm,
    there: u16,
    other: impl FnOnce(Target, &AtomicU64) -> T + Send,
) -> Result<T, MeasureError> {
    kick::install()?;
    let mut cpu = spinner(kvm)?;
    let receiver = Receiver::register(cpu.kick_handle());
    let (left, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let (send, receive) = mpsc::channel();
    let target = Target::current();
    thread::scope(|scope| {
        scope.spawn(|| {
            let result = pin(there).map(|()| other(target, &left));
            over.store(true, Ordering::SeqCst);
            target.kick();
            // Nobody waits any more only if the guest failed.
            let _ = send.send(result);
        });
        loop {
            receiver.rearm();
            // After that: the last kick comes after the word is set.
            if over.load(Ordering::SeqCst) {
                break;
            }
            match cpu.enter() {
                Exit::Interrupted => left.store(monotonic_ns(), Ordering::Release),
                exit => return Err(MeasureError::Unexpected { exit }),
            }
        }
        match receive.recv() {
            Ok(result) => Ok(result?),
            Err(_) => Err(MeasureError::NoSamples { what: "kicks" }),
        }
    })
}

/// Waits until the guest is left after `since`; none if that takes longer than any kick should.
fn left_after(left: &AtomicU64, since: u64) -> Option<u64> {
    loop {
        let at = left.load(Ordering::Acquire);
        if at > since {
            return Some(at);
        }
        if monotonic_ns() > since + 100_000_000 {
            return None;
        }
        // The time was taken by the one who left; nothing is gained by looking more often, and the
        // guest may need this core.
        thread::sleep(Duration::from_micros(20));
    }
}

/// From the kick until the guest has been left.
pub(super) fn kicks(kvm: &Kvm, there: u16) -> Result<Cost, MeasureError> {
    let samples = while_spinning(kvm, there, |target, left| {
        let budget = Budget::new(500, 400);
        let mut samples = Vec::new();
        while budget.wants(samples.len()) {
            // Long enough for the guest to be running again.
            thread::sleep(Duration::from_micros(500));
            let kicked = monotonic_ns();
            target.kick();
            // A kick that falls into the moment in which an earlier one is forgotten is lost here
            // (a run has its run-state word for that); it is no sample.
            samples.extend(left_after(left, kicked).map(|at| at - kicked));
        }
        samples
    })?;
    cost(samples, "kicks")
}

/// Slices as a run ends them: a thread on another core waits for the end and kicks. First from the
/// end of the slice until the guest has been left, then until the thread wakes.
pub(super) fn slices(kvm: &Kvm, there: u16) -> Result<(Cost, Cost), MeasureError> {
    const SLICE_NS: u64 = 1_000_000;
    let (overshoots, lateness) = while_spinning(kvm, there, |target, left| {
        // As the timer thread of a run: without the right it works too.
        let _ = become_realtime();
        want_exact_timers();
        let budget = Budget::new(400, 600);
        let (mut overshoots, mut lateness) = (Vec::new(), Vec::new());
        while budget.wants(overshoots.len()) {
            let end = monotonic_ns() + SLICE_NS;
            while monotonic_ns() < end {
                thread::park_timeout(Duration::from_nanos(end.saturating_sub(monotonic_ns())));
            }
            lateness.push(monotonic_ns() - end);
            target.kick();
            overshoots.extend(left_after(left, end).map(|at| at - end));
        }
        (overshoots, lateness)
    })?;
    Ok((cost(overshoots, "slices")?, cost(lateness, "timers")?))
}
