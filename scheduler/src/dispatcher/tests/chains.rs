//! Chains of locks, with real policies: who waits lends its turn, and nobody is lost.

use crate::event::{Event, EventKind, WakeSource};
use crate::ids::VcpuId;
use crate::layers::LAYERS;
use crate::policy::VcpuParams;
use crate::testing::{Script, Step, World, first_then, ms, plain, repeat, secs, spin, us};
use crate::time::Nanos;
use proptest::prelude::*;

const CHAINS: [&str; 3] = ["pi", "proxy", "relay"];

fn nice(nice: i8) -> VcpuParams {
    VcpuParams {
        nice: Some(nice),
        ..plain(0)
    }
}

/// When the vCPU was woken from a wait for a guest lock, for the first time.
fn woken(world: &World, vcpu: u32) -> Option<Nanos> {
    let found = world.events.iter().find(|event| {
        event.vcpu == VcpuId(vcpu)
            && matches!(event.kind, EventKind::Woken(WakeSource::GuestLock(_)))
    });
    found.map(|event| event.at)
}

/// POLICIES 11.7, 1: a light owner, a heavy waiter that comes a little later, and a hog.
fn inversion(policy: &str) -> World {
    let owner = first_then(
        &[Step::GuestLock(0), Step::Run(ms(10)), Step::GuestUnlock(0)],
        &[Step::Run(secs(100))],
    );
    let waiter = first_then(
        &[
            Step::Sleep(ms(1)),
            Step::GuestLock(0),
            Step::Run(ms(1)),
            Step::GuestUnlock(0),
        ],
        &[Step::Sleep(secs(100))],
    );
    let hog = first_then(&[Step::Sleep(ms(1))], &[Step::Run(secs(100))]);
    let vcpus = vec![(nice(19), owner), (nice(-20), waiter), (nice(0), hog)];
    let mut world = World::new(policy, 1, vcpus);
    world.run_until(secs(3));
    world
}

#[test]
fn a_light_owner_runs_with_its_waiters_weight_and_the_waiter_pays() {
    let alone = woken(&inversion("eevdf"), 1).expect("in the end");
    assert!(alone > ms(300), "without a layer the section takes {alone}");
    for layer in ["proxy", "relay"] {
        let world = inversion(&format!("eevdf+{layer}"));
        let lent = woken(&world, 1).expect("soon");
        assert!(lent < ms(20), "{layer}: the section takes {lent}");
    }
}

#[test]
fn a_chain_of_two_locks_is_followed_to_its_end() {
    // 0 holds a; 1 holds b and waits for a; 2 waits for b; 3 takes the core.
    let low = first_then(
        &[Step::GuestLock(0), Step::Run(ms(10)), Step::GuestUnlock(0)],
        &[Step::Run(secs(100))],
    );
    let middle = first_then(
        &[
            Step::Sleep(us(500)),
            Step::GuestLock(2),
            Step::GuestLock(0),
            Step::Run(ms(1)),
            Step::GuestUnlock(0),
            Step::GuestUnlock(2),
        ],
        &[Step::Run(secs(100))],
    );
    let high = first_then(
        &[Step::Sleep(ms(1)), Step::GuestLock(2), Step::GuestUnlock(2)],
        &[Step::Sleep(secs(100))],
    );
    let hog = first_then(&[Step::Sleep(ms(1))], &[Step::Run(secs(100))]);
    let vcpus = || {
        vec![
            (nice(19), low.clone()),
            (nice(19), middle.clone()),
            (nice(-20), high.clone()),
            (nice(0), hog.clone()),
        ]
    };
    for layer in ["proxy", "relay"] {
        let mut world = World::new(&format!("eevdf+{layer}"), 1, vcpus());
        world.run_until(secs(3));
        let at = woken(&world, 2).expect("soon");
        assert!(at < ms(40), "{layer}: {at}");
    }
}

#[test]
fn nobody_spins_or_runs_for_an_owner_that_sleeps_and_all_go_on_when_it_wakes() {
    let owner = first_then(
        &[
            Step::GuestLock(0),
            Step::Sleep(ms(5)),
            Step::Run(ms(1)),
            Step::GuestUnlock(0),
        ],
        &[Step::Sleep(secs(100))],
    );
    let waiter = first_then(
        &[Step::GuestLock(0), Step::GuestUnlock(0)],
        &[Step::Sleep(secs(100))],
    );
    for layer in CHAINS {
        let vcpus = vec![
            (plain(0), owner.clone()),
            (plain(0), waiter.clone()),
            (plain(0), waiter.clone()),
        ];
        let mut world = World::new(&format!("eevdf+{layer}"), 2, vcpus);
        world.run_until(ms(4));
        assert_eq!(
            (world.core_of(0), world.core_of(1), world.core_of(2)),
            (None, None, None)
        );
        world.run_until(ms(10));
        assert_eq!(world.forgotten(), None);
        assert_eq!(
            woken(&world, 1).map(|at| at.0 / 1_000_000),
            Some(6),
            "{layer}"
        );
        assert_eq!(
            woken(&world, 2).map(|at| at.0 / 1_000_000),
            Some(6),
            "{layer}"
        );
    }
}

#[test]
fn a_spinner_lends_its_turn_when_its_window_is_over() {
    let owner = first_then(
        &[Step::GuestLock(1), Step::Run(ms(10)), Step::GuestUnlock(1)],
        &[Step::Run(secs(100))],
    );
    let waiter = first_then(
        &[
            Step::Sleep(ms(1)),
            Step::GuestLock(1),
            Step::Run(ms(1)),
            Step::GuestUnlock(1),
        ],
        &[Step::Sleep(secs(100))],
    );
    for layer in ["proxy", "relay"] {
        let vcpus = vec![
            (nice(19), owner.clone()),
            (nice(-20), waiter.clone()),
            (nice(0), spin()),
        ];
        let mut world = World::new(&format!("eevdf+{layer}"), 1, vcpus);
        world.run_until(ms(200));
        let spun = world.ran(1);
        assert!(
            spun >= ms(1) && spun < ms(3),
            "{layer}: it ran {spun}, its section and a window"
        );
        assert_eq!(world.forgotten(), None, "{layer}: the lock was handed on");
    }
}

#[test]
fn with_pi_the_owner_pays_and_with_proxy_the_waiter_does() {
    let charged = |layer: &str| {
        let owner = repeat(&[Step::GuestLock(0), Step::Run(ms(25)), Step::GuestUnlock(0)]);
        let vcpus = vec![
            (plain(0), owner.clone()),
            (plain(0), owner),
            (plain(0), spin()),
        ];
        let mut world = World::new(&format!("stride+{layer}"), 1, vcpus);
        world.run_until(secs(3));
        let borrowed = |event: &&Event| matches!(event.kind, EventKind::Borrows { .. });
        assert!(world.events.iter().filter(borrowed).count() > 10, "{layer}");
        assert_eq!(
            world.dispatcher.violation_count(),
            0,
            "{}",
            world.dispatcher.dump()
        );
        world.share(2)
    };
    for layer in CHAINS {
        let hog = charged(layer);
        assert!(
            (0.28..0.45).contains(&hog),
            "{layer}: the third party has {hog}"
        );
    }
}

#[test]
fn a_donor_that_is_gone_leaves_the_owner_on_its_own_account() {
    let owner = first_then(
        &[Step::GuestLock(0), Step::Run(ms(50)), Step::GuestUnlock(0)],
        &[Step::Run(secs(100))],
    );
    let waiter = first_then(
        &[Step::Sleep(ms(1)), Step::GuestLock(0)],
        &[Step::Run(secs(100))],
    );
    for layer in CHAINS {
        let vcpus = vec![
            (nice(19), owner.clone()),
            (nice(-20), waiter.clone()),
            (nice(0), spin()),
        ];
        let mut world = World::new(&format!("eevdf+{layer}"), 1, vcpus);
        let why = crate::input::RetireReason::Fault;
        world.at(
            ms(30),
            crate::input::Input::Retire {
                vcpu: VcpuId(1),
                why,
            },
        );
        world.run_until(secs(2));
        assert_eq!(world.dispatcher.violation_count(), 0, "{layer}");
        assert!(
            world.ran(2) > secs(1),
            "{layer}: the hog has its share again"
        );
    }
}

/// A random vCPU: sections of locks nested in rising order, so that there is no deadlock, with work
/// and sleep inside.
pub(super) fn member() -> impl Strategy<Value = (i8, Script)> {
    let section = (
        prop::collection::btree_set(0u16..6, 1..=3),
        50u64..800,
        prop::option::weighted(0.2, 1u64..600),
        prop::option::weighted(0.6, 1u64..600),
    );
    let sections = prop::collection::vec(section, 1..=3);
    (prop::sample::select(vec![-5i8, 0, 5]), sections).prop_map(|(nice, sections)| {
        let mut steps = Vec::new();
        for (locks, work, sleep, rest) in sections {
            for lock in &locks {
                steps.extend([Step::GuestLock(*lock), Step::Run(us(work / 3 + 1))]);
            }
            steps.push(Step::Run(us(work)));
            steps.extend(sleep.map(|time| Step::Sleep(us(time))));
            steps.extend(locks.iter().rev().map(|lock| Step::GuestUnlock(*lock)));
            steps.extend(rest.map(|time| Step::Sleep(us(time))));
        }
        steps.push(Step::Yield);
        (nice, repeat(&steps))
    })
}

pub(super) fn layered() -> impl Strategy<Value = String> {
    let policies = vec!["eevdf", "rr:quantum=1ms", "cfs", "stride", "credit2", "bvt"];
    let layers = vec![
        "pi",
        "proxy",
        "relay",
        "delay+proxy",
        "proxy:migrate=on",
        "proxy:migrate=on,return=pick",
        "hint+relay",
        "delay:most=100us+pi",
        "yieldto",
        "yieldto:sticky=on+relay",
    ];
    (prop::sample::select(policies), prop::sample::select(layers))
        .prop_map(|(policy, layer)| format!("{policy}+{layer}"))
}

/// How many random lock graphs are tried: few in a debug build, which is slow; as many as
/// `STEALTIME_CASES` says, if it does.
pub(super) fn cases() -> u32 {
    let few = if cfg!(debug_assertions) { 200 } else { 2_000 };
    let given = std::env::var("STEALTIME_CASES").ok();
    given.and_then(|cases| cases.parse().ok()).unwrap_or(few)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    /// Chains, trees, nested locks, owners asleep and on other cores. That nobody is granted twice is
    /// asserted by the world itself.
    #[test]
    fn in_any_graph_of_locks_everybody_gets_on_and_nobody_is_lost(
        members in prop::collection::vec(member(), 2..=7),
        cores in 1u16..=3,
        policy in layered(),
    ) {
        // Not every policy knows nice values.
        let knows_nice = policy.starts_with("eevdf") || policy.starts_with("cfs");
        let vcpus = members.iter().map(|(nice_value, script)| {
            (if knows_nice { nice(*nice_value) } else { plain(0) }, script.clone())
        });
        let mut world = World::new(&policy, cores, vcpus.collect());
        world.run_until(ms(20));
        prop_assert_eq!(world.dispatcher.violation_count(), 0, "{}: {}", policy, world.dispatcher.dump());
        prop_assert_eq!(world.forgotten(), None, "{}", policy);
        let before: Vec<_> = world.ids().map(|vcpu| world.ran(vcpu.0)).collect();
        world.run_until(ms(220));
        for (vcpu, before) in world.ids().zip(before) {
            prop_assert!(world.ran(vcpu.0) > before, "{policy}: {vcpu} is stuck\n{}", world.dispatcher.dump());
        }
    }
}

/// Owners of locks that wait for each other in a line, the first of which somebody of the greatest
/// weight comes to want, with hogs beside them.
fn line(
    depth: u16,
    work: u64,
    hogs: usize,
    sleep: Option<u64>,
    spins: bool,
) -> Vec<(VcpuParams, Script)> {
    let lock = |number: u16| 2 * number + u16::from(spins);
    let mut vcpus = Vec::new();
    for number in 0..depth {
        // The deeper, the sooner it has its own lock and asks for the next.
        let mut steps = vec![Step::GuestLock(lock(number)), Step::Run(us(50))];
        if number + 1 < depth {
            steps.push(Step::Run(us(200)));
            steps.push(Step::GuestLock(lock(number + 1)));
            steps.push(Step::Run(us(work)));
            steps.push(Step::GuestUnlock(lock(number + 1)));
        } else {
            steps.push(Step::Run(us(work)));
            steps.extend(sleep.map(|time| Step::Sleep(us(time))));
            steps.push(Step::Run(us(work)));
        }
        steps.push(Step::GuestUnlock(lock(number)));
        vcpus.push((nice(19), first_then(&steps, &[Step::Sleep(secs(100))])));
    }
    for _ in 0..hogs {
        vcpus.push((
            nice(0),
            first_then(&[Step::Sleep(us(1))], &[Step::Run(secs(100))]),
        ));
    }
    let heavy = first_then(
        &[
            Step::Sleep(ms(2)),
            Step::GuestLock(lock(0)),
            Step::GuestUnlock(lock(0)),
        ],
        &[Step::Sleep(secs(100))],
    );
    vcpus.push((nice(-20), heavy));
    vcpus
}

/// From asking for its lock to having it.
fn waited(world: &World, vcpu: u32) -> Option<Nanos> {
    let mut asked = None;
    for event in world.events.iter().filter(|event| event.vcpu.0 == vcpu) {
        match event.kind {
            EventKind::Locks {
                waits_for: Some(_), ..
            } => asked = asked.or(Some(event.at)),
            EventKind::Locks { held, .. } if held > 0 => {
                return Some(asked.map_or(Nanos::ZERO, |from| event.at - from));
            }
            _ => {}
        }
    }
    None
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    /// What the owners before it still had to do, their sleep, and a constant: a slice of a hog for
    /// each time that an owner comes back to a core.
    #[test]
    fn the_heaviest_waiter_waits_for_the_sections_before_it_and_a_constant(
        depth in 1u16..=4,
        work in 10u64..3_000,
        hogs in 1usize..=4,
        sleep in prop::option::weighted(0.3, 10u64..3_000),
        cores in 1u16..=3,
        spins in any::<bool>(),
        layer in prop::sample::select(CHAINS.to_vec()),
    ) {
        let vcpus = line(depth, work, hogs, sleep, spins);
        let heavy = u32::try_from(vcpus.len()).expect("few") - 1;
        let mut world = World::new(&format!("eevdf+{layer}"), cores, vcpus);
        world.run_until(secs(2));
        let wait = waited(&world, heavy);
        let sections = us(u64::from(depth) * (2 * work + 300) + sleep.unwrap_or(0));
        let constant = ms(3 * (2 * u64::from(depth) + 2));
        let bound = sections + constant;
        prop_assert!(wait.is_some_and(|wait| wait <= bound), "{layer}: {wait:?} for {bound}");
    }
}

#[test]
fn the_bound_of_passing_over_is_what_proxy_says() {
    let proxy = LAYERS.iter().find(|info| info.name == "proxy");
    let said = format!("{} times at most", stealtime_guest::lock::PASSED_OVER);
    assert!(proxy.is_some_and(|info| info.quirks.iter().any(|quirk| quirk.contains(&said))));
}

#[test]
fn every_layer_is_in_some_case() {
    let tried = "pi proxy relay delay hint yieldto";
    for info in LAYERS {
        assert!(tried.contains(info.name), "{}", info.name);
    }
}
