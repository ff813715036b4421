//! What is left of the turn of a vCPU that comes to wait for a lock.

use super::{A, B, C, CORE};
use crate::dispatcher::{Config, Dispatcher, Output};
use crate::effect::Effect;
use crate::ids::{GuestLockId, VcpuId, VmId};
use crate::input::{GuestLocks, Input, Timer};
use crate::testing::{Step, World, first_then, ms, plain, secs, spin, us};
use crate::time::Nanos;

const LOCK: GuestLockId = GuestLockId::new(VmId(0), 0);

/// A owns the lock and waits its turn; B comes to wait for it so long after it has entered, and has been asked
/// for the core meanwhile if its slice of 10 ms was over; C waits its turn. The answer is who is next.
fn next_after(policy: &str, waits_after: Nanos) -> Option<VcpuId> {
    let config = Config {
        policy: policy.parse().expect("a policy"),
        cores: 1,
        host_locks: 0,
        vcpus: vec![plain(0); 3],
    };
    let mut dispatcher = Dispatcher::new(&config).expect("understood");
    let mut out = Output::default();
    let mut tell = |at, input| {
        out.clear();
        dispatcher.handle(at, input, &mut out);
        out.effects.iter().rev().find_map(|effect| match effect {
            Effect::Run { vcpu, .. } => Some(*vcpu),
            _ => None,
        })
    };
    for vcpu in [A, B, C] {
        tell(Nanos::ZERO, Input::Admit { vcpu });
    }
    let core = CORE;
    let timer = Timer::Slice(CORE);
    tell(Nanos::ZERO, Input::Entered { core, vcpu: A });
    tell(ms(10), Input::TimerDue { timer });
    assert_eq!(tell(ms(10), Input::Stopped { core, vcpu: A }), Some(B));
    tell(ms(10), Input::Entered { core, vcpu: B });
    let at = ms(10) + waits_after;
    tell(at, Input::TimerDue { timer });
    let locks = GuestLocks {
        waits_for: Some(LOCK),
        ..GuestLocks::default()
    };
    tell(at, Input::Locks { vcpu: B, locks });
    let owner = Some(A);
    tell(at, Input::GuestOwner { lock: LOCK, owner });
    let vcpu = B;
    tell(at + us(1), Input::GuestWait { vcpu, lock: LOCK })
}

#[test]
fn a_waiter_whose_core_is_wanted_lends_nothing() {
    for layer in ["proxy", "relay"] {
        let policy = format!("rr:quantum=10ms+{layer}");
        assert_eq!(next_after(&policy, ms(9)), Some(A), "{layer}: its rest");
        assert_eq!(next_after(&policy, ms(10)), Some(C), "{layer}");
    }
}

/// Found among random graphs of locks: who waited in its grace lent a turn without an end.
#[test]
fn a_waiter_that_has_its_core_by_grace_lends_nothing() {
    let owner = [Step::GuestLock(0), Step::Run(secs(100))];
    let waiter = [
        Step::Run(ms(10) - us(50)),
        Step::GuestLock(2),
        Step::Run(us(100)),
        Step::GuestLock(0),
    ];
    for layers in ["delay+proxy", "delay+relay", "hint+proxy", "hint+relay"] {
        let scripts = [first_then(&owner, &[]), first_then(&waiter, &[]), spin()];
        let vcpus = scripts.map(|script| (plain(0), script)).to_vec();
        let mut world = World::new(&format!("rr:quantum=10ms+{layers}"), 1, vcpus);
        world.run_until(secs(1));
        let hog = world.share(2);
        assert!((0.25..0.4).contains(&hog), "{layers}: the hog has {hog}");
    }
}
