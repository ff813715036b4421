//! Ctrl-C: the first ends a run early, the second ends the program at once.

use crate::failure::Status;
use std::sync::atomic::{AtomicBool, Ordering};

static STOP: AtomicBool = AtomicBool::new(false);

/// Takes over Ctrl-C (and a request to terminate) from now on, and gives the flag that it sets.
///
/// # Errors
/// If the system does not let signals be handled.
pub fn watch() -> Result<&'static AtomicBool, ctrlc::Error> {
    ctrlc::set_handler(|| {
        if STOP.swap(true, Ordering::SeqCst) {
            // The vCPU threads go with the process; nothing half-written is left, for a run's
            // directory gets its name only when it is complete.
            std::process::exit(i32::from(Status::Interrupted as u8));
        }
        eprintln!("stealtime: ending early (Ctrl-C again to abort)");
    })?;
    Ok(&STOP)
}

/// Whether Ctrl-C was pressed.
#[must_use]
pub fn pressed() -> bool {
    STOP.load(Ordering::SeqCst)
}
