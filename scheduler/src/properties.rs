//! What must hold under every policy of the registry, whatever the vCPUs do.
//!
//! A new policy is covered by being registered. [`Witness`] checks every call between dispatcher and
//! policy; what is checked here comes on top.

use crate::dispatcher::{Config, Dispatcher, Output};
use crate::ids::{HostLockId, VcpuId};
use crate::input::{HostMode, Input, KernelPriority};
use crate::policy::{VcpuParams, WorkConserving};
use crate::registry::{self, PolicyInfo, ScheduledBy};
use crate::testing::{
    Script, Step, Witness, World, first_then, ms, plain, repeat, secs, spin, us, vms,
};
use crate::time::Nanos;
use proptest::prelude::*;

/// Policies under which somebody may wait for ever by intent, and why.
const MAY_STARVE: &[(&str, &str)] = &[
    (
        "4bsd",
        "vCPUs that wake often hold kernel priorities; who only computes waits for them",
    ),
    (
        "ule",
        "who stands for an interrupt, or is interactive, goes before all of batch",
    ),
    ("null", "with more vCPUs than cores, the rest never run"),
];

/// How long a ready vCPU may wait, where that is more than the two seconds that do for the rest.
const PATIENCE: &[(&str, Nanos, &str)] = &[
    (
        "fss",
        Nanos::from_secs(10),
        "who sleeps often is priced only by a walk that finds it queued, and goes first until then",
    ),
    (
        "ts",
        Nanos::from_secs(10),
        "who sleeps often keeps the priority of a sleeper, and goes first",
    ),
    (
        "relaxed",
        Nanos::from_secs(10),
        "who was halted for long is stopped until a sibling with little of a core has caught up",
    ),
];

/// By how much a lighter vCPU may be ahead of a heavier one after 30 s, where a second and a half
/// does not do.
const COARSE: &[(&str, Nanos, &str)] = &[
    (
        "fss",
        Nanos::from_secs(4),
        "shares hold over many seconds' walks, not over each quantum",
    ),
    (
        "lottery",
        Nanos::from_secs(3),
        "draws: seven standard deviations",
    ),
    (
        "null",
        Nanos::from_secs(30),
        "weights of 1 are not refused: one has the core for ever",
    ),
    (
        "ts",
        Nanos::from_secs(10),
        "the walk each second starts the same sequence of quanta anew: who is ahead stays ahead",
    ),
];

/// The vCPUs of a random world.
const VCPUS: u32 = 6;

fn time(micros: std::ops::Range<u64>) -> impl Strategy<Value = Nanos> {
    micros.prop_map(us)
}

/// A few steps that belong together.
fn deed(requests: bool) -> impl Strategy<Value = Vec<Step>> {
    let run = || time(50..5_000).prop_map(Step::Run);
    let locked = (0..6u16, any::<bool>(), time(10..900), time(10..900));
    let locked = locked.prop_map(move |(lock, asked, wait, run)| {
        let mode = [
            None,
            None,
            None,
            Some(HostMode::Mutex),
            Some(HostMode::Read),
            Some(HostMode::Write),
        ];
        let mode = mode[usize::from(lock)];
        // The last two are uses of one lock.
        let lock = HostLockId(lock.min(4));
        let priority = if asked && requests {
            KernelPriority::Asked
        } else {
            KernelPriority::NotAsked
        };
        vec![
            mode.map_or(Step::Lock(lock, priority), |mode| {
                Step::Acquire(lock, mode, priority)
            }),
            Step::HostWait(wait),
            Step::Run(run),
            Step::Unlock(lock),
        ]
    });
    let single = prop_oneof![
        4 => run(),
        3 => time(20..9_000).prop_map(Step::Sleep),
        1 => time(20..2_000).prop_map(Step::HostWait),
        1 => Just(Step::Yield),
        1 => Just(Step::UserReturn),
        1 => (0..VCPUS).prop_map(|to| Step::Interrupt(VcpuId(to))),
    ];
    let halt = run().prop_map(|run| vec![Step::Halt, run]);
    prop_oneof![
        8 => single.prop_map(|step| vec![step]),
        2 => locked,
        1 => halt,
    ]
}

/// Deeds over and over, never without some work; now and then one that ends, or only spins.
fn script(requests: bool) -> impl Strategy<Value = Script> {
    let work = time(200..3_000).prop_map(Step::Run);
    let deeds = (work, prop::collection::vec(deed(requests), 1..6));
    let steps = deeds.prop_map(|(work, deeds)| [vec![work], deeds.concat()].concat());
    let steps = steps.boxed();
    prop_oneof![
        6 => steps.clone().prop_map(|steps| repeat(&steps)),
        1 => steps.prop_map(|steps| first_then(&[steps, vec![Step::Retire]].concat(), &[Step::Halt])),
        1 => Just(spin()),
    ]
}

fn scripts(requests: bool) -> impl Strategy<Value = Vec<Script>> {
    prop::collection::vec(script(requests), 1..=VCPUS as usize)
}

/// VMs of so many vCPUs each; the last may have fewer.
fn vcpus(scripts: &[Script], width: usize) -> Vec<(VcpuParams, Script)> {
    vms(&scripts.chunks(width).collect::<Vec<_>>())
}

/// All policies that hand out cores.
fn policies() -> impl Iterator<Item = &'static PolicyInfo> {
    let all = registry::POLICIES.iter().copied();
    all.filter(|info| info.scheduled_by == ScheduledBy::Policy)
}

/// What the witness says that was charged.
type Charged = std::sync::Arc<std::sync::Mutex<Vec<Nanos>>>;

/// The policy with its options as they are by default, under a witness.
fn witness(name: &str, cores: u16) -> (Witness, Charged) {
    let spec = name.parse().expect("a name");
    let (info, options) = registry::check(&spec).expect("registered");
    Witness::new((info.build)(&options, cores))
}

/// Interrupts from devices, so that those that halt wake now and then.
fn disturb(world: &mut World, end: Nanos) {
    let halts = world.ids().collect::<Vec<_>>();
    let every = end.get() / 8;
    for (round, to) in (1..8).flat_map(|round| halts.iter().map(move |to| (round, *to))) {
        let at = Nanos(round * every + u64::from(to.0) * 1_000);
        let (vector, from) = (33, None);
        world.at(at, Input::Interrupt { to, vector, from });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn charged_time_is_run_time_and_every_call_fits(
        scripts in scripts(true),
        cores in 1u16..=4,
        width in 1usize..=3,
        chance in prop::option::of(any::<u64>()),
    ) {
        for info in policies() {
            let (mut witness, charged) = witness(info.name, cores);
            // Now and then somebody else decides who runs next: no policy may lose count over that.
            if let Some(seed) = chance {
                witness = witness.draws(seed);
            }
            let mut world = World::with_policy(Box::new(witness), cores, vcpus(&scripts, width));
            let end = ms(400);
            disturb(&mut world, end);
            for instant in 1..=200 {
                world.run_until(ms(2 * instant));
                let idle = (0..cores).any(|core| world.dispatcher.on_core(crate::ids::CoreId(core)).is_none());
                let lost = idle && world.dispatcher.ready() > 0 && world.dispatcher.conserving() == WorkConserving::Yes;
                prop_assert!(!lost, "{}: idle while {} are ready", info.name, world.dispatcher.ready());
            }
            prop_assert_eq!(world.now, end);
            prop_assert_eq!(world.dispatcher.violation_count(), 0, "{:?}", world.dispatcher.violations());
            // All leave, so that the last stays are charged too.
            for vcpu in world.ids().collect::<Vec<_>>() {
                world.tell(Input::Retire { vcpu, why: crate::input::RetireReason::RunOver });
            }
            let charged = charged.lock().expect("one thread").clone();
            let ran: Vec<_> = world.ids().map(|vcpu| world.ran(vcpu.0)).collect();
            prop_assert_eq!(charged, ran, "{}", info.name);
            prop_assert_eq!(world.dispatcher.ready(), 0);
        }
    }

    #[test]
    fn who_is_taken_leaves_the_books_as_if_it_had_been_picked(
        scripts in scripts(true),
        cores in 1u16..=4,
        width in 1usize..=3,
    ) {
        for info in policies() {
            let (picks, _charged) = witness(info.name, cores);
            let choices = picks.choices();
            let mut picked = World::with_policy(Box::new(picks), cores, vcpus(&scripts, width));
            disturb(&mut picked, ms(400));
            picked.run_until(ms(400));
            let (takes, _charged) = witness(info.name, cores);
            let takes = Box::new(takes.follows(&choices));
            let mut taken = World::with_policy(takes, cores, vcpus(&scripts, width));
            disturb(&mut taken, ms(400));
            taken.run_until(ms(400));
            prop_assert_eq!(&taken.effects, &picked.effects, "{}", info.name);
            prop_assert_eq!(&taken.events, &picked.events, "{}", info.name);
        }
    }

    #[test]
    fn the_same_inputs_give_the_same_effects_and_events(
        scripts in scripts(true),
        cores in 1u16..=4,
        width in 1usize..=3,
    ) {
        for info in policies() {
            let mut world = World::new(info.name, cores, vcpus(&scripts, width));
            disturb(&mut world, ms(200));
            world.run_until(ms(200));
            let config: Config = World::config(info.name, cores, &vcpus(&scripts, width));
            let mut fresh = Dispatcher::new(&config).expect("understood");
            let mut out = Output::default();
            for (at, input) in &world.inputs {
                fresh.handle(*at, *input, &mut out);
            }
            prop_assert_eq!(&out.effects, &world.effects, "{}", info.name);
            prop_assert_eq!(&out.events, &world.events, "{}", info.name);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

    /// Without requests for kernel priority, which starve by design in `fss`.
    #[test]
    fn whoever_is_ready_runs_before_long(
        scripts in scripts(false),
        cores in 1u16..=2,
        width in 1usize..=3,
    ) {
        for info in policies() {
            if MAY_STARVE.iter().any(|(name, _)| *name == info.name) {
                continue;
            }
            let patience = PATIENCE.iter().find(|(name, ..)| *name == info.name);
            let bound = patience.map_or(secs(2), |(_, bound, _)| *bound);
            let mut world = World::new(info.name, cores, vcpus(&scripts, width));
            disturb(&mut world, secs(3));
            world.run_until(bound + secs(1));
            for vcpu in world.ids() {
                let wait = world.longest_wait(vcpu.0);
                prop_assert!(wait <= bound, "{}: {vcpu} waited {wait}", info.name);
            }
        }
    }

    #[test]
    fn who_weighs_more_does_not_get_less(weights in prop::collection::vec(1u32..=8, 2..=5)) {
        for info in policies() {
            let params = (0..).zip(&weights).map(|(vm, weight)| VcpuParams {
                weight: Some(*weight),
                ..plain(vm)
            });
            let spinners: Vec<_> = params.map(|params| (params, spin())).collect();
            // A policy without weights refuses them.
            if Dispatcher::new(&World::config(info.name, 1, &spinners)).is_err() {
                continue;
            }
            // Left alone, and with one turn in four somebody else's decision: it is made up for.
            let (witness, _charged) = witness(info.name, 1);
            let worlds = [
                World::new(info.name, 1, spinners.clone()),
                World::with_policy(Box::new(witness.draws(7)), 1, spinners),
            ];
            let coarse = COARSE.iter().find(|(name, ..)| *name == info.name);
            let ahead = coarse.map_or(ms(1_500), |(_, ahead, _)| *ahead);
            for mut world in worlds {
                world.run_until(secs(30));
                let ran: Vec<_> = world.ids().map(|vcpu| world.ran(vcpu.0)).collect();
                for (weight, time) in weights.iter().zip(&ran) {
                    for (other_weight, other_time) in weights.iter().zip(&ran) {
                        let less = weight >= other_weight && *time + ahead < *other_time;
                        prop_assert!(!less, "{}: weights {weights:?} ran {ran:?}", info.name);
                    }
                }
            }
        }
    }
}

/// Times are divided by weights. Only `fss` has a meaning for 0 shares: it runs when nobody else wants to.
#[test]
fn a_weight_of_0_is_refused_and_so_are_0_shares() {
    let nothing = [
        VcpuParams {
            weight: Some(0),
            ..plain(0)
        },
        VcpuParams {
            shares: Some(0),
            ..plain(0)
        },
    ];
    for info in policies() {
        for params in nothing {
            let config = World::config(info.name, 1, &[(params, spin())]);
            let understood = Dispatcher::new(&config).is_ok();
            assert_eq!(understood, info.name == "fss", "{} {params:?}", info.name);
        }
    }
}

#[test]
fn every_exemption_names_a_policy() {
    let patient = PATIENCE
        .iter()
        .chain(COARSE)
        .map(|(name, _, why)| (name, why));
    for (name, why) in MAY_STARVE
        .iter()
        .map(|(name, why)| (name, why))
        .chain(patient)
    {
        assert!(registry::find(name).is_ok(), "{name}: {why}");
    }
}
