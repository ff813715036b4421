//! Locks whose owners nobody knows: who spins for the readers of a reader-writer lock is lent no turns for ever.

use crate::ledger;
use crate::plans::{Done, Setup, run, simulate, sleep};
use stealtime_guest::op::Step;
use stealtime_scheduler::event::EventKind;
use stealtime_scheduler::ids::VcpuId;
use stealtime_scheduler::time::Nanos;
use stealtime_sim::cost::CostModel;
use stealtime_workloads::run::LockKind;

const MS: u64 = 1_000_000;
const END: Nanos = Nanos::from_secs(2);

/// On one core: one reads for 30 ms; a second one owns a lock and spins for the first; a third one spins for the
/// lock of the second.
fn behind_a_reader(policy: &str, owned: LockKind) -> Done {
    let reader = [Step::ReadLock(1), run(30 * MS), Step::Unlock(1)];
    let owner = [
        Step::Lock(0),
        run(MS / 10),
        Step::Lock(1),
        run(MS),
        Step::Unlock(1),
        Step::Unlock(0),
    ];
    let plan = Setup::new(policy)
        .duration(END)
        .vm(&[owned, LockKind::Rwlock])
        .vcpu(&reader)
        .vcpu(&owner)
        .start(Nanos(MS))
        .vcpu(&[Step::Lock(0), Step::Unlock(0)])
        .start(Nanos(2 * MS))
        .build();
    let done = simulate(&plan, &CostModel::bare_hardware());
    ledger::check(&done, END);
    done
}

/// When each came to the end of its program.
fn finished(done: &Done) -> Vec<(VcpuId, Nanos)> {
    let events = ledger::events(done);
    let retired = events.filter(|event| matches!(event.kind, EventKind::Retired(_)));
    retired.map(|event| (event.vcpu, event.at)).collect()
}

/// Whatever the policy: nobody is behind by much more than the 30 ms that are read. Under `stride+pi`, where who
/// lends does not pay, those who spin went on for ever when turns were lent to them.
#[test]
fn turns_are_not_lent_for_ever_to_one_that_spins_for_a_reader() {
    let policies = [
        "cfs+delay:most=100us",
        "cfs",
        "eevdf",
        "credit",
        "rr",
        "stride",
    ];
    let layers = ["+pi", "+proxy", "+relay", "+yieldto", "+yieldto:sticky=on"];
    for owned in [LockKind::TestAndSet, LockKind::Mcs, LockKind::MutexHandoff] {
        for (policy, layer) in policies
            .iter()
            .flat_map(|policy| layers.map(|layer| (policy, layer)))
        {
            let done = behind_a_reader(&format!("{policy}{layer}"), owned);
            for (vcpu, at) in finished(&done) {
                assert!(
                    at < Nanos(150 * MS),
                    "{policy}{layer}, {owned:?}: {vcpu} at {at}"
                );
            }
        }
    }
}

/// Found among random graphs: the reader is woken at 60 ms, over its credits, while two spin for it on both cores. It
/// had ceased to earn any: it had been woken while it was queued as a donor, and so placed anew.
#[test]
fn under_credit_a_reader_does_not_starve_behind_those_who_spin_for_it() {
    let times = |times: u32, steps: &[Step]| {
        let mut all = vec![Step::Repeat(times)];
        all.extend(steps);
        all.push(Step::EndRepeat);
        all
    };
    let nested = [
        Step::ReadLock(0),
        run(1),
        Step::CriticalEnter,
        run(1),
        Step::CriticalLeave,
        run(1),
        Step::Unlock(0),
        Step::ReadLock(0),
        run(117_269),
        Step::Lock(1),
        run(117_269),
        run(351_804),
        Step::Unlock(1),
        Step::Unlock(0),
    ];
    let writer = [Step::Lock(0), run(1), run(1), Step::Unlock(0), sleep(1)];
    let other = [Step::Lock(2), run(1), run(1), Step::Unlock(2)];
    let owner = [
        Step::Lock(1),
        run(147_392),
        run(442_173),
        Step::Unlock(1),
        Step::ReadLock(0),
        run(1),
        run(1),
        Step::Unlock(0),
    ];
    let kinds = [LockKind::Rwlock, LockKind::Pv(30_000), LockKind::Mutex];
    let plan = Setup::new("credit+proxy:migrate=on")
        .cores(2)
        .duration(END)
        .vm(&kinds)
        .vcpu(&times(2, &nested))
        .vcpu(&times(3, &writer))
        .vcpu(&times(1, &other))
        .vcpu(&times(2, &owner))
        .build();
    let done = simulate(&plan, &CostModel::bare_hardware());
    let finished = finished(&done);
    assert_eq!(finished.len(), plan.vcpus.len());
    for (vcpu, at) in finished {
        assert!(at < Nanos(200 * MS), "{vcpu} at {at}");
    }
}
