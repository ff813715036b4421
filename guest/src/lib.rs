//! What guest and host agree on: programs, their interpreter, the shared page, the calls.
//!
//! `no_std`, no dependencies, no unsafe: the same code is compiled into the guest kernel, the VMM and
//! the simulator. In particular [`interp::Interpreter`] decides what a program does next for the
//! guest (which then does it) and for the simulator (which then lets virtual time pass).

#![cfg_attr(not(test), no_std)]

pub mod call;
pub mod gap;
pub mod hist;
pub mod interp;
pub mod layout;
pub mod lock;
pub mod op;
pub mod page;
pub mod rng;
