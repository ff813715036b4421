//! `stealtime scenarios`: what comes with the program.

use crate::failure::{Blame, Outcome, Status};
use crate::show;
use std::fmt::Write;
use stealtime_workloads::scenario::embedded;

/// Name, one line, and what each sets.
///
/// # Errors
/// If standard output cannot be written.
pub fn scenarios() -> Outcome {
    let width = embedded()
        .iter()
        .map(|one| one.name.len())
        .max()
        .unwrap_or(0);
    let mut text = String::new();
    for one in embedded() {
        let _ = writeln!(text, "{:width$}  {}", one.name, one.description);
        let _ = writeln!(text, "{:width$}  {}", "", one.options);
    }
    text.push_str(
        "\nA scenario of your own is a TOML file (docs/scenarios.md): `stealtime run ./mine.toml`\n",
    );
    show::print(&text).not_kept()?;
    Ok(Status::Done)
}
