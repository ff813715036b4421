//! Runs in virtual time: exact, repeatable, and the same on every machine.

use crate::support::{Ran, stealtime};
use serde_json::Value;

/// A simulated run's report.
#[track_caller]
pub(crate) fn simulate(arguments: &[&str]) -> Value {
    run(arguments).json()
}

#[track_caller]
fn run(arguments: &[&str]) -> Ran {
    let mut all = vec!["run"];
    all.extend(arguments);
    all.extend(["--backend", "sim", "--format", "json", "--quiet"]);
    stealtime(&all).expect_status(0)
}

/// The row of a vCPU.
#[track_caller]
pub(crate) fn row<'a>(report: &'a Value, vm: &str, vcpu: &str) -> &'a Value {
    let rows = report["vcpus"].as_array().expect("a list");
    let found = rows
        .iter()
        .find(|row| row["vm"] == vm && row["vcpu"] == vcpu);
    found.unwrap_or_else(|| panic!("no {vm}/{vcpu} in {report:#}"))
}

#[track_caller]
pub(crate) fn number(of: &Value, key: &str) -> f64 {
    of[key]
        .as_f64()
        .unwrap_or_else(|| panic!("no number `{key}` in {of:#}"))
}

/// The six states of every vCPU make up the whole run, and no event was lost.
#[track_caller]
pub(crate) fn assert_accounted(report: &Value) {
    let wall = number(report, "wall_ns");
    assert!(wall > 0.0);
    for row in report["vcpus"].as_array().expect("a list") {
        let states = [
            "run_ns",
            "ready_ns",
            "blocked_ns",
            "hypervisor_ns",
            "costop_ns",
            "idle_ns",
        ];
        let sum: f64 = states.iter().map(|state| number(row, state)).sum();
        assert!(
            (sum - wall).abs() <= wall / 1000.0,
            "{sum} of {wall}: {row:#}"
        );
    }
    assert_eq!(report["run"]["lost_events"], 0, "{report:#}");
}

/// Every scenario that `stealtime scenarios` lists.
fn scenarios() -> Vec<String> {
    let list = stealtime(&["scenarios"]).expect_status(0).stdout;
    let (list, _) = list.split_once("\n\n").expect("a list, then a remark");
    let lines = list.lines().filter(|line| !line.starts_with(' '));
    lines
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .collect()
}

#[test]
fn a_wait_of_the_length_of_a_switch_is_no_starvation_and_nobodys_fault() {
    let report = simulate(&["spin-pair", "--duration", "1us"]);
    assert_eq!(report["diagnosis"]["starved"], false);
    let words = report["diagnosis"]["text"].as_str().expect("words");
    assert!(!words.contains("the host"), "{words}");
}

#[test]
fn every_scenario_runs_and_every_nanosecond_of_it_is_accounted_for() {
    let all = scenarios();
    assert!(all.len() >= 5, "{all:?}");
    for scenario in all {
        let report = simulate(&[&scenario, "--duration", "300ms", "--warmup", "1ms"]);
        assert_eq!(report["scenario"], *scenario);
        assert_eq!(report["backend"], "sim");
        assert_accounted(&report);
    }
}

#[test]
fn the_same_seed_gives_the_same_report_to_the_byte() {
    for format in ["text", "json", "csv"] {
        let arguments = [
            "run",
            "crowd",
            "--duration",
            "500ms",
            "--backend",
            "sim",
            "--format",
            format,
        ];
        let (one, two) = (stealtime(&arguments), stealtime(&arguments));
        assert_eq!(one.status, Some(0), "{one:#?}");
        assert!(one.stdout == two.stdout, "{}\n{}", one.stdout, two.stdout);
    }
}

#[test]
fn another_seed_gives_another_run() {
    let with = |seed| run(&["crowd", "--duration", "500ms", "--seed", seed]).stdout;
    assert_ne!(with("1"), with("2"));
}

#[test]
fn eevdf_gives_spinners_their_weights_to_a_thousandth() {
    let report = simulate(&["weights", "--policy", "eevdf"]);
    // Switches cost a little, which nobody receives; what is handed out is to be handed out fairly.
    let used = number(&report["run"], "used");
    assert!(used > 0.99, "{report:#}");
    for row in report["vcpus"].as_array().expect("a list") {
        let (share, entitled) = (number(row, "share") / used, number(row, "entitled"));
        assert!(
            (share - entitled).abs() <= 0.001,
            "{share} of {entitled}: {row:#}"
        );
    }
}

#[test]
fn the_flag_starves_the_neighbours_and_the_fix_frees_them() {
    let starvation = |variant: &str| {
        let report = simulate(&["starvation", "--policy", &format!("fss:variant={variant}")]);
        number(row(&report, "quiet", "fair"), "longest_starvation_ns")
    };
    let (before, after) = (starvation("before"), starvation("after"));
    // Within the 5 s it first works, then catches the flag, and keeps it to the end.
    assert!(before >= 3.5e9, "{before}");
    assert!(after <= 1.0e9, "{after}");
}

#[test]
fn guests_that_fault_end_alone_and_the_run_goes_on() {
    let report = simulate(&["faults", "--duration", "2s"]);
    assert_accounted(&report);
    let healthy = row(&report, "healthy", "main");
    assert!(number(healthy, "run_ns") > 0.5e9, "{healthy:#}");
    for vm in ["triple-fault", "bad-port", "bad-memory", "bad-instruction"] {
        assert!(
            number(row(&report, vm, "main"), "run_ns") < 0.2e9,
            "{report:#}"
        );
    }
}

#[test]
fn a_thousand_cores_are_no_trouble() {
    let report = simulate(&["crowd", "--cores", "0-999", "--duration", "200ms"]);
    assert_accounted(&report);
}

#[test]
fn the_diagnosis_that_the_readme_shows_is_the_one_that_is_printed() {
    let printed = stealtime(&["run", "--backend", "sim"])
        .expect_status(0)
        .stdout;
    let readme = include_str!("../../README.md");
    let (_, shown) = readme.split_once("```text\n").expect("an example");
    let (shown, _) = shown.split_once("```").expect("its end");
    assert!(printed.ends_with(shown), "{shown}\n{printed}");
}

#[test]
fn a_deadlock_in_a_guest_is_told_with_its_circle() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("circle.toml");
    let scenario = r#"
        name = "circle"
        description = "two vCPUs take two mutexes in opposite order"
        policy = "rr"
        cores = 2
        duration = "100ms"
        [[vm]]
        name = "vm"
        locks = { first = "mutex-handoff", second = "mutex-handoff" }
        [[vm.vcpu]]
        name = "one"
        program = ["lock first", "run 1ms", "lock second", "unlock second", "unlock first"]
        [[vm.vcpu]]
        name = "other"
        program = ["lock second", "run 2ms", "lock first", "unlock first", "unlock second"]
    "#;
    std::fs::write(&file, scenario).expect("it is written");
    let report = simulate(&[file.to_str().expect("a path")]);
    let deadlocks = report["deadlocks"].as_array().expect("a list");
    assert_eq!(deadlocks.len(), 1, "{report:#}");
    let from = number(&deadlocks[0], "from_ns");
    assert!((2e6..2.1e6).contains(&from), "{from}");
    let said = "Deadlock since 0.002 s: vm/one waits for guest lock `vm:second`, which vm/other \
                holds; vm/other waits for guest lock `vm:first`, which vm/one holds.";
    let text = report["diagnosis"]["text"].as_str().expect("a text");
    assert!(text.contains(said), "{text}");
}
