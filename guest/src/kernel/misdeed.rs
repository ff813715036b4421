//! Faults on purpose. Each is really committed; how the VM ends is the host's affair.

use super::{call, entry};
use core::arch::asm;
use stealtime_guest::call::UNUSED_PORT;
use stealtime_guest::op::Misdeed;

/// An address that nothing is mapped at in any guest.
const NOWHERE: usize = 0x70_0000_0000;

pub(super) fn commit(misdeed: Misdeed) {
    match misdeed {
        Misdeed::TripleFault => entry::fault_thrice(),
        Misdeed::BadPort => call::write_port(UNUSED_PORT),
        Misdeed::BadMemory => {
            let nowhere = core::ptr::without_provenance::<u64>(NOWHERE);
            // SAFETY: faults, and ring 0 does not return: no value is ever read.
            let _ = unsafe { nowhere.read_volatile() };
        }
        Misdeed::BadInstruction => {
            // SAFETY: faults at an address where ring 0 expects no undefined instruction.
            unsafe { asm!("ud2", options(nomem, nostack)) };
        }
    }
}
