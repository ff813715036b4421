//! Exit statuses and how an error is shown.
//!
//! An error is one line that says what was expected, and a line for each cause. The status says who
//! can help: 2 is for the one who typed, 3 for the one who owns the machine.

use anyhow::Error;

/// Exit statuses, as `stealtime --help` documents them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Status {
    /// Everything asked for was done.
    Done = 0,
    /// A check did not hold: a replay that differs, a criterion that is not met, a broken rule.
    CheckFailed = 1,
    /// Bad input: nothing ran.
    BadInput = 2,
    /// The machine does not allow it: nothing ran.
    Machine = 3,
    /// It ran, but what it measured could not be kept or shown.
    NotKept = 4,
    /// Ended early by the user; what was measured until then is reported.
    Interrupted = 130,
}

/// Shown at the end of `--help`.
pub const STATUSES: &str = "\
Exit status:
  0    everything asked for was done
  1    a check did not hold: a replay that differs, a criterion not met, a rule broken by a policy
  2    bad input: nothing ran
  3    the machine does not allow it (KVM, rights, memory): nothing ran
  4    it ran, but the result could not be written
  130  ended early by Ctrl-C; what was measured until then is reported";

/// An error with the status to exit with.
#[derive(Debug)]
pub struct Failure {
    /// What to exit with.
    pub status: Status,
    /// What to say.
    pub error: Error,
}

/// What a command comes to.
pub type Outcome = Result<Status, Failure>;

/// Puts a status to an error.
pub trait Blame<T> {
    /// The user's to mend: nothing ran.
    fn bad_input(self) -> Result<T, Failure>;
    /// The machine's owner's to mend: nothing ran.
    fn machine(self) -> Result<T, Failure>;
    /// It ran, in vain.
    fn not_kept(self) -> Result<T, Failure>;
}

impl<T, E: Into<Error>> Blame<T> for Result<T, E> {
    fn bad_input(self) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(Status::BadInput, error))
    }

    fn machine(self) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(Status::Machine, error))
    }

    fn not_kept(self) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(Status::NotKept, error))
    }
}

impl Failure {
    /// An error with its status.
    pub fn new(status: Status, error: impl Into<Error>) -> Self {
        Self {
            status,
            error: error.into(),
        }
    }

    /// The lines for standard error: what, then each cause that says something new.
    #[must_use]
    pub fn lines(&self) -> String {
        let mut shown = self.error.to_string();
        let mut text = format!("error: {shown}");
        for cause in self.error.chain().skip(1) {
            let cause = cause.to_string();
            if !shown.contains(&cause) {
                text.push_str("\n  because: ");
                text.push_str(&cause);
            }
            shown = cause;
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn an_error_is_one_line_and_one_for_each_cause_that_adds_something() {
        let error = anyhow!("disk full")
            .context("cannot write `x`: disk full")
            .context("the run was not kept");
        let failure = Failure::new(Status::NotKept, error);
        assert_eq!(
            failure.lines(),
            "error: the run was not kept\n  because: cannot write `x`: disk full"
        );
    }
}
