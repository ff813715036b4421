//! The program that is carried into the machine: the very binary that runs here.
//!
//! What is measured inside is thus what the user has, whether built from source or copied from somewhere,
//! and it cannot be of another version than what reads its results. A static program is taken as it is. A
//! dynamic one brings its interpreter and libraries: the interpreter itself names them (`--list`). See
//! `docs/decisions/` for why there is no second, static build.

use crate::cpio::Writer;
use crate::elf::{Elf, NotElf};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where libraries lie inside.
pub(crate) const LIBRARIES: &str = "lab/lib";
/// Where the program lies inside; the kernel starts it as the first process.
pub(crate) const INIT: &str = "init";

/// A program with all that it needs in order to run elsewhere.
#[derive(Clone, Debug)]
pub struct Program {
    executable: Vec<u8>,
    /// Path that the executable asks for, and the interpreter.
    interpreter: Option<(String, Vec<u8>)>,
    libraries: Vec<(String, Vec<u8>)>,
}

/// A program that cannot be carried over.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// A file could not be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The program is no Linux program for this kind of machine.
    #[error("{}: {source}", path.display())]
    NotAProgram {
        /// Which.
        path: PathBuf,
        /// Why.
        source: NotElf,
    },
    /// Its libraries could not be listed.
    #[error("the libraries of {} cannot be listed: {what}", path.display())]
    Libraries {
        /// Which program.
        path: PathBuf,
        /// What the interpreter said.
        what: String,
    },
}

impl Program {
    /// The program that runs right now.
    ///
    /// # Errors
    /// If it or its libraries cannot be read.
    pub fn running() -> Result<Self, ProgramError> {
        let link = PathBuf::from("/proc/self/exe");
        let path = fs::read_link(&link).map_err(|source| ProgramError::Read {
            path: link.clone(),
            source,
        })?;
        // The link itself can be read even if the file has been replaced meanwhile.
        Self::load(if path.is_file() { &path } else { &link })
    }

    /// A program by path.
    ///
    /// # Errors
    /// If it or its libraries cannot be read.
    pub fn load(path: &Path) -> Result<Self, ProgramError> {
        let bytes = read(path)?;
        let not = |source| ProgramError::NotAProgram {
            path: path.to_owned(),
            source,
        };
        let elf = Elf::new(&bytes).map_err(not)?;
        let executable = elf.loaded_part().map_err(not)?;
        let Some(interpreter) = elf.interpreter().map_err(not)? else {
            return Ok(Self {
                executable,
                interpreter: None,
                libraries: Vec::new(),
            });
        };
        let mut libraries = Vec::new();
        for (name, library) in list_libraries(interpreter, path)? {
            let bytes = read(&library)?;
            let part = Elf::new(&bytes).and_then(|elf| elf.loaded_part());
            let part = part.map_err(|source| ProgramError::NotAProgram {
                path: library.clone(),
                source,
            })?;
            libraries.push((name, part));
        }
        let loader = read(Path::new(interpreter))?;
        let interpreter = Some((interpreter.to_owned(), loader));
        Ok(Self {
            executable,
            interpreter,
            libraries,
        })
    }

    /// Puts it all into the first file system.
    pub(crate) fn pack(&self, archive: &mut Writer) {
        archive.program(INIT, &self.executable);
        if let Some((path, bytes)) = &self.interpreter {
            archive.program(path.trim_start_matches('/'), bytes);
        }
        for (name, bytes) in &self.libraries {
            archive.program(&format!("{LIBRARIES}/{name}"), bytes);
        }
    }

    /// Whether it brings libraries along.
    #[must_use]
    pub fn is_static(&self) -> bool {
        self.interpreter.is_none()
    }
}

fn read(path: &Path) -> Result<Vec<u8>, ProgramError> {
    fs::read(path).map_err(|source| ProgramError::Read {
        path: path.to_owned(),
        source,
    })
}

/// Name and path of every library of a program, as its interpreter finds them.
fn list_libraries(
    interpreter: &str,
    program: &Path,
) -> Result<Vec<(String, PathBuf)>, ProgramError> {
    let fail = |what: String| ProgramError::Libraries {
        path: program.to_owned(),
        what,
    };
    let output = Command::new(interpreter)
        .arg("--list")
        .arg(program)
        .output()
        .map_err(|error| fail(error.to_string()))?;
    if !output.status.success() {
        return Err(fail(
            String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        ));
    }
    parse_libraries(&String::from_utf8_lossy(&output.stdout)).map_err(fail)
}

/// Reads lines such as `libc.so.6 => /lib/libc.so.6 (0x0000ffff)`. Lines without an arrow are the kernel's own
/// library and the interpreter, which need no copy.
fn parse_libraries(list: &str) -> Result<Vec<(String, PathBuf)>, String> {
    let mut libraries = Vec::new();
    for line in list.lines() {
        let Some((name, place)) = line.trim().split_once(" => ") else {
            continue;
        };
        let Some((path, _)) = place.rsplit_once(" (") else {
            return Err(format!("{name}: {place}"));
        };
        libraries.push((name.to_owned(), without_variant(Path::new(path))));
    }
    Ok(libraries)
}

/// Libraries may come in variants for newer processors than the one emulated; the plain one lies beside.
fn without_variant(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    let mut parts = path.components();
    while let Some(part) = parts.next() {
        if part.as_os_str() == "glibc-hwcaps" {
            parts.next();
        } else {
            plain.push(part);
        }
    }
    if plain.is_file() {
        plain
    } else {
        path.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_libraries_is_read() {
        let list = "\tlinux-vdso.so.1 (0x00007fff)\n\
                    \tlibc.so.6 => /lib/libc.so.6 (0x00007f)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let libraries = parse_libraries(list).expect("well-formed");
        assert_eq!(
            libraries,
            [("libc.so.6".to_owned(), PathBuf::from("/lib/libc.so.6"))]
        );
        let missing = parse_libraries("\tlibodd.so => not found\n").expect_err("missing");
        assert!(missing.contains("libodd.so"));
    }

    #[test]
    fn the_running_program_is_packed_with_all_that_it_needs() {
        let program = Program::running().expect("this test");
        let mut archive = Writer::new();
        program.pack(&mut archive);
        let files = crate::cpio::read_files(&archive.finish()).expect("whole");
        assert!(files[INIT].starts_with(b"\x7fELF"));
        assert_eq!(program.is_static(), files.len() == 1, "{:?}", files.keys());
    }

    #[test]
    fn what_is_no_program_is_told() {
        let error = Program::load(Path::new("/proc/self/status")).expect_err("text");
        assert!(error.to_string().contains("/proc/self/status"), "{error}");
    }
}
