//! `docs/scenarios.md` says what is so.

use stealtime_workloads::scenario::{DEFAULT_SEED, Scenario, Statement, WORDS, embedded};

const PAGE: &str = include_str!("../../docs/scenarios.md");

#[test]
fn every_example_is_a_scenario_in_order() {
    let examples: Vec<_> = PAGE
        .split("```toml\n")
        .skip(1)
        .map(|rest| rest.split("```").next().expect("an end"))
        .collect();
    assert!(examples.len() >= 4, "{}", examples.len());
    for example in examples {
        Scenario::parse("docs/scenarios.md", example)
            .unwrap_or_else(|error| panic!("{error}\n{example}"));
    }
}

#[test]
fn every_step_and_every_embedded_scenario_has_its_row() {
    let rows: Vec<_> = PAGE
        .lines()
        .filter(|line| line.starts_with("| `"))
        .collect();
    let described = |what: &str| {
        let first = |row: &&str| {
            row.split('|')
                .nth(1)
                .is_some_and(|cell| cell.contains(what))
        };
        rows.iter().any(first)
    };
    for word in WORDS {
        let named = [format!("`{word} "), format!("`{word}`")];
        assert!(named.iter().any(|form| described(form)), "{word}");
    }
    for one in embedded() {
        assert!(described(&format!("`{}`", one.name)), "{}", one.name);
    }
    assert!(PAGE.contains(&format!("seed of random lengths is {DEFAULT_SEED}")));
}

#[test]
fn every_word_of_the_list_begins_a_step() {
    for word in WORDS {
        let known = ["", " 1ms", " name", " 3", " bad-port"]
            .iter()
            .any(|rest| Statement::parse(&format!("{word}{rest}")).is_ok());
        assert!(known, "{word}");
    }
}
