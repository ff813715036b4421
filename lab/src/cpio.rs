//! Archives in the `newc` format of cpio, which the Linux kernel unpacks as its first file system.
//!
//! The same format carries the results back: what comes out of the lab is an archive of files. Only
//! what both need is here: directories, plain files and one character device.

use std::collections::BTreeMap;

const MAGIC: &[u8; 6] = b"070701";
const HEADER: usize = 110;
const TRAILER: &str = "TRAILER!!!";

const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_644;
const PROGRAM: u32 = 0o100_755;
const CHARACTER_DEVICE: u32 = 0o020_600;

/// An archive being written.
///
/// # Invariants
/// A directory comes before what is in it, and each path once. All times and owners are 0 and the
/// inode numbers count up, so that the same files give the same bytes.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
    directories: Vec<String>,
    inode: u32,
}

/// The fields of an entry that vary.
struct Entry<'a> {
    name: &'a str,
    mode: u32,
    device: (u32, u32),
    data: &'a [u8],
}

/// An archive that is not one.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum CpioError {
    /// The archive ends within an entry.
    #[error("the archive ends within an entry, at byte {at}")]
    Short {
        /// Where the entry begins.
        at: usize,
    },
    /// Something else than an entry's header was found.
    #[error("there is no entry at byte {at}")]
    Header {
        /// Where one was expected.
        at: usize,
    },
}

impl Writer {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a directory with all that lead to it.
    pub fn directory(&mut self, path: &str) {
        if path.is_empty() || self.directories.iter().any(|known| known == path) {
            return;
        }
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.directory(parent);
        }
        self.entry(&Entry {
            name: path,
            mode: DIRECTORY,
            device: (0, 0),
            data: &[],
        });
        self.directories.push(path.to_owned());
    }

    /// Adds a plain file; the path is relative.
    pub fn file(&mut self, path: &str, data: &[u8]) {
        self.with_parent(path, FILE, data);
    }

    /// Adds a file that may be executed.
    pub fn program(&mut self, path: &str, data: &[u8]) {
        self.with_parent(path, PROGRAM, data);
    }

    /// Adds a character device with its major and minor number.
    pub fn character_device(&mut self, path: &str, major: u32, minor: u32) {
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.directory(parent);
        }
        self.entry(&Entry {
            name: path,
            mode: CHARACTER_DEVICE,
            device: (major, minor),
            data: &[],
        });
    }

    /// Ends the archive.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        self.entry(&Entry {
            name: TRAILER,
            mode: 0,
            device: (0, 0),
            data: &[],
        });
        self.bytes
    }

    fn with_parent(&mut self, path: &str, mode: u32, data: &[u8]) {
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.directory(parent);
        }
        self.entry(&Entry {
            name: path,
            mode,
            device: (0, 0),
            data,
        });
    }

    fn entry(&mut self, entry: &Entry<'_>) {
        self.inode += 1;
        let links = if entry.mode == DIRECTORY { 2 } else { 1 };
        let size = |length: usize| u32::try_from(length).expect("archives hold files below 4 GiB");
        let fields = [
            self.inode,
            entry.mode,
            0, // owner
            0, // group
            links,
            0, // time
            size(entry.data.len()),
            0,
            0, // the device the file lies on
            entry.device.0,
            entry.device.1,
            size(entry.name.len() + 1),
            0, // checksum, unused in this format
        ];
        self.bytes.extend_from_slice(MAGIC);
        for field in fields {
            self.bytes
                .extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(entry.name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(entry.data);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// Takes the plain files out of an archive.
///
/// # Errors
/// If the bytes are no whole archive.
pub fn read_files(bytes: &[u8]) -> Result<BTreeMap<String, Vec<u8>>, CpioError> {
    let mut files = BTreeMap::new();
    let mut at = 0;
    loop {
        let short = CpioError::Short { at };
        let header = bytes.get(at..at + HEADER).ok_or(CpioError::Short { at })?;
        if &header[..6] != MAGIC {
            return Err(CpioError::Header { at });
        }
        let field = |number: usize| -> Result<usize, CpioError> {
            let digits = &header[6 + number * 8..14 + number * 8];
            std::str::from_utf8(digits)
                .ok()
                .and_then(|text| usize::from_str_radix(text, 16).ok())
                .ok_or(CpioError::Header { at })
        };
        let (mode, size, name_size) = (field(1)?, field(6)?, field(11)?);
        let name_at = at + HEADER;
        let data_at = (name_at + name_size).next_multiple_of(4);
        let name = bytes
            .get(name_at..(name_at + name_size).saturating_sub(1))
            .ok_or(short)?;
        let name = String::from_utf8_lossy(name).into_owned();
        if name == TRAILER {
            return Ok(files);
        }
        let data = bytes
            .get(data_at..data_at + size)
            .ok_or(CpioError::Short { at })?;
        if mode & 0o170_000 == 0o100_000 {
            files.insert(name, data.to_vec());
        }
        at = (data_at + size).next_multiple_of(4);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let mut writer = Writer::new();
        writer.character_device("dev/console", 5, 1);
        writer.program("init", b"ELF");
        writer.file("lab/deep/empty", b"");
        writer.file("lab/deep/five", b"12345");
        writer.finish()
    }

    #[test]
    fn files_come_back_as_they_went_in() {
        let files = read_files(&sample()).expect("whole");
        assert_eq!(files.len(), 3);
        assert_eq!(files["init"], b"ELF");
        assert_eq!(files["lab/deep/empty"], b"");
        assert_eq!(files["lab/deep/five"], b"12345");
    }

    #[test]
    fn the_same_files_give_the_same_bytes() {
        assert_eq!(sample(), sample());
    }

    #[test]
    fn directories_come_before_what_is_in_them_and_once() {
        let bytes = sample();
        let text = String::from_utf8_lossy(&bytes);
        let first = text.find("lab/deep\0").expect("the directory");
        assert!(first < text.find("lab/deep/empty\0").expect("the file"));
        assert_eq!(text.matches("lab/deep\0").count(), 1);
    }

    #[test]
    fn a_cut_archive_is_an_error_wherever_it_is_cut() {
        let bytes = sample();
        for length in 0..bytes.len() - 4 {
            // Cuts within the last entry's padding leave a whole archive.
            if length + HEADER + TRAILER.len() + 4 < bytes.len() {
                assert!(read_files(&bytes[..length]).is_err(), "cut at {length}");
            }
        }
        let mut broken = sample();
        broken[0] = b'X';
        assert_eq!(read_files(&broken), Err(CpioError::Header { at: 0 }));
    }
}
