//! Finding or fetching what the lab needs: QEMU, a kernel, its modules.
//!
//! Each comes from the user (`--qemu`, `--kernel`, `--modules`), from this system, or from Debian packages that
//! are unpacked into a cache folder; nothing is installed. What was found is written down with sizes
//! and SHA-256 sums, so that a second call has only to look whether all is still as it was.

mod apt;
mod folder;
mod qemu;
mod record;

pub use apt::AptError;
pub use qemu::{Qemu, QemuError};
pub use record::{CheckedFile, Package, Setup};

use crate::kernel::BzImage;
use crate::modules::{self, ModuleError};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The module that everything is about.
const MODULE: &str = "kvm_amd";

/// What the user gives.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Given {
    /// A QEMU program for x86-64.
    pub qemu: Option<PathBuf>,
    /// A kernel: `bzImage` or ELF.
    pub kernel: Option<PathBuf>,
    /// The folder with that kernel's modules.
    pub modules: Option<PathBuf>,
}

/// A lab that cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// There is no folder to keep things in.
    #[error("neither XDG_CACHE_HOME nor HOME is set: there is no folder to keep the lab in")]
    NoFolder,
    /// A file or folder could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The QEMU given or found cannot be used.
    #[error(transparent)]
    Qemu(#[from] QemuError),
    /// The modules cannot be used.
    #[error(transparent)]
    Modules(#[from] ModuleError),
    /// The kernel given is none.
    #[error("{} is neither a bzImage nor an ELF kernel", path.display())]
    NotAKernel {
        /// Which.
        path: PathBuf,
    },
    /// A kernel without modules, or the other way round.
    #[error("`--kernel` and `--modules` belong together: modules fit one kernel only")]
    KernelAndModules,
    /// Packages could not be had.
    #[error(
        "what the lab lacks cannot be fetched: {source}\nGive files instead: `stealtime lab setup \
         --qemu PATH --kernel PATH --modules DIR` with\n  --qemu     qemu-system-x86_64, version 10 or \
         later (emulation is enough, no KVM)\n  --kernel   a kernel for x86-64 with modules, version \
         6.1 or later, as in /boot/vmlinuz-VERSION\n  --modules  its modules, as in /lib/modules/VERSION, \
         with kvm.ko and kvm-amd.ko among them (or built in)"
    )]
    Apt {
        /// Why not.
        source: AptError,
    },
    /// There is no lab yet.
    #[error(
        "the lab is not set up: run `stealtime lab setup` (fetches about 70 MB, installs nothing)"
    )]
    Missing,
    /// Something changed since the lab was set up.
    #[error("the lab is not as it was set up ({what}): run `stealtime lab setup`")]
    Changed {
        /// What.
        what: String,
    },
}

/// Sets the lab up, or finds that it is. `tell` hears what is being done, a line at a time.
///
/// # Errors
/// If something is missing that cannot be had.
pub fn setup(given: &Given, tell: &mut dyn FnMut(&str)) -> Result<Setup, SetupError> {
    if given.kernel.is_some() != given.modules.is_some() {
        return Err(SetupError::KernelAndModules);
    }
    let folder = folder::folder()?;
    let _lock = folder::lock(&folder)?;
    if *given == Given::default()
        && let Ok(setup) = Setup::load(&folder)
    {
        match setup.check_all() {
            Ok(()) => return Ok(setup),
            Err(error) => tell(&error.to_string()),
        }
    }
    // Looked at first: a setup that cannot be must not cost the one that is.
    let qemu = given.qemu.as_deref().map(Qemu::at).transpose()?;
    Setup::forget(&folder)?;
    let mut fetcher = apt::Fetcher::new(folder.join("apt"));
    let mut packages = Vec::new();
    let qemu = match qemu {
        Some(qemu) => qemu,
        None => find_qemu(&folder, &mut fetcher, &mut packages, tell)?,
    };
    let setup = match (&given.kernel, &given.modules) {
        (Some(kernel), Some(modules)) => with_kernel(&folder, kernel, modules)?,
        _ => fetch_kernel(&folder, &mut fetcher, &mut packages, tell)?,
    };
    let mut setup = Setup {
        qemu,
        packages,
        ..setup
    };
    setup.note_files()?;
    setup.store(&folder)?;
    Ok(setup)
}

/// The lab as it was set up.
///
/// # Errors
/// If it was not, or is no longer so.
pub fn find() -> Result<Setup, SetupError> {
    let setup = Setup::load(&folder::folder()?)?;
    setup.check_quickly()?;
    Ok(setup)
}

fn find_qemu(
    folder: &Path,
    fetcher: &mut apt::Fetcher,
    packages: &mut Vec<Package>,
    tell: &mut dyn FnMut(&str),
) -> Result<Qemu, SetupError> {
    match Qemu::installed() {
        Ok(Some(qemu)) => return Ok(qemu),
        Ok(None) => {}
        Err(error) => tell(&format!("{error}; another is fetched")),
    }
    let target = folder.join("qemu");
    let got = fetcher.fetch_with_libraries("qemu-system-x86", &target, tell);
    packages.extend(got.map_err(|source| SetupError::Apt { source })?);
    Ok(Qemu::unpacked(&target)?)
}

fn fetch_kernel(
    folder: &Path,
    fetcher: &mut apt::Fetcher,
    packages: &mut Vec<Package>,
    tell: &mut dyn FnMut(&str),
) -> Result<Setup, SetupError> {
    let tree = folder.join("kernel-package");
    let got = fetcher
        .fetch_kernel(&tree, tell)
        .map_err(|source| SetupError::Apt { source })?;
    packages.push(got);
    let file = |path: &Path| {
        let path = path.to_owned();
        move |source| SetupError::File { path, source }
    };
    let boot = tree.join("boot");
    let mut kernel = None;
    for entry in fs::read_dir(&boot).map_err(file(&boot))? {
        let entry = entry.map_err(file(&boot))?;
        if entry.file_name().to_string_lossy().starts_with("vmlinuz-") {
            kernel = Some(entry.path());
        }
    }
    let kernel = kernel.ok_or(SetupError::NotAKernel { path: boot })?;
    let usual = tree.join("lib/modules");
    let modules = if usual.is_dir() {
        usual
    } else {
        tree.join("usr/lib/modules")
    };
    let setup = with_kernel(folder, &kernel, &modules)?;
    fs::remove_dir_all(&tree).map_err(file(&tree))?;
    Ok(setup)
}

/// Takes what is needed of a kernel and its modules into the cache folder.
fn with_kernel(folder: &Path, kernel: &Path, modules: &Path) -> Result<Setup, SetupError> {
    let file = |path: &Path| {
        let path = path.to_owned();
        move |source| SetupError::File { path, source }
    };
    let bytes = fs::read(kernel).map_err(file(kernel))?;
    let image = BzImage::new(&bytes);
    let version = image.and_then(|image| image.version());
    let elf = image.and_then(|image| image.elf());
    if image.is_none() && !bytes.starts_with(b"\x7fELF") {
        return Err(SetupError::NotAKernel {
            path: kernel.to_owned(),
        });
    }
    let found = modules::find(modules, version, &[MODULE])?;
    let target = folder.join("kernel");
    folder::make_empty(&target)?;
    let write = |name: &str, bytes: &[u8]| {
        let path = target.join(name);
        fs::write(&path, bytes).map_err(file(&path)).map(|()| path)
    };
    let kernel = write("kernel", elf.as_deref().unwrap_or(&bytes))?;
    let modules = found
        .iter()
        .map(|module| write(&format!("{}.ko", module.name), &module.bytes))
        .collect::<Result<_, _>>()?;
    let kernel_version = version.unwrap_or("of unknown version").to_owned();
    Ok(Setup {
        kernel,
        kernel_version,
        modules,
        ..Setup::default()
    })
}
