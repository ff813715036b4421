//! What the source material says of the dispatcher, one claim a test.

use super::{CACHE, Dispatch, End, KERNEL, KERNEL_PREEMPTS, Matching, NOSTEAL, RECHOOSE};
use crate::event::{EventKind, Until};
use crate::ids::{CoreId, VcpuId};
use crate::input::{ExitReason, Input};
use crate::policy::{Mode, Preempt, WorkConserving};
use crate::spec::{NamedOptions, OptionInfo, Options};
use crate::testing::{Step, World, ms, plain, repeat, secs, spin, us};
use crate::time::Nanos;
use Matching::{Asked, NotAsked};

const KNOWN: &[OptionInfo] = &[RECHOOSE, CACHE, NOSTEAL, KERNEL_PREEMPTS];

fn dispatch(options: &str, cores: u16, matching: Matching, threads: u32) -> Dispatch {
    let named: NamedOptions = format!("x{options}").parse().expect("options");
    let options = Options::check(&named, KNOWN).expect("known");
    let mut dispatch = Dispatch::new(&options, cores, matching);
    (0..threads).for_each(|_| dispatch.add(0));
    dispatch
}

/// Makes the thread run on the core and leave it at this moment.
fn ran(dispatch: &mut Dispatch, now: Nanos, vcpu: u32, core: u16) {
    let (vcpu, core) = (VcpuId(vcpu), CoreId(core));
    dispatch.seats[vcpu.index()].last = Some(core);
    dispatch.running[core.index()] = Some(vcpu);
    dispatch.leave(now, vcpu, core);
}

/// The thread is on the core.
fn runs(dispatch: &mut Dispatch, vcpu: u32, core: u16, priority: u8) {
    let (vcpu, core) = (VcpuId(vcpu), CoreId(core));
    dispatch.seats[vcpu.index()].last = Some(core);
    dispatch.seats[vcpu.index()].priority = priority;
    dispatch.running[core.index()] = Some(vcpu);
}

/// Where threads 2 and up land that come from core 0, with two busy cores.
fn landings(matching: Matching, priority: u8) -> Vec<u16> {
    let mut dispatch = dispatch("", 2, matching, 8);
    runs(&mut dispatch, 0, 0, 59);
    runs(&mut dispatch, 1, 1, 59);
    let land = |vcpu| {
        dispatch.seats[vcpu as usize].last = Some(CoreId(0));
        dispatch
            .put(Nanos::ZERO, VcpuId(vcpu), priority, End::Back)
            .0
    };
    (2..6).map(land).collect()
}

#[test]
fn queues_of_a_class_that_asks_for_matching_are_equal_and_others_differ_by_two() {
    assert_eq!(landings(Asked, 30)[..2], [0, 1]);
    assert_eq!(landings(NotAsked, 30), [0, 0, 0, 1]);
    assert_eq!(landings(NotAsked, 16), [0, 0, 0, 1]);
    assert_eq!(landings(NotAsked, 15)[..2], [0, 1]);
}

#[test]
fn threads_that_begin_at_once_are_queued_on_two_of_many_busy_cores() {
    let mut dispatch = dispatch("", 4, Asked, 12);
    (0..4).for_each(|core| runs(&mut dispatch, u32::from(core), core, 29));
    let begin = |vcpu| {
        let end = End::Back;
        dispatch.put(Nanos::ZERO, VcpuId(vcpu), 29, end).0
    };
    let landed: Vec<_> = (4..12).map(begin).collect();
    assert_eq!(landed, [0, 1, 0, 1, 0, 1, 0, 1]);
    // Priced at once, when only the thread on core 2 has a lower priority: two again.
    runs(&mut dispatch, 2, 2, 1);
    (4..12).for_each(|vcpu| dispatch.change(Nanos::ZERO, VcpuId(vcpu), 1));
    let queues = (4..12).map(|vcpu| dispatch.lists.place(VcpuId(vcpu)));
    let queues: Vec<_> = queues.flatten().map(|(queue, _)| queue).collect();
    assert_eq!(queues, [2, 3, 2, 3, 2, 3, 2, 3]);
}

#[test]
fn at_the_front_nothing_is_balanced() {
    let mut dispatch = dispatch("", 2, Asked, 8);
    runs(&mut dispatch, 0, 0, 59);
    runs(&mut dispatch, 1, 1, 59);
    for vcpu in 2..6 {
        dispatch.seats[vcpu as usize].last = Some(CoreId(0));
        let home = dispatch.put(Nanos::ZERO, VcpuId(vcpu), 30, End::Front);
        assert_eq!(home, CoreId(0));
    }
}

#[test]
fn a_core_is_warm_for_30_ms_after_the_last_run() {
    let home = |after: Nanos| {
        let mut dispatch = dispatch("", 2, Asked, 3);
        runs(&mut dispatch, 0, 1, 20);
        ran(&mut dispatch, ms(5), 1, 1);
        runs(&mut dispatch, 0, 1, 20);
        dispatch.put(ms(5) + after, VcpuId(1), 30, End::Back)
    };
    // Core 0 is idle all the time.
    assert_eq!(home(Nanos::ZERO), CoreId(1));
    assert_eq!(home(ms(30)), CoreId(1));
    assert_eq!(home(ms(31)), CoreId(0));
}

#[test]
fn who_has_no_warm_core_goes_where_the_least_is_going_on() {
    let mut dispatch = dispatch("", 3, Asked, 8);
    for (core, priority) in [(0, 40), (1, 10), (2, 20)] {
        runs(&mut dispatch, u32::from(core), core, priority);
    }
    assert_eq!(dispatch.put(secs(1), VcpuId(3), 30, End::Back), CoreId(1));
    // What waits counts as much as what runs: now core 1 has a 30.
    assert_eq!(dispatch.put(secs(1), VcpuId(4), 25, End::Back), CoreId(2));
    // An idle core ends the search.
    dispatch.leave(secs(1), VcpuId(0), CoreId(0));
    assert_eq!(dispatch.put(secs(1), VcpuId(5), 59, End::Back), CoreId(0));
}

/// A thread of this priority has waited so long on core 0, where it last ran: does core 1 take it?
fn stolen(options: &str, priority: u8, waited: Nanos) -> bool {
    let mut dispatch = dispatch(options, 2, Asked, 2);
    ran(&mut dispatch, ms(1), 1, 0);
    runs(&mut dispatch, 0, 0, 20);
    assert_eq!(
        dispatch.put(ms(1), VcpuId(1), priority, End::Back),
        CoreId(0)
    );
    dispatch.pick(ms(1) + waited, CoreId(1)).is_some()
}

#[test]
fn a_thread_is_not_stolen_across_caches_for_100_us() {
    assert!(!stolen(":cache=1", 59, us(50)));
    assert!(!stolen(":cache=1", 59, us(99)));
    assert!(stolen(":cache=1", 59, us(100)));
    // Within a cache at once; priority 60 at once; as far as `nosteal` says.
    assert!(stolen(":cache=2", 59, Nanos::ZERO));
    assert!(stolen("", 59, Nanos::ZERO));
    assert!(stolen(":cache=1", KERNEL, Nanos::ZERO));
    assert!(stolen(":cache=1,nosteal=0ns", 59, Nanos::ZERO));
}

#[test]
fn a_thread_that_last_ran_elsewhere_is_not_protected() {
    let mut dispatch = dispatch(":cache=1", 2, Asked, 2);
    runs(&mut dispatch, 0, 0, 20);
    dispatch.lists.push(0, 30, VcpuId(1), End::Back);
    assert_eq!(dispatch.pick(Nanos::ZERO, CoreId(1)), Some(VcpuId(1)));
}

#[test]
fn a_thief_looks_through_the_best_list_of_the_core_where_the_best_waits() {
    let mut dispatch = dispatch(":cache=1", 3, Asked, 6);
    runs(&mut dispatch, 0, 0, 20);
    runs(&mut dispatch, 1, 1, 20);
    for (vcpu, core, priority) in [(2, 0, 50), (3, 0, 50), (4, 1, 40)] {
        dispatch.lists.push(core, priority, VcpuId(vcpu), End::Back);
    }
    // The first of the best list is protected, the second is not.
    dispatch.seats[2].last = Some(CoreId(0));
    assert_eq!(dispatch.pick(Nanos::ZERO, CoreId(2)), Some(VcpuId(3)));
    dispatch.running[2] = None;
    // Now all of the best list are; what waits elsewhere is not looked at.
    assert_eq!(dispatch.pick(Nanos::ZERO, CoreId(2)), None);
}

#[test]
fn while_all_that_wait_are_protected_an_idle_core_is_meant_to_be_idle_and_looks_again() {
    let mut dispatch = dispatch(":cache=1", 2, Asked, 3);
    ran(&mut dispatch, ms(1), 1, 0);
    runs(&mut dispatch, 0, 0, 20);
    dispatch.put(ms(1), VcpuId(1), 30, End::Back);
    assert_eq!(dispatch.conserving(), WorkConserving::Yes);
    assert_eq!(dispatch.pick(ms(1), CoreId(1)), None);
    assert_eq!(dispatch.conserving(), WorkConserving::No);
    assert_eq!(dispatch.wants_timer(), Some(ms(1) + us(100)));
    dispatch.timer(ms(1) + us(100));
    assert_eq!(dispatch.conserving(), WorkConserving::Yes);
    assert_eq!(dispatch.pick(ms(1) + us(100), CoreId(1)), Some(VcpuId(1)));
    assert_eq!(dispatch.wants_timer(), None);
}

#[test]
fn the_queue_of_all_goes_first_if_it_has_an_equal_or_better_priority() {
    let picked = |own: u8, common: u8| {
        let mut dispatch = dispatch(":kernel-preempts=40", 2, Asked, 2);
        dispatch.lists.push(0, own, VcpuId(0), End::Back);
        dispatch.put(Nanos::ZERO, VcpuId(1), common, End::Back);
        dispatch.pick(Nanos::ZERO, CoreId(0))
    };
    assert_eq!(picked(39, 40), Some(VcpuId(1)));
    assert_eq!(picked(50, 50), Some(VcpuId(1)));
    assert_eq!(picked(51, 50), Some(VcpuId(0)));
}

#[test]
fn only_the_threshold_and_above_preempt_hypervisor_work() {
    let mut dispatch = dispatch(":kernel-preempts=50", 1, Asked, 2);
    runs(&mut dispatch, 0, 0, 20);
    let deferred = Preempt::Defer(Until::GuestEntry);
    for (mode, below, at) in [
        (Mode::Hypervisor, deferred, Preempt::Kick),
        (Mode::Guest, Preempt::Kick, Preempt::Kick),
    ] {
        dispatch.mode(VcpuId(0), mode);
        dispatch.seats[1].priority = 49;
        assert_eq!(dispatch.preempts(VcpuId(0), VcpuId(1)), below);
        dispatch.seats[1].priority = 50;
        assert_eq!(dispatch.preempts(VcpuId(0), VcpuId(1)), at);
        dispatch.seats[1].priority = 20;
        assert_eq!(dispatch.preempts(VcpuId(0), VcpuId(1)), Preempt::Keep);
    }
    // With the threshold of 100, a priority of 75 waits and one of 120 does not.
    let mut original = self::dispatch("", 1, Asked, 1);
    runs(&mut original, 0, 0, 20);
    original.mode(VcpuId(0), Mode::Hypervisor);
    assert_eq!(original.demand(VcpuId(0), 75), deferred);
    assert_eq!(original.demand(VcpuId(0), 120), Preempt::Kick);
}

#[test]
fn one_that_wakes_during_10_ms_of_hypervisor_work_runs_when_the_guest_is_entered_again() {
    let (vcpu, why) = (VcpuId(0), ExitReason::Call);
    let mut world = World::new(
        "fss",
        1,
        vec![
            (plain(0), spin()),
            (plain(1), repeat(&[Step::Run(ms(1)), Step::Sleep(secs(3))])),
        ],
    );
    world.run_until(secs(2));
    let at = world
        .events
        .iter()
        .rev()
        .find_map(|event| match event.kind {
            EventKind::Blocked(_) => Some(event.at + secs(3)),
            _ => None,
        });
    let wakes = at.expect("it sleeps");
    world.run_until(wakes - ms(1));
    world.tell(Input::Exited { vcpu, why });
    world.run_until(wakes + ms(9));
    assert_eq!(world.core_of(0), Some(CoreId(0)), "the work goes on");
    world.tell(Input::Resumed { vcpu });
    world.run_until(wakes + ms(9) + us(1));
    assert_eq!(world.core_of(1), Some(CoreId(0)));
}

#[test]
fn with_caches_apart_everybody_still_gets_its_part_and_no_rule_is_broken() {
    for (policy, least) in [("fss:cache=1", 0.5), ("fss:cache=2,nosteal=5ms", 0.2)] {
        let busy = repeat(&[Step::Run(us(700)), Step::Sleep(us(300))]);
        let vcpus = (0..6).map(|vm| (plain(vm), busy.clone())).collect();
        let mut world = World::new(policy, 4, vcpus);
        world.run_until(secs(10));
        assert_eq!(world.dispatcher.violation_count(), 0, "{policy}");
        for vcpu in world.ids() {
            // Six that want 0.7 of a core each, on four cores.
            let share = world.share(vcpu.0);
            assert!(share > least, "{policy}: {share}");
        }
    }
}
