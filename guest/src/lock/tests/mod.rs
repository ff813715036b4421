//! Tests of the locks: step by step in all kinds of orders ([`model`]), and with real threads ([`threads`]).

mod barrier;
mod channel;
mod every_kind;
mod memory;
mod model;
mod mutex;
mod pv;
mod rwlock;
mod threads;
mod ticket;

use super::{Kind, State};

/// Those that one vCPU at a time can have.
const LOCKS: [Kind; 8] = [
    Kind::TestAndSet,
    Kind::Ticket,
    Kind::Mcs,
    Kind::Mutex,
    Kind::MutexHandOff,
    Kind::PreemptableTicket,
    Kind::Pv,
    Kind::ReadWrite,
];

#[test]
fn the_published_state_survives_its_word() {
    for waits_for in [None, Some(0), Some(u16::MAX)] {
        let state = State {
            held: 3,
            critical: 65_535,
            waits_for,
        };
        assert_eq!(State::decode(state.encode()), state);
    }
}

#[test]
fn every_kind_is_found_by_its_number() {
    for kind in Kind::ALL {
        assert_eq!(Kind::from_number(kind as u32), Some(kind));
    }
    assert_eq!(Kind::from_number(99), None);
}
