//! The guest kernel.
//!
//! Built for the bare machine by `vmm/build.rs`, which sets `--cfg=guest`. In an ordinary build this
//! is an empty program, so that the usual tools treat the crate as any other.

#![cfg_attr(guest, no_std, no_main)]

#[cfg(guest)]
mod kernel;

#[cfg(not(guest))]
fn main() {}
