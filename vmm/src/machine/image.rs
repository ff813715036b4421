//! The guest kernel's image, built by `vmm/build.rs` and carried in this program.

use super::MachineError;
use linux_loader::loader::{Elf, KernelLoader};
use std::io::Cursor;
use vm_memory::GuestMemoryMmap;

/// The ELF file.
static KERNEL: &[u8] = include_bytes!(env!("GUEST_KERNEL"));

/// Puts the kernel where it was linked for; yields its entry.
pub(super) fn load(memory: &GuestMemoryMmap<()>) -> Result<u64, MachineError> {
    let loaded = Elf::load(memory, None, &mut Cursor::new(KERNEL), None)
        .map_err(|source| MachineError::Image { source })?;
    Ok(loaded.kernel_load.0)
}
