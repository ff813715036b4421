//! How long who counts most waits for a lock, in random trees of owners.

use crate::lock_graphs::{check, config};
use crate::plans::{Setup, run, simulate, sleep};
use proptest::prelude::*;
use stealtime_guest::op::Step;
use stealtime_scheduler::policy::VcpuParams;
use stealtime_scheduler::time::Nanos;
use stealtime_sim::cost::CostModel;
use stealtime_workloads::run::{LockKind, Plan};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// A policy under which somebody counts more than all others.
#[derive(Clone, Copy, Debug)]
struct Ranked {
    policy: &'static str,
    rank: fn(&mut VcpuParams, Rank),
    /// How long it takes, in nanoseconds, until the one that counts most has a core when it could run: what of a
    /// slice of another one is left.
    turn: u64,
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

const RANKED: [Ranked; 3] = [
    Ranked {
        policy: "eevdf",
        rank: by_nice,
        turn: 3 * MS,
    },
    Ranked {
        policy: "cfs",
        rank: by_nice,
        turn: 3 * MS,
    },
    Ranked {
        policy: "stride:quantum=2ms",
        rank: by_weight,
        turn: 2 * MS,
    },
];

/// So long owners sleep when they have their own locks: until all have theirs.
const START: u64 = MS;
/// When the heaviest comes.
const COMES: u64 = START / 2;
/// What an owner does then before it wants another lock or is through.
const FIRST: u64 = 100 * US;

/// A lock's owner in a tree: it holds its own lock and comes to want the one of another.
#[derive(Clone, Copy, Debug)]
struct Owner {
    /// Whose lock it wants, among those after it; none at a root.
    wants: Option<prop::sample::Index>,
    kind: LockKind,
    work: u64,
    sleeps: Option<u64>,
}

const KINDS: [LockKind; 5] = [
    LockKind::Mutex,
    LockKind::MutexHandoff,
    LockKind::Ticket,
    LockKind::Mcs,
    LockKind::TestAndSet,
];

fn owner() -> impl Strategy<Value = Owner> {
    (
        prop::option::weighted(0.8, any::<prop::sample::Index>()),
        prop::sample::select(KINDS.to_vec()),
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
        FIRST + self.work + self.sleeps.unwrap_or(0)
    }

    fn program(&self, me: u16, parent: Option<u16>) -> Vec<Step> {
        let mut steps = vec![Step::Lock(me), sleep(START), run(FIRST)];
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

/// The owners in one VM, with the heaviest, who comes while all have their locks and sleep, so that it has to
/// wait; hogs in another, who come a moment before the owners wake.
fn tree(policy: &str, ranked: Ranked, cores: u16, owners: &[Owner], hogs: usize) -> Plan {
    let kinds: Vec<_> = owners.iter().map(|owner| owner.kind).collect();
    let mut setup = Setup::new(policy)
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
        Step::RequestBegin,
        Step::Lock(0),
        Step::Unlock(0),
        Step::RequestEnd,
    ];
    setup = setup
        .vcpu_with(&heaviest, |params| (ranked.rank)(params, Rank::Heaviest))
        .start(Nanos(COMES))
        .vm(&[]);
    for _ in 0..hogs {
        setup = setup
            .vcpu_with(&[run(500 * MS)], |params| (ranked.rank)(params, Rank::Hog))
            .start(Nanos(START - 20 * US));
    }
    setup.build()
}

/// How long the heaviest waited, in nanoseconds.
fn waited(plan: &Plan, owners: &[Owner]) -> u64 {
    let done = simulate(plan, &CostModel::bare_hardware());
    check(plan, &done);
    done.outcome.guests[owners.len()].request_max_ns
}

/// Until the owners wake, the sections that may be before it, and a constant: a turn for each time that an owner comes to its lock or
/// back from sleep, and one for the waiter itself.
fn bound(ranked: Ranked, owners: &[Owner]) -> u64 {
    let before = before_it(owners);
    let sections = before.iter().map(|owner| owners[*owner].section());
    let turns = 2 * before.len() as u64 + 2;
    START - COMES + sections.sum::<u64>() + turns * ranked.turn
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_heaviest_waiter_waits_for_the_sections_before_it_and_a_constant(
        ranked in prop::sample::select(RANKED.to_vec()),
        layer in prop::sample::select(vec!["pi", "proxy", "relay"]),
        cores in 1u16..=4,
        owners in prop::collection::vec(owner(), 1..=5),
        more_hogs in 0usize..=3,
    ) {
        let hogs = usize::from(cores) + more_hogs;
        let policy = format!("{}+{layer}", ranked.policy);
        let waited = waited(&tree(&policy, ranked, cores, &owners, hogs), &owners);
        let bound = bound(ranked, &owners);
        prop_assert!(waited >= START - COMES, "its lock was free");
        prop_assert!(waited <= bound, "{} waited for {}", Nanos(waited), Nanos(bound));
    }
}

/// The bound can be exceeded under each of the policies: without a layer it is, whatever the lock.
#[test]
fn without_a_layer_the_heaviest_waiter_waits_for_hogs() {
    for ranked in RANKED {
        for kind in KINDS {
            let owners = [Owner {
                wants: None,
                kind,
                work: 2 * MS,
                sleeps: None,
            }];
            let waited = waited(&tree(ranked.policy, ranked, 1, &owners, 3), &owners);
            let bound = bound(ranked, &owners);
            let (policy, waited_for) = (ranked.policy, Nanos(waited));
            assert!(waited > 3 * bound, "{policy}, {kind:?}: {waited_for}");
        }
    }
}
