//! Writing a run while it goes on.
//!
//! Everything goes to a temporary directory beside the one asked for, which takes its name only when
//! it is complete. So whatever happens, there is a whole run under that name or none: a run that
//! fails, or is dropped, leaves nothing.

use super::stream::{encode, header};
use super::{FORMAT, RUN_FILE, RUN_VERSION, RunFile, STREAM_FILE};
use crate::model::Report;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use stealtime_workloads::run::{Entry, Observer, Plan};
use tempfile::TempDir;

/// Bytes gathered before they are written.
const BUFFER: usize = 1 << 20;

/// Why a run could not be kept.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// There is something under that name that is not to be overwritten.
    #[error("`{}` exists and is neither an empty directory nor an earlier run: choose another directory, or remove it first", dir.display())]
    Exists {
        /// What was asked for.
        dir: PathBuf,
    },
    /// There is a file under that name.
    #[error("`{}` is not a directory", dir.display())]
    NotADirectory {
        /// What was asked for.
        dir: PathBuf,
    },
    /// It cannot be made.
    #[error("a run cannot be kept in `{}`", dir.display())]
    Make {
        /// What was asked for.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It could be begun, but not finished.
    #[error("the run could not be written to `{}`, and nothing was left there", dir.display())]
    Write {
        /// What was asked for.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Writes the stream of a run while it goes on, and the rest at its end.
#[derive(Debug)]
pub struct RunWriter {
    dir: PathBuf,
    /// Where everything lies until it is complete. Dropping it removes it.
    temporary: TempDir,
    stream: BufWriter<File>,
    crc: crc32fast::Hasher,
    records: u64,
    /// The first thing that went wrong: nothing is written after it.
    failed: Option<io::Error>,
}

impl RunWriter {
    /// Begins to keep a run under the name `dir`.
    ///
    /// # Errors
    /// If something is there that must not be overwritten, or nothing can be written there.
    pub fn create(dir: &Path) -> Result<Self, WriteError> {
        let made = |source| WriteError::Make {
            dir: dir.to_owned(),
            source,
        };
        check_free(dir)?;
        // The full name of what exists, so that "." or "a/.." have a parent too.
        let full = if dir.exists() {
            dir.canonicalize().map_err(made)?
        } else {
            std::path::absolute(dir).map_err(made)?
        };
        let parent = full
            .parent()
            .ok_or_else(|| made(io::ErrorKind::InvalidInput.into()))?;
        fs::create_dir_all(parent).map_err(made)?;
        let temporary = sibling(parent, &full).map_err(made)?;
        let file = File::create_new(temporary.path().join(STREAM_FILE)).map_err(made)?;
        let mut writer = Self {
            dir: full,
            temporary,
            stream: BufWriter::with_capacity(BUFFER, file),
            crc: crc32fast::Hasher::new(),
            records: 0,
            failed: None,
        };
        writer.put(&header());
        Ok(writer)
    }

    /// The directory in which everything lies until [`RunWriter::finish`]: who ends the program
    /// without unwinding removes it.
    #[must_use]
    pub fn unfinished(&self) -> &Path {
        self.temporary.path()
    }

    /// Writes the rest and gives the run its name. An earlier run under that name is replaced.
    ///
    /// # Errors
    /// If anything could not be written; nothing is left then, and an earlier run is as it was.
    pub fn finish(mut self, plan: &Plan, report: &Report) -> Result<PathBuf, WriteError> {
        let dir = self.dir.clone();
        let written = |source| WriteError::Write {
            dir: dir.clone(),
            source,
        };
        if let Some(failed) = self.failed.take() {
            return Err(written(failed));
        }
        self.complete(plan, report).map_err(written)?;
        // Somebody may have put something there meanwhile.
        check_free(&self.dir)?;
        self.take_name().map_err(written)?;
        Ok(dir)
    }

    fn complete(&mut self, plan: &Plan, report: &Report) -> io::Result<()> {
        self.stream.flush()?;
        self.stream.get_ref().sync_all()?;
        let run = RunFile {
            format: FORMAT.to_owned(),
            version: RUN_VERSION,
            records: self.records,
            crc32: self.crc.clone().finalize(),
            config: plan.config(),
            plan: plan.clone(),
            report: report.clone(),
        };
        let mut json = serde_json::to_vec_pretty(&run)?;
        json.push(b'\n');
        let mut file = File::create_new(self.temporary.path().join(RUN_FILE))?;
        file.write_all(&json)?;
        file.sync_all()
    }

    /// Renaming is one step, so a whole run is seen under the name or none; an earlier run steps
    /// aside first, and comes back if that step fails.
    fn take_name(self) -> io::Result<()> {
        let parent = self.dir.parent().unwrap_or(Path::new("."));
        if !self.dir.join(RUN_FILE).exists() {
            fs::rename(self.temporary.path(), &self.dir)?;
        } else {
            let aside = sibling(parent, &self.dir)?;
            let earlier = aside.path().join("earlier");
            fs::rename(&self.dir, &earlier)?;
            if let Err(error) = fs::rename(self.temporary.path(), &self.dir) {
                fs::rename(&earlier, &self.dir)?;
                return Err(error);
            }
        }
        // It has its name now: there is nothing left to remove.
        let _ = self.temporary.keep();
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) {
        if self.failed.is_some() {
            return;
        }
        self.crc.update(bytes);
        if let Err(error) = self.stream.write_all(bytes) {
            self.failed = Some(error);
        }
    }
}

impl Observer for RunWriter {
    fn entries(&mut self, entries: &[Entry]) {
        for entry in entries {
            self.put(&encode(entry));
            self.records += 1;
        }
    }
}

/// Whether a run may take this name: nothing there, an empty directory, or an earlier run and nothing
/// else.
fn check_free(dir: &Path) -> Result<(), WriteError> {
    let found = match fs::metadata(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => {
            return Err(WriteError::Make {
                dir: dir.to_owned(),
                source,
            });
        }
        Ok(found) => found,
    };
    if !found.is_dir() {
        return Err(WriteError::NotADirectory {
            dir: dir.to_owned(),
        });
    }
    let entries = fs::read_dir(dir).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let entries = entries.map_err(|source| WriteError::Make {
        dir: dir.to_owned(),
        source,
    })?;
    let ours = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        name == RUN_FILE || name == STREAM_FILE
    };
    if entries.iter().all(ours) {
        Ok(())
    } else {
        Err(WriteError::Exists {
            dir: dir.to_owned(),
        })
    }
}

/// A temporary directory beside `dir`, hidden and named after it.
fn sibling(parent: &Path, dir: &Path) -> io::Result<TempDir> {
    use std::os::unix::fs::PermissionsExt;
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    tempfile::Builder::new()
        .prefix(&format!(".{name}."))
        .permissions(fs::Permissions::from_mode(0o777))
        .tempdir_in(parent)
}
