//! Scenarios: what the guests do, and under which conditions.

pub mod run;
