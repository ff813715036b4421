//! What the locks in the hypervisor do, one claim a test.

use super::*;
use HostMode::{Mutex, Read, Write};
use KernelPriority::{Asked, NotAsked};

const L: HostLockId = HostLockId(0);
const PLAIN: How = How::Plain;
const MUTEX: How = How::Mode(Mutex);
const READ: How = How::Mode(Read);
const WRITE: How = How::Mode(Write);

fn claim(vcpu: u32, how: How) -> Claim {
    Claim {
        vcpu: VcpuId(vcpu),
        how,
        priority: NotAsked,
    }
}

fn ask(locks: &mut HostLocks, vcpu: u32, how: How) -> Acquire {
    locks.acquire(L, claim(vcpu, how))
}

/// Owners and those that are to try again, if every vCPU ranks as it says.
fn release(locks: &mut HostLocks, vcpu: u32, ranks: &[u8]) -> Option<(Vec<u32>, Vec<u32>)> {
    let rank = |vcpu: VcpuId| ranks.get(vcpu.index()).copied().unwrap_or(0);
    let released = locks.release(L, VcpuId(vcpu), rank)?;
    let names = |claims: &[Claim]| claims.iter().map(|claim| claim.vcpu.0).collect();
    Some((names(&released.owners), names(&released.retry)))
}

fn held_by(vcpu: u32) -> Acquire {
    Acquire::Held(VcpuId(vcpu))
}

#[test]
fn a_released_plain_lock_goes_to_the_first_that_waited() {
    let mut locks = HostLocks::new(1);
    let asked = Claim {
        priority: Asked,
        ..claim(1, PLAIN)
    };
    assert_eq!(ask(&mut locks, 0, PLAIN), Acquire::Taken);
    assert_eq!(locks.acquire(L, asked), held_by(0));
    assert_eq!(ask(&mut locks, 2, PLAIN), held_by(0));
    let released = locks.release(L, VcpuId(0), |_| 0).expect("it holds it");
    assert_eq!(released.owners, [asked]);
    assert_eq!(release(&mut locks, 1, &[0, 0, 9]), Some((vec![2], vec![])));
    assert_eq!(release(&mut locks, 2, &[]), Some((vec![], vec![])));
}

#[test]
fn only_a_holder_can_release_and_nobody_can_take_a_lock_twice_or_as_another_kind() {
    let mut locks = HostLocks::new(1);
    assert_eq!(release(&mut locks, 0, &[]), None);
    assert_eq!(ask(&mut locks, 0, PLAIN), Acquire::Taken);
    assert_eq!(ask(&mut locks, 0, PLAIN), Acquire::Misused);
    for how in [MUTEX, READ, WRITE] {
        assert_eq!(ask(&mut locks, 1, how), Acquire::Misused);
    }
    assert_eq!(release(&mut locks, 1, &[]), None);
    let nowhere = locks.acquire(HostLockId(9), claim(0, PLAIN));
    assert_eq!(nowhere, Acquire::Misused);
}

#[test]
fn a_vcpu_that_is_gone_waits_for_nothing_and_its_locks_are_named() {
    let mut locks = HostLocks::new(2);
    assert_eq!(ask(&mut locks, 0, PLAIN), Acquire::Taken);
    assert_eq!(ask(&mut locks, 1, PLAIN), held_by(0));
    assert_eq!(locks.forget(VcpuId(1)), vec![]);
    assert_eq!(locks.forget(VcpuId(0)), vec![L]);
    assert_eq!(release(&mut locks, 0, &[]), Some((vec![], vec![])));
}

#[test]
fn a_released_mutex_is_free_and_all_five_sleepers_try_again() {
    let mut locks = HostLocks::new(1);
    assert_eq!(ask(&mut locks, 0, MUTEX), Acquire::Taken);
    for vcpu in 1..=5 {
        assert_eq!(ask(&mut locks, vcpu, MUTEX), held_by(0));
    }
    let all = (vec![], vec![1, 2, 3, 4, 5]);
    assert_eq!(release(&mut locks, 0, &[]), Some(all));
    assert_eq!(ask(&mut locks, 9, MUTEX), Acquire::Taken);
    assert_eq!(ask(&mut locks, 1, MUTEX), held_by(9));
}

#[test]
fn readers_share_and_a_waiting_writer_keeps_new_readers_out() {
    let mut locks = HostLocks::new(1);
    assert_eq!(ask(&mut locks, 0, READ), Acquire::Taken);
    assert_eq!(ask(&mut locks, 1, READ), Acquire::Taken);
    assert_eq!(ask(&mut locks, 2, WRITE), held_by(0));
    assert_eq!(ask(&mut locks, 3, READ), held_by(0));
    assert_eq!(release(&mut locks, 0, &[]), Some((vec![], vec![])));
    // However the reader ranks, the last of them leaves it to the writer.
    assert_eq!(
        release(&mut locks, 1, &[0, 0, 1, 59]),
        Some((vec![2], vec![]))
    );
    assert_eq!(release(&mut locks, 2, &[]), Some((vec![3], vec![])));
}

#[test]
fn a_writer_hands_over_to_readers_that_rank_no_lower_than_the_best_writer() {
    let ranks = [0, 50, 40, 30, 40];
    let mut locks = HostLocks::new(1);
    assert_eq!(ask(&mut locks, 0, WRITE), Acquire::Taken);
    for (vcpu, how) in [(3, READ), (4, WRITE), (2, READ), (1, READ)] {
        assert_eq!(ask(&mut locks, vcpu, how), held_by(0));
    }
    assert_eq!(release(&mut locks, 0, &ranks), Some((vec![1, 2], vec![])));
    assert_eq!(release(&mut locks, 1, &ranks), Some((vec![], vec![])));
    assert_eq!(release(&mut locks, 2, &ranks), Some((vec![4], vec![])));
    assert_eq!(release(&mut locks, 4, &ranks), Some((vec![3], vec![])));
}

#[test]
fn the_last_reader_hands_over_to_the_best_writer_the_first_among_equals() {
    let handed = |ranks: &[u8]| {
        let mut locks = HostLocks::new(1);
        assert_eq!(ask(&mut locks, 0, READ), Acquire::Taken);
        for vcpu in 1..=3 {
            assert_eq!(ask(&mut locks, vcpu, WRITE), held_by(0));
        }
        release(&mut locks, 0, ranks)
    };
    assert_eq!(handed(&[0, 45, 50, 50]), Some((vec![2], vec![])));
    assert_eq!(handed(&[0, 45, 45, 45]), Some((vec![1], vec![])));
}

#[test]
fn readers_that_a_writer_kept_out_join_when_it_is_gone() {
    let mut locks = HostLocks::new(1);
    assert_eq!(ask(&mut locks, 0, READ), Acquire::Taken);
    assert_eq!(ask(&mut locks, 1, WRITE), held_by(0));
    assert_eq!(ask(&mut locks, 2, READ), held_by(0));
    assert_eq!(locks.admit_readers(), []);
    assert_eq!(locks.forget(VcpuId(1)), vec![]);
    assert_eq!(locks.admit_readers(), [(L, claim(2, READ))]);
    assert_eq!(ask(&mut locks, 3, READ), Acquire::Taken);
}
