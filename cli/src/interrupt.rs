//! Ctrl-C: the first ends a run early, the second ends the program at once.

use crate::failure::Status;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

static STOP: AtomicBool = AtomicBool::new(false);
static UNFINISHED: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Takes over Ctrl-C, and the signals that ask to terminate or tell that the terminal is gone, from now on.
/// `quiet` says nothing when one comes.
///
/// # Errors
/// If the system does not let signals be handled.
pub fn watch(quiet: bool) -> Result<(), ctrlc::Error> {
    ctrlc::set_handler(move || {
        if STOP.swap(true, Ordering::SeqCst) {
            // Held until the process is gone: nothing is renamed while it is being removed. The vCPU
            // threads go with the process.
            let mut unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(path) = unfinished.take() {
                let _ = std::fs::remove_dir_all(path);
            }
            std::process::exit(i32::from(Status::Interrupted as u8));
        }
        if !quiet {
            eprintln!("ending early; a second signal (Ctrl-C) aborts");
        }
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

/// Does what an abort must not cut in two: it happens before it, or not at all. `act` is given the
/// place of the directory that an abort removes, because it is only half written.
pub fn whole<T>(act: impl FnOnce(&mut Option<PathBuf>) -> T) -> T {
    act(&mut UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner))
}
