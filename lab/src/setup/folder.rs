//! The cache folder.

use super::SetupError;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// `$XDG_CACHE_HOME/stealtime/lab`, by the XDG base directory rules.
pub(super) fn folder() -> Result<PathBuf, SetupError> {
    let set = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let cache = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    Ok(cache.ok_or(SetupError::NoFolder)?.join("stealtime/lab"))
}

/// Only one setup at a time works in the folder; another waits for it. Ends when dropped.
pub(super) fn lock(folder: &Path) -> Result<File, SetupError> {
    let path = folder.join("lock");
    let file = |source| SetupError::File {
        path: path.clone(),
        source,
    };
    fs::create_dir_all(folder).map_err(file)?;
    let lock = File::create(&path).map_err(file)?;
    flock(&lock, FlockOperation::LockExclusive).map_err(|error| file(error.into()))?;
    Ok(lock)
}

/// An empty folder at this place, whatever was there.
pub(super) fn make_empty(path: &Path) -> Result<(), SetupError> {
    let file = |source| SetupError::File {
        path: path.to_owned(),
        source,
    };
    if path.exists() {
        fs::remove_dir_all(path).map_err(file)?;
    }
    fs::create_dir_all(path).map_err(file)
}
