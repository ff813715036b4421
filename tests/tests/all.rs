//! The program as its users meet it: every test starts `stealtime` and looks at what comes out.
//!
//! A topic a module. Every child process has a time limit. Tests that need `/dev/kvm` say loudly
//! when they are skipped, and are skipped only where the device is missing or not accessible.

mod cli_errors;
mod doctor;
mod engine;
mod events;
mod explain;
mod golden;
mod kept;
mod kvm_runs;
mod lab;
mod machine;
mod reproduce;
mod sim_runs;
mod suite;
mod support;
