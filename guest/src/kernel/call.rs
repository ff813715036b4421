//! Calls to the host.

use core::arch::asm;
use core::sync::atomic::Ordering;
use stealtime_guest::call::{Port, Refusal};
use stealtime_guest::page::Page;

/// Calls the host and comes back when it lets the guest run again.
pub(super) fn call(page: &Page, port: Port, a: u64, b: u64) {
    page.call_a.store(a, Ordering::Relaxed);
    page.call_b.store(b, Ordering::Relaxed);
    write_port(port as u16);
}

/// Writes to a port, whether or not a call uses it.
pub(super) fn write_port(port: u16) {
    // SAFETY: leaves the guest; the host changes no register. What it reads and writes in the shared
    // page are atomics. The compiler may keep nothing else across (no `nomem`).
    unsafe { asm!("out dx, al", in("dx") port, in("al") 0u8, options(nostack, preserves_flags)) };
}

/// Tells the host why the guest cannot go on. The host does not let it run again; if it did, it
/// would be told again.
pub(super) fn refuse(page: &Page, why: Refusal) -> ! {
    let (a, b) = why.encode();
    loop {
        call(page, Port::Refused, a, b);
    }
}
