//! Ctrl-C: the first ends a run early, the second ends the program at once.

use crate::failure::Status;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

static STOP: AtomicBool = AtomicBool::new(false);
static UNFINISHED: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Takes over Ctrl-C (and a request to terminate) from now on.
///
/// # Errors
/// If the system does not let signals be handled.
pub fn watch() -> Result<(), ctrlc::Error> {
    ctrlc::set_handler(|| {
        if STOP.swap(true, Ordering::SeqCst) {
            // The vCPU threads go with the process.
            if let Some(path) = unfinished(None) {
                let _ = std::fs::remove_dir_all(path);
            }
            std::process::exit(i32::from(Status::Interrupted as u8));
        }
        eprintln!("ending early; Ctrl-C again to abort");
    })
}

/// The flag that a first Ctrl-C sets.
#[must_use]
pub fn flag() -> &'static AtomicBool {
    &STOP
}

/// Whether Ctrl-C was pressed.
#[must_use]
pub fn pressed() -> bool {
    STOP.load(Ordering::SeqCst)
}

fn unfinished(next: Option<PathBuf>) -> Option<PathBuf> {
    let mut place = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
    std::mem::replace(&mut *place, next)
}

/// A directory that is being written: removed if the program is aborted while this lives.
#[derive(Debug)]
pub struct Unfinished(());

impl Unfinished {
    /// From now on `path` is being written.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        unfinished(Some(path.to_owned()));
        Self(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        unfinished(None);
    }
}
