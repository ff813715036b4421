//! What published policies do, in virtual time.

use crate::ledger::{State, check, total};
use crate::plans::{Done, Setup, run, simulate, sleep, spin};
use stealtime_guest::op::Step;
use stealtime_scheduler::time::Nanos;
use stealtime_sim::cost::CostModel;

/// Runs a spinner that first takes a host lock with a request for kernel priority, sleeps in it and
/// releases it, beside a spinner that does nothing of the kind.
fn kernel_priority(policy: &str) -> (Done, u64, u64) {
    let mut steps = vec![
        Step::HostLock {
            lock: 0,
            kernel_priority: true,
        },
        sleep(1_000_000),
        run(100_000),
        Step::HostUnlock(0),
    ];
    steps.extend(spin());
    let plan = Setup::new(policy)
        .duration(Nanos::from_secs(10))
        .host_locks(1)
        .vm(&[])
        .vcpu(&steps)
        .vm(&[])
        .vcpu(&spin())
        .build();
    let done = simulate(&plan, &CostModel::bare_hardware());
    let spans = check(&done, Nanos::from_secs(10));
    let (caught, victim) = (total(&spans, 0, State::Run), total(&spans, 1, State::Run));
    (done, caught, victim)
}

#[test]
fn under_fss_a_vcpu_that_caught_the_kernel_priority_flag_starves_the_other() {
    let (done, caught, victim) = kernel_priority("fss");
    // The victim has the core while the other sleeps in its lock, and until the flag is seen.
    assert!(victim < 200_000_000, "{victim}");
    assert!(caught > 9_800_000_000, "{caught}");
    assert!(done.outcome.guests[1].gap_max_ns >= 8_000_000_000);
}

#[test]
fn under_fss_after_its_repair_both_share_the_core() {
    let (_, caught, victim) = kernel_priority("fss:variant=after");
    for share in [caught, victim] {
        assert!((4_500_000_000..5_500_000_000).contains(&share), "{share}");
    }
}

#[test]
fn eevdf_gives_weights_1_2_4_their_shares_to_a_tenth_of_a_point() {
    let mut setup = Setup::new("eevdf").duration(Nanos::from_secs(20));
    for weight in [1, 2, 4] {
        setup = setup
            .vm(&[])
            .vcpu_with(&spin(), |params| params.weight = Some(weight));
    }
    let done = simulate(&setup.build(), &CostModel::free());
    let spans = check(&done, Nanos::from_secs(20));
    let wall = 20_000_000_000.0;
    for (vcpu, weight) in [(0, 1.0), (1, 2.0), (2, 4.0)] {
        let share = total(&spans, vcpu, State::Run) as f64 / wall * 100.0;
        let entitled = weight / 7.0 * 100.0;
        assert!(
            (share - entitled).abs() < 0.1,
            "{share} of {entitled} points"
        );
    }
}
