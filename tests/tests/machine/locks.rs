//! Guest locks and critical sections, and what the host sees of them.

use super::{booted, enter_until, next, plan, run};
use crate::support;
use std::thread;
use std::time::Duration;
use stealtime_guest::op::Step;
use stealtime_scheduler::ids::{GuestLockId, VmId};
use stealtime_vmm::cpu::{Call, Cpu, Exit};
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
    for kind in [LockKind::TestAndSet, LockKind::Ticket] {
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
        if kind == LockKind::Ticket {
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
    for kind in [LockKind::TestAndSet, LockKind::Ticket] {
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
