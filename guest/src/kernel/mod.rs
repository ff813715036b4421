//! The kernel: ring 0 for entry, interrupts, faults and the halt; ring 3 for everything else.
//!
//! Ring 0 is assembly ([`entry`]), a few instructions for each event: some KVMs run it natively, some
//! interpret it. Ring 3 first does what the host commands ([`commands`]), then carries out its
//! program ([`program`]). It reaches the host by calls ([`call`]) and ring 0 by undefined
//! instructions at known addresses.

#![expect(
    unsafe_code,
    reason = "a kernel: instructions, addresses that the host gives, no allocator"
)]
#![expect(
    clippy::cast_possible_truncation,
    reason = "the only target has 64-bit addresses"
)]

mod call;
mod clock;
mod commands;
mod entry;
mod locks;
mod memory;
mod misdeed;
mod program;
mod work;

use core::panic::PanicInfo;
use core::sync::atomic::Ordering;
use stealtime_guest::call::Refusal;
use stealtime_guest::layout;
use stealtime_guest::page::{Page, VERSION};

/// Where ring 3 begins: [`entry`] comes here with the vCPU's shared page.
#[unsafe(no_mangle)]
extern "C" fn user_main(page: &'static Page) -> ! {
    let version = page.version.load(Ordering::Relaxed);
    if version != VERSION {
        call::refuse(page, Refusal::Protocol(version));
    }
    commands::until_start(page);
    program::run(page)
}

/// The shared page of the vCPU that this runs on, found by its stack.
fn own_page() -> &'static Page {
    let here = 0u8;
    let offset = core::ptr::from_ref(&here).addr() as u64 - layout::BLOCKS;
    let block = layout::BLOCKS + offset / layout::BLOCK * layout::BLOCK;
    // SAFETY: ring 3 always runs on the stack in its vCPU's block, whose shared page the host mapped
    // for as long as the guest exists; all its fields are atomics.
    unsafe { &*core::ptr::with_exposed_provenance::<Page>((block + layout::SHARED) as usize) }
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    let line = info.location().map_or(0, |location| location.line());
    call::refuse(own_page(), Refusal::Panic(line))
}
