//! What is said, and what is not.

use crate::collector::Collector;
use crate::model::{Cause, Report};
use crate::testing::{Tape, outcome, plan, starved, starved_tape};
use stealtime_scheduler::event::{EventKind, PreemptReason, Until, Waits, WakeSource};
use stealtime_scheduler::ids::CoreId;
use stealtime_scheduler::input::Mark;
use stealtime_scheduler::time::Nanos;
use stealtime_workloads::run::{Outcome, Plan};

const MS: u64 = 1_000_000;
const C0: CoreId = CoreId(0);
const SLICE: PreemptReason = PreemptReason::SliceEnd;

fn report(plan: &Plan, collector: Collector) -> Report {
    let outcome = Outcome::default();
    Report::build(plan, "sim", collector, &outcome)
}

#[test]
fn a_kernel_priority_is_found_with_victim_lock_and_cure() {
    let report = starved();
    let diagnosis = &report.diagnosis;
    assert!(diagnosis.starved);
    assert_eq!(diagnosis.cause, Some(Cause::KernelPriority));
    for fact in [
        "vm1/main starved: it waited 1.96 s for a core, from 1.040 s on, to the end of the run",
        "so did, at least half as long, vm2/main",
        "Meanwhile vm0/main was on the core for 1.96 s (100 %)",
        "from 1.050 s on it stood at kernel priority, which it got when it held host lock `pages`",
        "kept after it released the lock at 1.052 s",
        "its thread made no return to user mode since",
    ] {
        assert!(diagnosis.text.contains(fact), "{fact}:\n{}", diagnosis.text);
    }
    let worst = report.worst.expect("there is one");
    assert_eq!((worst.length_ns, worst.occupants.len()), (1_960 * MS, 1));
    assert_eq!(worst.occupants[0].kernel_priority_ns, 1_950 * MS);
}

#[test]
fn the_cure_is_named_only_if_the_policy_has_one_and_is_not_it_already() {
    let fix = |policy: &str| {
        let plan = plan(policy, 3, 1);
        let collector = starved_tape(&plan).collector;
        Report::build(&plan, "kvm", collector, &outcome(0))
            .diagnosis
            .fix
    };
    let known = |policy: &str| {
        let spec = policy.parse().expect("a policy string");
        stealtime_scheduler::registry::check(&spec).is_ok()
    };
    assert_eq!(fix("rr"), None);
    if known("fss:variant=after") {
        let cure = fix("fss:quantum=110ms,kpri=on").expect("a cure");
        assert!(cure.contains("fss:variant=after,quantum=110ms`"), "{cure}");
        assert_eq!(fix("fss:variant=after"), None);
    }
}

/// Three spinning vCPUs on one core with slices of 10 ms.
fn fair_turns(plan: &Plan) -> Tape {
    let mut tape = Tape::new(plan);
    (0..3).for_each(|vcpu| tape.at(0, vcpu, EventKind::Admitted));
    for turn in 0..300_u32 {
        let at = u64::from(turn) * 10 * MS;
        tape.at(at, turn % 3, EventKind::Running(C0));
        tape.at(at + 10 * MS, turn % 3, EventKind::Preempted(C0, SLICE));
    }
    tape.at(3_000 * MS, 0, EventKind::Mark(Mark::MeasureEnd));
    tape
}

#[test]
fn if_nobody_starves_it_says_so_with_the_figures() {
    let plan = plan("rr", 3, 1);
    let report = report(&plan, fair_turns(&plan).collector);
    assert!(!report.diagnosis.starved);
    assert_eq!(report.diagnosis.fix, None);
    let text = &report.diagnosis.text;
    assert!(
        text.starts_with("No vCPU starved: the longest wait for a core was 20.0 ms"),
        "{text}"
    );
    assert!(
        text.contains("waiting for its turn among 2 others"),
        "{text}"
    );
    assert!(
        text.contains("at least 100 % of what it was entitled to"),
        "{text}"
    );
    assert!(report.run.jain > 0.999_999);
}

#[test]
fn who_comes_short_by_many_waits_is_named_and_not_who_waited_longest_once() {
    let plan = plan("rr", 2, 1);
    let mut tape = Tape::new(&plan);
    (0..2).for_each(|vcpu| tape.at(0, vcpu, EventKind::Admitted));
    let mut at = 0;
    for turn in 0..100 {
        let short = if turn == 50 { 25 } else { 2 };
        for (vcpu, length) in [(0, short), (1, 18)] {
            tape.at(at, vcpu, EventKind::Running(C0));
            at += length * MS;
            tape.at(at, vcpu, EventKind::Preempted(C0, SLICE));
        }
    }
    tape.at(at, 0, EventKind::Mark(Mark::MeasureEnd));
    let report = report(&plan, tape.collector);
    let text = &report.diagnosis.text;
    assert!(report.diagnosis.starved);
    for fact in [
        "vm0/main starved: of what it was entitled to, it received 22 %.",
        "The longest wait for a core was vm1/main's: 25.0 ms",
    ] {
        assert!(text.contains(fact), "{fact}: {text}");
    }
}

#[test]
fn if_nobody_waits_it_says_that() {
    let plan = plan("rr", 1, 1);
    let mut tape = Tape::new(&plan);
    tape.at(10, 0, EventKind::Mark(Mark::MeasureEnd));
    let report = report(&plan, tape.collector);
    assert_eq!(report.worst, None);
    assert!(
        report.diagnosis.text.contains("none ever waited"),
        "{}",
        report.diagnosis.text
    );
}

#[test]
fn who_gets_too_little_by_always_waiting_its_turn_has_starved() {
    let plan = plan("rr", 2, 1);
    let mut tape = Tape::new(&plan);
    tape.at(0, 0, EventKind::Admitted);
    tape.at(0, 0, EventKind::Running(C0));
    for turn in 0..10 {
        let at = turn * 100 * MS;
        let wake = if turn == 0 {
            EventKind::Admitted
        } else {
            EventKind::Woken(WakeSource::Timer)
        };
        tape.at(at + MS, 1, wake);
        tape.at(at + 95 * MS, 0, EventKind::Preempted(C0, SLICE));
        tape.at(at + 95 * MS, 1, EventKind::Running(C0));
        tape.at(at + 96 * MS, 1, EventKind::Blocked(Waits::Sleep));
        tape.at(at + 96 * MS, 0, EventKind::Running(C0));
    }
    tape.at(1_000 * MS, 0, EventKind::Mark(Mark::MeasureEnd));
    let report = report(&plan, tape.collector);
    let text = &report.diagnosis.text;
    assert!(report.diagnosis.starved, "{text}");
    assert_eq!(report.diagnosis.cause, Some(Cause::Turn));
    assert!(
        text.contains("Of what it was entitled to, it received 2 %"),
        "{text}"
    );
    assert!(
        text.contains("none of them stood at kernel priority"),
        "{text}"
    );
}

#[test]
fn a_core_that_is_asked_back_and_not_left_is_named() {
    let plan = plan("rr", 2, 1);
    let mut tape = Tape::new(&plan);
    tape.at(0, 0, EventKind::Admitted);
    tape.at(0, 0, EventKind::Running(C0));
    tape.at(0, 1, EventKind::Admitted);
    tape.at(10 * MS, 0, EventKind::Kicked(C0, SLICE));
    tape.at(900 * MS, 0, EventKind::Preempted(C0, SLICE));
    tape.at(900 * MS, 1, EventKind::Running(C0));
    tape.at(950 * MS, 0, EventKind::Mark(Mark::MeasureEnd));
    let report = report(&plan, tape.collector);
    assert_eq!(report.diagnosis.cause, Some(Cause::SlowStop));
    let text = &report.diagnosis.text;
    assert!(
        text.contains("asked back at 0.010 s and it took 890 ms to leave it"),
        "{text}"
    );
}

#[test]
fn a_preemption_that_was_only_remembered_is_named() {
    let plan = plan("rr", 2, 1);
    let mut tape = Tape::new(&plan);
    tape.at(0, 0, EventKind::Admitted);
    tape.at(0, 0, EventKind::Running(C0));
    tape.at(0, 1, EventKind::Admitted);
    tape.at(10 * MS, 0, EventKind::Owed(C0, SLICE, Until::CriticalExit));
    tape.at(900 * MS, 0, EventKind::Mark(Mark::MeasureEnd));
    let report = report(&plan, tape.collector);
    assert_eq!(report.diagnosis.cause, Some(Cause::DeferredPreemption));
    assert!(
        report
            .diagnosis
            .text
            .contains("only remembered from 0.010 s on, until it leaves its critical section"),
        "{}",
        report.diagnosis.text
    );
}

#[test]
fn a_core_granted_and_not_entered_is_the_hosts_doing() {
    let plan = plan("rr", 1, 1);
    let mut tape = Tape::new(&plan);
    tape.at(0, 0, EventKind::Admitted);
    tape.at(0, 0, EventKind::Granted(C0));
    tape.at(400 * MS, 0, EventKind::Running(C0));
    tape.at(900 * MS, 0, EventKind::Mark(Mark::MeasureEnd));
    let report = report(&plan, tape.collector);
    assert_eq!(report.diagnosis.cause, Some(Cause::LateEntry));
    assert!(report.diagnosis.fix.is_some());
}

#[test]
fn an_idle_core_beside_a_waiting_vcpu_is_named() {
    let plan = plan("rr", 1, 1);
    let mut tape = Tape::new(&plan);
    tape.at(0, 0, EventKind::Admitted);
    tape.at(400 * MS, 0, EventKind::Running(C0));
    tape.at(900 * MS, 0, EventKind::Mark(Mark::MeasureEnd));
    let report = report(&plan, tape.collector);
    assert_eq!(report.diagnosis.cause, Some(Cause::IdleCores));
}

#[test]
fn under_the_host_nobody_is_accused() {
    let plan = plan("host", 2, 1);
    let mut tape = Tape::new(&plan);
    for vcpu in 0..2 {
        tape.at(0, vcpu, EventKind::Admitted);
        tape.at(
            0,
            vcpu,
            EventKind::Running(CoreId(u16::try_from(vcpu).expect("small"))),
        );
        tape.at(1_000 * MS, vcpu, EventKind::HostDelay(Nanos(500 * MS)));
    }
    let report = report(&plan, tape.collector);
    assert_eq!(report.diagnosis.cause, Some(Cause::HostScheduler));
    assert!(report.worst.expect("a wait").occupants.is_empty());
    assert!((report.vcpus[0].share - 0.5).abs() < 1e-9);
    assert!((report.run.jain - 1.0).abs() < 1e-9);
}

#[test]
fn of_thousands_of_vcpus_none_is_too_small_to_count() {
    let plan = plan("rr", 2_048, 1);
    let mut tape = Tape::new(&plan);
    (0..2_048).for_each(|vcpu| tape.at(0, vcpu, EventKind::Admitted));
    tape.at(0, 7, EventKind::Running(C0));
    tape.at(3_000 * MS, 0, EventKind::Mark(Mark::MeasureEnd));
    let report = report(&plan, tape.collector);
    assert!(
        (report.run.jain * 2_048.0 - 1.0).abs() < 1e-6,
        "{}",
        report.run.jain
    );
    assert!(report.diagnosis.starved, "{}", report.diagnosis.text);
}
