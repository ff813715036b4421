//! The same plan, seed and costs give the same stream.

use crate::plans::{Setup, forever, run, simulate, sleep, spin};
use stealtime_guest::op::{Length, Step};
use stealtime_sim::cost::CostModel;
use stealtime_workloads::run::{LockKind, Plan};

fn scenarios() -> Vec<Plan> {
    let random = forever(&[
        Step::Run(Length::Exponential(300_000)),
        Step::Lock(0),
        Step::Run(Length::Uniform(1_000, 90_000)),
        Step::Unlock(0),
        Step::Sleep(Length::Exponential(400_000)),
    ]);
    let locks = |kind| {
        let setup = Setup::new("rr:quantum=1ms").cores(2).vm(&[kind]);
        (0..5).fold(setup, |setup, _| setup.vcpu(&random)).build()
    };
    let signals = Setup::new("eevdf")
        .cores(2)
        .vm(&[])
        .vcpu(&forever(&[
            Step::Run(Length::Exponential(50_000)),
            Step::Interrupt {
                vcpu: 1,
                vector: 0x40,
            },
        ]))
        .vcpu(&forever(&[
            Step::WaitInterrupt,
            Step::Hypervisor(Length::Exponential(20_000)),
        ]))
        .vm(&[])
        .vcpu(&spin())
        .vcpu(&forever(&[run(10_000), sleep(5_000), Step::Exit]))
        .build();
    vec![
        locks(LockKind::TestAndSet),
        locks(LockKind::Ticket),
        signals,
    ]
}

#[test]
fn the_same_plan_and_seed_give_the_same_stream_and_another_seed_does_not() {
    for plan in scenarios() {
        let costs = CostModel::bare_hardware();
        let (once, again) = (simulate(&plan, &costs), simulate(&plan, &costs));
        assert!(once.entries.len() > 1_000);
        assert!(once.entries == again.entries);
        assert_eq!(once.outcome, again.outcome);
        let other = Plan {
            seed: plan.seed + 1,
            ..plan.clone()
        };
        assert!(once.entries != simulate(&other, &costs).entries);
    }
}

#[test]
fn without_random_lengths_the_seed_changes_nothing() {
    let plan = |seed| {
        Setup::new("rr")
            .seed(seed)
            .vm(&[])
            .vcpu(&spin())
            .vcpu(&spin())
            .build()
    };
    let costs = CostModel::bare_hardware();
    assert!(simulate(&plan(1), &costs).entries == simulate(&plan(2), &costs).entries);
}

#[test]
fn no_real_time_gets_into_what_a_run_yields() {
    let plan = Setup::new("rr").vm(&[]).vcpu(&spin()).vcpu(&spin()).build();
    let quality = simulate(&plan, &CostModel::bare_hardware()).outcome.quality;
    assert_eq!(quality.dispatch_overhead_ns, 0);
    assert!(quality.dispatch_calls > 100);
    assert_eq!((quality.calibration, quality.clock), (None, None));
}
