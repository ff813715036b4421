//! Scheduling policies and the dispatcher that drives them: pure, without clock, thread or I/O.
//!
//! A driver (the KVM VMM or the simulator) tells the [`dispatcher::Dispatcher`] what happened and
//! when, as an [`input::Input`]; the dispatcher asks its [`policy::Policy`] for decisions, checks
//! them, and answers with [`effect::Effect`]s to carry out and [`event::Event`]s for those who
//! measure. Hence the same policy code runs on real KVM and in virtual time, and a recorded run can
//! be replayed.

pub mod dispatcher;
pub mod effect;
pub mod event;
pub mod heap;
pub mod ids;
pub mod input;
pub mod layers;
pub mod policies;
pub mod policy;
#[cfg(test)]
mod properties;
pub mod queue;
pub mod record;
pub mod registry;
pub mod spec;
#[cfg(test)]
pub(crate) mod testing;
pub mod time;

/// The example of `docs/writing-a-policy.md`, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../docs/writing-a-policy.md")]
mod writing_a_policy {}
