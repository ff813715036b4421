//! The little that the lab must know of 64-bit ELF files.
//!
//! Which program interpreter a program asks for, what a kernel module's `.modinfo` says, and a program
//! without what is never loaded (debug information, symbols), which would only fill the machine's memory.

use std::ops::Range;

const MAGIC: &[u8] = b"\x7fELF\x02\x01";
const PT_LOAD: u32 = 1;
const PT_INTERP: u32 = 3;

/// A view of an ELF file's bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Elf<'a> {
    bytes: &'a [u8],
}

/// Not a 64-bit little-endian ELF file, or a damaged one.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("not a whole 64-bit ELF file")]
pub struct NotElf;

impl<'a> Elf<'a> {
    /// Looks at the header only.
    ///
    /// # Errors
    /// If these bytes do not begin as a 64-bit little-endian ELF file does.
    pub(crate) fn new(bytes: &'a [u8]) -> Result<Self, NotElf> {
        if bytes.starts_with(MAGIC) && bytes.len() >= 64 {
            Ok(Self { bytes })
        } else {
            Err(NotElf)
        }
    }

    /// The program interpreter, by path; `None` for a static program.
    ///
    /// # Errors
    /// If the file is damaged.
    pub(crate) fn interpreter(&self) -> Result<Option<&'a str>, NotElf> {
        for (kind, range) in self.segments()? {
            if kind == PT_INTERP {
                let path = self.bytes.get(range).ok_or(NotElf)?;
                let path = path.strip_suffix(b"\0").unwrap_or(path);
                return std::str::from_utf8(path).map(Some).map_err(|_| NotElf);
            }
        }
        Ok(None)
    }

    /// The file cut after the last byte that is loaded, with its section table forgotten.
    ///
    /// # Errors
    /// If the file is damaged.
    pub(crate) fn loaded_part(&self) -> Result<Vec<u8>, NotElf> {
        let loads = self
            .segments()?
            .into_iter()
            .filter(|(kind, _)| *kind == PT_LOAD);
        let end = loads.map(|(_, range)| range.end).max().ok_or(NotElf)?;
        let mut part = self.bytes.get(..end).ok_or(NotElf)?.to_vec();
        part[0x28..0x30].fill(0); // e_shoff
        part[0x3c..0x40].fill(0); // e_shnum, e_shstrndx
        Ok(part)
    }

    /// A value from a kernel module's `.modinfo`, such as `depends`.
    ///
    /// # Errors
    /// If the file is damaged or has no such section.
    pub(crate) fn modinfo(&self, key: &str) -> Result<Option<&'a str>, NotElf> {
        let section = self.section(".modinfo")?.ok_or(NotElf)?;
        Ok(section
            .split(|byte| *byte == 0)
            .filter_map(|entry| std::str::from_utf8(entry).ok())
            .find_map(|entry| entry.strip_prefix(key)?.strip_prefix('=')))
    }

    fn section(&self, name: &str) -> Result<Option<&'a [u8]>, NotElf> {
        let table = self.offset(0x28)?;
        let (size, count) = (usize::from(self.half(0x3a)?), usize::from(self.half(0x3c)?));
        let names_at = table + usize::from(self.half(0x3e)?) * size;
        let names = self.offset(names_at + 0x18)?;
        for number in 0..count {
            let header = table + number * size;
            let name_at = names + usize::try_from(self.word(header)?).map_err(|_| NotElf)?;
            let found = self
                .bytes
                .get(name_at..name_at + name.len() + 1)
                .ok_or(NotElf)?;
            if found.strip_suffix(b"\0") == Some(name.as_bytes()) {
                let (at, length) = (self.offset(header + 0x18)?, self.offset(header + 0x20)?);
                let end = at.checked_add(length).ok_or(NotElf)?;
                return self.bytes.get(at..end).map(Some).ok_or(NotElf);
            }
        }
        Ok(None)
    }

    /// All program headers: kind and place in the file.
    fn segments(&self) -> Result<Vec<(u32, Range<usize>)>, NotElf> {
        let table = self.offset(0x20)?;
        let (size, count) = (usize::from(self.half(0x36)?), usize::from(self.half(0x38)?));
        (0..count)
            .map(|number| {
                let header = table + number * size;
                let start = self.offset(header + 8)?;
                let end = start.checked_add(self.offset(header + 32)?).ok_or(NotElf)?;
                Ok((self.word(header)?, start..end))
            })
            .collect()
    }

    fn half(&self, at: usize) -> Result<u16, NotElf> {
        self.array(at).map(u16::from_le_bytes)
    }

    fn word(&self, at: usize) -> Result<u32, NotElf> {
        self.array(at).map(u32::from_le_bytes)
    }

    fn offset(&self, at: usize) -> Result<usize, NotElf> {
        usize::try_from(u64::from_le_bytes(self.array(at)?)).map_err(|_| NotElf)
    }

    fn array<const N: usize>(&self, at: usize) -> Result<[u8; N], NotElf> {
        let end = at.checked_add(N).ok_or(NotElf)?;
        self.bytes
            .get(at..end)
            .and_then(|slice| slice.try_into().ok())
            .ok_or(NotElf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn this_program() -> Vec<u8> {
        std::fs::read(std::env::current_exe().expect("a path")).expect("readable")
    }

    #[test]
    fn the_interpreter_of_this_very_program_exists() {
        let bytes = this_program();
        if let Some(path) = Elf::new(&bytes).expect("ELF").interpreter().expect("whole") {
            assert!(std::path::Path::new(path).is_file(), "{path}");
        }
    }

    #[test]
    fn the_loaded_part_is_smaller_and_still_an_elf_file_without_sections() {
        let bytes = this_program();
        let part = Elf::new(&bytes).expect("ELF").loaded_part().expect("whole");
        assert!(part.len() < bytes.len());
        let elf = Elf::new(&part).expect("still one");
        assert_eq!(elf.section(".text"), Ok(None));
        assert_eq!(
            elf.interpreter().expect("kept"),
            Elf::new(&bytes).expect("ELF").interpreter().expect("whole")
        );
    }

    #[test]
    fn cut_files_are_errors_and_not_panics() {
        let bytes = this_program();
        for length in [0, 4, 63, 64, 100, 1000, bytes.len() / 2] {
            if let Ok(elf) = Elf::new(&bytes[..length]) {
                let _ = elf.interpreter();
                assert!(elf.loaded_part().is_err() || length > 1000);
                assert!(elf.modinfo("depends").is_err());
            }
        }
    }
}
