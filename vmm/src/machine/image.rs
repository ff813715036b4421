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

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, Instruction};
    use object::{Architecture, BinaryFormat, Object, ObjectKind, ObjectSection, ObjectSegment};
    use stealtime_guest::layout::{DATA, IMAGE_END, TEXT};

    /// Far above what the kernel needs, far below what would be noticed.
    const CEILING: usize = 32 << 10;

    fn file() -> object::File<'static> {
        object::File::parse(KERNEL).expect("the kernel is an object file")
    }

    fn code() -> Vec<Instruction> {
        let file = file();
        let text = file.section_by_name(".text").expect("there is code");
        let bytes = text.data().expect("it is in the file");
        Decoder::with_ip(64, bytes, text.address(), DecoderOptions::NONE)
            .iter()
            .collect()
    }

    #[test]
    fn the_kernel_is_a_small_static_64_bit_elf_for_this_processor() {
        let file = file();
        assert_eq!(file.format(), BinaryFormat::Elf);
        assert!(file.is_64());
        assert_eq!(file.architecture(), Architecture::X86_64);
        assert_eq!(file.kind(), ObjectKind::Executable, "not relocatable");
        assert!(file.section_by_name(".interp").is_none(), "static");
        assert!(file.section_by_name(".dynamic").is_none(), "static");
        assert!(KERNEL.len() < CEILING, "{} bytes", KERNEL.len());
    }

    #[test]
    fn the_kernel_lies_where_the_layout_says_and_is_entered_in_its_code() {
        let file = file();
        let text = file.section_by_name(".text").expect("there is code");
        assert!((text.address()..text.address() + text.size()).contains(&file.entry()));
        assert_eq!(text.address(), TEXT);
        for segment in file.segments().filter(|segment| segment.size() > 0) {
            let (begin, end) = (segment.address(), segment.address() + segment.size());
            let inside = |low, high| low <= begin && end <= high;
            assert!(
                inside(TEXT, DATA) || inside(DATA, IMAGE_END),
                "{begin:#x} to {end:#x}"
            );
        }
    }

    #[test]
    fn the_kernel_uses_no_vector_registers() {
        for instruction in code() {
            for operand in 0..instruction.op_count() {
                let register = instruction.op_register(operand);
                assert!(
                    !register.is_vector_register(),
                    "{register:?} at {:#x}",
                    instruction.ip()
                );
            }
        }
    }

    #[test]
    fn the_disassembly_that_these_tests_look_at_is_one() {
        let code = code();
        let count = |mnemonic| code.iter().filter(|i| i.mnemonic() == mnemonic).count();
        assert_eq!(count(iced_x86::Mnemonic::Hlt), 2, "the halt and the end");
        assert_eq!(
            count(iced_x86::Mnemonic::Iretq),
            3,
            "entry, interrupt, halt"
        );
        assert!(count(iced_x86::Mnemonic::Rdtsc) > 0);
    }
}
