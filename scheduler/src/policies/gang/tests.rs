//! Behaviours of `gang`. The matrix is tested beside it.

use crate::event::EventKind;
use crate::ids::CoreId;
use crate::testing::{Step, World, first_then, ms, repeat, secs, spin, spinners, us, vms};
use crate::time::Nanos;

#[test]
fn four_and_two_on_four_cores_use_three_quarters() {
    let vcpus = vms(&[&spinners(4), &spinners(2)]);
    let mut world = World::new("gang", 4, vcpus);
    world.run_until(secs(2));
    assert!((world.used(4) - 0.75).abs() < 0.001);
    for vcpu in 0..6 {
        assert_eq!(world.ran(vcpu), secs(1), "{vcpu}");
    }
}

#[test]
fn a_third_vm_of_two_fills_the_hole() {
    let vcpus = vms(&[&spinners(4), &spinners(2), &spinners(2)]);
    let mut world = World::new("gang", 4, vcpus);
    world.run_until(secs(2));
    assert!((world.used(4) - 1.0).abs() < 0.001);
}

#[test]
fn at_the_end_of_a_slot_all_cores_change_together() {
    let vcpus = vms(&[&spinners(4), &spinners(4)]);
    let mut world = World::new("gang:slot=5ms", 4, vcpus);
    world.run_until(ms(100));
    for core in 0..4 {
        let switches = world.switches(core);
        let ends: Vec<_> = switches.iter().map(|(at, _)| *at).collect();
        assert_eq!(ends, (0..=20).map(|slot| ms(5 * slot)).collect::<Vec<_>>());
        for (slot, (_, vcpu)) in switches.iter().enumerate() {
            assert_eq!(*vcpu as usize / 4, slot % 2, "core {core}, slot {slot}");
        }
    }
}

#[test]
fn the_column_of_one_that_waits_idles_unless_there_is_alternate_selection() {
    let away = repeat(&[Step::Run(us(10)), Step::Sleep(secs(9))]);
    let first = [away, spin()];
    let second = spinners(2);
    let scripts = [&first[..], &second[..]];
    let mut strict = World::new("gang", 2, vms(&scripts));
    strict.run_until(secs(2));
    assert!((strict.used(2) - 0.75).abs() < 0.01);
    let mut filled = World::new("gang:alternate=on", 2, vms(&scripts));
    filled.run_until(secs(2));
    assert!((filled.used(2) - 1.0).abs() < 0.01);
    assert!((filled.share(2) - 1.0).abs() < 0.01, "{}", filled.share(2));
    assert!((filled.share(3) - 0.5).abs() < 0.01, "{}", filled.share(3));
}

#[test]
fn who_wakes_waits_for_its_slot() {
    let brief = repeat(&[Step::Run(us(100)), Step::Sleep(ms(21))]);
    let vcpus = vms(&[&[brief, spin()], &spinners(2)]);
    let mut world = World::new("gang:slot=20ms", 2, vcpus);
    world.run_until(secs(5));
    // It wakes 1.1 ms into the other slot, each time.
    assert_eq!(world.longest_wait(0), us(18_900));
}

#[test]
fn a_slot_in_which_everybody_waits_is_over_and_no_turn_is_lost_to_it() {
    let brief = repeat(&[Step::Run(us(100)), Step::Sleep(ms(50))]);
    let vcpus = vms(&[&[brief.clone(), brief], &spinners(2)]);
    let mut world = World::new("gang", 2, vcpus);
    world.run_until(secs(2));
    assert!(world.used(2) > 0.999, "{}", world.used(2));
}

#[test]
fn when_a_gang_ends_the_others_close_up() {
    let brief = first_then(&[Step::Run(ms(100)), Step::Retire], &[Step::Halt]);
    let four = vec![brief; 4];
    let vcpus = vms(&[&four, &spinners(3), &spinners(2), &spinners(2)]);
    let mut world = World::new("gang", 4, vcpus);
    world.run_until(secs(4));
    // Rows of 3 and of 2 + 2 are left: 7 of 8 places are taken.
    let before = world.ids().map(|vcpu| world.ran(vcpu.0)).sum::<Nanos>();
    world.run_until(secs(6));
    let after = world.ids().map(|vcpu| world.ran(vcpu.0)).sum::<Nanos>();
    let used = (after - before).as_secs_f64() / 8.0;
    assert!((used - 7.0 / 8.0).abs() < 0.01, "{used}");
}

#[test]
fn who_waits_for_its_slot_while_its_core_is_left_empty_is_co_stopped() {
    let vcpus = vms(&[&spinners(4), &spinners(2)]);
    let mut world = World::new("gang", 4, vcpus);
    world.run_until(ms(100));
    let costopped = |vcpu: u32| {
        let of = world.events.iter().filter(|event| event.vcpu.0 == vcpu);
        let changes = of.filter_map(|event| match event.kind {
            EventKind::Standing(standing) => Some((event.at, standing.costopped)),
            _ => None,
        });
        changes.collect::<Vec<_>>()
    };
    let slots = (1..=10).map(|slot| (ms(10 * slot), slot % 2 == 1));
    for vcpu in [2, 3] {
        assert_eq!(costopped(vcpu), slots.clone().collect::<Vec<_>>());
    }
    for vcpu in [0, 1, 4, 5] {
        assert_eq!(costopped(vcpu), [], "its core is in use");
    }
    assert_eq!(world.core_of(2), Some(CoreId(2)));
}
