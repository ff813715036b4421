//! Runs that are kept: printed again as they were, and replayed to the same decisions.

use crate::support::{kvm, stealtime};
use std::path::Path;

/// First words of the lines that are not indented, up to the first empty line.
fn names(list: &str) -> Vec<String> {
    let lines = list.lines().take_while(|line| !line.is_empty());
    lines
        .filter(|line| !line.starts_with(' '))
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .collect()
}

/// Runs and keeps, then prints and replays what was kept.
#[track_caller]
fn keep(arguments: &[&str]) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let kept = directory.path().join("kept");
    let kept = kept.to_str().expect("UTF-8");
    let mut all = vec!["run"];
    all.extend(arguments);
    all.extend(["--format", "json", "--quiet", "--output", kept]);
    let run = stealtime(&all).expect_status(0);
    let printed = stealtime(&["report", kept, "--format", "json"]).expect_status(0);
    assert_eq!(run.json(), printed.json());
    let replayed = stealtime(&["replay", kept]).expect_status(0);
    assert!(replayed.stdout.starts_with("The same"), "{replayed:#?}");
    let left = directory.path().read_dir().expect("readable").count();
    assert_eq!(left, 1, "nothing is left beside the kept run");
}

#[test]
fn every_scenario_is_replayed_to_the_same_decisions() {
    let scenarios = names(&stealtime(&["scenarios"]).expect_status(0).stdout);
    assert!(scenarios.len() >= 5, "{scenarios:?}");
    for scenario in scenarios {
        keep(&[
            &scenario,
            "--backend",
            "sim",
            "--duration",
            "200ms",
            "--warmup",
            "0",
        ]);
    }
}

#[test]
fn every_policy_is_replayed_to_the_same_decisions() {
    let policies = names(&stealtime(&["policies"]).expect_status(0).stdout);
    assert!(policies.len() >= 4, "{policies:?}");
    for policy in policies {
        keep(&[
            "crowd",
            "--backend",
            "sim",
            "--duration",
            "200ms",
            "--policy",
            &policy,
        ]);
    }
}

#[test]
fn runs_on_kvm_are_replayed_to_the_same_decisions() {
    let Some(_kvm) = kvm() else { return };
    for scenario in ["starvation", "ping", "crowd", "faults"] {
        keep(&[scenario, "--backend", "kvm", "--duration", "1s"]);
    }
}

#[test]
fn a_run_kept_again_replaces_the_earlier_one() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let kept = directory.path().join("kept");
    let kept = kept.to_str().expect("UTF-8");
    for seed in ["1", "2"] {
        let arguments = [
            "run",
            "--backend",
            "sim",
            "--duration",
            "50ms",
            "--output",
            kept,
        ];
        stealtime(&[&arguments[..], &["--seed", seed]].concat()).expect_status(0);
    }
    let report = stealtime(&["report", kept, "--format", "json"]).expect_status(0);
    assert_eq!(report.json()["seed"], 2);
}

#[test]
fn a_damaged_run_is_refused() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let kept = directory.path().join("kept");
    let path = kept.to_str().expect("UTF-8");
    let arguments = [
        "run",
        "--backend",
        "sim",
        "--duration",
        "50ms",
        "--output",
        path,
    ];
    stealtime(&arguments).expect_status(0);
    flip_the_last_byte(&kept.join("stream.bin"));
    stealtime(&["replay", path])
        .expect_status(2)
        .expect_error(&["stream.bin", "damaged"]);
}

fn flip_the_last_byte(file: &Path) {
    let mut bytes = std::fs::read(file).expect("readable");
    *bytes.last_mut().expect("not empty") ^= 0xff;
    std::fs::write(file, bytes).expect("writable");
}
