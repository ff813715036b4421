//! Mutexes and reader-writer locks in the hypervisor.

use super::LOCK;
use crate::event::{EventKind, Waits};
use crate::ids::VcpuId;
use crate::input::HostMode::{self, Mutex, Read, Write};
use crate::input::KernelPriority::NotAsked;
use crate::input::{Input, RetireReason};
use crate::testing::{Script, Step, World, first_then, ms, plain, us};

/// Runs for so long, takes the lock, sleeps with it, releases it, and has nothing more to do.
fn holder(after: u64, mode: HostMode, asleep: u64) -> Script {
    let steps = [
        Step::Run(us(after)),
        Step::Acquire(LOCK, mode, NotAsked),
        Step::Sleep(ms(asleep)),
        Step::Unlock(LOCK),
    ];
    first_then(&steps, &[Step::Halt])
}

fn world(scripts: Vec<Script>) -> World {
    let vcpus = (0..).map(plain).zip(scripts).collect();
    World::new("rr", 1, vcpus)
}

/// Who took the lock when, in milliseconds rounded down.
fn taken(world: &World) -> Vec<(u64, u32)> {
    let taken = world.events.iter();
    let taken = taken.filter(|event| event.kind == EventKind::HostLockTaken(LOCK));
    taken
        .map(|event| (event.at.get() / 1_000_000, event.vcpu.0))
        .collect()
}

#[test]
fn who_finds_a_mutex_taken_when_it_gets_a_core_waits_again_without_having_run() {
    let scripts = (0..3).map(|n| holder(10 * (n + 1), Mutex, 5)).collect();
    let mut world = world(scripts);
    world.run_until(ms(30));
    assert_eq!(taken(&world), [(0, 0), (5, 1), (10, 2)]);
    // The last was woken twice, by both releases, and waited for each owner in turn.
    let of_last = world.events.iter().filter(|event| event.vcpu == VcpuId(2));
    let waits: Vec<_> = of_last
        .filter_map(|event| match event.kind {
            EventKind::Blocked(Waits::HostLock(_, owner)) => Some(owner.0),
            _ => None,
        })
        .collect();
    assert_eq!(waits, [0, 1]);
    assert_eq!(world.ran(2), us(30));
    assert_eq!(world.dispatcher.violation_count(), 0);
}

#[test]
fn one_that_runs_takes_a_free_mutex_before_those_that_were_woken_for_it() {
    let quick = first_then(
        &[
            Step::Acquire(LOCK, Mutex, NotAsked),
            Step::Sleep(ms(5)),
            Step::Unlock(LOCK),
            Step::Acquire(LOCK, Mutex, NotAsked),
            Step::Sleep(ms(5)),
            Step::Unlock(LOCK),
        ],
        &[Step::Halt],
    );
    let mut world = world(vec![quick, holder(10, Mutex, 1)]);
    world.run_until(ms(30));
    assert_eq!(taken(&world), [(0, 0), (5, 0), (10, 1)]);
}

#[test]
fn readers_that_wait_behind_a_writer_go_on_when_it_is_retired() {
    let scripts = vec![
        holder(10, Read, 20),
        holder(20, Write, 1),
        holder(30, Read, 1),
    ];
    let mut world = world(scripts);
    world.run_until(ms(5));
    assert_eq!(taken(&world), [(0, 0)]);
    let (vcpu, why) = (VcpuId(1), RetireReason::Fault);
    world.tell(Input::Retire { vcpu, why });
    world.run_until(ms(10));
    assert_eq!(taken(&world), [(0, 0), (5, 2)]);
}

#[test]
fn a_lock_goes_on_when_its_owner_is_retired() {
    for mode in [Mutex, Write] {
        let scripts = vec![holder(10, mode, 20), holder(20, mode, 1)];
        let mut world = world(scripts);
        world.run_until(ms(5));
        let (vcpu, why) = (VcpuId(0), RetireReason::Fault);
        world.tell(Input::Retire { vcpu, why });
        world.run_until(ms(10));
        assert_eq!(taken(&world), [(0, 0), (5, 1)], "{mode:?}");
    }
}
