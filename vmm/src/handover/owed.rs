//! A preemption that is owed, and a guest that cannot see the word in time.

use super::{cores, plan};
use crate::cpu::Watch;
use crate::engine::Engine;
use crate::host::{Pinning, Placement, RunClock, monotonic_ns};
use crate::mock::Page;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use stealtime_scheduler::dispatcher::Dispatcher;
use stealtime_scheduler::effect::Effect;
use stealtime_scheduler::ids::{CoreId, VcpuId, VmId};
use stealtime_scheduler::input::{GuestLocks, Input, Timer};
use stealtime_scheduler::time::Nanos;
use stealtime_workloads::run::{Entry, GuestView};

const CORE: CoreId = CoreId(0);
const HOLDER: VcpuId = VcpuId(0);

/// A guest that releases its lock between the host's look at it and the word: too early to see that.
#[derive(Debug, Default)]
struct Hasty {
    page: Page,
    stays: bool,
}

impl Watch for Hasty {
    fn locks(&self) -> GuestLocks {
        self.page.locks()
    }

    fn view(&self) -> GuestView {
        self.page.view()
    }

    fn restart_maxima(&self) {}

    fn set_preempt_pending(&self, pending: bool) {
        if pending && !self.stays {
            self.page.held.store(0, Ordering::Relaxed);
        }
        self.page.set_preempt_pending(pending);
    }

    fn owner(&self, lock: u16) -> Option<u32> {
        self.page.owner(lock)
    }

    fn set_running(&self, running: bool) {
        self.page.set_running(running);
    }

    fn set_donor(&self, donor: Option<u32>) {
        self.page.set_donor(donor);
    }
}

/// What comes of the end of a slice within a critical section: everything from then on.
fn slice_ends(stays: bool) -> Vec<Entry> {
    let mut plan = plan("rr:quantum=1ms+delay", &[0, 1], Nanos::from_secs(1));
    plan.cores = cores()[..1].to_vec();
    let holder = Arc::new(Hasty {
        stays,
        ..Hasty::default()
    });
    holder.page.held.store(1, Ordering::Relaxed);
    let other: Arc<Page> = Arc::default();
    let engine = Engine::new(
        Dispatcher::new(&plan.config()).unwrap(),
        RunClock::starting_at(monotonic_ns()),
        Placement::new(&plan.cores, Pinning::Granted).unwrap(),
        vec![(VmId(0), holder as Arc<dyn Watch>), (VmId(1), other)],
    );
    let vcpu = HOLDER;
    engine.report(&[
        Input::Admit { vcpu },
        Input::Admit { vcpu: VcpuId(1) },
        Input::Entered { core: CORE, vcpu },
    ]);
    // The dispatcher takes no slice for over before it is, by the clock.
    std::thread::sleep(Duration::from_millis(3));
    let mut entries = Vec::new();
    engine.swap_entries(&mut entries);
    engine.report_due(&[Timer::Slice(CORE)]);
    engine.swap_entries(&mut entries);
    entries
}

fn place(entries: &[Entry], what: impl Fn(&Entry) -> bool) -> Option<usize> {
    entries.iter().position(what)
}

#[test]
fn who_became_safe_before_it_could_see_the_word_is_kicked_at_once() {
    let entries = slice_ends(false);
    let owed = place(&entries, |entry| {
        matches!(entry, Entry::Effect(Effect::Owe { .. }))
    });
    let left = place(&entries, |entry| {
        matches!(entry, Entry::Input(_, Input::CriticalLeft { vcpu: HOLDER }))
    });
    let kicked = place(&entries, |entry| {
        matches!(entry, Entry::Effect(Effect::Kick { vcpu: HOLDER, .. }))
    });
    assert!(
        owed.is_some() && owed < left && left < kicked,
        "{entries:#?}"
    );
}

#[test]
fn who_holds_its_lock_still_is_left_alone() {
    let entries = slice_ends(true);
    assert!(
        entries
            .iter()
            .any(|entry| matches!(entry, Entry::Effect(Effect::Owe { .. })))
    );
    let more = place(&entries, |entry| {
        matches!(
            entry,
            Entry::Effect(Effect::Kick { .. }) | Entry::Input(_, Input::CriticalLeft { .. })
        )
    });
    assert_eq!(more, None, "{entries:#?}");
}
