//! Debian packages by way of `apt`, without a change to the system.
//!
//! `apt` works here with sources, lists and cache of our own, so that it needs neither root nor the
//! system's configuration; the mirrors are those that the system uses already. Backports are looked at
//! first, because the QEMU of older releases cannot carry the lab. `apt` checks signatures and sums; the sums
//! are computed once more here and written down.

use super::record::{Package, sum};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

const KEYRINGS: [&str; 2] = [
    "/usr/share/keyrings/debian-archive-keyring.gpg",
    "/usr/share/keyrings/debian-archive-keyring.pgp",
];

/// Kernels to look for, the smallest first.
const KERNELS: [&str; 2] = ["linux-image-cloud-amd64", "linux-image-amd64"];

/// Packages that could not be had.
#[derive(Debug, thiserror::Error)]
pub enum AptError {
    /// This is no Debian.
    #[error("this system is not Debian (or has no apt), and only Debian's packages are known here")]
    NotDebian,
    /// The system has no sources for its own release.
    #[error("apt has no source for the release `{codename}`")]
    NoSource {
        /// The release.
        codename: String,
    },
    /// A command failed.
    #[error("`{command}` failed: {message}")]
    Failed {
        /// Which.
        command: String,
        /// The end of what it said.
        message: String,
    },
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A package is not in the lists.
    #[error("there is no package {name}")]
    NoPackage {
        /// Which.
        name: String,
    },
    /// A package is not what the lists say.
    #[error("{file} has the SHA-256 sum {found}, but the package list says {expected}")]
    Sum {
        /// Which.
        file: String,
        /// Computed here.
        found: String,
        /// In the signed list.
        expected: String,
    },
}

/// Fetches packages with `apt`.
#[derive(Debug)]
pub(super) struct Fetcher {
    folder: PathBuf,
    ready: bool,
}

impl Fetcher {
    /// Works in this folder; does nothing yet.
    pub(super) fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            ready: false,
        }
    }

    /// Fetches a package with those that it needs and this system lacks, and unpacks them all.
    pub(super) fn fetch_with_libraries(
        &mut self,
        name: &str,
        target: &Path,
        tell: &mut dyn FnMut(&str),
    ) -> Result<Vec<Package>, AptError> {
        self.prepare(tell)?;
        let plan = self.apt("apt-get", &["--simulate", "install", name])?;
        let names: Vec<&str> = plan.lines().filter_map(installed_name).collect();
        if names.is_empty() {
            return Err(AptError::NoPackage {
                name: name.to_owned(),
            });
        }
        self.fetch(&names, target, tell)
    }

    /// Fetches the newest kernel and unpacks it.
    pub(super) fn fetch_kernel(
        &mut self,
        target: &Path,
        tell: &mut dyn FnMut(&str),
    ) -> Result<Package, AptError> {
        self.prepare(tell)?;
        for meta in KERNELS {
            // A package that names the current kernel's, whatever its version is.
            let Ok(text) = self.apt("apt-cache", &["show", "--no-all-versions", meta]) else {
                continue;
            };
            if let Some(name) = text.lines().find_map(kernel_name) {
                return self.fetch(&[name], target, tell).and_then(|mut packages| {
                    packages.pop().ok_or(AptError::NoPackage {
                        name: name.to_owned(),
                    })
                });
            }
        }
        Err(AptError::NoPackage {
            name: KERNELS[0].to_owned(),
        })
    }

    fn fetch(
        &self,
        names: &[&str],
        target: &Path,
        tell: &mut dyn FnMut(&str),
    ) -> Result<Vec<Package>, AptError> {
        let mut arguments = vec!["--print-uris", "download"];
        arguments.extend(names);
        let list = self.apt("apt-get", &arguments)?;
        let files: Vec<ListedFile> = list.lines().filter_map(ListedFile::parse).collect();
        let total: u64 = files.iter().map(|file| file.size).sum();
        tell(&format!(
            "fetching {} packages, {} MB",
            files.len(),
            total.div_ceil(1_000_000)
        ));
        let folder = self.folder.join("packages");
        make_empty(&folder)?;
        arguments.remove(0);
        self.apt("apt-get", &arguments)?;
        make_empty(target)?;
        tell(&format!("unpacking {} packages", files.len()));
        for file in &files {
            let path = folder.join(&file.name);
            let (_, found) = sum(&path).map_err(|source| AptError::File {
                path: path.clone(),
                source,
            })?;
            if found != file.sha256 {
                let (file, expected) = (file.name.clone(), file.sha256.clone());
                return Err(AptError::Sum {
                    file,
                    found,
                    expected,
                });
            }
            run(Command::new("dpkg-deb")
                .arg("--extract")
                .arg(&path)
                .arg(target))?;
        }
        make_empty(&folder)?;
        Ok(files.into_iter().map(ListedFile::package).collect())
    }

    /// Writes sources and preferences and reads the package lists, once.
    fn prepare(&mut self, tell: &mut dyn FnMut(&str)) -> Result<(), AptError> {
        if self.ready {
            return Ok(());
        }
        let codename = codename().ok_or(AptError::NotDebian)?;
        let targets = run(Command::new("apt-get").args([
            "indextargets",
            "--format",
            "$(REPO_URI) $(RELEASE)",
        ]))?;
        let sources = sources(&targets, &codename).ok_or(AptError::NoSource {
            codename: codename.clone(),
        })?;
        for folder in [
            "lists/partial",
            "cache/archives/partial",
            "packages",
            "none",
        ] {
            make_empty(&self.folder.join(folder))?;
        }
        self.write("sources.list", &sources)?;
        self.write(
            "preferences",
            &format!(
                "Package: qemu-* seabios linux-image-*\nPin: release n={codename}-backports\n\
                 Pin-Priority: 990\n"
            ),
        )?;
        tell("reading package lists");
        self.apt("apt-get", &["update"])?;
        self.ready = true;
        Ok(())
    }

    fn write(&self, name: &str, text: &str) -> Result<(), AptError> {
        let path = self.folder.join(name);
        fs::write(&path, text).map_err(|source| AptError::File { path, source })
    }

    /// Runs a command of apt's with our own files in place of the system's.
    fn apt(&self, command: &str, arguments: &[&str]) -> Result<String, AptError> {
        let at =
            |option: &str, name: &str| format!("{option}={}", self.folder.join(name).display());
        let options = [
            at("Dir::Etc::sourcelist", "sources.list"),
            at("Dir::Etc::sourceparts", "none"),
            at("Dir::Etc::preferences", "preferences"),
            at("Dir::Etc::preferencesparts", "none"),
            at("Dir::State::lists", "lists"),
            at("Dir::Cache", "cache"),
            // Fetch as whoever we are: the usual change of user could not reach our folder.
            "APT::Sandbox::User=root".to_owned(),
            "APT::Install-Recommends=false".to_owned(),
            "APT::Update::Error-Mode=any".to_owned(),
            "Acquire::Languages=none".to_owned(),
            "Acquire::Retries=3".to_owned(),
        ];
        let mut program = Command::new(command);
        for option in options {
            program.arg("-o").arg(option);
        }
        run(program
            .arg("-qq")
            .args(arguments)
            .current_dir(self.folder.join("packages")))
    }
}

fn make_empty(path: &Path) -> Result<(), AptError> {
    super::folder::make_empty(path).map_err(|error| match error {
        super::SetupError::File { path, source } => AptError::File { path, source },
        other => AptError::File {
            path: path.to_owned(),
            source: io::Error::other(other),
        },
    })
}

/// Runs a command to its end; gives what it printed.
fn run(command: &mut Command) -> Result<String, AptError> {
    let name = || {
        let last = command
            .get_args()
            .last()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        format!("{} … {last}", command.get_program().to_string_lossy())
    };
    let name = name();
    let output = command.env("LC_ALL", "C").output().map_err(|error| {
        if error.kind() == io::ErrorKind::NotFound {
            AptError::NotDebian
        } else {
            AptError::Failed {
                command: name.clone(),
                message: error.to_string(),
            }
        }
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = message.lines().collect();
    let message = lines[lines.len().saturating_sub(4)..].join("; ");
    Err(AptError::Failed {
        command: name,
        message,
    })
}

/// The release's name, if this is Debian.
fn codename() -> Option<String> {
    let text = fs::read_to_string("/etc/os-release").ok()?;
    parse_codename(&text)
}

fn parse_codename(text: &str) -> Option<String> {
    let value = |key: &str| {
        text.lines()
            .find_map(|line| Some(line.strip_prefix(key)?.trim_matches('"').to_owned()))
    };
    (value("ID=")? == "debian").then(|| value("VERSION_CODENAME="))?
}

/// Our sources: the system's own mirrors with the same release and its backports.
fn sources(targets: &str, codename: &str) -> Option<String> {
    let uri_of = |release: &str| {
        targets.lines().find_map(|line| {
            let (uri, name) = line.split_once(' ')?;
            (name == release).then_some(uri)
        })
    };
    let signed_by = KEYRINGS
        .iter()
        .find(|path| Path::new(path).is_file())
        .map_or(String::new(), |path| format!("[signed-by={path}] "));
    let mirror = uri_of(codename)?;
    let security = format!("{codename}-security");
    let mut text = format!("deb {signed_by}{mirror} {codename} main\n");
    text += &format!("deb {signed_by}{mirror} {codename}-backports main\n");
    if let Some(uri) = uri_of(&security) {
        text += &format!("deb {signed_by}{uri} {security} main\n");
    }
    Some(text)
}

/// The package that a line of a simulated installation would install.
fn installed_name(line: &str) -> Option<&str> {
    line.strip_prefix("Inst ")?.split(' ').next()
}

/// The kernel that a meta package depends on.
fn kernel_name(line: &str) -> Option<&str> {
    let name = line.strip_prefix("Depends: ")?.split([' ', ',']).next()?;
    name.starts_with("linux-image-").then_some(name)
}

/// A line of `--print-uris`: `'URI' FILE SIZE SHA256:SUM`.
#[derive(Clone, PartialEq, Eq, Debug)]
struct ListedFile {
    name: String,
    size: u64,
    sha256: String,
}

impl ListedFile {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.strip_prefix('\'')?.split(' ').skip(1);
        let (name, size) = (words.next()?.to_owned(), words.next()?.parse().ok()?);
        let sha256 = words.next()?.strip_prefix("SHA256:")?.to_owned();
        Some(Self { name, size, sha256 })
    }

    fn package(self) -> Package {
        Package {
            file: self.name,
            sha256: self.sha256,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_reuse_the_systems_mirrors() {
        let targets = "mirror://one/debian/ bookworm\nmirror://two/security/ bookworm-security\n\
                       mirror://else/ nodistro\n";
        let text = sources(targets, "bookworm").expect("there is one");
        assert!(
            text.contains("mirror://one/debian/ bookworm main"),
            "{text}"
        );
        assert!(
            text.contains("mirror://one/debian/ bookworm-backports main"),
            "{text}"
        );
        assert!(
            text.contains("mirror://two/security/ bookworm-security main"),
            "{text}"
        );
        assert_eq!(sources(targets, "trixie"), None);
    }

    #[test]
    fn what_apt_prints_is_read() {
        assert_eq!(
            installed_name("Inst libfdt1 (1.6.1-4 Debian [amd64])"),
            Some("libfdt1")
        );
        assert_eq!(
            installed_name("Conf libfdt1 (1.6.1-4 Debian [amd64])"),
            None
        );
        let line = "Depends: linux-image-6.12.95-cloud-amd64 (= 6.12.95-1), linux-base";
        assert_eq!(kernel_name(line), Some("linux-image-6.12.95-cloud-amd64"));
        assert_eq!(kernel_name("Depends: libc6 (>= 2.36)"), None);
        let file = ListedFile::parse("'mirror://a/b.deb' b_1_amd64.deb 12 SHA256:00ff");
        let name = "b_1_amd64.deb".to_owned();
        assert_eq!(
            file,
            Some(ListedFile {
                name,
                size: 12,
                sha256: "00ff".to_owned()
            })
        );
    }

    #[test]
    fn only_debian_has_a_codename_here() {
        let debian = "ID=debian\nVERSION_CODENAME=bookworm\n";
        assert_eq!(parse_codename(debian).as_deref(), Some("bookworm"));
        assert_eq!(parse_codename("ID=fedora\nVERSION_CODENAME=\n"), None);
    }
}
