//! Guest locks and critical sections, and what the host sees of them.

use super::{booted, enter_until, next, plan, run};
use crate::support;
use std::thread;
use std::time::Duration;
use stealtime_guest::op::Step;
use stealtime_scheduler::ids::{GuestLockId, VmId};
use stealtime_scheduler::input::{GuestHints, MutexMode};
use stealtime_scheduler::time::Nanos;
use stealtime_vmm::cpu::{Call, Cpu, Exit};
use stealtime_vmm::machine::GuestCpu;
use stealtime_workloads::run::{GuestView, LockKind};

#[test]
fn locks_and_critical_sections_show_in_the_shared_page() {
    let Some(_kvm) = support::kvm() else { return };
    let steps = [
        Step::CriticalEnter,
        Step::Lock(1),
        Step::Exit,
        Step::Unlock(1),
        Step::CriticalLeave,
        Step::Exit,
        Step::CriticalEnter,
        Step::CriticalEnter,
        Step::CriticalLeave,
        Step::CriticalLeave,
    ];
    let kinds = [LockKind::TestAndSet, LockKind::Ticket];
    let mut cpu = booted(&plan(&kinds, &[&steps])).remove(0);
    assert_eq!(next(&mut cpu), Exit::Call(Call::Nothing));
    let locks = cpu.locks();
    assert_eq!((locks.held, locks.critical, locks.waits_for), (1, 1, None));
    assert_eq!(next(&mut cpu), Exit::Call(Call::Nothing));
    assert_eq!(
        cpu.locks(),
        stealtime_scheduler::input::GuestLocks::default()
    );
    // Left without a word the first time; now a preemption is pending, and only the outermost tells.
    cpu.set_preempt_pending(true);
    assert_eq!(next(&mut cpu), Exit::Call(Call::CriticalLeft));
    assert_eq!(cpu.locks().critical, 0);
    assert_eq!(next(&mut cpu), Exit::Call(Call::Finished));
    assert_eq!(cpu.view().lock_acquisitions, 1);
}

#[test]
fn a_waiter_shows_what_it_waits_for_and_its_spinning_is_counted() {
    let Some(_kvm) = support::kvm() else { return };
    for kind in [LockKind::TestAndSet, LockKind::Ticket, LockKind::Mcs] {
        let owner = [Step::Lock(0), Step::Exit, Step::Unlock(0), Step::Exit];
        let waiter = [Step::Lock(0), Step::Exit];
        let mut cpus = booted(&plan(&[kind], &[&owner, &waiter]));
        let mut waiter = cpus.pop().expect("two");
        let mut owner = cpus.pop().expect("two");
        assert_eq!(next(&mut owner), Exit::Call(Call::Nothing));
        let wanted = |view: &GuestView| view.lock_spin_ns > 100_000;
        enter_until(&mut waiter, Duration::from_millis(5), wanted);
        // Stopped for longer than what passes for the price of an exit, it notices when it spins on.
        std::thread::sleep(Duration::from_millis(2));
        let noticed = |view: &GuestView| view.gap_total_ns > 1_000_000;
        enter_until(&mut waiter, Duration::from_millis(5), noticed);
        let waits_for = Some(GuestLockId::new(VmId(0), 0));
        assert_eq!(
            (waiter.locks().held, waiter.locks().waits_for),
            (0, waits_for)
        );
        assert_eq!(owner.locks().held, 1);
        assert_eq!(next(&mut owner), Exit::Call(Call::Nothing));
        assert_eq!(owner.locks().held, 0);
        if kind != LockKind::TestAndSet {
            // Handed over, though the waiter has not run since.
            assert_eq!((waiter.locks().held, waiter.locks().waits_for), (1, None));
        }
        assert_eq!(next(&mut waiter), Exit::Call(Call::Nothing));
        assert_eq!((waiter.locks().held, waiter.locks().waits_for), (1, None));
        let view = waiter.view();
        assert!(view.lock_spin_ns > 100_000, "{kind:?}: {view:?}");
        assert!(
            view.gaps > 0,
            "{kind:?}: it was stopped while it waited: {view:?}"
        );
    }
}

#[test]
fn two_vcpu_threads_share_a_lock_and_both_get_through() {
    let Some(_kvm) = support::kvm() else { return };
    const ROUNDS: u32 = 2_000;
    for kind in [LockKind::TestAndSet, LockKind::Ticket, LockKind::Mcs] {
        let steps = [
            Step::Repeat(ROUNDS),
            Step::Lock(0),
            run(2_000),
            Step::Unlock(0),
            run(1_000),
            Step::EndRepeat,
        ];
        let cpus = booted(&plan(&[kind], &[&steps, &steps]));
        let threads: Vec<_> = cpus
            .into_iter()
            .map(|mut cpu| thread::spawn(move || (next(&mut cpu), cpu.view(), cpu.locks())))
            .collect();
        for thread in threads {
            let (exit, view, locks) = thread.join().expect("the thread ends");
            assert_eq!(exit, Exit::Call(Call::Finished), "{kind:?}");
            assert_eq!(view.lock_acquisitions, u64::from(ROUNDS), "{kind:?}");
            assert_eq!(view.progress_ns, u64::from(ROUNDS) * 3_000, "{kind:?}");
            assert_eq!(locks.held, 0, "{kind:?}");
        }
    }
}

/// An owner of lock 0 that exits within and after its section, and one that comes for it.
fn owner_and_waiter(kind: LockKind) -> (GuestCpu, GuestCpu) {
    let owner = [Step::Lock(0), Step::Exit, Step::Unlock(0), Step::Exit];
    let waiter = [Step::Lock(0), Step::Exit, Step::Unlock(0)];
    let mut cpus = booted(&plan(&[kind], &[&owner, &waiter]));
    let waiter = cpus.pop().expect("two");
    (cpus.pop().expect("two"), waiter)
}

#[test]
fn a_mutex_is_slept_for_if_its_owner_has_no_core_and_the_release_wakes_the_sleeper() {
    let Some(_kvm) = support::kvm() else { return };
    for (kind, hand_off) in [
        (LockKind::Mutex, false),
        (LockKind::Mutex, true),
        (LockKind::MutexHandoff, false),
    ] {
        let (mut owner, mut waiter) = owner_and_waiter(kind);
        if hand_off {
            for cpu in [&mut owner, &mut waiter] {
                cpu.set_hints(GuestHints {
                    mutex: MutexMode::HandOff,
                    spin_window: None,
                });
            }
        }
        assert_eq!(next(&mut owner), Exit::Call(Call::Nothing));
        assert_eq!(
            next(&mut waiter),
            Exit::Call(Call::GuestWait(0)),
            "{kind:?}"
        );
        let waits_for = Some(GuestLockId::new(VmId(0), 0));
        assert_eq!(
            (waiter.locks().held, waiter.locks().waits_for),
            (0, waits_for)
        );
        assert_eq!(waiter.watch().owner(0), Some(0));
        let wake = Call::GuestWake { index: 1, lock: 0 };
        assert_eq!(next(&mut owner), Exit::Call(wake), "{kind:?}");
        assert_eq!(
            owner.locks().held,
            0,
            "released before the sleeper is woken"
        );
        let handed = hand_off || kind == LockKind::MutexHandoff;
        assert_eq!(waiter.locks().held, u16::from(handed), "{kind:?}");
        // Handed to it or left free: no other sleeper can have it before.
        assert_eq!(owner.watch().owner(0), Some(1), "{kind:?}");
        assert_eq!(next(&mut owner), Exit::Call(Call::Nothing));
        assert_eq!(next(&mut waiter), Exit::Call(Call::Nothing));
        assert_eq!((waiter.locks().held, waiter.locks().waits_for), (1, None));
        assert_eq!(
            next(&mut waiter),
            Exit::Call(Call::Finished),
            "nobody is left to wake"
        );
    }
}

#[test]
fn a_mutex_is_spun_for_while_its_owner_has_a_core_and_a_long_spin_is_told_each_window() {
    let Some(_kvm) = support::kvm() else { return };
    let (mut owner, mut waiter) = owner_and_waiter(LockKind::Mutex);
    waiter.set_hints(GuestHints {
        mutex: MutexMode::Spin,
        spin_window: Some(Nanos::from_millis(1)),
    });
    assert_eq!(next(&mut owner), Exit::Call(Call::Nothing));
    owner.watch().set_running(true);
    for windows in 1..=3 {
        assert_eq!(next(&mut waiter), Exit::Call(Call::SpunTooLong(0)));
        let spun = waiter.view().lock_spin_ns;
        assert!(spun >= windows * 1_000_000, "{spun} after {windows}");
    }
    owner.watch().set_running(false);
    assert_eq!(
        next(&mut waiter),
        Exit::Call(Call::GuestWait(0)),
        "its owner is gone"
    );
}

#[test]
fn messages_go_through_a_channel_and_its_ends_sleep_while_there_is_none_or_no_room() {
    let Some(_kvm) = support::kvm() else { return };
    let sender = [Step::Send(0), Step::Send(0), Step::Exit, Step::Send(0)];
    let receiver = [
        Step::Receive(0),
        Step::Exit,
        Step::Receive(0),
        Step::Receive(0),
    ];
    let kinds = [
        LockKind::Channel {
            room: 1,
            copy_ns: 0,
        },
        LockKind::Mutex,
    ];
    let mut cpus = booted(&plan(&kinds, &[&sender, &receiver]));
    let mut receiver = cpus.pop().expect("two");
    let mut sender = cpus.pop().expect("two");
    let wakes = |index| Exit::Call(Call::GuestWake { index, lock: 0 });
    let waits = || Exit::Call(Call::GuestWait(0));
    assert_eq!(next(&mut receiver), waits());
    assert_eq!(next(&mut sender), wakes(1));
    assert_eq!(next(&mut sender), waits(), "there is room for one");
    assert_eq!(next(&mut receiver), wakes(0));
    assert_eq!(next(&mut receiver), Exit::Call(Call::Nothing));
    assert_eq!(next(&mut sender), Exit::Call(Call::Nothing));
    assert_eq!(
        next(&mut receiver),
        waits(),
        "the second was received without a sleep"
    );
    assert_eq!(next(&mut sender), wakes(1));
    assert_eq!(next(&mut sender), Exit::Call(Call::Finished));
    assert_eq!(next(&mut receiver), Exit::Call(Call::Finished));
}

#[test]
fn the_release_of_the_last_lock_tells_of_a_pending_preemption_and_of_an_inner_one_does_not() {
    let Some(_kvm) = support::kvm() else { return };
    let steps = [
        Step::Lock(0),
        Step::Lock(1),
        Step::Exit,
        Step::Unlock(1),
        Step::Unlock(0),
    ];
    let kinds = [LockKind::Ticket, LockKind::Mutex];
    let mut cpu = booted(&plan(&kinds, &[&steps])).remove(0);
    assert_eq!(next(&mut cpu), Exit::Call(Call::Nothing));
    assert_eq!(cpu.locks().held, 2);
    cpu.set_preempt_pending(true);
    assert_eq!(next(&mut cpu), Exit::Call(Call::CriticalLeft));
    assert_eq!(cpu.locks().held, 0);
    assert_eq!(next(&mut cpu), Exit::Call(Call::Finished));
}
