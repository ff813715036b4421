//! What the layers that put preemptions off, and those that yield, do.

use crate::dispatcher::{Config, Dispatcher, Output};
use crate::effect::Effect;
use crate::event::{EventKind, PreemptReason, Until};
use crate::ids::{CoreId, GuestLockId, VcpuId, VmId};
use crate::input::{ExitReason, GuestLocks, Input, Timer};
use crate::layers::LAYERS;
use crate::testing::{Step, World, first_then, ms, plain, repeat, secs, spin, us};
use crate::time::Nanos;

const CORE: CoreId = CoreId(0);

/// A vCPU that holds a lock for the time given, begun so long before its slice of 10 ms ends, and
/// one that wants the core.
fn holder(policy: &str, before_the_end: Nanos, held: Nanos) -> World {
    let holder = first_then(
        &[
            Step::Run(ms(10) - before_the_end),
            Step::GuestLock(1),
            Step::Run(held),
            Step::GuestUnlock(1),
        ],
        &[Step::Run(secs(100))],
    );
    World::new(policy, 1, vec![(plain(0), holder), (plain(0), spin())])
}

/// When a vCPU was preempted, and whether it held a lock then.
fn preemptions(world: &World, vcpu: u32) -> Vec<(Nanos, u16)> {
    let mut held = 0;
    let mut all = Vec::new();
    for event in world.events.iter().filter(|event| event.vcpu.0 == vcpu) {
        match event.kind {
            EventKind::Locks { held: now, .. } => held = now,
            EventKind::Preempted(..) => all.push((event.at, held)),
            _ => {}
        }
    }
    all
}

#[test]
fn a_preemption_waits_for_the_unlock_and_comes_at_that_instant() {
    let mut bare = holder("rr:quantum=10ms", us(80), us(100));
    bare.run_until(ms(30));
    assert_eq!(preemptions(&bare, 0)[0], (ms(10), 1), "in the midst of it");
    let mut world = holder("rr:quantum=10ms+delay", us(80), us(100));
    world.run_until(ms(30));
    assert_eq!(preemptions(&world, 0)[0], (ms(10) + us(20), 0));
    let why = PreemptReason::SliceEnd;
    let owed = EventKind::Owed(CORE, why, Until::CriticalExit);
    assert!(world.events.iter().any(|event| event.kind == owed));
}

#[test]
fn a_preemption_waits_no_longer_than_the_limit() {
    let mut world = holder("rr:quantum=10ms+delay", us(80), ms(5));
    world.run_until(ms(30));
    assert_eq!(preemptions(&world, 0)[0], (ms(11), 1));
}

#[test]
fn one_that_is_left_on_its_core_after_all_is_in_its_guest_again() {
    let config = Config {
        policy: "rr:quantum=10ms+delay".parse().expect("a policy"),
        cores: 1,
        host_locks: 0,
        vcpus: vec![plain(0); 2],
    };
    let mut dispatcher = Dispatcher::new(&config).expect("in order");
    let mut out = Output::default();
    let [vcpu, other] = [VcpuId(0), VcpuId(1)];
    let locks = GuestLocks {
        held: 1,
        ..GuestLocks::default()
    };
    let inputs = [
        (Nanos::ZERO, Input::Admit { vcpu }),
        (Nanos::ZERO, Input::Admit { vcpu: other }),
        (Nanos::ZERO, Input::Entered { core: CORE, vcpu }),
        (
            ms(10),
            Input::TimerDue {
                timer: Timer::Slice(CORE),
            },
        ),
        // It was safe when its core was asked back. It takes a lock before the kick is there.
        (ms(10) + us(1), Input::Locks { vcpu, locks }),
        (
            ms(10) + us(2),
            Input::Exited {
                vcpu,
                why: ExitReason::Kick,
            },
        ),
        (ms(10) + us(3), Input::Stopped { core: CORE, vcpu }),
        (ms(10) + us(4), Input::Entered { core: CORE, vcpu }),
    ];
    for (at, input) in inputs {
        out.clear();
        dispatcher.handle(at, input, &mut out);
        let given = out.effects.contains(&Effect::Run { core: CORE, vcpu });
        let first = at == Nanos::ZERO && input == Input::Admit { vcpu };
        assert_eq!(given, first || matches!(input, Input::Stopped { .. }));
    }
    let last: Vec<_> = out.events.iter().map(|event| event.kind).collect();
    assert_eq!(last, [EventKind::Resumed]);
}

/// Four vCPUs on two cores: the first is on core 0, the second on core 1 and waits for a guest lock of the
/// owner given; then its slice ends.
struct InLine {
    dispatcher: Dispatcher,
    out: Output,
    now: Nanos,
}

impl InLine {
    const OTHER: CoreId = CoreId(1);

    fn new(policy: &str, owner: u32, in_line: bool) -> Self {
        let config = Config {
            policy: policy.parse().expect("a policy"),
            cores: 2,
            host_locks: 0,
            vcpus: vec![plain(0); 4],
        };
        let dispatcher = Dispatcher::new(&config).expect("in order");
        let out = Output::default();
        let now = Nanos::ZERO;
        let mut this = Self {
            dispatcher,
            out,
            now,
        };
        let lock = GuestLockId::new(VmId(0), 0);
        for vcpu in [0, 1, 2, 3].map(VcpuId) {
            this.tell(Input::Admit { vcpu });
        }
        for (core, vcpu) in [(CORE, VcpuId(0)), (Self::OTHER, VcpuId(1))] {
            this.tell(Input::Entered { core, vcpu });
        }
        let held = GuestLocks {
            held: 1,
            ..GuestLocks::default()
        };
        this.locks(owner, held);
        let waits = GuestLocks {
            waits_for: Some(lock),
            in_line,
            ..GuestLocks::default()
        };
        this.locks(1, waits);
        let owner = Some(VcpuId(owner));
        this.tell(Input::GuestOwner { lock, owner });
        this.now = ms(10);
        let timer = Timer::Slice(Self::OTHER);
        this.tell(Input::TimerDue { timer });
        this
    }

    fn locks(&mut self, vcpu: u32, locks: GuestLocks) {
        let vcpu = VcpuId(vcpu);
        self.tell(Input::Locks { vcpu, locks });
    }

    fn tell(&mut self, input: Input) {
        self.out.clear();
        self.dispatcher.handle(self.now, input, &mut self.out);
    }

    /// Whether what was told last costs the waiter its core.
    fn kicked(&self) -> bool {
        let kick = |effect: &Effect| {
            matches!(
                effect,
                Effect::Kick {
                    vcpu: VcpuId(1),
                    ..
                }
            )
        };
        self.out.effects.iter().any(kick)
    }
}

#[test]
fn a_waiter_in_line_keeps_its_core_until_it_has_had_the_lock() {
    let mut world = InLine::new("rr:quantum=10ms+delay", 0, true);
    assert!(!world.kicked());
    // It announced the lock before it knew that it had to wait, and takes that for the end of a section.
    world.tell(Input::CriticalLeft { vcpu: VcpuId(1) });
    assert!(!world.kicked(), "it has not had it yet");
    world.locks(1, GuestLocks::default());
    world.tell(Input::CriticalLeft { vcpu: VcpuId(1) });
    assert!(world.kicked());
}

#[test]
fn a_waiter_is_preempted_in_a_line_that_stands_and_where_it_can_be_passed() {
    let policy = "rr:quantum=10ms+delay";
    assert!(
        InLine::new(policy, 2, true).kicked(),
        "the first is off core"
    );
    assert!(InLine::new(policy, 0, false).kicked(), "not in line");
    let owners_only = "rr:quantum=10ms+delay:line=off";
    assert!(InLine::new(owners_only, 0, true).kicked());
    assert!(InLine::new("rr:quantum=10ms+hint", 0, true).kicked());
}

#[test]
fn leaving_an_inner_lock_does_not_yield() {
    let nested = first_then(
        &[
            Step::Run(ms(10) - us(50)),
            Step::GuestLock(1),
            Step::GuestLock(3),
            Step::Run(us(100)),
            Step::GuestUnlock(3),
            Step::Run(us(100)),
            Step::GuestUnlock(1),
        ],
        &[Step::Run(secs(100))],
    );
    let vcpus = vec![(plain(0), nested), (plain(0), spin())];
    let mut world = World::new("rr:quantum=10ms+delay", 1, vcpus);
    world.run_until(ms(30));
    assert_eq!(preemptions(&world, 0)[0], (ms(10) + us(150), 0));
}

#[test]
fn what_was_had_beyond_the_slice_is_taken_off_the_next() {
    for (repay, second) in [("on", ms(9)), ("off", ms(10))] {
        let policy = format!("rr:quantum=10ms+delay:repay={repay}");
        let mut world = holder(&policy, us(80), ms(5));
        world.run_until(ms(60));
        let entered = world.switches(0).into_iter().filter(|(_, vcpu)| *vcpu == 0);
        let (again, _) = entered.clone().nth(1).expect("its second turn");
        let left = preemptions(&world, 0)[1].0;
        assert_eq!(left - again, second, "repay={repay}");
    }
}

#[test]
fn an_extra_turn_is_taken_whole_and_only_once() {
    let mut world = holder("rr:quantum=10ms+hint:extra=2ms", us(80), us(100));
    world.run_until(ms(30));
    assert_eq!(
        preemptions(&world, 0)[0],
        (ms(12), 0),
        "the section is long over"
    );
    let always = repeat(&[Step::GuestLock(1), Step::Run(ms(1)), Step::GuestUnlock(1)]);
    let vcpus = vec![(plain(0), always), (plain(0), spin())];
    let mut world = World::new("rr:quantum=10ms+hint:extra=2ms", 1, vcpus);
    world.run_until(ms(100));
    for (at, _) in preemptions(&world, 0) {
        assert_eq!(at.0 % 22_000_000, 12_000_000, "once each turn");
    }
}

#[test]
fn a_holder_that_never_releases_takes_no_more_than_its_share_and_the_grace() {
    let holder = first_then(&[Step::GuestLock(1)], &[Step::Run(secs(100))]);
    for info in LAYERS {
        for policy in ["rr:quantum=10ms", "eevdf", "stride", "cfs"] {
            let policy = format!("{policy}+{}", info.name);
            let vcpus = vec![
                (plain(0), holder.clone()),
                (plain(0), spin()),
                (plain(0), spin()),
            ];
            let mut world = World::new(&policy, 1, vcpus);
            let mut before = Nanos::ZERO;
            world.run_until(ms(100));
            for window in 0..5 {
                world.run_until(ms(100) + secs(window));
                let had = world.ran(0) - before;
                before = world.ran(0);
                // A turn of the longest slice may fall on either side; `hint` adds 4 ms to each.
                let grace = if info.name == "hint" { ms(120) } else { ms(40) };
                let share = Nanos(1_000_000_000 / 3);
                assert!(
                    window == 0 || had <= share + grace,
                    "{policy}: {had} of a second"
                );
            }
        }
    }
}

#[test]
fn without_locks_every_layer_decides_as_the_bare_policy() {
    let vcpus = || {
        let busy = repeat(&[Step::Run(us(700)), Step::Sleep(us(300))]);
        let marked = repeat(&[Step::Run(ms(2)), Step::Yield, Step::HostWait(us(50))]);
        vec![
            (plain(0), spin()),
            (plain(0), busy),
            (plain(1), marked),
            (plain(1), spin()),
        ]
    };
    for policy in [
        "rr", "eevdf", "cfs", "fss", "ts", "credit", "credit2", "stride", "4bsd", "ule",
    ] {
        let mut bare = World::new(policy, 2, vcpus());
        bare.run_until(secs(1));
        for info in LAYERS {
            let mut world = World::new(&format!("{policy}+{}", info.name), 2, vcpus());
            world.run_until(secs(1));
            assert!(bare.effects == world.effects, "{policy}+{}", info.name);
        }
    }
}

#[test]
fn a_directed_yield_goes_to_the_preempted_holder_and_not_to_a_spinner() {
    let member = repeat(&[
        Step::Run(us(300)),
        Step::GuestLock(1),
        Step::Run(us(100)),
        Step::GuestUnlock(1),
    ]);
    let vcpus = (0..32).map(|_| (plain(0), member.clone())).collect();
    let mut world = World::new("eevdf+yieldto", 4, vcpus);
    world.run_until(secs(2));
    let mut held = [0; 32];
    let mut yields = 0;
    for event in &world.events {
        match event.kind {
            EventKind::Locks { held: now, .. } => held[event.vcpu.index()] = now,
            EventKind::YieldedTo(VcpuId(to)) => {
                yields += 1;
                assert!(
                    held[to as usize] > 0,
                    "at {}: to one that holds nothing",
                    event.at
                );
            }
            _ => {}
        }
    }
    assert!(yields > 10, "there was reason to yield: {yields}");
}
