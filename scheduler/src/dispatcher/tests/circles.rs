//! Circles of waits are told of, once each, and only where there are some.

use super::{A, B, C};
use crate::dispatcher::{Config, Dispatcher, Output};
use crate::event::{Event, EventKind};
use crate::ids::{CoreId, GuestLockId, VcpuId, VmId};
use crate::input::{GuestLocks, Input};
use crate::testing::{Script, Step, World, first_then, ms, plain, us};
use crate::time::Nanos;

/// Who is said to be in a circle, each with whom it waits for.
fn told(events: &[Event]) -> Vec<(u32, u32)> {
    let deadlock = |event: &Event| match event.kind {
        EventKind::Deadlock { owner } => Some((event.vcpu.0, owner.0)),
        _ => None,
    };
    events.iter().filter_map(deadlock).collect()
}

/// Two that take these locks, each in another order. Even locks are slept for, odd ones spun for.
fn crosswise(one: u16, other: u16) -> [Script; 2] {
    [[one, other], [other, one]].map(|[first, second]| {
        let steps = [
            Step::GuestLock(first),
            Step::Run(ms(1)),
            Step::GuestLock(second),
        ];
        first_then(&steps, &[Step::Run(ms(1))])
    })
}

#[test]
fn two_that_wait_for_each_other_are_reported_with_their_circle() {
    for policy in ["rr:quantum=1ms", "eevdf+proxy", "eevdf+pi"] {
        let vcpus = crosswise(0, 2).map(|script| (plain(0), script));
        let mut world = World::new(policy, 2, vcpus.to_vec());
        world.run_until(ms(50));
        assert_eq!(told(&world.events), [(0, 1), (1, 0)], "{policy}");
    }
}

/// Each look finds one of two circles: the other one is not forgotten for that.
#[test]
fn two_circles_of_spinners_at_a_time_are_both_reported() {
    for policy in ["rr:quantum=1ms", "eevdf+proxy", "eevdf+pi"] {
        let scripts = crosswise(1, 3).into_iter().chain(crosswise(5, 7));
        let vcpus = scripts.map(|script| (plain(0), script));
        let mut world = World::new(policy, 4, vcpus.collect());
        world.run_until(ms(50));
        let told = told(&world.events);
        assert_eq!(told, [(0, 1), (1, 0), (2, 3), (3, 2)], "{policy}");
    }
}

const FIRST: GuestLockId = GuestLockId::new(VmId(0), 0);
const SECOND: GuestLockId = GuestLockId::new(VmId(0), 1);

/// Three vCPUs of a VM, each on a core of its own.
struct Trio {
    dispatcher: Dispatcher,
    out: Output,
}

impl Trio {
    fn running(policy: &str) -> Self {
        let config = Config {
            policy: policy.parse().expect("a policy"),
            cores: 3,
            host_locks: 0,
            vcpus: vec![plain(0); 3],
        };
        let mut trio = Self {
            dispatcher: Dispatcher::new(&config).expect("understood"),
            out: Output::default(),
        };
        for (vcpu, core) in [(A, 0), (B, 1), (C, 2)] {
            let core = CoreId(core);
            trio.tell(Nanos::ZERO, Input::Admit { vcpu });
            trio.tell(Nanos::ZERO, Input::Entered { core, vcpu });
        }
        trio
    }

    fn tell(&mut self, at: Nanos, input: Input) {
        self.dispatcher.handle(at, input, &mut self.out);
    }

    fn says(&mut self, at: Nanos, vcpu: VcpuId, held: u16, waits_for: Option<GuestLockId>) {
        let locks = GuestLocks {
            held,
            critical: 0,
            waits_for,
            in_line: false,
        };
        self.tell(at, Input::Locks { vcpu, locks });
    }

    fn owner(&mut self, at: Nanos, lock: GuestLockId, owner: VcpuId) {
        let owner = Some(owner);
        self.tell(at, Input::GuestOwner { lock, owner });
    }
}

/// Found among random graphs of locks. B asks for sleep until it has the second lock, and is given it before
/// the call arrives. So it is never known to wait for it, and what was told last of that lock, that A owns it,
/// is long past.
#[test]
fn who_was_given_its_lock_on_the_way_to_sleep_waits_for_nobody() {
    for layer in ["pi", "proxy", "relay"] {
        let mut trio = Trio::running(&format!("eevdf+delay+{layer}"));
        trio.says(us(1), A, 1, None);
        trio.says(us(1), C, 0, Some(SECOND));
        trio.owner(us(1), SECOND, A);
        // Nobody is left that waits for the second lock: who owns it is not told.
        trio.says(us(2), A, 0, None);
        trio.says(us(2), C, 1, None);
        // B has taken the first lock; A comes to want it.
        trio.says(us(3), B, 1, None);
        trio.says(us(3), A, 0, Some(FIRST));
        trio.owner(us(3), FIRST, B);
        let (vcpu, lock) = (A, FIRST);
        trio.tell(us(4), Input::GuestWait { vcpu, lock });
        // C gives the second lock to B, which is about to call.
        trio.says(us(5), C, 0, None);
        trio.says(us(5), B, 2, None);
        let (vcpu, lock) = (B, SECOND);
        trio.tell(us(5), Input::GuestWait { vcpu, lock });
        assert_eq!(told(&trio.out.events), [], "{layer}");
    }
}

/// Words read one after the other show a circle, and 30 ms later again. Between them they have shown that there
/// was none.
#[test]
fn a_circle_of_spinners_that_was_not_there_between_two_looks_is_none() {
    let mut trio = Trio::running("eevdf+proxy");
    let mut looks = |from: Nanos| {
        trio.says(from, A, 1, Some(SECOND));
        trio.says(from, B, 1, Some(FIRST));
        trio.owner(from, FIRST, A);
        trio.owner(from, SECOND, B);
        let (vcpu, lock) = (A, SECOND);
        trio.tell(from, Input::SpunTooLong { vcpu, lock });
        trio.says(from + us(1), A, 2, None);
        told(&trio.out.events)
    };
    assert_eq!(looks(ms(1)), []);
    assert_eq!(looks(ms(31)), []);
}

#[test]
fn a_circle_of_spinners_that_is_found_again_is_one() {
    let mut trio = Trio::running("eevdf+proxy");
    trio.says(ms(1), A, 1, Some(SECOND));
    trio.says(ms(1), B, 1, Some(FIRST));
    trio.owner(ms(1), FIRST, A);
    trio.owner(ms(1), SECOND, B);
    let (vcpu, lock) = (A, SECOND);
    trio.tell(ms(1), Input::SpunTooLong { vcpu, lock });
    trio.tell(ms(20), Input::SpunTooLong { vcpu, lock });
    assert_eq!(told(&trio.out.events), [], "it may be a trick");
    trio.tell(ms(21), Input::SpunTooLong { vcpu, lock });
    assert_eq!(told(&trio.out.events), [(0, 1), (1, 0)]);
}
