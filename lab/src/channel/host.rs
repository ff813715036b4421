//! The host's end of the channel: an anonymous file, so that nothing is left behind however this
//! program ends.

use super::{CHECKSUM, COMPLETE, ELAPSED, LENGTH, RESULTS, SIZE, STAGE, STATE, STOP, Stage};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// Memory that QEMU shows to the machine.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    file: File,
}

/// Results that did not arrive as they were sent.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DamagedResults {
    /// The machine stopped before it had handed anything over.
    #[error("nothing was handed over")]
    Absent,
    /// The length is impossible.
    #[error("a length of {length} bytes is more than the channel holds")]
    Length {
        /// What stood there.
        length: u64,
    },
    /// The checksum is another.
    #[error("the checksum is {found:08x} and should be {expected:08x}")]
    Checksum {
        /// Computed here.
        found: u32,
        /// Computed inside.
        expected: u32,
    },
    /// The archive within is none.
    #[error(transparent)]
    Archive(#[from] crate::cpio::CpioError),
    /// A file that must be there is not, or says nothing sensible.
    #[error("`{name}` is missing or damaged")]
    File {
        /// Its name.
        name: &'static str,
    },
    /// The channel could not be read.
    #[error("the channel could not be read: {0}")]
    Read(String),
}

impl SharedMemory {
    pub(crate) fn new() -> io::Result<Self> {
        let file = File::from(memfd_create("stealtime-lab", MemfdFlags::CLOEXEC)?);
        ftruncate(&file, SIZE)?;
        Ok(Self { file })
    }

    /// A path by which a child process can open it.
    pub(crate) fn path(&self) -> String {
        path_for_child(&self.file)
    }

    pub(crate) fn stage(&self) -> Stage {
        Stage::from_number(self.word(STAGE))
    }

    /// How far the command is, in nanoseconds of its own time.
    pub(crate) fn elapsed_ns(&self) -> u64 {
        self.read(ELAPSED).map_or(0, u64::from_le_bytes)
    }

    /// Asks the command to end early.
    pub(crate) fn ask_to_stop(&self) -> io::Result<()> {
        self.file.write_all_at(&1u32.to_le_bytes(), STOP as u64)
    }

    /// Whether the results are there as a whole.
    pub(crate) fn is_complete(&self) -> bool {
        self.word(STATE) == COMPLETE
    }

    /// The results, checked.
    pub(crate) fn results(&self) -> Result<Vec<u8>, DamagedResults> {
        if !self.is_complete() {
            return Err(DamagedResults::Absent);
        }
        let length = self.read(LENGTH).map_or(0, u64::from_le_bytes);
        if length > SIZE - RESULTS {
            return Err(DamagedResults::Length { length });
        }
        let size = usize::try_from(length).map_err(|_| DamagedResults::Length { length })?;
        let mut bytes = vec![0; size];
        self.file
            .read_exact_at(&mut bytes, RESULTS)
            .map_err(|error| DamagedResults::Read(error.to_string()))?;
        let (found, expected) = (crc32fast::hash(&bytes), self.word(CHECKSUM));
        if found == expected {
            Ok(bytes)
        } else {
            Err(DamagedResults::Checksum { found, expected })
        }
    }

    fn word(&self, at: usize) -> u32 {
        self.read(at).map_or(0, u32::from_le_bytes)
    }

    fn read<const N: usize>(&self, at: usize) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.file.read_exact_at(&mut bytes, at as u64)?;
        Ok(bytes)
    }
}

/// An anonymous file with these contents.
pub(crate) fn anonymous_file(name: &str, contents: &[u8]) -> io::Result<File> {
    let file = File::from(memfd_create(name, MemfdFlags::CLOEXEC)?);
    file.write_all_at(contents, 0)?;
    Ok(file)
}

/// A path by which a child process can open a file of ours.
pub(crate) fn path_for_child(file: &File) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(results: &[u8], checksum: u32) -> SharedMemory {
        let memory = SharedMemory::new().expect("memory");
        let put = |bytes: &[u8], at: u64| memory.file.write_all_at(bytes, at).expect("in range");
        put(&(results.len() as u64).to_le_bytes(), LENGTH as u64);
        put(&checksum.to_le_bytes(), CHECKSUM as u64);
        put(results, RESULTS);
        put(&COMPLETE.to_le_bytes(), STATE as u64);
        memory
    }

    #[test]
    fn whole_results_are_handed_out() {
        let memory = filled(b"archive", crc32fast::hash(b"archive"));
        assert_eq!(memory.results().expect("whole"), b"archive");
    }

    #[test]
    fn results_not_yet_there_and_changed_ones_are_told_apart() {
        assert_eq!(
            SharedMemory::new().expect("memory").results(),
            Err(DamagedResults::Absent)
        );
        let memory = filled(b"archive", crc32fast::hash(b"archivf"));
        assert!(matches!(
            memory.results(),
            Err(DamagedResults::Checksum { .. })
        ));
        let memory = filled(b"", 0);
        memory
            .file
            .write_all_at(&u64::MAX.to_le_bytes(), LENGTH as u64)
            .expect("in range");
        assert_eq!(
            memory.results(),
            Err(DamagedResults::Length { length: u64::MAX })
        );
    }
}
