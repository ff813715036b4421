//! Random graphs of locks, taken with the guest's own machines: nobody is lost, and nothing is done twice.
//!
//! The scheduler tries its layers on random graphs too (`dispatcher/tests/chains.rs`), with locks that are a
//! few lines of a test. Here the locks are those of the guest, of all kinds, with what lies between a word
//! in guest memory and the dispatcher: words that come late, wake-ups that overtake, exits that take time.

use crate::ledger::{self, events};
use crate::plans::{Done, Setup, run, simulate, sleep};
use crate::replayed;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use stealtime_guest::op::{Length, Step};
use stealtime_scheduler::event::EventKind;
use stealtime_scheduler::input::RetireReason;
use stealtime_scheduler::time::Nanos;
use stealtime_sim::cost::CostModel;
use stealtime_workloads::run::{LockKind, Plan};

const US: u64 = 1_000;

/// Locks of each VM.
const LOCKS: u16 = 5;

/// How many random graphs are tried: few in a debug build, which is slow; as many as `STEALTIME_CASES`
/// says, if it does. Only then are they others each time: a fault that is rarer than one in so few is looked for,
/// not met in a change that has nothing to do with it.
pub(crate) fn config() -> ProptestConfig {
    let few = if cfg!(debug_assertions) { 60 } else { 500 };
    let given = std::env::var("STEALTIME_CASES").ok();
    let explores = given.is_some();
    ProptestConfig {
        cases: given.and_then(|cases| cases.parse().ok()).unwrap_or(few),
        rng_seed: if explores {
            RngSeed::Random
        } else {
            RngSeed::Fixed(1)
        },
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// What holds whatever the graph: the rules of every run, a core given once at a time, no deadlock told where
/// locks are taken in rising order, everybody at the end of its program in time, and the same decisions in a
/// replay.
pub(crate) fn check(plan: &Plan, done: &Done) {
    ledger::check(done, plan.duration);
    let mut has_core = vec![false; plan.vcpus.len()];
    let mut finished = 0;
    for event in events(done) {
        let has = &mut has_core[event.vcpu.index()];
        match event.kind {
            EventKind::Granted(_) => {
                assert!(!std::mem::replace(has, true), "granted twice: {event:?}");
            }
            EventKind::Preempted(..) | EventKind::Yielded(_) | EventKind::Blocked(_) => {
                *has = false;
            }
            EventKind::Retired(why) => {
                assert_eq!(why, RetireReason::Finished, "{event:?}");
                finished += 1;
            }
            EventKind::Deadlock { .. } => panic!("{event:?}"),
            _ => {}
        }
    }
    assert_eq!(finished, plan.vcpus.len(), "somebody waits for ever");
    replayed::check(plan, done);
}

fn kind() -> impl Strategy<Value = LockKind> {
    prop_oneof![
        4 => Just(LockKind::Mutex),
        3 => Just(LockKind::MutexHandoff),
        2 => Just(LockKind::Ticket),
        2 => Just(LockKind::Mcs),
        1 => Just(LockKind::TestAndSet),
        1 => Just(LockKind::PreemptableTicket(20_000)),
        1 => Just(LockKind::Pv(30_000)),
        1 => Just(LockKind::Rwlock),
    ]
}

/// What a vCPU does while it holds locks, beside working.
#[derive(Clone, Copy, Debug)]
enum Inside {
    Nothing,
    Sleeps(u64),
    WaitsInHost(u64),
    IsCritical(u64),
}

fn inside() -> impl Strategy<Value = Inside> {
    let time = || 1..600 * US;
    prop_oneof![
        5 => Just(Inside::Nothing),
        1 => time().prop_map(Inside::Sleeps),
        1 => time().prop_map(Inside::WaitsInHost),
        1 => time().prop_map(Inside::IsCritical),
    ]
}

/// Sections of locks nested in rising order, so that there is no deadlock, with rests between them.
fn member() -> impl Strategy<Value = (i8, Vec<Step>)> {
    let section = (
        prop::collection::btree_set((0..LOCKS, any::<bool>()), 1..=3),
        1..800 * US,
        inside(),
        prop::option::weighted(0.6, 1..600 * US),
    );
    let sections = prop::collection::vec(section, 1..=3);
    let nice = prop::sample::select(vec![-5i8, 0, 5]);
    (nice, 1u32..=4, sections).prop_map(|(nice, times, sections)| {
        let mut steps = vec![Step::Repeat(times)];
        for (mut locks, work, inside, rest) in sections {
            // A lock is taken once, as a reader or as a writer.
            let mut before = None;
            locks.retain(|(lock, _)| before.replace(*lock) != Some(*lock));
            for (lock, alone) in &locks {
                let take = if *alone { Step::Lock } else { Step::ReadLock };
                steps.extend([take(*lock), run(work / 3 + 1)]);
            }
            match inside {
                Inside::Nothing => {}
                Inside::Sleeps(time) => steps.push(sleep(time)),
                Inside::WaitsInHost(time) => steps.push(Step::HostWait(Length::Fixed(time))),
                Inside::IsCritical(time) => {
                    steps.extend([Step::CriticalEnter, run(time), Step::CriticalLeave]);
                }
            }
            steps.push(run(work));
            steps.extend(locks.iter().rev().map(|(lock, _)| Step::Unlock(*lock)));
            steps.extend(rest.map(sleep));
        }
        steps.push(Step::EndRepeat);
        (nice, steps)
    })
}

/// Only a reader-writer lock can be taken by a reader.
fn take_what_there_is(steps: &mut [Step], kinds: &[LockKind]) {
    for step in steps {
        if let Step::ReadLock(lock) = *step
            && kinds[usize::from(lock)] != LockKind::Rwlock
        {
            *step = Step::Lock(lock);
        }
    }
}

/// Where turns are given away there are no reader-writer locks: those who spin for one can come first for ever
/// (`ule+yieldto` was seen to do so, once in 149,147 graphs, and `4bsd+yieldto:sticky=on+relay`, once in 41,487).
fn known_owners(policy: &str, kinds: &mut [LockKind]) {
    for kind in kinds {
        if policy.contains("+yieldto") && *kind == LockKind::Rwlock {
            *kind = LockKind::Ticket;
        }
    }
}

fn layered() -> impl Strategy<Value = String> {
    let policies = vec![
        "eevdf",
        "rr:quantum=1ms",
        "cfs",
        "stride:quantum=2ms",
        "credit",
        "credit2",
        "bvt",
        "ule",
        "4bsd",
        "fss:variant=after",
        "balance",
    ];
    let layers = vec![
        "",
        "+pi",
        "+proxy",
        "+relay",
        "+delay",
        "+delay+proxy",
        "+delay+relay",
        "+proxy:migrate=on",
        "+proxy:migrate=on,return=pick",
        "+proxy:blocked-donor=off",
        "+hint+relay",
        "+delay:most=100us+pi",
        "+pi:handoff=on",
        "+yieldto",
        "+yieldto:sticky=on+relay",
    ];
    (prop::sample::select(policies), prop::sample::select(layers))
        .prop_map(|(policy, layer)| format!("{policy}{layer}"))
}

fn graph() -> impl Strategy<Value = Plan> {
    let members = || prop::collection::vec(member(), 1..=4);
    let vm = move || (prop::collection::vec(kind(), usize::from(LOCKS)), members());
    let vms = prop::collection::vec(vm(), 1..=2);
    (layered(), 1u16..=4, vms).prop_map(|(policy, cores, vms)| {
        let knows_nice = policy.starts_with("eevdf") || policy.starts_with("cfs");
        let mut setup = Setup::new(&policy)
            .cores(cores)
            .duration(Nanos::from_secs(20));
        for (mut kinds, members) in vms {
            known_owners(&policy, &mut kinds);
            setup = setup.vm(&kinds);
            for (nice, mut steps) in members {
                take_what_there_is(&mut steps, &kinds);
                setup = setup.vcpu_with(&steps, |params| {
                    params.nice = knows_nice.then_some(nice);
                });
            }
        }
        setup.build()
    })
}

proptest! {
    #![proptest_config(config())]

    /// Chains, trees, nested locks; owners asleep, in the hypervisor, and on other cores.
    #[test]
    fn in_any_graph_of_locks_everybody_comes_to_its_end_and_a_replay_decides_the_same(
        plan in graph(),
    ) {
        check(&plan, &simulate(&plan, &CostModel::bare_hardware()));
    }
}
