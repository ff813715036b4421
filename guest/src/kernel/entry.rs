//! Ring 0: the only code there.
//!
//! Every entry has an interrupt stack of its own in the vCPU's control page, so the page below any
//! of its stack pointers is the control page, and the shared page is the next one.
//!
//! # The halt
//! Ring 3 executes the undefined instruction at `halt_here`, because some KVMs let ring 3 reach ring 0
//! only by interrupts and faults. The handler runs with interrupts off. It looks once more whether an
//! interrupt has come that ring 3 has not seen, and only if not, executes `sti; hlt`: interrupts are
//! held off until after the instruction that follows `sti`, so one that comes after the look ends the
//! halt. No wake-up is lost. A halt that ends without an interrupt is entered again.

use core::arch::global_asm;
use core::mem::offset_of;
use stealtime_guest::call::Port;
use stealtime_guest::layout;
use stealtime_guest::page::Page;

global_asm!(
    ".pushsection .text.entry, \"ax\"",
    // The host finds these by their addresses (`layout`); the assembler checks that each fits.
    // Other exceptions, 16 bytes for each of the 32 vectors: an error code if the processor pushed
    // none, then the vector.
    ".set vector, 0",
    ".rept 32",
    ".balign 16",
    ".if ((0x60227d00 >> vector) & 1) == 0",
    ".byte 0x6a, 0",
    ".endif",
    ".byte 0x6a, vector",
    "jmp exception",
    ".set vector, vector + 1",
    ".endr",
    // Interrupts: all vectors from 32. No interrupt controller, hence no end-of-interrupt.
    ".org {interrupt_entry} - {text}",
    "push rax",
    "push rcx",
    "push rdx",
    "mov rcx, rsp",
    "and rcx, -4096",
    "rdtsc",
    "mov dword ptr [rcx + {interrupt_tsc}], eax",
    "mov dword ptr [rcx + {interrupt_tsc} + 4], edx",
    "inc qword ptr [rcx + {interrupts}]",
    "pop rdx",
    "pop rcx",
    "pop rax",
    "iretq",
    // Undefined instructions. On the stack: rcx, rax, rip, cs, flags, rsp, ss.
    ".org {undefined_entry} - {text}",
    "push rax",
    "push rcx",
    "lea rcx, [rip + halt_here]",
    "cmp qword ptr [rsp + 16], rcx",
    "jne 4f",
    "mov rax, rsp",
    "and rax, -4096",
    "2:",
    "mov rcx, qword ptr [rax + {interrupts}]",
    "cmp rcx, qword ptr [rax + {seen}]",
    "jne 3f",
    "sti",
    "hlt",
    "cli",
    "jmp 2b",
    "3:",
    "add qword ptr [rsp + 16], 2",
    "pop rcx",
    "pop rax",
    "iretq",
    "4:",
    "lea rcx, [rip + triple_here]",
    "cmp qword ptr [rsp + 16], rcx",
    "jne 5f",
    // An empty descriptor table: the next exception cannot be delivered, nor the double fault that
    // this makes.
    "lidt [rip + empty_table]",
    "ud2",
    "5:",
    "pop rcx",
    "pop rax",
    "push 0",
    "push 6",
    "jmp exception",
    // The host starts a vCPU here, in ring 0, interrupts off. rdi: shared page; rsi: ring-3 stack.
    ".balign 16",
    ".global kernel_entry",
    "kernel_entry:",
    "push {user_data}",
    "push rsi",
    "push {user_flags}",
    "push {user_code}",
    "lea rax, [rip + user_entry]",
    "push rax",
    "iretq",
    // The first of ring 3.
    ".balign 16",
    "user_entry:",
    "xor ebp, ebp",
    "call user_main",
    "ud2",
    // Called by ring 3.
    ".global halt_until_interrupt",
    ".balign 16",
    "halt_until_interrupt:",
    "halt_here:",
    "ud2",
    "ret",
    // Called by ring 3.
    ".global triple_fault",
    ".balign 16",
    "triple_fault:",
    "triple_here:",
    "ud2",
    "ret",
    // Tells the host, for good. On the stack: vector, error code, rip.
    ".balign 16",
    "exception:",
    "mov rax, rsp",
    "and rax, -4096",
    "pop rcx",
    "mov qword ptr [rax + {vector}], rcx",
    "pop rcx",
    "mov qword ptr [rax + {error}], rcx",
    "mov rcx, qword ptr [rsp]",
    "mov qword ptr [rax + {rip}], rcx",
    "mov rcx, cr2",
    "mov qword ptr [rax + {cr2}], rcx",
    "mov edx, {exception_port}",
    "6:",
    "out dx, al",
    "cli",
    "hlt",
    "jmp 6b",
    ".balign 16",
    "empty_table:",
    ".word 0",
    ".quad 0",
    ".popsection",
    text = const layout::TEXT,
    interrupt_entry = const layout::INTERRUPT_ENTRY,
    undefined_entry = const layout::UNDEFINED_ENTRY,
    user_data = const layout::USER_DATA,
    user_code = const layout::USER_CODE,
    user_flags = const layout::USER_FLAGS,
    interrupts = const layout::PAGE as usize + offset_of!(Page, interrupts),
    interrupt_tsc = const layout::PAGE as usize + offset_of!(Page, interrupt_tsc),
    seen = const layout::PAGE as usize + offset_of!(Page, interrupts_seen),
    vector = const layout::PAGE as usize + offset_of!(Page, exception_vector),
    error = const layout::PAGE as usize + offset_of!(Page, exception_error),
    rip = const layout::PAGE as usize + offset_of!(Page, exception_rip),
    cr2 = const layout::PAGE as usize + offset_of!(Page, exception_cr2),
    exception_port = const Port::Exception as u16,
);

unsafe extern "C" {
    fn halt_until_interrupt();
    fn triple_fault();
}

/// Halts until an interrupt has come that ring 3 has not seen.
pub(super) fn halt() {
    // SAFETY: an undefined instruction at an address that the handler knows; it returns behind it
    // with all registers as they were.
    unsafe { halt_until_interrupt() };
}

/// Has ring 0 fault three times.
pub(super) fn fault_thrice() {
    // SAFETY: ends this VM, which is what the program asked for.
    unsafe { triple_fault() };
}
