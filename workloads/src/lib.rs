//! Scenarios: what the guests do, and under which conditions.
//!
//! [`scenario::Scenario`] reads a scenario file and makes the [`run::Plan`] that a backend runs.

mod op_form;
pub mod run;
pub mod scenario;
