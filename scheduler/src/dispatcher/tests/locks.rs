//! Locks in the hypervisor.

use super::{A, B, C, CORE, Desk, LOCK, Manner, park, run};
use crate::effect::Effect;
use crate::event::{EventKind, Waits, WakeSource};
use crate::ids::{HostLockId, VcpuId};
use crate::input::{Input, KernelPriority};
use crate::testing::ms;

fn lock(vcpu: VcpuId, priority: KernelPriority) -> Input {
    Input::HostLock {
        vcpu,
        lock: LOCK,
        priority,
    }
}

fn unlock(vcpu: VcpuId) -> Input {
    Input::HostUnlock { vcpu, lock: LOCK }
}

use KernelPriority::{Asked, NotAsked};

/// A holds the lock and waits its turn, B and C wait for the lock in this order; A is on the core.
fn two_waiters(priority: KernelPriority) -> Desk {
    let mut desk = Desk::running(3, Manner::default());
    desk.tell(ms(1), lock(A, NotAsked));
    desk.tell(ms(2), Input::Yield { vcpu: A });
    for (at, vcpu) in [(3, B), (4, C)] {
        desk.enter(ms(at), vcpu);
        desk.tell(ms(at), lock(vcpu, priority));
    }
    desk.enter(ms(4), A);
    desk.told();
    desk
}

#[test]
fn a_free_lock_is_taken_without_leaving_the_core() {
    let mut desk = Desk::running(1, Manner::default());
    assert_eq!(desk.tell(ms(1), lock(A, NotAsked)), []);
    assert!(desk.said(EventKind::HostLockTaken(LOCK)));
    assert_eq!(desk.tell(ms(2), unlock(A)), []);
    assert!(desk.said(EventKind::HostLockReleased(LOCK)));
}

#[test]
fn who_finds_a_lock_held_leaves_the_core_and_is_known_to_wait_for_its_owner() {
    let mut desk = Desk::running(2, Manner::default());
    desk.tell(ms(1), lock(A, NotAsked));
    desk.tell(ms(2), Input::Yield { vcpu: A });
    desk.enter(ms(2), B);
    let effects = desk.tell(ms(3), lock(B, NotAsked));
    assert!(effects.ends_with(&[park(B), run(A)]), "{effects:?}");
    assert!(desk.said(EventKind::Blocked(Waits::HostLock(LOCK, A))));
}

#[test]
fn a_released_lock_is_handed_to_the_first_waiter_who_wakes_as_its_owner() {
    let mut desk = two_waiters(NotAsked);
    desk.tell(ms(5), unlock(A));
    let woken: Vec<_> = desk
        .out
        .events
        .iter()
        .map(|event| (event.vcpu, event.kind))
        .collect();
    let expected = [
        (A, EventKind::HostLockReleased(LOCK)),
        (B, EventKind::HostLockTaken(LOCK)),
        (B, EventKind::Woken(WakeSource::HostLock(A))),
    ];
    assert_eq!(woken, expected);
    // C waits for B now: B's release wakes it.
    desk.tell(ms(6), Input::Yield { vcpu: A });
    desk.enter(ms(6), B);
    desk.tell(ms(7), unlock(B));
    assert!(desk.said(EventKind::Woken(WakeSource::HostLock(B))));
}

#[test]
fn a_request_counts_before_the_new_owner_wakes_and_ends_with_the_release() {
    let mut desk = two_waiters(Asked);
    desk.tell(ms(5), unlock(A));
    let told = desk.told();
    assert_eq!(told[0], "request vcpu 1 Begin");
    assert_eq!(told[1], "enqueue vcpu 1 Wake");
    desk.tell(ms(6), Input::Yield { vcpu: A });
    desk.enter(ms(6), B);
    desk.told();
    desk.tell(ms(7), unlock(B));
    let told = desk.told();
    assert_eq!(
        told[..3],
        [
            "request vcpu 1 End",
            "request vcpu 2 Begin",
            "enqueue vcpu 2 Wake"
        ]
    );
}

#[test]
fn a_request_counts_while_its_lock_is_held_and_no_other_does() {
    let mut desk = Desk::running(1, Manner::default());
    let requests = |desk: &Desk| {
        let told = desk.told();
        told.iter()
            .filter(|call| call.starts_with("request"))
            .count()
    };
    desk.tell(ms(1), lock(A, NotAsked));
    desk.tell(ms(2), unlock(A));
    assert_eq!(requests(&desk), 0);
    desk.tell(ms(3), lock(A, Asked));
    assert_eq!(requests(&desk), 1);
    desk.tell(ms(4), unlock(A));
    assert_eq!(requests(&desk), 1);
}

#[test]
fn misuse_of_a_lock_changes_nothing() {
    let mut desk = Desk::running(2, Manner::default());
    desk.tell(ms(1), lock(A, NotAsked));
    let missing = Input::HostLock {
        vcpu: A,
        lock: HostLockId(99),
        priority: NotAsked,
    };
    // Taken twice; released by another; no such lock; asked for from the run queue.
    for input in [lock(A, Asked), unlock(B), missing, lock(B, Asked)] {
        assert_eq!(desk.tell(ms(1), input), [], "{input:?}");
        assert!(desk.out.events.is_empty(), "{input:?}");
    }
    assert_eq!(desk.dispatcher.on_core(CORE), Some(A));
}

#[test]
fn a_waiter_that_is_gone_is_passed_over() {
    let mut desk = two_waiters(NotAsked);
    desk.retire(ms(5), B);
    desk.tell(ms(6), unlock(A));
    let woken = |event: &crate::event::Event| {
        event.vcpu == C && event.kind == EventKind::Woken(WakeSource::HostLock(A))
    };
    assert!(desk.out.events.iter().any(woken));
}

#[test]
fn locks_of_one_that_is_gone_go_to_those_that_wait() {
    let mut desk = two_waiters(Asked);
    desk.retire(ms(5), A);
    assert!(desk.said(EventKind::HostLockReleased(LOCK)));
    assert!(desk.said(EventKind::Woken(WakeSource::HostLock(A))));
    assert!(desk.out.effects.contains(&Effect::Run {
        core: CORE,
        vcpu: B
    }));
    assert!(
        !desk
            .out
            .effects
            .iter()
            .any(|effect| matches!(effect, Effect::Kick { .. }))
    );
}
