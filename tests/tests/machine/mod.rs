//! The machine alone, without the run loop: guests boot, call, halt, lock and fail on real KVM.
//!
//! Each test owns its machine and is its own little run loop. Times are checked with wide bounds
//! only.

mod faults;
mod limits;
mod locks;

use crate::support;
use kvm_ioctls::Kvm;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use stealtime_guest::op::{Length, Step};
use stealtime_scheduler::ids::{VcpuId, VmId};
use stealtime_scheduler::policy::VcpuParams;
use stealtime_scheduler::time::Nanos;
use stealtime_vmm::cpu::{Call, Cpu, Exit, Queued};
use stealtime_vmm::host::monotonic_ns;
use stealtime_vmm::kick::{self, Receiver, Target};
use stealtime_vmm::machine::{Calibration, GuestCpu, Machine};
use stealtime_workloads::run::{GuestView, LockKind, Plan, VcpuPlan, VmPlan};

/// A plan for one VM with a vCPU for each program.
fn plan(locks: &[LockKind], programs: &[&[Step]]) -> Plan {
    let vcpus = (0..).zip(programs).map(|(index, steps)| VcpuPlan {
        name: format!("v{index}"),
        vm: VmId(0),
        index,
        params: VcpuParams::plain(VmId(0)),
        start: Nanos::ZERO,
        program: steps.iter().map(|step| step.encode()).collect(),
    });
    Plan {
        scenario: "test".into(),
        policy: "rr".parse().expect("a policy string"),
        cores: vec![0],
        warmup: Nanos::ZERO,
        duration: Nanos::from_secs(1),
        seed: 1,
        vms: vec![VmPlan {
            name: "vm".into(),
            locks: locks.iter().map(|kind| ("lock".into(), *kind)).collect(),
        }],
        vcpus: vcpus.collect(),
        host_locks: Vec::new(),
    }
}

fn run(ns: u64) -> Step {
    Step::Run(Length::Fixed(ns))
}

/// The VM's vCPUs, booted on this thread, with the work calibrated.
fn booted(plan: &Plan) -> Vec<GuestCpu> {
    let kvm = Kvm::new().expect("KVM can be opened");
    let machine = Machine::new(&kvm, plan, VmId(0)).expect("a machine");
    let mut cpus = machine.into_cpus();
    let mut calibration: Option<Calibration> = None;
    for cpu in &mut cpus {
        cpu.boot().expect("the guest boots");
        let known = *calibration.get_or_insert_with(|| cpu.calibrate().expect("it calibrates"));
        cpu.set_calibration(&known);
        cpu.set_clock_epoch(monotonic_ns());
    }
    cpus
}

fn only(steps: &[Step]) -> GuestCpu {
    booted(&plan(&[], &[steps])).remove(0)
}

/// Enters until something else than a signal or an interrupt window comes.
fn next(cpu: &mut impl Cpu) -> Exit {
    loop {
        match cpu.enter() {
            Exit::Interrupted | Exit::InterruptWindow => {}
            exit => return exit,
        }
    }
}

/// Enters, kicked out by another thread every so often, until the view is as wanted.
fn enter_until(cpu: &mut GuestCpu, every: Duration, wanted: impl Fn(&GuestView) -> bool) {
    kick::install().expect("a handler");
    let receiver = Receiver::register(cpu.kick_handle());
    let (target, over) = (Target::current(), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            // A kick may come too early to let the guest run, or be forgotten by `rearm`: the next
            // one is not.
            while !over.load(Ordering::SeqCst) {
                thread::sleep(every);
                target.kick();
            }
        });
        loop {
            receiver.rearm();
            let exit = cpu.enter();
            assert!(
                matches!(exit, Exit::Interrupted | Exit::InterruptWindow),
                "{exit:?}"
            );
            if exit == Exit::Interrupted && wanted(&cpu.view()) {
                break;
            }
        }
        over.store(true, Ordering::SeqCst);
    });
    // The last kick has arrived: the thread that sent it has ended.
    receiver.rearm();
}

/// Enters until so much more work is done.
fn work_on(cpu: &mut GuestCpu, every: Duration) {
    let before = cpu.view().progress_ns;
    enter_until(cpu, every, |view| view.progress_ns > before);
}

#[test]
fn every_call_arrives_with_its_arguments() {
    let Some(_kvm) = support::kvm() else { return };
    let big = (1 << 63) + 5;
    let mut cpu = only(&[
        Step::Exit,
        Step::Sleep(Length::Fixed(big)),
        Step::HostWait(Length::Fixed(7)),
        Step::Periodic {
            period: 1_000_000,
            vector: 0x40,
        },
        Step::Yield,
        Step::Interrupt {
            vcpu: 70_000,
            vector: 0xff,
        },
        Step::HostLock {
            lock: 3,
            kernel_priority: true,
        },
        Step::HostUnlock(3),
        Step::Hypervisor(Length::Fixed(20_000)),
        Step::UserReturn,
    ]);
    let calls = [
        Call::Nothing,
        Call::Sleep(Nanos(big)),
        Call::HostWait(Nanos(7)),
        Call::Periodic {
            period: Nanos::from_millis(1),
            vector: 0x40,
        },
        Call::Yield,
        Call::Interrupt {
            to: VcpuId(70_000),
            vector: 0xff,
        },
        Call::HostLock {
            lock: 3,
            kernel_priority: true,
        },
        Call::HostUnlock(3),
        Call::Hypervisor(Nanos(20_000)),
        Call::UserReturn,
        Call::Finished,
        Call::Finished,
    ];
    for call in calls {
        assert_eq!(next(&mut cpu), Exit::Call(call));
    }
}

#[test]
fn a_run_takes_its_length_of_undisturbed_time_and_is_counted() {
    let Some(_kvm) = support::kvm() else { return };
    let mut cpu = only(&[run(50_000_000), run(123), Step::Exit]);
    let begin = Instant::now();
    assert_eq!(next(&mut cpu), Exit::Call(Call::Nothing));
    let took = u64::try_from(begin.elapsed().as_nanos()).expect("short");
    let view = cpu.view();
    assert_eq!(view.progress_ns, 50_000_123);
    // Never faster than calibrated; slower by what disturbs, of which the guest saw the gaps.
    let undisturbed = took.saturating_sub(view.gap_total_ns);
    assert!(undisturbed > 45_000_000, "{took} ns, {view:?}");
    assert!(undisturbed < 150_000_000, "{took} ns, {view:?}");
}

#[test]
fn a_pause_from_outside_is_a_gap_inside() {
    let Some(_kvm) = support::kvm() else { return };
    let mut cpu = only(&[Step::Repeat(0), run(100_000), Step::EndRepeat]);
    let begin = Instant::now();
    work_on(&mut cpu, Duration::from_millis(10));
    let before = cpu.view();
    for _ in 0..5 {
        thread::sleep(Duration::from_millis(10));
        work_on(&mut cpu, Duration::from_millis(10));
    }
    let after = cpu.view();
    let gaps = after.gap_total_ns - before.gap_total_ns;
    assert!(gaps >= 50_000_000, "{gaps}");
    assert!(u128::from(gaps) <= begin.elapsed().as_nanos(), "{gaps}");
    assert!(after.gap_max_ns >= 10_000_000, "{after:?}");
    // From here on, maxima count anew and sums go on.
    cpu.watch().restart_maxima();
    assert_eq!(cpu.view().gap_max_ns, 0);
    assert_eq!(cpu.view().gap_total_ns, after.gap_total_ns);
}

#[test]
fn a_halt_ends_with_an_interrupt_and_with_nothing_else() {
    let Some(_kvm) = support::kvm() else { return };
    let mut cpu = only(&[
        Step::Repeat(0),
        Step::WaitInterrupt,
        Step::Exit,
        Step::EndRepeat,
    ]);
    for round in 0..200 {
        assert_eq!(next(&mut cpu), Exit::Halt, "round {round}");
        // Entered again without an interrupt, it halts again.
        assert_eq!(next(&mut cpu), Exit::Halt, "round {round}");
        cpu.queue_interrupt(0x40);
        assert_eq!(next(&mut cpu), Exit::Call(Call::Nothing), "round {round}");
        assert_eq!(cpu.interrupts_queued(), Queued::None);
        assert_eq!(cpu.view().interrupts, round + 1);
    }
}

#[test]
fn an_interrupt_that_comes_before_the_halt_is_not_lost() {
    let Some(_kvm) = support::kvm() else { return };
    let mut cpu = only(&[Step::Exit, Step::WaitInterrupt, Step::Yield]);
    assert_eq!(next(&mut cpu), Exit::Call(Call::Nothing));
    cpu.queue_interrupt(0x41);
    assert_eq!(next(&mut cpu), Exit::Call(Call::Yield));
    assert_eq!(cpu.view().interrupts, 1);
}

#[test]
fn all_of_many_vectors_are_taken_each_once() {
    let Some(_kvm) = support::kvm() else { return };
    let mut cpu = only(&[run(20_000_000), Step::Exit]);
    for vector in [0x20, 0x33, 0x33, 0x80, 0xff] {
        cpu.queue_interrupt(vector);
    }
    assert_eq!(next(&mut cpu), Exit::Call(Call::Nothing));
    assert_eq!(cpu.interrupts_queued(), Queued::None);
    assert_eq!(cpu.view().interrupts, 4);
}

#[test]
fn an_interrupt_waits_until_the_guest_has_handled_it_even_if_kvm_has_it() {
    let Some(_kvm) = support::kvm() else { return };
    let mut cpu = only(&[Step::Exit, Step::Exit]);
    kick::install().expect("a handler");
    let receiver = Receiver::register(cpu.kick_handle());
    assert_eq!(next(&mut cpu), Exit::Call(Call::Nothing));
    // Between what is done before an entry and the entry itself.
    cpu.queue_interrupt(0x40);
    Target::current().kick();
    for _ in 0..3 {
        assert_eq!(cpu.enter(), Exit::Interrupted);
        assert_eq!(cpu.view().interrupts, 0);
        assert_eq!(cpu.interrupts_queued(), Queued::Some);
    }
    receiver.rearm();
    assert_eq!(next(&mut cpu), Exit::Call(Call::Nothing));
    assert_eq!(cpu.view().interrupts, 1);
    assert_eq!(cpu.interrupts_queued(), Queued::None);
}

#[test]
fn the_guest_notes_when_it_handled_an_interrupt_however_late_it_exits() {
    let Some(_kvm) = support::kvm() else { return };
    let mut cpu = only(&[
        Step::Exit,
        Step::Repeat(0),
        run(50_000_000),
        Step::Exit,
        Step::EndRepeat,
    ]);
    assert_eq!(next(&mut cpu), Exit::Call(Call::Nothing));
    let error = Nanos(cpu.clock_uncertainty_ns());
    for vector in [0x40, 0x41] {
        cpu.queue_interrupt(vector);
        let before = Nanos(monotonic_ns());
        assert_eq!(next(&mut cpu), Exit::Call(Call::Nothing));
        let ago = cpu.interrupt_handled_ago();
        let after = Nanos(monotonic_ns());
        let at = after - ago;
        assert!(at + error >= before, "{before} {at} {after}");
        // All of the work came after it, and work takes no less than its length.
        assert!(
            at + Nanos::from_millis(45) <= after + error,
            "{before} {at} {after}"
        );
    }
}

#[test]
fn interrupts_reach_a_guest_that_computes_and_do_not_disturb_it() {
    let Some(_kvm) = support::kvm() else { return };
    let mut cpu = only(&[Step::Repeat(0), run(10_000), Step::EndRepeat]);
    for round in 0..50 {
        assert_eq!(cpu.view().interrupts, round);
        cpu.queue_interrupt(0x50);
        let wanted = |view: &GuestView| view.interrupts > round;
        enter_until(&mut cpu, Duration::from_millis(1), wanted);
        assert_eq!(cpu.view().interrupts, round + 1);
    }
    work_on(&mut cpu, Duration::from_millis(1));
}

#[test]
fn requests_are_timed_by_the_guests_clock() {
    let Some(_kvm) = support::kvm() else { return };
    let mut cpu = only(&[
        Step::Repeat(3),
        Step::RequestBegin,
        Step::Sleep(Length::Fixed(0)),
        Step::RequestEnd,
        Step::EndRepeat,
    ]);
    for _ in 0..3 {
        assert!(matches!(next(&mut cpu), Exit::Call(Call::Sleep(_))));
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(next(&mut cpu), Exit::Call(Call::Finished));
    let view = cpu.view();
    assert_eq!(view.requests, 3);
    assert!(view.request_max_ns >= 10_000_000, "{view:?}");
    assert!(view.request_max_ns < 1_000_000_000, "{view:?}");
    let least = view.request_hist.iter().position(|count| *count > 0);
    let least = stealtime_guest::hist::lowest(least.expect("there are three"));
    assert!(least > 9_000_000, "{least}");
}

#[test]
fn the_guests_clock_agrees_with_the_hosts() {
    let Some(_kvm) = support::kvm() else { return };
    let mut cpu = only(&[run(1_000), Step::Exit]);
    let epoch = monotonic_ns();
    cpu.set_clock_epoch(epoch);
    assert_eq!(next(&mut cpu), Exit::Call(Call::Nothing));
    thread::sleep(Duration::from_millis(200));
    let offset = cpu.clock_offset_ns(Nanos(monotonic_ns() - epoch));
    let uncertainty = cpu.clock_uncertainty_ns();
    assert!(uncertainty < 10_000_000, "{uncertainty}");
    if let Some(offset) = offset {
        assert!(offset.unsigned_abs() < 10_000_000, "{offset}");
    }
}

#[test]
fn eight_vcpus_of_one_vm_run_each_its_own_program_and_interrupt_each_other() {
    let Some(_kvm) = support::kvm() else { return };
    let programs: Vec<Vec<Step>> = (0..8)
        .map(|index| {
            vec![
                Step::WaitInterrupt,
                run(100_000 * (index + 1)),
                Step::Sleep(Length::Fixed(index)),
            ]
        })
        .collect();
    let programs: Vec<&[Step]> = programs.iter().map(Vec::as_slice).collect();
    let cpus = booted(&plan(&[], &programs));
    let threads = (0..).zip(cpus).map(|(index, mut cpu)| {
        thread::spawn(move || {
            assert_eq!(cpu.id(), VcpuId(u32::try_from(index).expect("small")));
            assert_eq!(next(&mut cpu), Exit::Halt);
            cpu.queue_interrupt(0x44);
            assert_eq!(next(&mut cpu), Exit::Call(Call::Sleep(Nanos(index))));
            assert_eq!(next(&mut cpu), Exit::Call(Call::Finished));
            assert_eq!(cpu.view().progress_ns, 100_000 * (index + 1));
        })
    });
    for thread in threads.collect::<Vec<_>>() {
        thread.join().expect("the vCPU did what its program says");
    }
}
