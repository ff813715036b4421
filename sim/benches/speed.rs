//! How fast virtual time passes: events of the stream per second of real time.
//!
//! `crowd` is the goal that was set: 1,000 vCPUs on 64 cores for 60 virtual seconds within a few seconds,
//! under every policy. divan reports items per second, which are entries of the stream.

#[expect(dead_code, reason = "shared with the tests, which use all of it")]
#[path = "../tests/claims/plans.rs"]
mod plans;

use divan::Bencher;
use divan::counter::ItemsCount;
use plans::{Count, Setup, forever, run, sleep, spin};
use std::sync::atomic::AtomicBool;
use stealtime_guest::op::{Length, Step};
use stealtime_scheduler::registry::{POLICIES, PolicyInfo, ScheduledBy};
use stealtime_scheduler::time::Nanos;
use stealtime_sim::SimBackend;
use stealtime_sim::cost::CostModel;
use stealtime_workloads::run::{Backend, LockKind, Plan};

fn main() {
    divan::main();
}

fn entries(plan: &Plan) -> u64 {
    let mut count = Count::default();
    SimBackend::new(CostModel::bare_hardware())
        .run(plan, &AtomicBool::new(false), &mut count)
        .expect("the plan can be run");
    count.0
}

fn measure(bencher: Bencher<'_, '_>, plan: &Plan) {
    let items = ItemsCount::new(entries(plan));
    bencher.counter(items).bench_local(|| entries(plan));
}

/// All that schedule by themselves.
fn policies() -> impl Iterator<Item = &'static str> {
    let own = |info: &&&PolicyInfo| info.scheduled_by == ScheduledBy::Policy;
    POLICIES.iter().filter(own).map(|info| info.name)
}

/// 1,000 spinning vCPUs, four to a VM, on 64 cores for 60 virtual seconds.
#[divan::bench(args = policies(), sample_count = 1, sample_size = 1)]
fn crowd(bencher: Bencher<'_, '_>, policy: &str) {
    let mut setup = Setup::new(policy).cores(64).duration(Nanos::from_secs(60));
    for _ in 0..250 {
        setup = setup.vm(&[]);
        for _ in 0..4 {
            setup = setup.vcpu(&spin());
        }
    }
    measure(bencher, &setup.build());
}

/// The same number of vCPUs that sleep and wake all the time, for one virtual second.
#[divan::bench(sample_count = 3, sample_size = 1)]
fn sleepers(bencher: Bencher<'_, '_>) {
    let steps = forever(&[
        Step::Run(Length::Exponential(50_000)),
        Step::Sleep(Length::Exponential(500_000)),
    ]);
    let mut setup = Setup::new("rr").cores(64);
    for _ in 0..1_000 {
        setup = setup.vm(&[]).vcpu(&steps);
    }
    measure(bencher, &setup.build());
}

/// Four vCPUs of a VM that fight for a lock on two cores, for one virtual second.
#[divan::bench(sample_count = 10, sample_size = 1)]
fn lock(bencher: Bencher<'_, '_>) {
    let steps = forever(&[Step::Lock(0), run(2_000), Step::Unlock(0), run(1_000)]);
    let mut setup = Setup::new("rr").cores(2).vm(&[LockKind::TestAndSet]);
    for _ in 0..4 {
        setup = setup.vcpu(&steps);
    }
    measure(bencher, &setup.vcpu(&forever(&[sleep(100_000)])).build());
}
