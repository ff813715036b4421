//! What the simulator claims, each claim a test.

mod conserve;
mod determinism;
mod endings;
mod guest_locks;
mod interrupts;
mod ledger;
mod plans;
mod policies;
mod round_robin;
mod work;
