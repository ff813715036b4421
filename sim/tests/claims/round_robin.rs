//! Round robin, where every instant can be computed by hand.

use crate::ledger::{State, check, total, when};
use crate::plans::{Setup, simulate, spin};
use stealtime_scheduler::event::EventKind;
use stealtime_scheduler::ids::VcpuId;
use stealtime_scheduler::time::Nanos;
use stealtime_sim::cost::CostModel;

const QUANTUM: u64 = 10_000_000;

#[test]
fn two_spinners_alternate_at_instants_exact_to_the_nanosecond() {
    let costs = CostModel::bare_hardware();
    let plan = Setup::new("rr:quantum=10ms")
        .vm(&[])
        .vcpu(&spin())
        .vm(&[])
        .vcpu(&spin())
        .build();
    let done = simulate(&plan, &costs);
    let end = Nanos::from_secs(1);
    check(&done, end);
    // Granted by the admission, which happens on no core; then a quantum, the late timer, the kick
    // and the hand-over on the core.
    let first = costs.switch_other_core.0;
    let round = QUANTUM + costs.timer.0 + costs.kick.0 + costs.switch_same_core.0;
    let expected: Vec<_> = (0..)
        .map(|turn: u32| (Nanos(first + round * u64::from(turn)), VcpuId(turn % 2)))
        .take_while(|(at, _)| *at < end)
        .collect();
    let running = when(&done, |kind| matches!(kind, EventKind::Running(_)));
    assert_eq!(running, expected);
    assert!(expected.len() > 90);
}

#[test]
fn the_guest_s_progress_and_gaps_are_what_the_costs_leave() {
    let costs = CostModel::bare_hardware();
    let vcpus = Setup::new("rr:quantum=10ms")
        .vm(&[])
        .vcpu(&spin())
        .vm(&[])
        .vcpu(&spin());
    let done = simulate(&vcpus.build(), &costs);
    let spans = check(&done, Nanos::from_secs(1));
    let turns = when(&done, |kind| matches!(kind, EventKind::Running(_)));
    for vcpu in [0, 1] {
        let guest = &done.outcome.guests[vcpu as usize];
        let mine = turns.iter().filter(|(_, who)| *who == VcpuId(vcpu)).count() as u64;
        // On its core from entering to leaving, less the entry of each turn and the op's own cost.
        let on_core = total(&spans, vcpu, State::Run);
        assert_eq!(
            guest.progress_ns,
            on_core - mine * costs.entry.0 - costs.op.0
        );
        // What the guest missed is what it was off core, and each entry after the first.
        let ready = total(&spans, vcpu, State::Ready);
        let before_the_first = turns[vcpu as usize].0.0;
        let missed = ready - before_the_first + (mine - 1) * costs.entry.0;
        assert_eq!(guest.gap_total_ns, missed, "vcpu {vcpu}");
        assert!((mine - 1..=mine).contains(&guest.gaps), "{}", guest.gaps);
        let gap = QUANTUM + costs.timer.0 + costs.kick.0 + 2 * costs.switch_same_core.0;
        assert_eq!(guest.gap_max_ns, gap + costs.entry.0);
    }
}

#[test]
fn a_vcpu_alone_is_never_taken_off_its_core() {
    let plan = Setup::new("rr:quantum=10ms").vm(&[]).vcpu(&spin()).build();
    let done = simulate(&plan, &CostModel::bare_hardware());
    let spans = check(&done, Nanos::from_secs(1));
    assert_eq!(
        spans.iter().filter(|span| span.state == State::Run).count(),
        1
    );
    assert_eq!(done.outcome.guests[0].gaps, 0);
}

#[test]
fn a_vcpu_that_starts_later_is_admitted_then() {
    let at = Nanos::from_millis(300);
    let plan = Setup::new("rr")
        .vm(&[])
        .vcpu(&spin())
        .vcpu(&spin())
        .start(at)
        .build();
    let done = simulate(&plan, &CostModel::free());
    check(&done, Nanos::from_secs(1));
    let admitted = when(&done, |kind| *kind == EventKind::Admitted);
    assert_eq!(admitted, [(Nanos::ZERO, VcpuId(0)), (at, VcpuId(1))]);
}
