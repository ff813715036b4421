//! QEMU: given, installed, or unpacked from packages.

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::Command;

const NAME: &str = "qemu-system-x86_64";

/// The first version whose emulated AMD-V carries a current kernel: with 7.2 it crashed in 12 of 29
/// boots.
const LEAST: u32 = 10;

/// A QEMU that can be used.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Qemu {
    /// The program.
    pub path: PathBuf,
    /// Its version, as it says it.
    pub version: String,
    /// Folders with libraries that this system does not have.
    pub libraries: Vec<PathBuf>,
    /// Folders with firmware, if not where the program itself looks.
    pub firmware: Vec<PathBuf>,
}

/// A QEMU that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum QemuError {
    /// It does not run.
    #[error("{} does not run: {what}", path.display())]
    DoesNotRun {
        /// Which.
        path: PathBuf,
        /// What it or the system said.
        what: String,
    },
    /// It is too old.
    #[error(
        "{} is QEMU {found}; the lab needs {LEAST} or later, because kernels crash under the AMD-V of \
         older ones",
        path.display()
    )]
    TooOld {
        /// Which.
        path: PathBuf,
        /// Its version.
        found: String,
    },
}

impl Qemu {
    /// A program given by path.
    pub(super) fn at(path: &Path) -> Result<Self, QemuError> {
        let path = path.canonicalize().map_err(|error| QemuError::DoesNotRun {
            path: path.to_owned(),
            what: error.to_string(),
        })?;
        Self {
            path,
            ..Self::default()
        }
        .checked()
    }

    /// The one on the search path; `None` if there is none.
    pub(super) fn installed() -> Result<Option<Self>, QemuError> {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&folders).map(|folder| folder.join(NAME));
        found
            .into_iter()
            .find(|path| path.is_file())
            .map(|path| Self::at(&path))
            .transpose()
    }

    /// One that was unpacked from packages below `tree`.
    pub(super) fn unpacked(tree: &Path) -> Result<Self, QemuError> {
        let existing = |places: &[&str]| -> Vec<PathBuf> {
            places
                .iter()
                .map(|place| tree.join(place))
                .filter(|path| path.is_dir())
                .collect()
        };
        let mut firmware = existing(&["usr/share/qemu", "usr/share/seabios"]);
        // What this system has already was not fetched.
        let installed = ["/usr/share/qemu", "/usr/share/seabios"].map(PathBuf::from);
        firmware.extend(installed.into_iter().filter(|path| path.is_dir()));
        let qemu = Self {
            path: tree.join("usr/bin").join(NAME),
            libraries: existing(&["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"]),
            firmware,
            version: String::new(),
        };
        qemu.checked()
    }

    fn checked(mut self) -> Result<Self, QemuError> {
        let fail = |what| QemuError::DoesNotRun {
            path: self.path.clone(),
            what,
        };
        let libraries = std::env::join_paths(&self.libraries).map_err(|e| fail(e.to_string()))?;
        let mut command = Command::new(&self.path);
        if !libraries.is_empty() {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        let output = command
            .arg("--version")
            .output()
            .map_err(|e| fail(e.to_string()))?;
        let (said, complaint) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        let Some((major, version)) = parse_version(&said) else {
            return Err(fail(
                complaint.lines().next().unwrap_or("no version").to_owned(),
            ));
        };
        if major < LEAST {
            return Err(QemuError::TooOld {
                path: self.path,
                found: version,
            });
        }
        self.version = version;
        Ok(self)
    }
}

/// Major version and the whole from `QEMU emulator version 10.0.2 (Debian …)`.
fn parse_version(text: &str) -> Option<(u32, String)> {
    let line = text
        .lines()
        .next()?
        .strip_prefix("QEMU emulator version ")?;
    let major = line.split('.').next()?.parse().ok()?;
    Some((major, line.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        let text = "QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)\nCopyright …\n";
        assert_eq!(
            parse_version(text),
            Some((10, "10.0.2 (Debian 1:10.0.2+ds-2)".to_owned()))
        );
        assert_eq!(parse_version("GNU bash, version 5"), None);
    }

    #[test]
    fn what_is_not_there_or_not_qemu_is_told() {
        let missing = Qemu::at(Path::new("/no/such/qemu"))
            .expect_err("missing")
            .to_string();
        assert!(missing.contains("/no/such/qemu"), "{missing}");
        let other = Qemu::at(Path::new("/bin/true"))
            .expect_err("not QEMU")
            .to_string();
        assert!(other.contains("does not run"), "{other}");
    }
}
