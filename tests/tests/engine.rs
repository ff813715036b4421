//! The KVM backend as a library: many guests under the dispatcher, faults, early ends.
//!
//! What is asserted holds on any machine, however slow: nothing lost, nothing stuck, a stream that
//! replays. `STEALTIME_STRESS_SECONDS` makes the stress test longer than its 3 s.

use crate::support;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use stealtime_guest::op::{Length, Misdeed, Step};
use stealtime_scheduler::dispatcher::{Dispatcher, Output};
use stealtime_scheduler::ids::{VcpuId, VmId};
use stealtime_scheduler::input::{Input, Mark, RetireReason};
use stealtime_scheduler::policy::VcpuParams;
use stealtime_scheduler::time::Nanos;
use stealtime_vmm::backend::{KvmBackend, KvmError};
use stealtime_workloads::run::{
    Backend, Entry, LockKind, Observer, Outcome, Plan, VcpuPlan, VmPlan,
};

#[derive(Default)]
struct Recorder(Vec<Entry>);

impl Observer for Recorder {
    fn entries(&mut self, entries: &[Entry]) {
        self.0.extend_from_slice(entries);
    }
}

/// The first two cores that we may use.
fn cores() -> Vec<u16> {
    let ours = rustix::thread::sched_getaffinity(None).expect("our own affinity");
    let ours = (0..1024).filter(|core| ours.is_set(usize::from(*core)));
    ours.take(2).collect()
}

/// A plan with a vCPU for each program, `vms[i]` being the VM of the vCPU number `i`.
fn plan(policy: &str, duration: Nanos, vms: &[u16], programs: &[Vec<Step>]) -> Plan {
    let mut seen = std::collections::HashMap::<u16, u32>::new();
    let siblings = |vm| u32::try_from(vms.iter().filter(|other| **other == vm).count());
    let vcpus = vms.iter().zip(programs).enumerate();
    let vcpus = vcpus.map(|(number, (&vm, steps))| {
        let next = seen.entry(vm).or_default();
        let index = *next;
        *next += 1;
        VcpuPlan {
            name: format!("v{number}"),
            vm: VmId(vm),
            index,
            params: VcpuParams {
                siblings: siblings(vm).expect("few"),
                ..VcpuParams::plain(VmId(vm))
            },
            start: Nanos::ZERO,
            program: steps.iter().map(|step| step.encode()).collect(),
        }
    });
    let vcpus = vcpus.collect();
    let count = vms.iter().max().expect("some") + 1;
    let vm = |number| VmPlan {
        name: format!("vm{number}"),
        locks: vec![("lock".into(), LockKind::TestAndSet)],
    };
    Plan {
        scenario: "test".into(),
        policy: policy.parse().expect("a policy string"),
        cores: cores(),
        warmup: Nanos::from_millis(100),
        duration,
        seed: 1,
        vms: (0..count).map(vm).collect(),
        vcpus,
        host_locks: vec!["inode".into()],
    }
}

fn forever(body: &[Step]) -> Vec<Step> {
    let mut steps = vec![Step::Repeat(0)];
    steps.extend_from_slice(body);
    steps.push(Step::EndRepeat);
    steps
}

fn us(n: u64) -> Length {
    Length::Fixed(n * 1_000)
}

fn spinner() -> Vec<Step> {
    forever(&[Step::Run(us(500))])
}

/// One of several ways to live, for the vCPU number `n` of `count`.
fn way_of_life(n: u32, count: u32) -> Vec<Step> {
    let vector = 0x41;
    match n % 8 {
        0 => spinner(),
        1 => forever(&[
            Step::RequestBegin,
            Step::Run(Length::Uniform(50_000, 400_000)),
            Step::RequestEnd,
            Step::Sleep(Length::Exponential(2_000_000)),
        ]),
        2 => forever(&[Step::WaitInterrupt, Step::Run(us(200))]),
        3 => forever(&[
            Step::Run(us(800)),
            Step::Interrupt {
                vcpu: (n + count - 1) % count,
                vector,
            },
            Step::Yield,
        ]),
        4 => forever(&[
            Step::Lock(0),
            Step::Run(us(150)),
            Step::Unlock(0),
            Step::Run(us(150)),
        ]),
        5 => forever(&[
            Step::HostLock {
                lock: 0,
                kernel_priority: false,
            },
            Step::Hypervisor(us(200)),
            Step::HostUnlock(0),
            Step::Run(us(300)),
            Step::UserReturn,
        ]),
        6 => forever(&[Step::Run(us(300)), Step::HostWait(us(700)), Step::Exit]),
        _ => {
            let period = 3_000_000;
            let mut steps = vec![Step::Periodic { period, vector }];
            steps.extend(forever(&[Step::WaitInterrupt, Step::Run(us(100))]));
            steps
        }
    }
}

fn run(plan: &Plan, stop: &AtomicBool) -> (Outcome, Vec<Entry>) {
    let threads = threads_of_this_test();
    let mut recorder = Recorder::default();
    let outcome = KvmBackend
        .run(plan, stop, &mut recorder)
        .expect("the run takes place");
    assert_eq!(threads_of_this_test(), threads, "a thread was left behind");
    (outcome, recorder.0)
}

/// Threads named as those of a run are: a vCPU's by its VM, or the one for timers.
fn threads_of_this_test() -> usize {
    let names = std::fs::read_dir("/proc/self/task").expect("our own threads");
    let names =
        names.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names
        .filter(|name| name.starts_with("vm") || name.trim() == "timers")
        .count()
}

/// A fresh dispatcher that is told the same answers the same, one for one.
fn assert_replays(plan: &Plan, entries: &[Entry]) {
    let mut dispatcher = Dispatcher::new(&plan.config()).expect("it was made before");
    let mut out = Output::default();
    let mut replayed = Vec::with_capacity(entries.len());
    for entry in entries {
        if let Entry::Input(now, input) = *entry {
            out.clear();
            dispatcher.handle(now, input, &mut out);
            replayed.push(*entry);
            replayed.extend(out.effects.iter().copied().map(Entry::Effect));
            replayed.extend(out.events.iter().copied().map(Entry::Event));
        }
    }
    let differs = replayed.iter().zip(entries).position(|(a, b)| a != b);
    assert_eq!(differs, None, "of {} entries", entries.len());
    assert_eq!(replayed.len(), entries.len());
}

fn assert_complete(plan: &Plan, outcome: &Outcome, entries: &[Entry]) {
    let events = entries
        .iter()
        .filter(|entry| matches!(entry, Entry::Event(_)));
    assert_eq!(
        events.count() as u64,
        outcome.quality.events_emitted,
        "lost events"
    );
    assert_eq!(outcome.violation_count, 0, "{:?}", outcome.violations);
    for mark in [Mark::MeasureStart, Mark::MeasureEnd] {
        let marks = entries
            .iter()
            .filter(|entry| matches!(entry, Entry::Input(_, Input::Mark(m)) if *m == mark));
        assert_eq!(marks.count(), 1, "{mark:?}");
    }
    let retired = entries
        .iter()
        .filter(|entry| matches!(entry, Entry::Input(_, Input::Retire { .. })));
    assert_eq!(retired.count(), plan.vcpus.len(), "every vCPU retires once");
    let stuck = |note: &&String| note.contains("did not leave");
    assert_eq!(outcome.quality.notes.iter().find(stuck), None);
    assert_replays(plan, entries);
}

fn why_retired(entries: &[Entry], who: u32) -> RetireReason {
    let mut all = entries.iter().filter_map(|entry| match entry {
        Entry::Input(_, Input::Retire { vcpu, why }) if *vcpu == VcpuId(who) => Some(*why),
        _ => None,
    });
    all.next().expect("it retired")
}

#[test]
fn thirty_two_vcpus_on_two_cores_lose_no_event_and_nobody_is_stuck() {
    let Some(_kvm) = support::kvm() else { return };
    let seconds = std::env::var("STEALTIME_STRESS_SECONDS").map_or(3, |text| {
        text.parse()
            .expect("STEALTIME_STRESS_SECONDS is a whole number")
    });
    let vms: Vec<u16> = (0..32).map(|vcpu| vcpu / 4).collect();
    let programs: Vec<_> = (0..32).map(|vcpu| way_of_life(vcpu, 32)).collect();
    let plan = plan("rr:quantum=5ms", Nanos::from_secs(seconds), &vms, &programs);
    let (outcome, entries) = run(&plan, &AtomicBool::new(false));
    assert_complete(&plan, &outcome, &entries);
    assert_eq!(outcome.failures, []);
    assert!(!outcome.interrupted);
    for (guest, vcpu) in outcome.guests.iter().zip(&plan.vcpus) {
        assert!(guest.progress_ns > 0, "{} did nothing", vcpu.name);
    }
    println!("{} entries, {:#?}", entries.len(), outcome.quality);
}

#[test]
fn guests_that_misbehave_end_their_own_vms_and_the_run_goes_on() {
    let Some(_kvm) = support::kvm() else { return };
    let misdeeds = [
        Misdeed::TripleFault,
        Misdeed::BadMemory,
        Misdeed::BadPort,
        Misdeed::BadInstruction,
    ];
    // In each VM but the last one misbehaves and one is innocent.
    let mut vms = Vec::new();
    let mut programs = Vec::new();
    for (vm, misdeed) in (0..).zip(misdeeds) {
        vms.extend([vm, vm]);
        programs.push(vec![Step::Run(us(2_000)), Step::Fault(misdeed)]);
        programs.push(spinner());
    }
    vms.push(4);
    programs.push(spinner());
    let plan = plan("eevdf", Nanos::from_secs(1), &vms, &programs);
    let (outcome, entries) = run(&plan, &AtomicBool::new(false));
    assert_complete(&plan, &outcome, &entries);
    let mut failed: Vec<_> = outcome
        .failures
        .iter()
        .map(|failure| failure.vm.0)
        .collect();
    failed.sort_unstable();
    assert_eq!(failed, [0, 1, 2, 3], "{:#?}", outcome.failures);
    for vcpu in 0..8 {
        assert_eq!(
            why_retired(&entries, vcpu),
            RetireReason::Fault,
            "vCPU {vcpu}"
        );
    }
    assert_eq!(why_retired(&entries, 8), RetireReason::RunOver);
    assert!(outcome.guests[8].progress_ns > 0);
}

#[test]
fn a_run_that_is_stopped_ends_at_once_and_keeps_what_was_measured() {
    let Some(_kvm) = support::kvm() else { return };
    let programs: Vec<_> = (0..6).map(|vcpu| way_of_life(vcpu, 6)).collect();
    let vms = [0, 0, 0, 1, 1, 1];
    for after in [0, 30, 400] {
        let plan = plan("fss", Nanos::from_secs(3_600), &vms, &programs);
        let stop = Arc::new(AtomicBool::new(false));
        let stopper = Arc::clone(&stop);
        let handle = thread::spawn(move || {
            thread::sleep(Duration::from_millis(after));
            stopper.store(true, Ordering::Relaxed);
        });
        let began = Instant::now();
        let (outcome, entries) = run(&plan, &stop);
        assert!(began.elapsed() < Duration::from_secs(60));
        handle.join().expect("it only sleeps");
        assert!(outcome.interrupted);
        assert_complete(&plan, &outcome, &entries);
    }
}

#[test]
fn a_run_is_over_when_every_program_is() {
    let Some(_kvm) = support::kvm() else { return };
    let programs = [
        vec![Step::Run(us(3_000))],
        vec![Step::Sleep(us(5_000))],
        vec![],
    ];
    let plan = plan("eevdf", Nanos::from_secs(3_600), &[0, 0, 1], &programs);
    let (outcome, entries) = run(&plan, &AtomicBool::new(false));
    assert_complete(&plan, &outcome, &entries);
    assert!(!outcome.interrupted);
    for vcpu in 0..3 {
        assert_eq!(why_retired(&entries, vcpu), RetireReason::Finished);
    }
}

#[test]
fn under_the_hosts_own_scheduling_nobody_is_asked_to_leave_a_core() {
    let Some(_kvm) = support::kvm() else { return };
    let plan = plan(
        "host",
        Nanos::from_millis(500),
        &[0, 0, 1],
        &[spinner(), spinner(), spinner()],
    );
    let (outcome, entries) = run(&plan, &AtomicBool::new(false));
    assert_complete(&plan, &outcome, &entries);
    let stopped = |entry: &&Entry| matches!(entry, Entry::Input(_, Input::Stopped { .. }));
    assert_eq!(entries.iter().find(stopped), None);
    assert!(outcome.guests.iter().all(|guest| guest.progress_ns > 0));
    assert!(
        outcome.quality.host_interference_ns > 0,
        "three spin on two cores"
    );
}

#[test]
fn a_core_that_is_not_there_is_an_error_before_anything_runs() {
    let Some(_kvm) = support::kvm() else { return };
    let mut plan = plan("rr", Nanos::from_secs(1), &[0], &[spinner()]);
    plan.cores = vec![1_000];
    let error = KvmBackend
        .run(&plan, &AtomicBool::new(false), &mut Recorder::default())
        .expect_err("there is no such core");
    assert!(matches!(error, KvmError::Placement(_)), "{error:?}");
}
