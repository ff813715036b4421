//! Reading a run that was kept.

use super::stream::{self, BadHeader, HEADER_BYTES};
use super::{FORMAT, RUN_FILE, RUN_VERSION, RunFile, STREAM_FILE};
use serde::Deserialize;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use stealtime_scheduler::record::{BadRecord, RECORD_BYTES};
use stealtime_workloads::run::Entry;

/// Bytes read at a time.
const BUFFER: usize = 1 << 20;

/// Why a run cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// There is no run.
    #[error("`{}` is not a run: it has no `{file}`", dir.display())]
    Missing {
        /// What was asked for.
        dir: PathBuf,
        /// What is missing.
        file: &'static str,
    },
    /// A file is there and cannot be read.
    #[error("`{}` cannot be read", file.display())]
    Read {
        /// Which.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// `run.json` was not written by us.
    #[error("`{}` does not describe a run", file.display())]
    NotARun {
        /// The file.
        file: PathBuf,
        /// Why not, if it is JSON at all.
        #[source]
        source: Option<serde_json::Error>,
    },
    /// `run.json` has another version.
    #[error("`{}` has format version {found}, and this program knows version {RUN_VERSION}", file.display())]
    Version {
        /// The file.
        file: PathBuf,
        /// Its version.
        found: u32,
    },
    /// The head of the stream is wrong.
    #[error("`{}` cannot be used: {header}", file.display())]
    Header {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        #[source]
        header: BadHeader,
    },
    /// The stream is shorter or longer than it was.
    #[error("`{}` has {found} bytes instead of {expected}: it was cut off or appended to", file.display())]
    Length {
        /// The file.
        file: PathBuf,
        /// Its length.
        found: u64,
        /// What it must be.
        expected: u64,
    },
    /// The stream is not as it was written.
    #[error("`{}` is damaged: its checksum is {found:08x} instead of {expected:08x}", file.display())]
    Checksum {
        /// The file.
        file: PathBuf,
        /// Its checksum.
        found: u32,
        /// What it must be.
        expected: u32,
    },
    /// A record means nothing.
    #[error("`{}` is damaged: record {number}: {record}", file.display())]
    Record {
        /// The file.
        file: PathBuf,
        /// Which, counted from 0.
        number: u64,
        /// What is wrong.
        #[source]
        record: BadRecord,
    },
}

/// A run that was kept, checked as a whole.
#[derive(Debug)]
pub struct Recording {
    /// What `run.json` holds.
    pub run: RunFile,
    stream: PathBuf,
}

/// The least that every version of `run.json` has.
#[derive(Deserialize)]
struct Head {
    format: String,
    version: u32,
}

/// Reads a run: its description is read, and its stream checked from end to end.
///
/// # Errors
/// If it is missing, cut off, damaged, or of another version.
pub fn load(dir: &Path) -> Result<Recording, LoadError> {
    let file = dir.join(RUN_FILE);
    let text = fs::read_to_string(&file).map_err(|source| {
        if source.kind() == io::ErrorKind::NotFound {
            LoadError::Missing {
                dir: dir.to_owned(),
                file: RUN_FILE,
            }
        } else {
            LoadError::Read {
                file: file.clone(),
                source,
            }
        }
    })?;
    let run = description(&file, &text)?;
    let recording = Recording {
        run,
        stream: dir.join(STREAM_FILE),
    };
    recording.check(dir)?;
    Ok(recording)
}

fn description(file: &Path, text: &str) -> Result<RunFile, LoadError> {
    let not_a_run = |source| LoadError::NotARun {
        file: file.to_owned(),
        source,
    };
    let head: Head = serde_json::from_str(text).map_err(|error| not_a_run(Some(error)))?;
    if head.format != FORMAT {
        return Err(not_a_run(None));
    }
    if head.version != RUN_VERSION {
        return Err(LoadError::Version {
            file: file.to_owned(),
            found: head.version,
        });
    }
    serde_json::from_str(text).map_err(|error| not_a_run(Some(error)))
}

impl Recording {
    /// The stream from its beginning.
    ///
    /// # Errors
    /// If the file can no longer be opened.
    pub fn entries(&self) -> Result<Entries, LoadError> {
        let mut file = File::open(&self.stream).map_err(|source| self.unreadable(source))?;
        let mut head = [0; HEADER_BYTES];
        file.read_exact(&mut head)
            .map_err(|source| self.unreadable(source))?;
        stream::check_header(&head).map_err(|header| LoadError::Header {
            file: self.stream.clone(),
            header,
        })?;
        Ok(Entries {
            file: self.stream.clone(),
            reader: BufReader::with_capacity(BUFFER, file),
            next: 0,
            records: self.run.records,
        })
    }

    fn unreadable(&self, source: io::Error) -> LoadError {
        LoadError::Read {
            file: self.stream.clone(),
            source,
        }
    }

    /// Length, head and checksum of the stream.
    fn check(&self, dir: &Path) -> Result<(), LoadError> {
        let mut file = File::open(&self.stream).map_err(|source| {
            if source.kind() == io::ErrorKind::NotFound {
                LoadError::Missing {
                    dir: dir.to_owned(),
                    file: STREAM_FILE,
                }
            } else {
                self.unreadable(source)
            }
        })?;
        let length = file
            .metadata()
            .map_err(|source| self.unreadable(source))?
            .len();
        let mut head = [0; HEADER_BYTES];
        if length >= HEADER_BYTES as u64 {
            file.read_exact(&mut head)
                .map_err(|source| self.unreadable(source))?;
            stream::check_header(&head).map_err(|header| LoadError::Header {
                file: self.stream.clone(),
                header,
            })?;
        }
        let records = self.run.records.saturating_mul(RECORD_BYTES as u64);
        let expected = records.saturating_add(HEADER_BYTES as u64);
        if length != expected {
            return Err(LoadError::Length {
                file: self.stream.clone(),
                found: length,
                expected,
            });
        }
        self.check_sum(file, head)
    }

    fn check_sum(&self, mut file: File, head: [u8; HEADER_BYTES]) -> Result<(), LoadError> {
        let mut crc = crc32fast::Hasher::new();
        crc.update(&head);
        let mut buffer = vec![0; BUFFER];
        loop {
            let read = file
                .read(&mut buffer)
                .map_err(|source| self.unreadable(source))?;
            if read == 0 {
                break;
            }
            crc.update(&buffer[..read]);
        }
        let (found, expected) = (crc.finalize(), self.run.crc32);
        if found == expected {
            Ok(())
        } else {
            Err(LoadError::Checksum {
                file: self.stream.clone(),
                found,
                expected,
            })
        }
    }
}

/// The entries of a stream, one after the other. Ends after the first error.
#[derive(Debug)]
pub struct Entries {
    file: PathBuf,
    reader: BufReader<File>,
    next: u64,
    records: u64,
}

impl Iterator for Entries {
    type Item = Result<Entry, LoadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.records {
            return None;
        }
        let number = self.next;
        self.next += 1;
        let mut record = [0; RECORD_BYTES];
        let entry = match self.reader.read_exact(&mut record) {
            Err(source) => Err(LoadError::Read {
                file: self.file.clone(),
                source,
            }),
            Ok(()) => stream::decode(&record).map_err(|record| LoadError::Record {
                file: self.file.clone(),
                number,
                record,
            }),
        };
        if entry.is_err() {
            self.next = self.records;
        }
        Some(entry)
    }
}
