//! Expectations that cannot be understood.

use crate::{HEAD, expect};
use stealtime_workloads::scenario::Scenario;

/// A scenario with this expectation; its first line is line 13.
fn with(lines: &str) -> String {
    format!("{HEAD}program = [\"spin\"]\n[[expect]]\n{lines}")
}

const GOOD: &str =
    "claim = \"c\"\nfigure = \"share\"\nof = \"a/v\"\nat-least = \"10%\"\nat-most = \"20%\"\n";

#[test]
fn a_good_one_is_understood() {
    let scenario = Scenario::parse("t.toml", &with(GOOD)).expect("in order");
    assert_eq!(scenario.expectations.len(), 1);
    assert_eq!(scenario.expectations[0].claim, "c");
}

#[test]
fn what_is_missing_is_told() {
    expect(&with("figure = \"jain\"\n"), 12, &["`claim` is missing"]);
    expect(
        &with("claim = \"c\"\n"),
        12,
        &["`figure` is missing", "share"],
    );
    expect(
        &with("claim = \"c\"\nfigure = \"jain\"\n"),
        12,
        &["`at-most` is missing in [[expect]]"],
    );
    expect(
        &with("claim = \"c\"\nfigure = \"run\"\nat-most = \"1s\"\n"),
        12,
        &["`of` is missing"],
    );
}

#[test]
fn what_does_not_fit_is_told_where_it_stands() {
    let changed = |from: &str, to: &str| with(&GOOD.replace(from, to));
    expect(
        &changed("share", "shares"),
        14,
        &["`figure` cannot be \"shares\""],
    );
    expect(
        &changed("20%", "20ms"),
        17,
        &["`at-most` cannot be \"20ms\""],
    );
    expect(
        &changed("a/v", "a/w"),
        15,
        &["`of` cannot be \"a/w\"", "did you mean `a/v`?"],
    );
    expect(
        &format!("{}of-whom = 1\n", with(GOOD)),
        18,
        &["unknown key `of-whom` in [[expect]]"],
    );
    expect(
        &with(&format!("policies = [\"eevdf:quantum=1ms\"]\n{GOOD}")),
        13,
        &["policy `eevdf` has no option `quantum`"],
    );
    expect(
        &HEAD.replace("cores = 1", "suites = [\"fun\"]"),
        3,
        &[
            "`suites` cannot be \"fun\"",
            "fairness, latency, regressions",
        ],
    );
}

#[test]
fn an_option_that_is_to_be_refused_need_not_exist() {
    let text = "claim = \"c\"\npolicies = [\"eevdf:quantum=1ms\"]\nrefused = \"it has slice\"\n";
    Scenario::parse("t.toml", &with(text)).expect("in order");
}
