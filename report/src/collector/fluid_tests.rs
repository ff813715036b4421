//! The ideal scheduler against hand-made sums, and against a slow and simple one.

use super::*;
use proptest::prelude::{ProptestConfig, prop_assert, proptest};
use stealtime_scheduler::ids::VmId;

fn plain(vm: u16, siblings: u32) -> VcpuParams {
    VcpuParams {
        siblings,
        ..VcpuParams::plain(VmId(vm))
    }
}

fn weighted(vm: u16, weight: u32) -> VcpuParams {
    VcpuParams {
        weight: Some(weight),
        ..plain(vm, 1)
    }
}

fn entitled(fluid: &mut Fluid, at: u64) -> Vec<f64> {
    (0..fluid.members.len())
        .map(|vcpu| fluid.entitled(at, vcpu))
        .collect()
}

fn close(found: &[f64], expected: &[f64]) {
    let all = found.iter().zip(expected);
    assert!(
        found.len() == expected.len() && all.clone().all(|(f, e)| (f - e).abs() < 1e-3),
        "{found:?}, expected {expected:?}"
    );
}

#[test]
fn weights_divide_one_core_and_only_among_those_that_are_runnable() {
    let vcpus = [weighted(0, 1), weighted(1, 2), weighted(2, 4)];
    let mut fluid = Fluid::new(1, Division::Vcpus, &vcpus);
    fluid.set(0, 0, true);
    fluid.set(100, 1, true); // the first had the core alone for 100
    fluid.set(400, 2, true); // 300 were divided 1:2
    fluid.set(1_100, 2, false); // 700 were divided 1:2:4
    close(
        &entitled(&mut fluid, 1_100),
        &[100.0 + 100.0 + 100.0, 200.0 + 200.0, 400.0],
    );
    fluid.reset(1_100);
    close(&entitled(&mut fluid, 1_400), &[100.0, 200.0, 0.0]);
}

#[test]
fn shares_divide_between_vms_first_if_the_policy_does_so() {
    let mut vcpus = [plain(0, 3), plain(0, 3), plain(0, 3), plain(1, 1)];
    for (division, expected) in [
        (Division::Vms, [100.0, 100.0, 100.0, 300.0]),
        (Division::Vcpus, [150.0, 150.0, 150.0, 150.0]),
    ] {
        let mut fluid = Fluid::new(1, division, &vcpus);
        (0..4).for_each(|vcpu| fluid.set(0, vcpu, true));
        close(&entitled(&mut fluid, 600), &expected);
    }
    vcpus[3].shares = Some(3);
    let mut fluid = Fluid::new(1, Division::Vms, &vcpus);
    (0..4).for_each(|vcpu| fluid.set(0, vcpu, true));
    close(&entitled(&mut fluid, 1_200), &[100.0, 100.0, 100.0, 900.0]);
}

#[test]
fn nobody_is_entitled_to_more_than_a_core_and_the_rest_goes_to_the_others() {
    let vcpus = [weighted(0, 10), weighted(1, 1), weighted(2, 1)];
    let mut fluid = Fluid::new(2, Division::Vcpus, &vcpus);
    fluid.set(0, 0, true);
    fluid.set(0, 1, true);
    fluid.set(100, 2, true); // so far as many cores as vCPUs: a whole one each
    close(&entitled(&mut fluid, 300), &[300.0, 200.0, 100.0]);
}

#[test]
fn a_cap_holds_even_while_there_is_room() {
    let mut vcpus = [weighted(0, 1), weighted(1, 1)];
    vcpus[0].cap = Some(25);
    let mut fluid = Fluid::new(1, Division::Vcpus, &vcpus);
    fluid.set(0, 0, true);
    close(&entitled(&mut fluid, 100), &[25.0, 0.0]);
    fluid.set(100, 1, true);
    close(&entitled(&mut fluid, 200), &[50.0, 75.0]);
}

#[test]
fn a_vm_without_shares_gets_next_to_nothing_beside_others_and_all_when_alone() {
    let mut vcpus = [plain(0, 1), plain(1, 1)];
    vcpus[0].shares = Some(0);
    let mut fluid = Fluid::new(1, Division::Vms, &vcpus);
    fluid.set(0, 0, true);
    fluid.set(0, 1, true);
    fluid.set(1_000, 1, false);
    let found = entitled(&mut fluid, 2_000);
    assert!(found[0] > 1_000.0 && found[0] < 1_001.0, "{found:?}");
}

#[test]
fn a_step_of_nice_is_a_quarter() {
    let mut vcpus = [plain(0, 1), plain(1, 1)];
    vcpus[0].nice = Some(0);
    vcpus[1].nice = Some(5);
    let mut fluid = Fluid::new(1, Division::Vcpus, &vcpus);
    fluid.set(0, 0, true);
    fluid.set(0, 1, true);
    let found = entitled(&mut fluid, 1_000_000);
    let ratio = found[0] / found[1];
    assert!((ratio / 1.25_f64.powi(5) - 1.0).abs() < 0.01, "{ratio}");
}

/// The level by bisection, for one instant: what each group gets.
fn by_bisection(cores: f64, groups: &[(f64, f64)]) -> Vec<f64> {
    let given = |level: f64| groups.iter().map(move |(l, s)| l.min(level * s));
    let (mut low, mut high) = (0.0, 1e6);
    for _ in 0..200 {
        let middle = (low + high) / 2.0;
        if given(middle).sum::<f64>() < cores {
            low = middle;
        } else {
            high = middle;
        }
    }
    given(high).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn it_agrees_with_a_slow_and_simple_one(
        cores in 1_usize..5,
        vms in proptest::collection::vec((1_u32..5, 1_u32..20), 1..6),
        changes in proptest::collection::vec((0_usize..30, 1_u64..1_000), 1..60),
    ) {
        let mut vcpus = Vec::new();
        for (vm, (siblings, shares)) in vms.iter().enumerate() {
            for _ in 0..*siblings {
                let vm = u16::try_from(vm).expect("few");
                vcpus.push(VcpuParams { shares: Some(*shares), ..plain(vm, *siblings) });
            }
        }
        let mut fluid = Fluid::new(cores, Division::Vms, &vcpus);
        let mut runnable = vec![false; vcpus.len()];
        let mut expected = vec![0.0; vcpus.len()];
        let mut now = 0;
        for (which, passed) in changes {
            let which = which % vcpus.len();
            runnable[which] = !runnable[which];
            fluid.set(now, which, runnable[which]);
            let count = |vm: usize| {
                let of_vm = |i: &usize| vcpus[*i].vm.index() == vm && runnable[*i];
                (0..vcpus.len()).filter(of_vm).count() as f64
            };
            let groups: Vec<_> = vms.iter().enumerate()
                .map(|(vm, (_, shares))| (count(vm), f64::from(*shares))).collect();
            let given = by_bisection(cores as f64, &groups);
            for (vcpu, sum) in expected.iter_mut().enumerate().filter(|(i, _)| runnable[*i]) {
                let vm = vcpus[vcpu].vm.index();
                *sum += given[vm] / groups[vm].0 * passed as f64;
            }
            now += passed;
        }
        for (vcpu, expected) in expected.iter().enumerate() {
            let found = fluid.entitled(now, vcpu);
            prop_assert!((found - expected).abs() < 1e-3 + expected * 1e-6, "{found} {expected}");
        }
    }
}
