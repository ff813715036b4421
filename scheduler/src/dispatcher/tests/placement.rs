//! What is told of who is queued where.

use super::chains::{cases, layered, member};
use super::{A, B, Desk, Manner};
use crate::dispatcher::{Dispatcher, Output, State};
use crate::event::{EventKind, Queues};
use crate::ids::{CoreId, VcpuId};
use crate::input::{BlockOn, Input};
use crate::testing::{World, ms, plain};
use crate::time::Nanos;
use proptest::prelude::*;

/// The cores named by what is told of a vCPU's placement.
fn placed(desk: &Desk, vcpu: VcpuId) -> Vec<CoreId> {
    let of_it = desk.out.events.iter().filter(|event| event.vcpu == vcpu);
    let core = |kind| match kind {
        EventKind::Placed(core) => Some(core),
        _ => None,
    };
    of_it.filter_map(|event| core(event.kind)).collect()
}

#[test]
fn a_place_is_told_once_and_not_again_while_it_is_the_same() {
    let mut desk = Desk::new(2, Manner::default());
    desk.tell(Nanos::ZERO, Input::Admit { vcpu: A });
    assert_eq!(placed(&desk, A), [CoreId(0)]);
    desk.enter(Nanos::ZERO, A);
    let on = BlockOn::Idle;
    desk.tell(ms(1), Input::Block { vcpu: A, on });
    let (to, vector, from) = (A, 33, None);
    desk.tell(ms(2), Input::Interrupt { to, vector, from });
    assert!(desk.out.events.iter().any(|event| event.vcpu == A));
    assert_eq!(placed(&desk, A), [], "it is where it was");
}

#[test]
fn a_place_on_another_core_than_its_last_is_told() {
    // The spy places everybody on core 0, and B has run on core 1.
    let mut desk = Desk::on_cores(2, 2, Manner::default());
    for vcpu in [A, B] {
        desk.tell(Nanos::ZERO, Input::Admit { vcpu });
    }
    let core = CoreId(1);
    desk.tell(Nanos::ZERO, Input::Entered { core, vcpu: B });
    let on = BlockOn::Idle;
    desk.tell(ms(1), Input::Block { vcpu: B, on });
    let (to, vector, from) = (B, 33, None);
    desk.tell(ms(2), Input::Interrupt { to, vector, from });
    assert_eq!(placed(&desk, B), [CoreId(0)]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: (cases() / 4).max(1), failure_persistence: None, ..ProptestConfig::default() })]

    /// The dispatcher's own books are compared after every input.
    #[test]
    fn events_tell_who_is_queued_on_which_core_at_every_instant(
        members in prop::collection::vec(member(), 2..=7),
        cores in 1u16..=3,
        policy in layered(),
    ) {
        let vcpus: Vec<_> = members.into_iter().map(|(_, script)| (plain(0), script)).collect();
        let config = World::config(&policy, cores, &vcpus);
        let mut world = World::new(&policy, cores, vcpus);
        world.run_until(ms(20));
        let mut dispatcher = Dispatcher::new(&config).expect("as before");
        let mut queues = Queues::new(config.vcpus.len(), usize::from(cores));
        let mut out = Output::default();
        for (at, input) in &world.inputs {
            out.clear();
            dispatcher.handle(*at, *input, &mut out);
            for event in &out.events {
                let news = |core| queues.of(event.vcpu) != Some(core);
                if let EventKind::Placed(core) = event.kind {
                    let asleep = dispatcher.vcpus[event.vcpu.index()].sleeps.is_some();
                    // Who becomes ready is taken to be queued at once; what is told then corrects it.
                    prop_assert!(asleep || news(core) , "{policy}: {event:?} says nothing");
                }
                queues.event(event);
            }
            for vcpu in world.ids() {
                let entry = &dispatcher.vcpus[vcpu.index()];
                let queued = entry.queued.filter(|_| entry.state == State::Ready);
                prop_assert_eq!(queues.of(vcpu), queued, "{}: {} at {} after {:?}", policy, vcpu, at, input);
            }
        }
    }
}
