//! Kernel modules in the order in which they must be loaded.
//!
//! The order comes from what each module says it depends on (`.modinfo`), not from `modules.dep`, which
//! packages do not hold: it is made when they are installed.

use crate::decompress::{DecompressError, decompress};
use crate::elf::{Elf, NotElf};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A module, ready to be loaded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Module {
    /// Its name, with underscores.
    pub name: String,
    /// The ELF file.
    pub bytes: Vec<u8>,
}

/// Modules that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ModuleError {
    /// A folder or file could not be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// There is no such module.
    #[error("there is no module `{name}` in {}; the kernel must have it there or built in", folder.display())]
    Missing {
        /// The module.
        name: String,
        /// Where it was looked for.
        folder: PathBuf,
    },
    /// A module could not be unpacked.
    #[error("{}: {source}", path.display())]
    Packed {
        /// Which.
        path: PathBuf,
        /// Why.
        source: DecompressError,
    },
    /// A module is no kernel module.
    #[error("{}: {source}", path.display())]
    NotAModule {
        /// Which.
        path: PathBuf,
        /// Why.
        source: NotElf,
    },
    /// A module belongs to another kernel.
    #[error("{} belongs to kernel {found}, but the kernel given is {expected}", path.display())]
    OtherKernel {
        /// Which.
        path: PathBuf,
        /// The version it was built for.
        found: String,
        /// The version that is booted.
        expected: String,
    },
}

/// Finds `wanted` and all that they depend on below `folder`, in loading order. `kernel` is the version
/// they must be for, if known.
///
/// # Errors
/// If one is missing, damaged or for another kernel.
pub(crate) fn find(
    folder: &Path,
    kernel: Option<&str>,
    wanted: &[&str],
) -> Result<Vec<Module>, ModuleError> {
    let mut finder = Finder {
        folder,
        kernel,
        files: BTreeMap::new(),
        built_in: Vec::new(),
        found: Vec::new(),
    };
    finder.scan(folder)?;
    for name in wanted {
        finder.need(name)?;
    }
    Ok(finder.found)
}

struct Finder<'a> {
    folder: &'a Path,
    kernel: Option<&'a str>,
    files: BTreeMap<String, PathBuf>,
    built_in: Vec<String>,
    found: Vec<Module>,
}

impl Finder<'_> {
    fn scan(&mut self, folder: &Path) -> Result<(), ModuleError> {
        let read = |source| ModuleError::Read {
            path: folder.to_owned(),
            source,
        };
        for entry in fs::read_dir(folder).map_err(read)? {
            let entry = entry.map_err(read)?;
            let path = entry.path();
            // Links such as `build` lead out of the tree and are not followed.
            if entry.file_type().map_err(read)?.is_dir() {
                self.scan(&path)?;
                continue;
            }
            let file = entry.file_name().to_string_lossy().into_owned();
            if file == "modules.builtin" {
                let text = fs::read_to_string(&path).map_err(read)?;
                self.built_in.extend(text.lines().filter_map(module_name));
            } else if let Some(name) = module_name(&file) {
                self.files.insert(name, path);
            }
        }
        Ok(())
    }

    fn need(&mut self, name: &str) -> Result<(), ModuleError> {
        let name = name.replace('-', "_");
        if self.found.iter().any(|module| module.name == name) || self.built_in.contains(&name) {
            return Ok(());
        }
        let Some(path) = self.files.get(&name).cloned() else {
            return Err(ModuleError::Missing {
                name,
                folder: self.folder.to_owned(),
            });
        };
        let packed = fs::read(&path).map_err(|source| ModuleError::Read {
            path: path.clone(),
            source,
        })?;
        let bytes = decompress(&packed).map_err(|source| ModuleError::Packed {
            path: path.clone(),
            source,
        })?;
        let not_a_module = |source| ModuleError::NotAModule {
            path: path.clone(),
            source,
        };
        let elf = Elf::new(&bytes).map_err(not_a_module)?;
        let magic = elf
            .modinfo("vermagic")
            .map_err(not_a_module)?
            .unwrap_or_default();
        let built_for = magic.split(' ').next().unwrap_or_default();
        if let Some(kernel) = self.kernel.filter(|kernel| *kernel != built_for) {
            return Err(ModuleError::OtherKernel {
                path,
                found: built_for.to_owned(),
                expected: kernel.to_owned(),
            });
        }
        let depends = elf
            .modinfo("depends")
            .map_err(not_a_module)?
            .unwrap_or_default();
        for other in depends.split(',').filter(|other| !other.is_empty()) {
            self.need(other)?;
        }
        self.found.push(Module { name, bytes });
        Ok(())
    }
}

/// `kvm_amd` from `kernel/arch/x86/kvm/kvm-amd.ko.xz`; `None` if this names no module.
fn module_name(path: &str) -> Option<String> {
    let file = path.rsplit('/').next()?;
    let (name, rest) = file.split_once(".ko")?;
    (rest.is_empty() || rest.starts_with('.')).then(|| name.replace('-', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_from_paths() {
        assert_eq!(
            module_name("kernel/kvm-amd.ko.xz").as_deref(),
            Some("kvm_amd")
        );
        assert_eq!(module_name("kvm.ko").as_deref(), Some("kvm"));
        assert_eq!(module_name("modules.order"), None);
        assert_eq!(module_name("a.kom"), None);
    }

    #[test]
    fn a_missing_folder_and_a_missing_module_are_named() {
        let missing = find(Path::new("/no/such/folder"), None, &["kvm"]).expect_err("no folder");
        assert!(missing.to_string().contains("/no/such/folder"));
        let empty = std::env::temp_dir().join(format!("stealtime-lab-{}", std::process::id()));
        fs::create_dir_all(&empty).expect("a folder");
        let missing = find(&empty, None, &["kvm-amd"]).expect_err("no module");
        fs::remove_dir(&empty).expect("ours");
        assert!(missing.to_string().contains("kvm_amd"), "{missing}");
    }
}
