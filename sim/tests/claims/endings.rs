//! How programs, VMs and runs end.

use crate::ledger::{State, check, spans, total, when};
use crate::plans::{Count, Keep, Setup, forever, run, simulate, sleep, spin};
use std::sync::atomic::{AtomicBool, Ordering};
use stealtime_guest::op::{Misdeed, Op, Step};
use stealtime_scheduler::event::EventKind;
use stealtime_scheduler::ids::{VcpuId, VmId};
use stealtime_scheduler::input::{ExitReason, Mark, RetireReason};
use stealtime_scheduler::time::Nanos;
use stealtime_sim::cost::{CostModel, InvalidCosts};
use stealtime_sim::{SimBackend, SimError};
use stealtime_workloads::run::{Backend, Entry, LockKind, Observer};

const END: Nanos = Nanos::from_secs(1);

#[test]
fn a_misdeed_ends_its_own_vm_with_all_its_vcpus_and_no_other() {
    for (misdeed, exit, words) in [
        (Misdeed::TripleFault, ExitReason::Shutdown, "triple fault"),
        (Misdeed::BadMemory, ExitReason::Unexpected, "page fault"),
        (
            Misdeed::BadPort,
            ExitReason::Unexpected,
            "where nothing answers",
        ),
        (
            Misdeed::BadInstruction,
            ExitReason::Unexpected,
            "undefined instruction",
        ),
    ] {
        let plan = Setup::new("rr")
            .cores(3)
            .vm(&[])
            .vcpu(&spin())
            .vcpu(&[run(1_000_000), Step::Fault(misdeed), run(1)])
            .vcpu(&forever(&[sleep(3_000_000)]))
            .vcpu(&spin())
            .start(Nanos::from_millis(500))
            .vm(&[])
            .vcpu(&spin())
            .build();
        let done = simulate(&plan, &CostModel::bare_hardware());
        check(&done, END);
        let [failure] = &done.outcome.failures[..] else {
            panic!("{:?}", done.outcome.failures);
        };
        assert_eq!(failure.vm, VmId(0));
        assert!(failure.message.contains(words), "{}", failure.message);
        assert_eq!(failure.message.lines().count(), 1);
        let retired = when(&done, |kind| {
            *kind == EventKind::Retired(RetireReason::Fault)
        });
        assert_eq!(retired.len(), 4);
        // The sibling that runs guest code is asked first.
        let last = retired.iter().map(|(at, _)| *at).max();
        assert_eq!(last, Some(failure.at + CostModel::bare_hardware().kick));
        let exits = when(&done, |kind| *kind == EventKind::Exited(exit));
        assert!(exits.iter().any(|(_, vcpu)| *vcpu == VcpuId(1)));
        assert!(done.outcome.guests[4].progress_ns > 980_000_000);
    }
}

#[test]
fn a_sibling_that_is_on_its_way_out_when_its_vm_ends_does_not_begin_to_wait() {
    let costs = CostModel::bare_hardware();
    let plan = Setup::new("rr")
        .cores(2)
        .vm(&[])
        .vcpu(&[run(1_000_000), Step::Fault(Misdeed::TripleFault)])
        .vcpu(&[run(1_000_000), sleep(500_000_000), run(1)])
        .build();
    let done = simulate(&plan, &costs);
    check(&done, END);
    let failed = done.outcome.failures[0].at;
    let retired = when(&done, |kind| {
        *kind == EventKind::Retired(RetireReason::Fault)
    });
    assert_eq!(
        retired,
        [(failed, VcpuId(0)), (failed + costs.exit, VcpuId(1))]
    );
}

#[test]
fn a_program_that_means_nothing_is_refused_in_the_words_of_the_guest_kernel() {
    let nobody = Step::Interrupt { vcpu: 0, vector: 3 };
    let cases: [(&[Step], &str); 7] = [
        (&[Step::Repeat(0), Step::EndRepeat], "repeats nothing"),
        (
            &[nobody],
            "arguments that mean nothing (Interrupt: 0x0, 0x3)",
        ),
        (&[Step::Lock(7)], "no such lock"),
        (&[Step::Unlock(0)], "does not hold"),
        (&[Step::Lock(0), Step::Lock(0)], "holds already"),
        (&[Step::RequestEnd], "did not begin"),
        (&[Step::CriticalLeave], "did not enter"),
    ];
    for (steps, words) in cases {
        let plan = Setup::new("rr")
            .vm(&[LockKind::Ticket])
            .vcpu(steps)
            .vm(&[])
            .vcpu(&spin())
            .build();
        let done = simulate(&plan, &CostModel::bare_hardware());
        check(&done, END);
        let message = &done.outcome.failures[0].message;
        assert!(message.contains(words), "{message}");
        assert!(done.outcome.guests[1].progress_ns > 980_000_000);
    }
    let mut plan = Setup::new("rr").vm(&[]).vcpu(&[]).build();
    plan.vcpus[0].program = vec![Op {
        code: 999,
        ..Op::default()
    }];
    let done = simulate(&plan, &CostModel::bare_hardware());
    assert!(done.outcome.failures[0].message.contains("999"));
}

#[test]
fn a_run_ends_when_all_programs_have() {
    let plan = Setup::new("rr")
        .vm(&[])
        .vcpu(&[run(1_000)])
        .vm(&[])
        .vcpu(&[run(2_000), Step::End, run(3)])
        .build();
    let done = simulate(&plan, &CostModel::free());
    check(&done, END);
    let over = when(&done, |kind| *kind == EventKind::Mark(Mark::MeasureEnd));
    assert_eq!(over.len(), 1);
    assert!(over[0].0 < Nanos::from_micros(10), "{}", over[0].0);
    assert!(!done.outcome.interrupted);
    assert_eq!(done.outcome.guests[1].progress_ns, 2_000);
}

#[test]
fn figures_of_the_guests_count_from_the_end_of_the_warm_up() {
    let plan = Setup::new("rr:quantum=10ms")
        .warmup(Nanos::from_millis(95))
        .duration(Nanos::from_millis(200))
        .vm(&[])
        .vcpu(&forever(&[
            Step::RequestBegin,
            run(1_000_000),
            Step::RequestEnd,
        ]))
        .vm(&[])
        .vcpu(&spin())
        .build();
    let done = simulate(&plan, &CostModel::free());
    check(&done, Nanos::from_millis(295));
    let marks = when(&done, |kind| matches!(kind, EventKind::Mark(_)));
    assert_eq!(
        marks.iter().map(|m| m.0.0).collect::<Vec<_>>(),
        [95_000_000, 295_000_000]
    );
    let [first, second] = &done.outcome.guests[..] else {
        panic!("two vCPUs");
    };
    // One of them runs at any time, but for 1 ns an op.
    let all = first.progress_ns + second.progress_ns;
    assert!((199_990_000..=200_000_000).contains(&all), "{all}");
    // A gap that was open when the warm-up ended counts from there, one that is open at the end up
    // to there: all of the time, each vCPU either runs or sees a gap.
    assert_eq!(
        first.progress_ns + second.gap_total_ns,
        200_000_000 - overhead(first.requests)
    );
    assert!((90..=110).contains(&first.requests), "{}", first.requests);
}

/// What the ops of so many requests cost, with 1 ns for each of three ops; the first request was
/// under way.
fn overhead(requests: u64) -> u64 {
    3 * requests
}

/// Stops the run when it has heard so many entries.
struct Stopper<'a> {
    stop: &'a AtomicBool,
    heard: Count,
    keep: Keep,
}

impl Observer for Stopper<'_> {
    fn entries(&mut self, entries: &[Entry]) {
        self.heard.entries(entries);
        self.keep.entries(entries);
        if self.heard.0 > 50_000 {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

#[test]
fn a_run_that_is_stopped_hands_over_what_was_measured() {
    let stop = AtomicBool::new(false);
    let mut stopper = Stopper {
        stop: &stop,
        heard: Count::default(),
        keep: Keep::default(),
    };
    let plan = Setup::new("rr")
        .duration(Nanos::from_secs(1_000_000))
        .vm(&[])
        .vcpu(&forever(&[run(1_000), Step::Exit]))
        .build();
    let outcome = SimBackend::new(CostModel::free())
        .run(&plan, &stop, &mut stopper)
        .expect("it runs");
    assert!(outcome.interrupted);
    let entries = stopper.keep.0;
    let done = crate::plans::Done { entries, outcome };
    let spans = check(&done, Nanos::from_secs(1_000_000));
    assert!(total(&spans, 0, State::Run) > 1_000);
    assert!(!when(&done, |kind| *kind == EventKind::Mark(Mark::MeasureEnd)).is_empty());
}

#[test]
fn a_run_of_small_ops_without_any_exit_can_be_stopped() {
    let stop = AtomicBool::new(true);
    let plan = Setup::new("rr")
        .duration(Nanos::from_secs(1_000_000))
        .vm(&[])
        .vcpu(&forever(&[run(1)]))
        .build();
    let mut count = Count::default();
    let outcome = SimBackend::new(CostModel::free())
        .run(&plan, &stop, &mut count)
        .expect("it runs");
    assert!(outcome.interrupted);
}

#[test]
fn under_the_policy_host_the_default_of_linux_runs_and_the_report_says_so() {
    let plan = |policy| {
        Setup::new(policy)
            .vm(&[])
            .vcpu(&spin())
            .vcpu(&spin())
            .build()
    };
    let done = simulate(&plan("host"), &CostModel::bare_hardware());
    let instead = simulate(&plan("eevdf"), &CostModel::bare_hardware());
    assert_eq!(done.entries, instead.entries);
    assert!(
        spans(&done)
            .iter()
            .all(|span| span.core.is_none_or(|core| core.0 == 0))
    );
    let notes = done.outcome.quality.notes.join("\n");
    assert!(
        notes.contains("eevdf") && notes.contains("bare-hardware"),
        "{notes}"
    );
    assert_eq!(instead.outcome.quality.notes.len(), 1);
}

#[test]
fn a_host_whose_slices_were_measured_notices_their_ends_at_ticks_as_long() {
    let of_host = |nanos| CostModel {
        host_slice: Nanos(nanos),
        ..CostModel::bare_hardware()
    };
    let plan = |policy| {
        let setup = Setup::new(policy).vm(&[]).vcpu(&spin()).vcpu(&spin());
        setup.build()
    };
    let done = simulate(&plan("host"), &of_host(4_001_926));
    let instead = simulate(&plan("eevdf:tick=4001us"), &CostModel::bare_hardware());
    assert_eq!(done.entries, instead.entries);
    let exact = simulate(&plan("eevdf"), &CostModel::bare_hardware());
    assert!(exact.entries != instead.entries);
    // Whatever was measured is a tick that the policy takes.
    for nanos in [1, 999_999_999] {
        let extreme = simulate(&plan("host"), &of_host(nanos));
        assert!(!extreme.outcome.interrupted);
    }
}

#[test]
fn what_cannot_be_run_is_refused_before_anything_runs() {
    let plan = Setup::new("rr").vm(&[]).vcpu(&spin()).build();
    let refuse = |plan, costs: &CostModel| {
        SimBackend::new(costs.clone())
            .run(plan, &AtomicBool::new(false), &mut Count::default())
            .expect_err("it cannot be run")
    };
    let nothing = CostModel {
        op: Nanos::ZERO,
        ..CostModel::free()
    };
    let refused = refuse(&plan, &nothing);
    assert!(
        matches!(refused, SimError::Costs(InvalidCosts::FreeOps { .. })),
        "{refused}"
    );
    let mut elsewhere = plan.clone();
    elsewhere.vcpus[0].vm = VmId(3);
    let refused = refuse(&elsewhere, &CostModel::free());
    assert!(matches!(refused, SimError::NoSuchVm { .. }), "{refused}");
    let weighted = Setup::new("host")
        .vm(&[])
        .vcpu_with(&spin(), |params| params.weight = Some(2))
        .build();
    let refused = refuse(&weighted, &CostModel::free());
    assert!(refused.to_string().contains("host"), "{refused}");
}
