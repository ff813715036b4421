//! What the simulator claims, each claim a test.

mod conserve;
mod costs_vary;
mod determinism;
mod directed_yields;
mod endings;
mod guest_locks;
mod heaviest_waiter;
mod interference;
mod interrupts;
mod late_timers;
mod ledger;
mod lock_graphs;
mod own_policy;
mod plans;
mod policies;
mod replayed;
mod round_robin;
mod scenarios;
mod shared_core;
mod unknown_owners;
mod work;
