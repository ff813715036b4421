//! Whatever the plan: no panic, no rule broken, no time lost or found.

use crate::ledger::check;
use crate::plans::{Setup, simulate};
use proptest::prelude::*;
use stealtime_guest::op::{HostMode, Length, Misdeed, Step};
use stealtime_scheduler::registry::POLICIES;
use stealtime_scheduler::time::Nanos;
use stealtime_sim::cost::{CostModel, Theft};
use stealtime_workloads::run::{LockKind, Plan};

fn length() -> impl Strategy<Value = Length> {
    prop_oneof![
        (0u64..3_000_000).prop_map(Length::Fixed),
        (0u64..5_000, 5_000u64..900_000).prop_map(|(low, high)| Length::Uniform(low, high)),
        (1u64..400_000).prop_map(Length::Exponential),
    ]
}

/// Any step; locks are balanced by `block`.
fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => length().prop_map(Step::Run),
        2 => length().prop_map(Step::Sleep),
        1 => length().prop_map(Step::HostWait),
        2 => length().prop_map(Step::Hypervisor),
        1 => prop_oneof![Just(0), 20_000u64..2_000_000]
            .prop_map(|period| Step::Periodic { period, vector: 0x50 }),
        1 => Just(Step::WaitInterrupt),
        1 => Just(Step::Yield),
        2 => (0u32..8, 0x40u8..0x43).prop_map(|(vcpu, vector)| Step::Interrupt { vcpu, vector }),
        1 => Just(Step::UserReturn),
        1 => Just(Step::Exit),
    ]
}

/// Steps, plain or within a lock, a critical section or a request.
fn block() -> impl Strategy<Value = Vec<Step>> {
    let plain = || proptest::collection::vec(step(), 1..4);
    let within = |before: Step, after: Step, steps: Vec<Step>| {
        let mut all = vec![before];
        all.extend(steps);
        all.push(after);
        all
    };
    prop_oneof![
        4 => plain(),
        2 => (0u16..2, plain()).prop_map(move |(n, s)| within(Step::Lock(n), Step::Unlock(n), s)),
        1 => plain().prop_map(move |s| within(Step::CriticalEnter, Step::CriticalLeave, s)),
        1 => plain().prop_map(move |s| within(Step::RequestBegin, Step::RequestEnd, s)),
        1 => (0u16..2, any::<bool>(), plain()).prop_map(move |(lock, kernel_priority, s)| {
            within(Step::HostLock { lock, kernel_priority }, Step::HostUnlock(lock), s)
        }),
        1 => (0u8..3, any::<bool>(), plain()).prop_map(move |(mode, kernel_priority, s)| {
            let modes = [HostMode::Mutex, HostMode::Read, HostMode::Write];
            let mode = modes[usize::from(mode)];
            let lock = if mode == HostMode::Mutex { 2 } else { 3 };
            let take = Step::HostAcquire { lock, mode, kernel_priority };
            within(take, Step::HostUnlock(lock), s)
        }),
        1 => (1u32..4, plain()).prop_map(move |(n, s)| within(Step::Repeat(n), Step::EndRepeat, s)),
    ]
}

fn program() -> impl Strategy<Value = Vec<Step>> {
    let blocks = proptest::collection::vec(block(), 1..6);
    (blocks, any::<bool>(), 0u8..40).prop_map(|(blocks, endless, fault)| {
        let mut steps: Vec<_> = blocks.into_iter().flatten().collect();
        if fault == 0 {
            steps.push(Step::Fault(Misdeed::TripleFault));
        }
        if endless {
            steps.insert(0, Step::Repeat(0));
            steps.push(Step::EndRepeat);
        }
        steps
    })
}

/// Every policy as it is, and some with options.
fn policies() -> Vec<String> {
    let plain = POLICIES.iter().map(|info| info.name.to_owned());
    let more = ["rr:quantum=100us", "fss:variant=after"].map(str::to_owned);
    plain.chain(more).collect()
}

fn plan() -> impl Strategy<Value = Plan> {
    let vcpus = proptest::collection::vec((any::<bool>(), 0u64..20_000_000, program()), 1..7);
    (
        proptest::sample::select(policies()),
        1u16..4,
        any::<u64>(),
        0u64..10,
        vcpus,
    )
        .prop_map(|(policy, cores, seed, warmup, vcpus)| {
            let locks = [LockKind::TestAndSet, LockKind::Ticket];
            let mut setup = Setup::new(&policy)
                .cores(cores)
                .seed(seed)
                .warmup(Nanos::from_millis(warmup))
                .duration(Nanos::from_millis(60))
                .host_locks(4)
                .vm(&locks);
            for (new_vm, start, steps) in vcpus {
                if new_vm {
                    setup = setup.vm(&locks);
                }
                setup = setup.vcpu(&steps).start(Nanos(start));
            }
            setup.build()
        })
}

/// A few short ones a millisecond, so that they fall into everything and each other, and some that are longer than
/// most slices.
fn thefts() -> Vec<Theft> {
    let theft = |length, every, told| Theft {
        length: Nanos(length),
        every: Nanos(every),
        told,
    };
    vec![
        theft(60_000, 300_000, true),
        theft(4_000_000, 25_000_000, false),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn any_plan_runs_to_its_end_by_the_rules(plan in plan(), which in 0..4) {
        // Ops of 1 ns would make millions of events of an endless yield.
        let costs = match which {
            0 => CostModel { op: Nanos(2_000), ..CostModel::free() },
            1 => CostModel::bare_hardware(),
            2 => CostModel {
                interference: thefts(),
                ..CostModel::bare_hardware()
            },
            _ => CostModel {
                interference: thefts(),
                load: Nanos(700),
                handling: Nanos(900),
                leaving: Nanos(600),
                park: Nanos(1_300),
                timer_spread: Nanos(4_000),
                timer_work: Nanos(2_900),
                timer_wake: Nanos(2_100),
                spread_permille: 400,
                ..CostModel::bare_hardware()
            },
        };
        let done = simulate(&plan, &costs);
        let end = plan.warmup + plan.duration;
        check(&done, end);
        for guest in &done.outcome.guests {
            // Progress, spinning and gaps are apart, and within the time that figures count.
            let seen = guest.progress_ns + guest.lock_spin_ns + guest.gap_total_ns;
            prop_assert!(seen <= plan.duration.0, "{seen} of {}", plan.duration);
            prop_assert!(guest.gap_max_ns <= guest.gap_total_ns);
        }
    }
}
