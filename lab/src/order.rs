//! What the machine is told to do, and what it answers: the files `order.json` and `answer.json`.

use serde::{Deserialize, Serialize};

/// Where the order lies inside.
pub(crate) const ORDER: &str = "lab/order.json";
/// Files for the command, inside; its working directory.
pub(crate) const FILES: &str = "lab/files";
/// What the command leaves here comes back.
pub(crate) const RESULTS: &str = "lab/results";
/// Modules, inside.
pub(crate) const MODULES: &str = "lab/modules";
/// The answer's name among the results.
pub(crate) const ANSWER: &str = "answer.json";
/// Names of the command's output among the results.
pub(crate) const STDOUT: &str = "stdout";
/// See [`STDOUT`].
pub(crate) const STDERR: &str = "stderr";
/// Files that the command left are named with this before them.
pub(crate) const LEFT: &str = "results/";

/// What to do.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    /// Names of modules below [`MODULES`], in loading order.
    pub modules: Vec<String>,
    /// The command line of our own program, without its name.
    pub arguments: Vec<String>,
    /// Variables of its environment.
    pub environment: Vec<(String, String)>,
    /// Whether to look for a wish to stop while the command runs. Looking takes time from it, so that
    /// exact runs do without.
    pub watch: bool,
}

/// What came of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Answer {
    /// The command ran and ended with this status.
    Exited(i32),
    /// The command ran and was ended by this signal.
    Killed(i32),
    /// The machine could not be got ready.
    NotReady {
        /// What was tried.
        step: String,
        /// What came of it.
        message: String,
    },
}
