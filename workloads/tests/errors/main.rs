//! Every kind of error names its file, its line and what was expected.

mod document;
mod expectation;
mod program;

use stealtime_workloads::scenario::{Position, Problem, Scenario};

/// Lines 1 to 10; what is tested comes from line 11 on.
const HEAD: &str = r#"name = "t"
description = "a test"
cores = 1
duration = "1s"

[[vm]]
name = "a"
locks = { l = "ticket", m = "test-and-set" }
[[vm.vcpu]]
name = "v"
"#;

/// Reads a text and gives back the whole message and the problem.
#[track_caller]
fn refused(text: &str) -> (String, Position, Problem) {
    let error = Scenario::parse("t.toml", text).expect_err("it must be refused");
    let message = error.to_string();
    let at = error.at.unwrap_or_else(|| panic!("no place: {message}"));
    let prefix = format!("t.toml:{}:{}: ", at.line, at.column);
    assert!(message.starts_with(&prefix), "{message}");
    (message, at, *error.problem)
}

/// Expects an error at a line with these parts in its message.
#[track_caller]
fn expect(text: &str, line: usize, parts: &[&str]) {
    let (message, at, _) = refused(text);
    assert_eq!(at.line, line, "{message}");
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }
}

/// Expects an error in a program of one step a line; the first step is on line 12.
#[track_caller]
fn expect_steps(steps: &[&str], line: usize, parts: &[&str]) {
    let list: String = steps
        .iter()
        .map(|step| format!("  \"{step}\",\n"))
        .collect();
    expect(&format!("{HEAD}program = [\n{list}]\n"), line, parts);
}
