//! Where things lie in a guest's memory. All addresses are guest-physical, and mapped one to one.
//!
//! ```text
//! 0x0_0000  nothing mapped: a null pointer faults
//! 0x0_1000  interrupt descriptor table, for all vCPUs
//! 0x1_0000  kernel: code and constants (execute, read)
//! 0x2_0000  kernel: data (read, write)
//! 0x3_0000  a block for each vCPU
//!           +0x0000  control page: descriptors, task state, ring-0 stacks (ring 0 only)
//!           +0x1000  shared page
//!           +0x2000  nothing mapped: a stack that overflows faults
//!           +0x3000  ring-3 stack
//! behind    guest locks, the vCPUs' nodes, programs, page tables: where, the host decides and says in the shared page
//! ```

/// Size of a page in bytes.
pub const PAGE: u64 = 0x1000;

/// The interrupt descriptor table.
pub const IDT: u64 = 0x1000;

/// Where the kernel's code and constants begin.
pub const TEXT: u64 = 0x1_0000;

/// Where the processor enters at an exception with vector 0; the others of 32 follow, each
/// [`EXCEPTION_ENTRY_SIZE`] bytes on.
pub const EXCEPTION_ENTRIES: u64 = TEXT;

/// Distance of two exception entries in bytes.
pub const EXCEPTION_ENTRY_SIZE: u64 = 16;

/// Where the processor enters at an interrupt.
pub const INTERRUPT_ENTRY: u64 = TEXT + 32 * EXCEPTION_ENTRY_SIZE;

/// Where the processor enters at an undefined instruction.
pub const UNDEFINED_ENTRY: u64 = INTERRUPT_ENTRY + 0x40;

/// Where the kernel's data begins, and its code and constants end at the latest.
pub const DATA: u64 = 0x2_0000;

/// Where the kernel's data ends at the latest.
pub const IMAGE_END: u64 = 0x2_1000;

/// The first vCPU's block.
pub const BLOCKS: u64 = 0x3_0000;

/// Size of a vCPU's block in bytes.
pub const BLOCK: u64 = 0x5000;

/// In a block: the shared page.
pub const SHARED: u64 = 0x1000;

/// In a block: the page below the stack, never mapped.
pub const GUARD: u64 = 0x2000;

/// In a block: the lowest byte of the ring-3 stack.
pub const STACK: u64 = 0x3000;

/// In a control page: the global descriptor table.
pub const GDT: u64 = 0;

/// Size of the global descriptor table in bytes.
pub const GDT_SIZE: u64 = 0x48;

/// In a control page: the task state segment, I/O permission bitmap included.
pub const TSS: u64 = 0x80;

/// In a control page: tops of the ring-0 stacks, one for each kind of entry, so that none can
/// destroy another's frame. In the order of the interrupt stack table, which counts from 1.
pub const STACK_TOPS: [u64; 4] = [0x600, 0x900, 0xc00, 0x1000];

/// Interrupt stack of undefined instructions, hence of the halt, and of the entry.
pub const IST_HALT: u8 = 1;

/// Interrupt stack of interrupts.
pub const IST_INTERRUPT: u8 = 2;

/// Interrupt stack of all other exceptions.
pub const IST_EXCEPTION: u8 = 3;

/// Interrupt stack of double faults.
pub const IST_DOUBLE_FAULT: u8 = 4;

/// Selector of ring-0 code.
pub const KERNEL_CODE: u16 = 0x08;

/// Selector of ring-0 data.
pub const KERNEL_DATA: u16 = 0x10;

/// Selector of ring-3 data.
pub const USER_DATA: u16 = 0x28 | 3;

/// Selector of ring-3 code.
pub const USER_CODE: u16 = 0x30 | 3;

/// Selector of the task state segment.
pub const TASK: u16 = 0x38;

/// Flags with which ring 3 starts: interrupts on, and I/O privilege for ring 3. A KVM may honour
/// either this or the I/O permission bitmap: the guest has both.
pub const USER_FLAGS: u64 = 0x3202;

/// The lowest vector of interrupts; below it are exceptions.
pub const FIRST_INTERRUPT: u8 = 32;

/// The block of vCPU `index` of its VM.
#[must_use]
pub const fn block(index: u32) -> u64 {
    BLOCKS + index as u64 * BLOCK
}

/// The shared page of vCPU `index` of its VM.
#[must_use]
pub const fn shared_page(index: u32) -> u64 {
    block(index) + SHARED
}

const _: () = assert!(GDT + GDT_SIZE <= TSS && TASK as u64 + 16 <= GDT_SIZE);
const _: () = assert!(TEXT < DATA && DATA < IMAGE_END && IMAGE_END <= BLOCKS);
const _: () = assert!(SHARED == PAGE && GUARD == SHARED + PAGE && STACK == GUARD + PAGE);
