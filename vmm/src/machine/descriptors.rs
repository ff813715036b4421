//! The processor's tables: global descriptors, interrupt gates, task state.
//!
//! Pure: each function yields the bytes that [`super::memory`] writes. Formats: Intel SDM volume 3,
//! 3.4.5 (segments), 7.2.3 and 7.7 (task state in 64-bit mode), 6.14.1 (gates); 19.5.2 of volume 1
//! (I/O permission bitmap).

use stealtime_guest::call::{FIRST_PORT, LAST_PORT};
use stealtime_guest::layout::{
    EXCEPTION_ENTRIES, EXCEPTION_ENTRY_SIZE, FIRST_INTERRUPT, GDT_SIZE, INTERRUPT_ENTRY,
    IST_DOUBLE_FAULT, IST_EXCEPTION, IST_HALT, IST_INTERRUPT, KERNEL_CODE, KERNEL_DATA, STACK_TOPS,
    TASK, TSS, UNDEFINED_ENTRY, USER_CODE, USER_DATA,
};

/// Length of the task state without the bitmap.
const TASK_STATE: usize = 0x68;

/// Length of the bitmap: a bit for each port up to the last, and the byte of ones that must follow.
const BITMAP: usize = LAST_PORT as usize / 8 + 2;

/// Length of the task state segment.
pub(super) const TSS_SIZE: usize = TASK_STATE + BITMAP;

/// Entries of the global descriptor table.
const GDT_ENTRIES: usize = 9;

const _: () = assert!(GDT_ENTRIES as u64 * 8 == GDT_SIZE);
// At least half a kibibyte is left to the first stack.
const _: () = assert!(TSS + TSS_SIZE as u64 + 0x200 < STACK_TOPS[0]);

/// Vector of undefined instructions.
const UNDEFINED: u8 = 6;
/// Vector of double faults.
const DOUBLE_FAULT: u8 = 8;

/// The global descriptor table of the vCPU with this control page.
pub(super) fn gdt(control: u64) -> [u64; GDT_ENTRIES] {
    const CODE: u64 = 0x00af_9b00_0000_ffff;
    const DATA: u64 = 0x00cf_9300_0000_ffff;
    const RING_3: u64 = 3 << 45;
    let mut table = [0; GDT_ENTRIES];
    let mut set = |selector: u16, descriptor| table[usize::from(selector / 8)] = descriptor;
    set(KERNEL_CODE, CODE);
    set(KERNEL_DATA, DATA);
    set(USER_CODE, CODE | RING_3);
    set(USER_DATA, DATA | RING_3);
    // A busy 64-bit task state segment: two slots, the upper with the base's upper half.
    let (base, limit) = (control + TSS, TSS_SIZE as u64 - 1);
    let low = limit | (base & 0xff_ffff) << 16 | 0x8b << 40 | (base >> 24 & 0xff) << 56;
    set(TASK, low);
    set(TASK + 8, base >> 32);
    table
}

/// The task state segment of the vCPU with this control page.
pub(super) fn tss(control: u64) -> [u8; TSS_SIZE] {
    let mut segment = [0; TSS_SIZE];
    let mut stack = |at: usize, top: u64| {
        segment[at..at + 8].copy_from_slice(&(control + top).to_le_bytes());
    };
    // Ring 0's stack, for a KVM that would not use the interrupt stack table.
    stack(4, STACK_TOPS[0]);
    for (index, top) in STACK_TOPS.into_iter().enumerate() {
        stack(0x24 + index * 8, top);
    }
    let bitmap_at = u16::try_from(TASK_STATE).unwrap_or(u16::MAX);
    segment[0x66..0x68].copy_from_slice(&bitmap_at.to_le_bytes());
    // A bit of 1 forbids.
    let bitmap = &mut segment[TASK_STATE..];
    bitmap.fill(0xff);
    for port in FIRST_PORT..=LAST_PORT {
        bitmap[usize::from(port / 8)] &= !(1 << (port % 8));
    }
    segment
}

/// The interrupt descriptor table, for all vCPUs.
pub(super) fn idt() -> Vec<[u64; 2]> {
    (0..=u8::MAX).map(gate).collect()
}

/// An interrupt gate: ring 0 only by event, with interrupts off.
fn gate(vector: u8) -> [u64; 2] {
    let (entry, stack) = match vector {
        UNDEFINED => (UNDEFINED_ENTRY, IST_HALT),
        DOUBLE_FAULT => (exception_entry(vector), IST_DOUBLE_FAULT),
        FIRST_INTERRUPT.. => (INTERRUPT_ENTRY, IST_INTERRUPT),
        _ => (exception_entry(vector), IST_EXCEPTION),
    };
    let low = entry & 0xffff
        | u64::from(KERNEL_CODE) << 16
        | u64::from(stack) << 32
        | 0x8e << 40
        | (entry >> 16 & 0xffff) << 48;
    [low, entry >> 32]
}

fn exception_entry(vector: u8) -> u64 {
    EXCEPTION_ENTRIES + u64::from(vector) * EXCEPTION_ENTRY_SIZE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(gate: [u64; 2]) -> u64 {
        gate[0] & 0xffff | (gate[0] >> 48) << 16 | gate[1] << 32
    }

    #[test]
    fn every_vector_has_a_gate_with_an_interrupt_stack_that_ring_3_cannot_call() {
        let table = idt();
        assert_eq!(table.len(), 256);
        for gate in &table {
            assert!((1..=4).contains(&(gate[0] >> 32 & 7)));
            assert_eq!(
                gate[0] >> 40 & 0xff,
                0x8e,
                "present, ring 0, interrupt gate"
            );
        }
        assert_eq!(entry(table[6]), UNDEFINED_ENTRY);
        assert_eq!(entry(table[14]), EXCEPTION_ENTRIES + 14 * 16);
        assert_eq!(entry(table[0x20]), INTERRUPT_ENTRY);
        assert_eq!(entry(table[0xff]), INTERRUPT_ENTRY);
    }

    #[test]
    fn the_bitmap_opens_the_ports_of_calls_and_no_others() {
        let segment = tss(0x30_000);
        let forbidden =
            |port: u16| segment[TASK_STATE + usize::from(port / 8)] >> (port % 8) & 1 == 1;
        for port in FIRST_PORT - 40..FIRST_PORT {
            assert!(forbidden(port), "{port:#x}");
        }
        for port in FIRST_PORT..=LAST_PORT {
            assert!(!forbidden(port), "{port:#x}");
        }
        assert_eq!(segment[TSS_SIZE - 1], 0xff);
    }

    #[test]
    fn the_task_descriptor_points_at_the_task_state() {
        let table = gdt(0x1_2345_6000);
        let (low, high) = (
            table[usize::from(TASK / 8)],
            table[usize::from(TASK / 8) + 1],
        );
        let base = low >> 16 & 0xff_ffff | (low >> 56) << 24 | high << 32;
        assert_eq!(base, 0x1_2345_6000 + TSS);
        assert_eq!(low & 0xffff, TSS_SIZE as u64 - 1);
    }
}
