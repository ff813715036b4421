//! `docs/expectations.md` says what the scenarios say.
//!
//! `STEALTIME_WRITE_DOCS=1 cargo test -p stealtime-workloads --test expectations_page` writes it anew.

use std::fmt::Write;
use std::path::Path;
use stealtime_scheduler::spec::PolicySpec;
use stealtime_workloads::scenario::expect::{Expectation, Must, SUITES};
use stealtime_workloads::scenario::{Scenario, embedded};

const HEAD: &str = "\
# What the scenarios expect

Every line is checked by `stealtime suite` ([commands](commands.md#suite)). This page is written from
the scenario files: see `workloads/tests/expectations_page.rs`; how an expectation is written is in
[scenarios](scenarios.md#expectations).
";

fn policies(list: &[PolicySpec]) -> String {
    let quoted: Vec<_> = list.iter().map(|policy| format!("`{policy}`")).collect();
    quoted.join(", ")
}

fn who(one: &Expectation) -> String {
    match (&*one.policies, &*one.except) {
        ([], []) => "all".to_owned(),
        ([], except) => format!("all but {}", policies(except)),
        (named, _) => policies(named),
    }
}

fn what(one: &Expectation) -> String {
    match &one.must {
        Must::Refuse(words) => format!("refused, saying “{words}”"),
        Must::Say(words) => format!("the report says “{words}”"),
        Must::Lie {
            figure,
            of,
            at_least,
            at_most,
        } => {
            let of = of.as_ref().map(|of| format!(" of `{}`", of.pattern));
            let mut text = format!("{}{}", figure.word(), of.unwrap_or_default());
            for (words, bound) in [("at least", at_least), ("at most", at_most)] {
                if let Some(bound) = bound {
                    let _ = write!(text, ", {words} {}", figure.shown(*bound));
                }
            }
            text
        }
    }
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    for entry in embedded() {
        let scenario = Scenario::load(entry.name).expect("it is embedded");
        if scenario.expectations.is_empty() {
            continue;
        }
        let suites = match &*scenario.suites {
            [] => "In no suite.".to_owned(),
            some => format!("Suites: {}.", some.join(", ")),
        };
        let _ = write!(
            page,
            "\n## {}\n\n{}. {suites}\n\n| claim | policies | measured |\n|---|---|---|\n",
            entry.name, entry.description
        );
        for one in &scenario.expectations {
            let fault = if one.fault { "known fault: " } else { "" };
            let claim = &one.claim;
            let _ = writeln!(page, "| {fault}{claim} | {} | {} |", who(one), what(one));
        }
    }
    page
}

#[test]
fn the_page_and_the_scenarios_agree() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/expectations.md");
    let page = page();
    if std::env::var_os("STEALTIME_WRITE_DOCS").is_some() {
        std::fs::write(&path, page).expect("the page can be written");
        return;
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "docs/expectations.md is not what the scenarios say: run \
         STEALTIME_WRITE_DOCS=1 cargo test -p stealtime-workloads --test expectations_page"
    );
}

#[test]
fn every_suite_has_scenarios_and_every_scenario_of_a_suite_expects_something() {
    let all: Vec<_> = embedded()
        .iter()
        .map(|entry| Scenario::load(entry.name).expect("it is embedded"))
        .collect();
    for suite in SUITES {
        assert!(
            all.iter().any(|one| one.suites.iter().any(|s| s == suite)),
            "{suite}"
        );
    }
    for one in all.iter().filter(|one| !one.suites.is_empty()) {
        assert!(!one.expectations.is_empty(), "{}", one.name);
    }
}
