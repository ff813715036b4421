//! `stealtime suite`: what scenarios expect, checked; and that it can fail.

use crate::support::{Ran, stealtime};
use serde_json::Value;
use std::path::PathBuf;

/// Runs a suite in virtual time.
#[track_caller]
fn suite(arguments: &[&str]) -> Ran {
    let mut all = vec!["suite"];
    all.extend(arguments);
    all.extend(["--quiet"]);
    stealtime(&all)
}

/// What came of a scenario under a policy.
#[track_caller]
fn result<'a>(document: &'a Value, scenario: &str, policy: &str) -> &'a Value {
    let results = document["results"].as_array().expect("a list");
    let found = results
        .iter()
        .find(|one| one["scenario"] == scenario && one["policy"] == policy);
    found.unwrap_or_else(|| panic!("no {scenario} under {policy}: {document:#}"))
}

/// A scenario file of two spinners of which one is expected to get this much.
fn halves(at_least: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a place to write");
    let path = directory.path().join("halves.toml");
    let text = format!(
        r#"
name = "halves"
description = "two spinners share a core"
duration = "500ms"
[[vm]]
name = "vm"
count = 2
[[vm.vcpu]]
name = "spinner"
program = ["spin"]
[[expect]]
claim = "each gets its part of the core"
figure = "share"
of = "vm-*/spinner"
at-least = "{at_least}"
"#
    );
    std::fs::write(&path, text).expect("the file can be written");
    (directory, path)
}

#[test]
fn an_expectation_that_holds_passes_and_one_that_does_not_fails_with_status_1_and_says_why() {
    let run = |at_least: &str| {
        let (_directory, path) = halves(at_least);
        suite(&[path.to_str().expect("plain"), "--policy", "rr"])
    };
    let good = run("40%").expect_status(0);
    assert!(good.stdout.contains("1 pass"), "{good:#?}");
    let bad = run("60%").expect_status(1);
    // Long lines are folded.
    let said: Vec<_> = bad.stdout.split_whitespace().collect();
    let said = said.join(" ");
    for words in [
        "FAIL",
        "halves under rr: each gets its part of the core: share of vm-",
        "expected at least 60.0 %",
        "1 fail",
    ] {
        assert!(said.contains(words), "{words}: {bad:#?}");
    }
}

#[test]
fn the_tick_exploit_works_where_ticks_are_charged_and_nowhere_else() {
    let document = suite(&["tick-exploit", "--format", "json"])
        .expect_status(0)
        .json();
    let historic = result(&document, "tick-exploit", "credit:charge=tick");
    assert_eq!(historic["verdict"], "fault", "{historic:#}");
    let stolen = historic["checks"][0]["measured"].as_f64().expect("a share");
    assert!(stolen > 0.8, "{stolen}");
    for policy in ["credit", "credit2", "eevdf", "stride"] {
        let fair = result(&document, "tick-exploit", policy);
        assert_eq!(fair["verdict"], "pass", "{fair:#}");
    }
}

#[test]
fn a_policy_that_does_not_know_a_setting_is_shown_as_refusing_and_says_what_it_knows() {
    let document = suite(&["weights-not-understood", "--format", "json"])
        .expect_status(0)
        .json();
    for (policy, knows) in [
        ("rr", "weight"),
        ("credit2:tslice=10ms", "ratelimit"),
        ("eevdf:quantum=10ms", "slice"),
    ] {
        let refused = result(&document, "weights-not-understood", policy);
        assert_eq!(refused["verdict"], "refused", "{refused:#}");
        let reason = refused["reason"].as_str().expect("words");
        assert!(reason.contains(knows), "{reason}");
    }
    let heeded = result(&document, "weights-not-understood", "credit2");
    assert_eq!(heeded["verdict"], "pass", "{heeded:#}");
}

#[test]
fn the_same_suite_gives_the_same_document_to_the_byte() {
    let arguments = ["parked-vcpus", "--format", "json", "--repeat", "2"];
    let (one, two) = (suite(&arguments), suite(&arguments));
    assert_eq!(one.status, Some(0), "{one:#?}");
    assert_eq!(one.stdout, two.stdout);
}

#[test]
fn a_suite_that_there_is_not_and_a_scenario_that_expects_nothing_are_errors() {
    let unknown = suite(&["no-such-suite"]).expect_status(2);
    unknown.expect_error(&["fairness", "latency", "regressions", "all"]);
    let silent = suite(&["crowd"]).expect_status(2);
    silent.expect_error(&["crowd", "expects nothing"]);
}
