//! The record of a lab: what it consists of, with sizes and SHA-256 sums.

use super::{Qemu, SetupError};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

const RECORD: &str = "setup.json";

/// A lab that is set up.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Setup {
    /// QEMU.
    pub qemu: Qemu,
    /// The kernel that is booted.
    pub kernel: PathBuf,
    /// Its version, as `uname -r` shows it.
    pub kernel_version: String,
    /// Its modules, in loading order.
    pub modules: Vec<PathBuf>,
    /// Packages that were fetched and unpacked.
    pub packages: Vec<Package>,
    /// The files that must stay as they are.
    pub files: Vec<CheckedFile>,
}

/// A package that was fetched.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Package {
    /// The file's name, which holds the package's name and version.
    pub file: String,
    /// SHA-256 of the file, as the signed package list has it and as it was computed.
    pub sha256: String,
}

/// A file and what it must be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CheckedFile {
    /// Where it is.
    pub path: PathBuf,
    /// Its length in bytes.
    pub size: u64,
    /// SHA-256 of its contents.
    pub sha256: String,
}

impl Setup {
    pub(super) fn load(folder: &Path) -> Result<Self, SetupError> {
        let bytes = match fs::read(folder.join(RECORD)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(SetupError::Missing);
            }
            bytes => bytes.map_err(|source| SetupError::File {
                path: folder.join(RECORD),
                source,
            })?,
        };
        serde_json::from_slice(&bytes).map_err(|error| SetupError::Changed {
            what: format!("{RECORD}: {error}"),
        })
    }

    pub(super) fn forget(folder: &Path) -> Result<(), SetupError> {
        match fs::remove_file(folder.join(RECORD)) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(SetupError::File {
                path: folder.join(RECORD),
                source,
            }),
            _ => Ok(()),
        }
    }

    /// Writes the record, whole or not at all.
    pub(super) fn store(&self, folder: &Path) -> Result<(), SetupError> {
        let (path, partial) = (
            folder.join(RECORD),
            folder.join(format!("{RECORD}.partial")),
        );
        let write = || {
            let bytes = serde_json::to_vec_pretty(self)?;
            fs::write(&partial, bytes)?;
            fs::rename(&partial, &path)
        };
        write().map_err(|source: io::Error| SetupError::File {
            path: path.clone(),
            source,
        })
    }

    /// Notes size and sum of everything that is used.
    pub(super) fn note_files(&mut self) -> Result<(), SetupError> {
        let paths = [&self.qemu.path, &self.kernel]
            .into_iter()
            .chain(&self.modules);
        let noted = paths.map(|path| {
            let (size, sha256) = sum(path).map_err(|source| SetupError::File {
                path: path.clone(),
                source,
            })?;
            Ok(CheckedFile {
                path: path.clone(),
                size,
                sha256,
            })
        });
        self.files = noted.collect::<Result<_, SetupError>>()?;
        Ok(())
    }

    /// Looks at everything.
    pub(super) fn check_all(&self) -> Result<(), SetupError> {
        self.check(|file| Ok(sum(&file.path)? == (file.size, file.sha256.clone())))
    }

    /// Looks whether everything is there, with its size.
    pub(super) fn check_quickly(&self) -> Result<(), SetupError> {
        self.check(|file| Ok(fs::metadata(&file.path)?.len() == file.size))
    }

    fn check(&self, is_right: impl Fn(&CheckedFile) -> io::Result<bool>) -> Result<(), SetupError> {
        for file in &self.files {
            let what = match is_right(file) {
                Ok(true) => continue,
                Ok(false) => format!("{} is another file now", file.path.display()),
                Err(error) => format!("{}: {error}", file.path.display()),
            };
            return Err(SetupError::Changed { what });
        }
        Ok(())
    }
}

/// Length and SHA-256 of a file.
pub(super) fn sum(path: &Path) -> io::Result<(u64, String)> {
    let mut digest = Sha256::new();
    let size = io::copy(&mut File::open(path)?, &mut HashWriter(&mut digest))?;
    let bytes = digest.finalize();
    Ok((
        size,
        bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    ))
}

struct HashWriter<'a>(&'a mut Sha256);

impl io::Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder =
            std::env::temp_dir().join(format!("stealtime-lab-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    #[test]
    fn the_sum_is_sha_256() {
        let folder = folder("sum");
        let path = folder.join("abc");
        fs::write(&path, "abc").expect("writable");
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sum(&path).expect("readable"), (3, expected.to_owned()));
        fs::remove_dir_all(&folder).expect("ours");
    }

    #[test]
    fn a_changed_or_missing_file_is_noticed_and_named() {
        let folder = folder("record");
        let kernel = folder.join("kernel");
        fs::write(&kernel, "one").expect("writable");
        let qemu = Qemu {
            path: kernel.clone(),
            ..Qemu::default()
        };
        let mut setup = Setup {
            qemu,
            kernel: kernel.clone(),
            ..Setup::default()
        };
        setup.note_files().expect("there");
        setup.store(&folder).expect("writable");
        let loaded = Setup::load(&folder).expect("just stored");
        assert_eq!(loaded, setup);
        loaded.check_all().expect("unchanged");
        fs::write(&kernel, "two").expect("writable");
        loaded.check_quickly().expect("the same length");
        let error = loaded.check_all().expect_err("changed").to_string();
        assert!(
            error.contains("kernel") && error.contains("lab setup"),
            "{error}"
        );
        fs::remove_file(&kernel).expect("ours");
        assert!(loaded.check_quickly().is_err());
        Setup::forget(&folder).expect("ours");
        assert!(matches!(Setup::load(&folder), Err(SetupError::Missing)));
        fs::remove_dir_all(&folder).expect("ours");
    }
}
