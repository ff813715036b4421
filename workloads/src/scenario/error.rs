//! What can be wrong with a scenario, and how it is told.
//!
//! Every error names the file and, as far as it is known, line and column; then what was written and
//! what was expected instead: `starvation.toml:12:5: step "rum 5ms": expected one of run, sleep, …`.

use std::fmt;
use stealtime_scheduler::policy::Refused;
use stealtime_scheduler::spec::SpecError;

/// A place in a scenario file. Lines and columns count from 1; a column is a character.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The character in it.
    pub column: usize,
}

/// A scenario that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub struct ScenarioError {
    /// The file as it was asked for; `NAME.toml` for an embedded one.
    pub file: String,
    /// Where in it, if the error belongs to a place.
    pub at: Option<Position>,
    /// What is wrong.
    pub problem: Box<Problem>,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if let Some(Position { line, column }) = self.at {
            write!(f, ":{line}:{column}")?;
        }
        write!(f, ": {}", self.problem)
    }
}

/// What is wrong.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Problem {
    /// No embedded scenario has this name.
    #[error(
        "there is no such scenario{} (there are {known}; a file is named by a path with `/` or by its ending `.toml`)",
        Meant(meant)
    )]
    UnknownScenario {
        /// All names.
        known: String,
        /// The nearest of them.
        meant: Option<String>,
    },
    /// The file cannot be read.
    #[error("cannot be read: {message}")]
    Unreadable {
        /// Why, as the system tells it.
        message: String,
    },
    /// It is not TOML.
    #[error("not valid TOML: {message}")]
    Syntax {
        /// What the TOML parser says.
        message: String,
    },
    /// A key that means nothing.
    #[error(
        "unknown key `{key}` in {place}: expected one of {known}{}",
        Meant(meant)
    )]
    UnknownKey {
        /// The key.
        key: String,
        /// In which table.
        place: &'static str,
        /// All keys of that table.
        known: String,
        /// The nearest of them.
        meant: Option<String>,
    },
    /// A key that must be there.
    #[error("`{key}` is missing in {place}: expected {expected}")]
    Missing {
        /// The key.
        key: &'static str,
        /// In which table.
        place: &'static str,
        /// What its value should be.
        expected: String,
    },
    /// A value of the wrong kind or out of range.
    #[error("`{key}` cannot be {written}: expected {expected}")]
    Value {
        /// The key.
        key: String,
        /// What was written.
        written: String,
        /// What would do.
        expected: String,
    },
    /// Two keys of which only one may be given.
    #[error("both `{one}` and `{other}` are given: expected at most one of them")]
    OnlyOne {
        /// The one.
        one: &'static str,
        /// The other.
        other: &'static str,
    },
    /// Two things with one name.
    #[error("there are two {what}s named `{name}`: expected a name of its own for each")]
    Duplicate {
        /// What.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// More than can be numbered.
    #[error("too many {what}: {count}, expected at most {limit}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        limit: usize,
    },
    /// A step that is not in the language, or not at this place.
    #[error("step \"{step}\": {fault}")]
    Step {
        /// The step as written.
        step: String,
        /// What is wrong with it.
        fault: StepFault,
    },
    /// A program that ends in the middle of something.
    #[error("the {part} of `{vcpu}` {what}")]
    Unfinished {
        /// `setup` or `program`.
        part: &'static str,
        /// Whose.
        vcpu: String,
        /// What it lacks.
        what: String,
    },
    /// The policy string.
    #[error("{0}")]
    Policy(SpecError),
    /// The policy does not know a parameter of a vCPU.
    #[error("{vcpu}: {refused}")]
    Refused {
        /// Whose parameter.
        vcpu: String,
        /// Which, and what the policy knows instead.
        refused: Refused,
    },
}

/// What is wrong with a step.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StepFault {
    /// It does not follow the grammar.
    #[error("expected {expected}{}", Meant(meant))]
    Grammar {
        /// What would have been understood.
        expected: String,
        /// The nearest of it.
        meant: Option<String>,
    },
    /// A guest lock that its VM does not have.
    #[error("unknown lock `{lock}`: expected {known}{}", Meant(meant))]
    UnknownLock {
        /// The lock.
        lock: String,
        /// Those that there are.
        known: String,
        /// The nearest of them.
        meant: Option<String>,
    },
    /// A lock that is held already, or not held.
    #[error("{what} is {state} here: expected {expected}")]
    Held {
        /// The lock or section.
        what: String,
        /// `already held`, `not held`, …
        state: &'static str,
        /// What must come before.
        expected: String,
    },
    /// The body of a repeat changes what is held from one round to the next.
    #[error(
        "{what} is not as it was when the round began: expected it to be {expected} again at the end of a round"
    )]
    Round {
        /// The lock or section.
        what: String,
        /// How it was.
        expected: &'static str,
    },
    /// An `end-repeat` without its `repeat`.
    #[error("no repeat is open here: expected a `repeat` before it")]
    NoRepeat,
    /// Repeats within repeats within repeats.
    #[error(
        "nested too deeply: expected at most {limit} repeats around each other (`spin` and a program that is repeated count as one each)"
    )]
    TooDeep {
        /// How many are possible.
        limit: usize,
    },
    /// A repeat that could go round without any time passing.
    #[error("nothing in this repeat takes time: expected at least one of {expected} in it")]
    NoTime {
        /// Steps that take time.
        expected: String,
    },
    /// A step after one that never ends.
    #[error("never reached, because \"{after}\" does not end: expected nothing after it")]
    Unreachable {
        /// The step before.
        after: String,
    },
    /// An interrupt for nobody.
    #[error(
        "there is no vCPU `{target}`: expected VM/VCPU or, within the same VM, VCPU, of {known}{}",
        Meant(meant)
    )]
    UnknownTarget {
        /// What was named.
        target: String,
        /// The vCPUs that there are.
        known: String,
        /// The nearest of them.
        meant: Option<String>,
    },
}

/// The proposal at the end of a message, if there is one.
struct Meant<'a>(&'a Option<String>);

impl fmt::Display for Meant<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(word) => write!(f, "; did you mean `{word}`?"),
            None => Ok(()),
        }
    }
}

/// The known word that is nearest to what was written, if one is near enough to be meant.
pub(super) fn nearest<'a>(
    written: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    let near = |word: &&str| {
        let most = (word.chars().count().max(3) / 3).min(3);
        strsim::damerau_levenshtein(written, word) <= most
    };
    known
        .into_iter()
        .filter(near)
        .min_by_key(|word| strsim::damerau_levenshtein(written, word))
        .map(str::to_owned)
}

/// A problem at a byte of the text, before the file and its lines are known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Fault {
    /// Where.
    pub(super) at: Option<usize>,
    /// What.
    pub(super) problem: Problem,
}

impl Fault {
    /// A problem at a byte of the text.
    pub(super) fn at(at: usize, problem: Problem) -> Self {
        Self {
            at: Some(at),
            problem,
        }
    }

    /// A wrong step.
    pub(super) fn step(at: usize, step: &str, fault: StepFault) -> Self {
        let step = step.trim().to_owned();
        Self::at(at, Problem::Step { step, fault })
    }

    /// The error that the user sees.
    pub(super) fn in_file(self, file: &str, text: &str) -> ScenarioError {
        ScenarioError {
            file: file.to_owned(),
            at: self.at.map(|at| position(text, at)),
            problem: Box::new(self.problem),
        }
    }
}

/// Line and column of a byte.
fn position(text: &str, at: usize) -> Position {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let before = &text[..at];
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    Position {
        line: before.matches('\n').count() + 1,
        column: before[start..].chars().count() + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_has_a_line_and_a_column_in_characters() {
        let text = "ab\nµc\n";
        assert_eq!(position(text, 0), Position { line: 1, column: 1 });
        assert_eq!(position(text, 5), Position { line: 2, column: 2 });
        assert_eq!(
            position(text, 4),
            Position { line: 2, column: 1 },
            "inside µ"
        );
        assert_eq!(position(text, 99), Position { line: 3, column: 1 });
    }

    #[test]
    fn a_slip_of_the_pen_is_recognised_and_another_word_is_not() {
        let known = ["run", "sleep", "host-wait"];
        assert_eq!(nearest("rum", known).as_deref(), Some("run"));
        assert_eq!(nearest("slepe", known).as_deref(), Some("sleep"));
        assert_eq!(nearest("hostwait", known).as_deref(), Some("host-wait"));
        assert_eq!(nearest("dance", known), None);
        assert_eq!(nearest("", known), None);
    }
}
