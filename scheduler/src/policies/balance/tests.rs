//! Behaviours of `balance`.

use super::queues::Balance;
use crate::event::{PreemptReason, Waits};
use crate::ids::{CoreId, VcpuId, VmId};
use crate::policy::{Enqueue, Pick, Policy, Slice, VcpuParams};
use crate::registry;
use crate::testing::{Step, World, ms, plain, repeat, secs, spin, spinners, us, vms, weighted};
use crate::time::Nanos;
use proptest::prelude::*;

/// A VM of so many vCPUs, all of them queued for the first time while nothing runs: the cores.
fn placed(policy: &str, cores: u16, vcpus: u32) -> Vec<CoreId> {
    let (_, options) = registry::check(&policy.parse().expect("a policy")).expect("understood");
    let mut policy = Balance::new(&options, cores);
    for vcpu in (0..vcpus).map(VcpuId) {
        let params = VcpuParams {
            siblings: vcpus,
            ..VcpuParams::plain(VmId(0))
        };
        policy.declare(vcpu, &params).expect("understood");
    }
    let place = |vcpu| policy.enqueue(Nanos::ZERO, VcpuId(vcpu), Enqueue::New).0;
    (0..vcpus).map(place).collect()
}

fn distinct(cores: &[CoreId]) -> usize {
    let mut cores = cores.to_vec();
    cores.sort_unstable();
    cores.dedup();
    cores.len()
}

#[test]
fn four_siblings_on_four_cores_are_never_stacked() {
    assert_eq!(distinct(&placed("balance", 4, 4)), 4);
}

#[test]
fn placed_at_random_four_siblings_are_all_apart_in_one_case_of_eleven() {
    let tries = 20_000;
    let apart = (0..tries)
        .filter(|seed| distinct(&placed(&format!("balance:place=random,seed={seed}"), 4, 4)) == 4)
        .count();
    // 4!/4⁴ = 9.4 %; five standard deviations are one per cent.
    let part = apart as f64 / f64::from(tries);
    assert!((part - 0.094).abs() < 0.01, "{part}");
}

#[test]
fn of_six_siblings_on_four_cores_the_first_four_are_apart_and_no_core_has_three() {
    let cores = placed("balance", 4, 6);
    assert_eq!(distinct(&cores[..4]), 4);
    for core in (0..4).map(CoreId) {
        let here = cores.iter().filter(|other| **other == core).count();
        assert!(here <= 2, "{here} on {core}");
    }
}

#[test]
fn a_core_with_a_sibling_is_avoided_even_if_it_is_the_least_loaded() {
    // A core each for the siblings of the first VM; those of the second fill the first core up.
    let first = spinners(2);
    let sleeper = repeat(&[Step::Run(us(10)), Step::Sleep(ms(40))]);
    let vcpus = vms(&[&first, &[sleeper, spin()]]);
    let mut world = World::new("balance", 2, vcpus);
    for instant in 1..500 {
        world.run_until(ms(instant));
        assert_ne!(
            world.core_of(2).map(|core| Some(core) == world.core_of(3)),
            Some(true)
        );
    }
    // The sleeper can only ever have been on the core that the other is not on.
    assert!(world.longest_wait(2) <= ms(10), "{}", world.longest_wait(2));
}

#[test]
fn shares_follow_weights_on_one_core() {
    let vcpus = vec![(weighted(0, 1), spin()), (weighted(1, 3), spin())];
    let mut world = World::new("balance", 1, vcpus);
    world.run_until(secs(20));
    assert!((world.share(1) - 0.75).abs() < 0.002, "{}", world.share(1));
}

#[test]
fn three_spinners_on_two_cores_take_turns() {
    let vcpus = (0..3).map(|vm| (plain(vm), spin())).collect();
    let mut world = World::new("balance", 2, vcpus);
    world.run_until(secs(10));
    for vcpu in 0..3 {
        let share = world.share(vcpu);
        assert!((share - 2.0 / 3.0).abs() < 0.03, "{vcpu}: {share}");
    }
}

/// What is done to a policy.
#[derive(Clone, Copy, Debug)]
enum Deed {
    /// The vCPU changes: from away to queued, from a core to away.
    Change(u32),
    /// The core's vCPU is taken off and goes back to the queue, then the core picks.
    Switch(u16),
    EvenOut,
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let deed = prop_oneof![
        4 => (0..9_u32).prop_map(Deed::Change),
        4 => (0..4_u16).prop_map(Deed::Switch),
        1 => Just(Deed::EvenOut),
    ];
    prop::collection::vec(deed, 1..200)
}

proptest! {
    #[test]
    fn siblings_are_apart_whatever_happens_as_long_as_there_are_cores_for_all(deeds in deeds()) {
        let (_, options) = registry::check(&"balance".parse().expect("a policy")).expect("understood");
        let mut policy = Balance::new(&options, 4);
        // VMs of 4, 3 and 2 vCPUs on four cores.
        let vm_of = [0, 0, 0, 0, 1, 1, 1, 2, 2];
        for (vcpu, vm) in (0..).map(VcpuId).zip(vm_of) {
            policy.declare(vcpu, &VcpuParams::plain(VmId(vm))).expect("understood");
        }
        let mut on: [Option<VcpuId>; 4] = [None; 4];
        let mut queued = [false; 9];
        let mut now = Nanos::ZERO;
        for deed in deeds {
            now += us(700);
            for vcpu in on.into_iter().flatten() {
                policy.charge(now, vcpu, us(700));
            }
            match deed {
                Deed::Change(n) => {
                    let vcpu = VcpuId(n);
                    if let Some(core) = on.iter().position(|on| *on == Some(vcpu)) {
                        on[core] = None;
                        let core = CoreId(u16::try_from(core).expect("few"));
                        policy.block(now, core, vcpu, Waits::Sleep);
                    } else if !queued[vcpu.index()] {
                        let _core = policy.enqueue(now, vcpu, Enqueue::Wake);
                        queued[vcpu.index()] = true;
                    }
                }
                Deed::Switch(n) => {
                    let core = CoreId(n);
                    if let Some(vcpu) = on[core.index()].take() {
                        let why = Enqueue::Preempted(core, PreemptReason::SliceEnd);
                        let _core = policy.enqueue(now, vcpu, why);
                        queued[vcpu.index()] = true;
                    }
                    if let Pick::Run(vcpu, Slice::For(_)) = policy.pick(now, core) {
                        prop_assert!(std::mem::take(&mut queued[vcpu.index()]));
                        on[core.index()] = Some(vcpu);
                    }
                }
                Deed::EvenOut => {
                    let _cores = policy.periodic(now);
                }
            }
            for vm in 0..3 {
                let members = (0..9).filter(|vcpu| vm_of[*vcpu as usize] == vm).map(VcpuId);
                let cores: Vec<_> = members.filter_map(|vcpu| policy.core_of(vcpu)).collect();
                prop_assert_eq!(distinct(&cores), cores.len(), "{:?}", cores);
            }
            for (core, vcpu) in (0..).map(CoreId).zip(on) {
                if let Some(vcpu) = vcpu {
                    prop_assert_eq!(policy.core_of(vcpu), Some(core));
                }
            }
        }
    }
}
