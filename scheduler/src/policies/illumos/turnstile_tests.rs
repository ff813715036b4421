//! What the source material says of turnstiles, one claim a test. The kinds of locks are tested
//! beside the dispatcher's.

use super::*;
use crate::ids::HostLockId;
use crate::input::HostMode::{Mutex, Read, Write};
use crate::input::KernelPriority::{Asked, NotAsked};
use crate::testing::{Step, World, first_then, ms, nice, plain, repeat, secs, spin, us};
use crate::time::Nanos;

const LOW: VcpuId = VcpuId(0);
const MIDDLE: VcpuId = VcpuId(1);
const HIGH: VcpuId = VcpuId(2);
const M1: HostLockId = HostLockId(0);
const M2: HostLockId = HostLockId(1);

fn turnstiles(on: bool) -> Turnstiles {
    let mut turnstiles = Turnstiles::new(on);
    (0..4).for_each(|_| turnstiles.add());
    turnstiles
}

/// Own priorities by number of vCPU.
fn owns<const N: usize>(priorities: [u8; N]) -> impl Fn(VcpuId) -> u8 + Copy {
    move |vcpu| priorities[vcpu.index()]
}

fn all<const N: usize>(turnstiles: &Turnstiles, priorities: [u8; N]) -> [u8; N] {
    let mut place = 0;
    priorities.map(|own| {
        place += 1;
        turnstiles.over(VcpuId(place - 1), own)
    })
}

#[test]
fn a_chain_of_owners_inherits_and_gives_back_lock_by_lock() {
    let p = [10, 30, 50];
    let mut it = turnstiles(true);
    it.taken(LOW, M1, owns(p));
    it.taken(MIDDLE, M2, owns(p));
    assert_eq!(it.wait(MIDDLE, M1, owns(p)), [LOW]);
    assert_eq!(all(&it, p), [30, 30, 50]);
    assert_eq!(it.wait(HIGH, M2, owns(p)), [MIDDLE, LOW]);
    assert_eq!(all(&it, p), [50, 50, 50]);
    assert!(it.released(LOW, M1));
    it.awake(MIDDLE);
    it.taken(MIDDLE, M1, owns(p));
    assert_eq!(all(&it, p), [10, 50, 50]);
    assert!(it.released(MIDDLE, M2));
    assert_eq!(all(&it, p), [10, 30, 50]);
}

#[test]
fn an_owner_of_two_locks_keeps_what_it_inherits_through_the_other() {
    let p = [10, 40, 55];
    let mut it = turnstiles(true);
    it.taken(LOW, M1, owns(p));
    it.taken(LOW, M2, owns(p));
    assert_eq!(it.wait(MIDDLE, M1, owns(p)), [LOW]);
    assert_eq!(it.wait(HIGH, M2, owns(p)), [LOW]);
    assert_eq!(it.over(LOW, 10), 55);
    assert!(it.released(LOW, M2));
    assert_eq!(it.over(LOW, 10), 40);
    assert!(it.released(LOW, M1));
    assert_eq!(it.over(LOW, 10), 10);
}

#[test]
fn who_waits_with_a_lower_priority_wills_nothing_but_the_walk_goes_on() {
    let p = [30, 20, 25];
    let mut it = turnstiles(true);
    it.taken(LOW, M1, owns(p));
    assert_eq!(it.wait(MIDDLE, M1, owns(p)), []);
    assert_eq!(it.over(LOW, 30), 30);
    // The link without effect offers its owner's own priority to the next.
    let p = [5, 45, 40];
    let mut it = turnstiles(true);
    it.taken(LOW, M1, owns(p));
    it.taken(MIDDLE, M2, owns(p));
    assert_eq!(it.wait(MIDDLE, M1, owns(p)), [LOW]);
    assert_eq!(it.wait(HIGH, M2, owns(p)), []);
    assert_eq!(all(&it, p), [45, 45, 40]);
}

#[test]
fn a_new_owner_inherits_from_those_that_still_wait_only_what_is_better() {
    let p = [10, 45, 50];
    let mut it = turnstiles(true);
    it.taken(LOW, M1, owns(p));
    let _ = it.wait(MIDDLE, M1, owns(p));
    let _ = it.wait(HIGH, M1, owns(p));
    assert!(it.released(LOW, M1));
    it.taken(HIGH, M1, owns(p));
    assert_eq!(it.over(HIGH, 50), 50);
    assert!(!it.released(HIGH, M1), "45 is not better than 50");
    it.taken(LOW, M1, owns(p));
    assert_eq!(it.over(LOW, 10), 45);
}

#[test]
fn a_circle_ends_the_walk() {
    let p = [10, 30, 50];
    let mut it = turnstiles(true);
    it.taken(LOW, M1, owns(p));
    it.taken(MIDDLE, M2, owns(p));
    let _ = it.wait(LOW, M2, owns(p));
    let _ = it.wait(MIDDLE, M1, owns(p));
    // One from outside finds the circle, too.
    let _ = it.wait(HIGH, M1, owns(p));
    assert_eq!(it.over(LOW, 10), 50);
}

#[test]
fn switched_off_nobody_inherits() {
    let p = [10, 30, 50];
    let mut it = turnstiles(false);
    it.taken(LOW, M1, owns(p));
    assert_eq!(it.wait(HIGH, M1, owns(p)), []);
    assert_eq!(all(&it, p), p);
}

/// How long a good one waits for a lock that a bad one holds through 50 ms of work, while one in
/// between spins: time from its asking to its next run.
fn inversion(policy: &str, held: Step, wanted: Step) -> Nanos {
    let owner = first_then(
        &[
            Step::Sleep(ms(1)),
            held,
            Step::Run(ms(50)),
            Step::Unlock(M1),
        ],
        &[Step::Sleep(secs(1_000))],
    );
    let hog = first_then(&[Step::Sleep(ms(10))], &[Step::Run(secs(1_000))]);
    let good = first_then(&[Step::Sleep(ms(20)), wanted, Step::Retire], &[Step::Halt]);
    let vcpus = vec![(nice(0, 9), owner), (plain(1), hog), (nice(2, -9), good)];
    let mut world = World::new(policy, 1, vcpus);
    world.run_until(secs(20));
    assert_eq!(world.dispatcher.violation_count(), 0);
    let gone = world.events.iter().find(|event| {
        event.vcpu == HIGH && matches!(event.kind, crate::event::EventKind::Retired(_))
    });
    gone.map_or(secs(20), |event| event.at - ms(20))
}

#[test]
fn the_owner_of_a_mutex_runs_in_the_stead_of_who_waits_for_it() {
    let mutex = Step::Acquire(M1, Mutex, NotAsked);
    // 9 ms were done when the hog began; 41 ms are left when the good one asks.
    assert_eq!(inversion("ts", mutex, mutex), ms(41));
    let without = inversion("ts:turnstile=off", mutex, mutex);
    assert!(without >= ms(120), "{without}");
    let write = Step::Acquire(M1, Write, NotAsked);
    assert_eq!(inversion("ts", write, write), ms(41));
}

#[test]
fn readers_never_inherit_and_only_kernel_priority_helped() {
    let write = Step::Acquire(M1, Write, NotAsked);
    let read = |priority| Step::Acquire(M1, Read, priority);
    let inherits_nothing = inversion("ts:variant=after", read(NotAsked), write);
    assert!(inherits_nothing >= ms(120), "{inherits_nothing}");
    // A new reader waits behind the writer.
    let reader = inversion("ts:variant=after", write, read(NotAsked));
    assert_eq!(reader, ms(41));
    // Preempted with a request, the reader goes to 60 and finishes first.
    assert_eq!(inversion("ts:variant=before", read(Asked), write), ms(31));
    let after = inversion("ts:variant=after", read(Asked), write);
    assert_eq!(after, inherits_nothing);
}

#[test]
fn fss_inherits_too() {
    // The owner has spent its priority, the sleeper has not; a third spins as much as the owner.
    let owner = repeat(&[
        Step::Run(ms(3)),
        Step::Acquire(M1, Mutex, NotAsked),
        Step::Run(ms(30)),
        Step::Unlock(M1),
    ]);
    let sleeper = repeat(&[
        Step::Sleep(ms(70)),
        Step::Acquire(M1, Mutex, NotAsked),
        Step::Run(us(100)),
        Step::Unlock(M1),
    ]);
    let rounds = |policy: &str| {
        let vcpus = vec![
            (plain(0), owner.clone()),
            (plain(1), spin()),
            (plain(2), sleeper.clone()),
        ];
        let mut world = World::new(policy, 1, vcpus);
        world.run_until(secs(30));
        assert_eq!(world.dispatcher.violation_count(), 0);
        world.ran(2)
    };
    let (with, without) = (rounds("fss"), rounds("fss:turnstile=off"));
    assert!(with > without, "{with} and {without}");
}
