//! `stealtime report` and `stealtime replay`: runs that were kept with `--output`.

use crate::args::Format;
use crate::failure::{Blame, Outcome, Status};
use crate::render;
use crate::show;
use std::path::Path;
use stealtime_report::run_dir;

/// Prints the report of a kept run.
///
/// # Errors
/// If there is no run in the directory.
pub fn report(directory: &Path, format: Format) -> Outcome {
    let recording = run_dir::load(directory).bad_input()?;
    show::print(&render::report(&recording.run.report, format)).not_kept()?;
    Ok(Status::Done)
}

/// Feeds a kept run's inputs to a fresh dispatcher and compares.
///
/// # Errors
/// If there is no run in the directory, or its policy cannot be made any more.
pub fn replay(directory: &Path) -> Outcome {
    let recording = run_dir::load(directory).bad_input()?;
    let replay = run_dir::replay(&recording).bad_input()?;
    show::print(&replay.to_string()).not_kept()?;
    Ok(match replay.difference {
        None => Status::Done,
        Some(_) => Status::CheckFailed,
    })
}
