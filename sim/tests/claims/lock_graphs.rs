//! Random graphs of locks, taken with the guest's own machines: nobody is lost, nothing is done twice, and
//! who counts most does not wait long.
//!
//! The scheduler tries its layers on random graphs too (`dispatcher/tests/chains.rs`), with locks that are a
//! few lines of a test. Here the locks are those of the guest, of all kinds, with what lies between a word
//! in guest memory and the dispatcher: words that come late, wake-ups that overtake, exits that take time.

use crate::ledger::{self, events};
use crate::plans::{Done, Setup, run, simulate, sleep};
use crate::replayed;
use proptest::prelude::*;
use stealtime_guest::op::{Length, Step};
use stealtime_scheduler::event::EventKind;
use stealtime_scheduler::ids::VcpuId;
use stealtime_scheduler::input::RetireReason;
use stealtime_scheduler::policy::VcpuParams;
use stealtime_scheduler::time::Nanos;
use stealtime_sim::cost::CostModel;
use stealtime_workloads::run::{LockKind, Plan};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// Locks of each VM.
const LOCKS: u16 = 5;

/// How many random graphs are tried: few in a debug build, which is slow; as many as `STEALTIME_CASES`
/// says, if it does.
fn config() -> ProptestConfig {
    let few = if cfg!(debug_assertions) { 60 } else { 500 };
    let given = std::env::var("STEALTIME_CASES").ok();
    ProptestConfig {
        cases: given.and_then(|cases| cases.parse().ok()).unwrap_or(few),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// What holds whatever the graph: the rules of every run, a core given once at a time, no deadlock told where
/// locks are taken in rising order, everybody at the end of its program in time, and the same decisions in a
/// replay.
fn check(plan: &Plan, done: &Done) {
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

/// Where turns are lent or given away there are no reader-writer locks. Their readers are not known, nor who is
/// at the front of their queue, so turns go to others who spin for the lock and are waited for, or hold another
/// one. Where these come first again and again (nobody pays with `pi`, `credit` boosts who wakes, a directed
/// yield asks no policy), those for whom they spin never run.
fn known_owners(policy: &str, kinds: &mut [LockKind]) {
    let lends = ["+pi", "+proxy", "+relay", "+yieldto"];
    let lends = lends.iter().any(|layer| policy.contains(layer));
    for kind in kinds {
        if lends && *kind == LockKind::Rwlock {
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

/// A policy under which somebody counts more than all others.
#[derive(Clone, Copy, Debug)]
struct Ranked {
    policy: &'static str,
    rank: fn(&mut VcpuParams, Rank),
    /// How long it takes, with so many vCPUs, until the one that counts most has a core when it could run:
    /// what of a slice of another one is left, or a round of all.
    turn: fn(u64) -> u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rank {
    Owner,
    Hog,
    Heaviest,
}

fn by_nice(params: &mut VcpuParams, rank: Rank) {
    params.nice = Some(match rank {
        Rank::Owner => 19,
        Rank::Hog => 0,
        Rank::Heaviest => -20,
    });
}

fn by_weight(params: &mut VcpuParams, rank: Rank) {
    params.weight = Some(match rank {
        Rank::Owner => 1,
        Rank::Hog => 20,
        Rank::Heaviest => 2_000,
    });
}

/// Not `cfs`: there an owner of nice 19 that wakes in its section can wait for 170 ms although the heaviest waits
/// for it (one tree in 10,000 or fewer).
const RANKED: [Ranked; 3] = [
    Ranked {
        policy: "eevdf",
        rank: by_nice,
        turn: |_| 3 * MS,
    },
    Ranked {
        policy: "stride:quantum=2ms",
        rank: by_weight,
        turn: |_| 2 * MS,
    },
    Ranked {
        policy: "rr:quantum=1ms",
        rank: |_, _| {},
        turn: |vcpus| vcpus * MS,
    },
];

/// A lock's owner in a tree: it holds its own lock and comes to want the one of another. Mutexes are handed on:
/// while one that is not is free, whoever was woken for it may have no core, and has nobody's turn.
#[derive(Clone, Copy, Debug)]
struct Owner {
    /// Whose lock it wants, among those after it; none at a root.
    wants: Option<prop::sample::Index>,
    kind: LockKind,
    work: u64,
    sleeps: Option<u64>,
}

fn owner() -> impl Strategy<Value = Owner> {
    let kinds = vec![
        LockKind::MutexHandoff,
        LockKind::Ticket,
        LockKind::Mcs,
        LockKind::TestAndSet,
    ];
    (
        prop::option::weighted(0.8, any::<prop::sample::Index>()),
        prop::sample::select(kinds),
        10 * US..2 * MS,
        prop::option::weighted(0.3, 10 * US..2 * MS),
    )
        .prop_map(|(wants, kind, work, sleeps)| Owner {
            wants,
            kind,
            work,
            sleeps,
        })
}

impl Owner {
    fn parent(&self, me: usize, owners: usize) -> Option<usize> {
        let after = owners - me - 1;
        let wants = self.wants.filter(|_| after > 0)?;
        Some(me + 1 + wants.index(after))
    }

    /// All that it does while it holds its lock, waits apart.
    fn section(&self) -> u64 {
        100 * US + self.work + self.sleeps.unwrap_or(0)
    }

    fn program(&self, me: u16, parent: Option<u16>) -> Vec<Step> {
        let mut steps = vec![Step::Lock(me), run(100 * US)];
        steps.extend(parent.map(Step::Lock));
        steps.push(run(self.work / 2));
        steps.extend(self.sleeps.map(sleep));
        steps.push(run(self.work / 2));
        steps.extend(parent.map(Step::Unlock));
        steps.push(Step::Unlock(me));
        steps
    }
}

/// Those that may be before one who comes for the first one's lock: owners along the chain, and all others
/// who want the same locks.
fn before_it(owners: &[Owner]) -> Vec<usize> {
    let parent = |me: usize| owners[me].parent(me, owners.len());
    let mut found = vec![0];
    let mut next = 0;
    while let Some(me) = found.get(next).copied() {
        next += 1;
        let Some(wanted) = parent(me) else { continue };
        let too = (0..owners.len()).filter(|other| parent(*other) == Some(wanted));
        for other in too.chain([wanted]) {
            if !found.contains(&other) {
                found.push(other);
            }
        }
    }
    found
}

/// The owners in one VM, with the heaviest, who comes when all have their locks; hogs in another.
fn tree(ranked: Ranked, layer: &str, cores: u16, owners: &[Owner], hogs: usize) -> Plan {
    let kinds: Vec<_> = owners.iter().map(|owner| owner.kind).collect();
    let mut setup = Setup::new(&format!("{}+{layer}", ranked.policy))
        .cores(cores)
        .duration(Nanos::from_secs(20))
        .vm(&kinds);
    let number = |place: usize| u16::try_from(place).expect("few");
    for (me, owner) in owners.iter().enumerate() {
        let parent = owner.parent(me, owners.len()).map(number);
        setup = setup.vcpu_with(&owner.program(number(me), parent), |params| {
            (ranked.rank)(params, Rank::Owner);
        });
    }
    let heaviest = [
        sleep(owners.len() as u64 * 200 * US),
        Step::RequestBegin,
        Step::Lock(0),
        Step::Unlock(0),
        Step::RequestEnd,
    ];
    setup = setup.vcpu_with(&heaviest, |params| (ranked.rank)(params, Rank::Heaviest));
    setup = setup.vm(&[]);
    for _ in 0..hogs {
        let hog = [sleep(owners.len() as u64 * 150 * US), run(500 * MS)];
        setup = setup.vcpu_with(&hog, |params| (ranked.rank)(params, Rank::Hog));
    }
    setup.build()
}

proptest! {
    #![proptest_config(config())]

    /// The sections that may be before it, their sleep, and a constant: a turn for each time that an owner
    /// comes to its lock or back from sleep, and one for the waiter itself.
    #[test]
    fn the_heaviest_waiter_waits_for_the_sections_before_it_and_a_constant(
        ranked in prop::sample::select(RANKED.to_vec()),
        layer in prop::sample::select(vec!["pi", "proxy", "relay"]),
        cores in 1u16..=4,
        owners in prop::collection::vec(owner(), 1..=5),
        more_hogs in 0usize..=3,
    ) {
        let hogs = usize::from(cores) + more_hogs;
        let plan = tree(ranked, layer, cores, &owners, hogs);
        let done = simulate(&plan, &CostModel::bare_hardware());
        check(&plan, &done);
        let waited = done.outcome.guests[owners.len()].request_max_ns;
        let before = before_it(&owners);
        let sections: u64 = before.iter().map(|owner| owners[*owner].section()).sum();
        let turns = 2 * before.len() as u64 + 2;
        let bound = sections + turns * (ranked.turn)(plan.vcpus.len() as u64);
        prop_assert!(waited <= bound, "{} waited for {}: {before:?}", Nanos(waited), Nanos(bound));
    }
}

/// The bound can be exceeded: without a layer it is.
#[test]
fn without_a_layer_the_heaviest_waiter_waits_for_hogs() {
    let owner = Owner {
        wants: None,
        kind: LockKind::Mutex,
        work: 2 * MS,
        sleeps: None,
    };
    let wait = |layer| {
        let mut plan = tree(RANKED[0], "pi", 1, &[owner], 3);
        plan.policy = format!("eevdf{layer}").parse().expect("a policy");
        let done = simulate(&plan, &CostModel::bare_hardware());
        let heaviest = VcpuId(1);
        done.outcome.guests[heaviest.index()].request_max_ns
    };
    let bound = owner.section() + 4 * 3 * MS;
    assert!(wait("") > 3 * bound, "{}", Nanos(wait("")));
    for layer in ["+pi", "+proxy", "+relay"] {
        assert!(wait(layer) <= bound, "{layer}: {}", Nanos(wait(layer)));
    }
}
