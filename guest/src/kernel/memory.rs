//! The functions that compiled code may call for memory, whoever wrote it.

use core::arch::asm;

/// Copies; the areas do not overlap.
///
/// # Safety
/// As for C's `memcpy`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8 {
    // SAFETY: the caller's areas; the direction flag is clear by the calling convention.
    unsafe {
        asm!("rep movsb", inout("rcx") bytes => _, inout("rdi") to => _, inout("rsi") from => _,
            options(nostack, preserves_flags));
    }
    to
}

/// Copies; the areas may overlap.
///
/// # Safety
/// As for C's `memmove`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8 {
    if to.addr().wrapping_sub(from.addr()) >= bytes {
        // SAFETY: forwards is right here: the target begins before the source or behind its end.
        return unsafe { memcpy(to, from, bytes) };
    }
    // SAFETY: backwards, from the last byte of each area (there is one: `bytes` is not 0), and the
    // direction flag is cleared again.
    unsafe {
        asm!("std", "rep movsb", "cld", inout("rcx") bytes => _,
            inout("rdi") to.add(bytes - 1) => _, inout("rsi") from.add(bytes - 1) => _,
            options(nostack));
    }
    to
}

/// Fills.
///
/// # Safety
/// As for C's `memset`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, value: i32, bytes: usize) -> *mut u8 {
    // SAFETY: the caller's area; the direction flag is clear by the calling convention.
    unsafe {
        asm!("rep stosb", inout("rcx") bytes => _, inout("rdi") to => _, in("eax") value,
            options(nostack, preserves_flags));
    }
    to
}

/// Compares.
///
/// # Safety
/// As for C's `memcmp`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(left: *const u8, right: *const u8, bytes: usize) -> i32 {
    for at in 0..bytes {
        // SAFETY: within the caller's areas. Volatile, or the compiler makes this a call of itself.
        let (l, r) = unsafe { (left.add(at).read_volatile(), right.add(at).read_volatile()) };
        if l != r {
            return i32::from(l) - i32::from(r);
        }
    }
    0
}

/// Compares for equality.
///
/// # Safety
/// As for `memcmp`.
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(left: *const u8, right: *const u8, bytes: usize) -> i32 {
    // SAFETY: the same contract.
    unsafe { memcmp(left, right, bytes) }
}
