//! How many vCPUs and machines there may be, and what everything costs.

use super::{next, plan};
use crate::support;
use kvm_ioctls::Kvm;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use stealtime_guest::op::Step;
use stealtime_scheduler::ids::VmId;
use stealtime_vmm::cpu::{Call, Exit};
use stealtime_vmm::machine::{GuestCpu, Machine, MachineError};
use stealtime_vmm::probe;

#[test]
fn more_vcpus_than_kvm_allows_is_an_error_that_names_both_numbers() {
    let Some(_kvm) = support::kvm() else { return };
    let kvm = Kvm::new().expect("KVM can be opened");
    let allowed = kvm.get_max_vcpus();
    let steps: &[Step] = &[];
    let plan = plan(&[], &vec![steps; allowed + 1]);
    let error = Machine::new(&kvm, &plan, VmId(0)).expect_err("too many");
    assert!(
        matches!(error, MachineError::TooManyVcpus { .. }),
        "{error}"
    );
    let text = error.to_string();
    assert!(text.contains(&allowed.to_string()), "{text}");
    assert!(text.contains(&(allowed + 1).to_string()), "{text}");
}

#[test]
fn what_everything_costs_can_be_measured_in_a_few_seconds() {
    let Some(_kvm) = support::kvm() else { return };
    assert!(probe::check().usable());
    let begin = Instant::now();
    let costs = probe::measure().expect("it can be measured");
    assert!(
        begin.elapsed() < Duration::from_secs(60),
        "{:?}",
        begin.elapsed()
    );
    let all = [
        Some(costs.call_round_trip),
        Some(costs.halt_round_trip),
        Some(costs.immediate_exit),
        Some(costs.interrupt),
        costs.kick,
        Some(costs.slice_overshoot),
        Some(costs.timer),
        Some(costs.hand_over_same_core),
        costs.hand_over_other_core,
        Some(costs.clock_reading),
    ];
    for cost in all.into_iter().flatten() {
        assert!(cost.samples > 0, "{costs:?}");
        assert!(cost.median_ns <= cost.p99_ns, "{costs:?}");
    }
    assert!(
        costs.slice_overshoot.median_ns >= costs.timer.median_ns / 2,
        "{costs:?}"
    );
    assert!(
        costs.call_round_trip.median_ns > costs.clock_reading.median_ns,
        "{costs:?}"
    );
    assert_eq!(costs.kick.is_some(), probe::rights().cores.len() > 1);
}

#[test]
fn what_a_busy_thread_takes_of_a_core_is_seen() {
    let Some(_kvm) = support::kvm() else { return };
    let cores = probe::rights().cores;
    let over = AtomicBool::new(false);
    let gaps = thread::scope(|scope| {
        scope.spawn(|| {
            let mut mine = CpuSet::new();
            mine.set(usize::from(cores[0]));
            sched_setaffinity(None, &mine).expect("threads may be bound to cores");
            while !over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let found = std::panic::catch_unwind(probe::interference);
        over.store(true, Ordering::Relaxed);
        let found = found.expect("it ends").expect("guests run on all cores");
        assert!(found.told_ppm > 0, "{found:?}");
        found.gaps
    });
    assert!(gaps.is_sorted_by_key(|gaps| gaps.length_ns), "{gaps:?}");
    let taken: f64 = gaps
        .iter()
        .map(|gaps| gaps.length_ns as f64 / gaps.every_ns as f64)
        .sum();
    // Half of that core would be fair; the mean of all cores is told.
    let fair = 0.5 / cores.len() as f64;
    assert!((0.4 * fair..1.0).contains(&taken), "{gaps:?}");
}

#[test]
fn of_two_busy_threads_on_a_core_each_is_let_run_for_a_while() {
    let stays = probe::host_slice().expect("threads may be bound to cores");
    let stays = stays.expect("the host switches between them");
    // Far more than a switch takes, and far less than the time that was looked at.
    assert!(
        (20_000..200_000_000).contains(&stays.median_ns),
        "{stays:?}"
    );
}

#[test]
fn a_hundred_machines_fit_at_once() {
    let Some(_kvm) = support::kvm() else { return };
    let kvm = Kvm::new().expect("KVM can be opened");
    let plan = plan(&[], &[&[Step::Exit]]);
    let mut all: Vec<GuestCpu> = (0..100)
        .flat_map(|_| {
            Machine::new(&kvm, &plan, VmId(0))
                .expect("fits")
                .into_cpus()
        })
        .collect();
    for cpu in [0, 99] {
        all[cpu].boot().expect("the guest boots");
        assert_eq!(next(&mut all[cpu]), Exit::Call(Call::Nothing));
    }
}
