//! `explain`: the chain from the worst wait to what it waited for in the end.

use crate::support::stealtime;
use serde_json::Value;
use std::path::Path;

/// The convoy of the original report, small: waiters wait for `probes`, its holder for `cpu`, whose
/// holder was woken to take `xcall`, which is free, and waits for the core that a vCPU with the flag
/// has.
const CONVOY: &str = r#"
name = "convoy-small"
description = "a convoy behind a kernel priority that outlived its cause"
policy = "fss:variant=before"
cores = 1
duration = "3s"
host-locks = { probes = "mutex", cpu = "mutex", xcall = "mutex" }

[[vm]]
name = "xcaller"
[[vm.vcpu]]
name = "main"
repeat = "once"
program = ["host-lock xcall kernel-priority", "host-wait 100ms", "host-unlock xcall", "user-return", "sleep 60s"]

[[vm]]
name = "qemu"
[[vm.vcpu]]
name = "vcpu-0"
setup = ["host-lock pages kernel-priority", "host-wait 100ms", "host-unlock pages"]
program = ["spin"]

[[vm]]
name = "bhyve"
[[vm.vcpu]]
name = "vcpu-1"
start = "5ms"
program = ["host-lock cpu", "host-lock xcall", "hypervisor 50us", "host-unlock xcall", "host-unlock cpu", "run 100us"]

[[vm]]
name = "node"
[[vm.vcpu]]
name = "main"
start = "8ms"
program = ["host-lock probes", "host-lock cpu", "hypervisor 50us", "host-unlock cpu", "host-unlock probes", "sleep 2ms"]

[[vm]]
name = "vadm"
count = 312
[[vm.vcpu]]
name = "main"
start = "10ms"
program = ["host-lock probes", "hypervisor 50us", "host-unlock probes", "user-return", "sleep 10ms..20ms"]
"#;

/// Explains the convoy under a policy.
fn convoy(arguments: &[&str]) -> String {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("convoy.toml");
    std::fs::write(&file, CONVOY).expect("writable");
    let file = file.to_str().expect("UTF-8");
    let all = [&["explain", file, "--backend", "sim", "--quiet"], arguments].concat();
    stealtime(&all).expect_status(0).stdout
}

/// Keeps a run of `starvation` below a directory: its path, and its report.
fn keep(below: &Path, arguments: &[&str]) -> (String, Value) {
    let kept = below.join("kept");
    let kept = kept.to_str().expect("UTF-8");
    let run = [
        &["run", "starvation", "--backend", "sim", "--output", kept][..],
        &["--format", "json", "--quiet"],
        arguments,
    ];
    let report = stealtime(&run.concat()).expect_status(0).json();
    (kept.to_owned(), report)
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// In one line, whatever was broken where.
fn unfolded(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_convoy_is_told_waiter_by_waiter_down_to_the_flag() {
    let told = json(&convoy(&["--worst", "1", "--format", "json"]));
    let waited = &told["waits"][0];
    let frame = |n: usize| &waited["frames"][n];
    let names: Vec<_> = (0..4)
        .map(|n| format!("{} {}", frame(n)["vm"], frame(n)["state"]).replace('"', ""))
        .collect();
    assert!(
        names[0].starts_with("vadm-") && names[0].ends_with(" blocked"),
        "{waited:#}"
    );
    assert_eq!(names[1..], ["node blocked", "bhyve ready", "qemu running"]);
    let wants: Vec<_> = (0..3).map(|n| frame(n)["what"].as_str()).collect();
    assert_eq!(wants, [Some("probes"), Some("cpu"), Some("0")]);
    assert_eq!(frame(0)["others"], 311);
    assert_eq!(waited["end"], "occupied");
    assert_eq!(waited["reasons"][0]["reason"], "kernel-priority");
    assert_eq!(waited["ended"], false);
    // The original: the thread on the core at 60, the one that is ready at 1.
    assert_eq!(frame(3)["rank"], "priority 60");
    let text = unfolded(&convoy(&["--worst", "1"]));
    for words in [
        "311 more wait for it",
        "woken to take host lock `xcall`, free since 0.100 s",
        "KERNEL PRIORITY",
        "qemu/vcpu-0 was not preempted: kernel priority since",
        "host lock `pages`",
        "no return to user mode since",
    ] {
        assert!(text.contains(words), "`{words}` is missing: {text}");
    }
}

#[test]
fn without_the_flag_nobody_waits_for_a_lock_that_long() {
    let told = json(&convoy(&[
        "--policy",
        "fss:variant=after",
        "--format",
        "json",
    ]));
    for waited in told["waits"].as_array().expect("a list") {
        assert_ne!(
            waited["reasons"][0]["reason"], "kernel-priority",
            "{waited:#}"
        );
        assert_ne!(waited["waited_for"], "host-lock", "{waited:#}");
    }
}

#[test]
fn a_kept_run_and_its_scenario_are_explained_alike_and_as_the_report_says() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (kept, report) = keep(directory.path(), &[]);
    let kept = kept.as_str();
    let of_kept = stealtime(&["explain", kept]).expect_status(0).stdout;
    let of_scenario = ["explain", "starvation", "--backend", "sim", "--quiet"];
    let of_scenario = stealtime(&of_scenario).expect_status(0).stdout;
    assert_eq!(of_kept, of_scenario);
    let told = stealtime(&["explain", kept, "--format", "json"]);
    let told = told.expect_status(0).json();
    let (first, worst) = (&told["waits"][0], &report["worst"]);
    for key in ["vm", "vcpu", "from_ns", "length_ns", "ended"] {
        assert_eq!(first[key], worst[key], "{key}");
    }
    assert_eq!(first["frames"][1]["vm"], "noisy");
    assert_eq!(first["reasons"][0]["reason"], "kernel-priority");
}

#[test]
fn every_scenario_is_explained_and_nothing_waits_longer_than_the_run() {
    let list = stealtime(&["scenarios"]).expect_status(0).stdout;
    let (list, _) = list.split_once("\n\n").expect("a list, then a remark");
    let names = list.lines().filter(|line| !line.starts_with(' '));
    for name in names.filter_map(|line| line.split_whitespace().next()) {
        let arguments = [
            "explain",
            name,
            "--backend",
            "sim",
            "--duration",
            "300ms",
            "--format",
            "json",
            "--quiet",
        ];
        let told = stealtime(&arguments).expect_status(0).json();
        for waited in told["waits"].as_array().expect("a list") {
            let length = waited["length_ns"].as_u64().expect("a number");
            assert!(length <= 300_000_000, "{waited:#}");
            let alike = waited["alike_ns"].as_u64().expect("a number");
            assert!(0 < alike && alike <= length, "{waited:#}");
            let shares = waited["ends"].as_array().expect("a list").iter();
            let sum: u64 = shares.filter_map(|share| share["length_ns"].as_u64()).sum();
            assert_eq!(sum, length, "{waited:#}");
        }
    }
}

#[test]
fn what_cannot_be_explained_is_refused_with_what_can() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (kept, _) = keep(directory.path(), &["--duration", "100ms"]);
    let kept = kept.as_str();
    let refused = |arguments: &[&str], words: &[&str]| {
        let all = [&["explain"], arguments].concat();
        stealtime(&all).expect_status(2).expect_error(words);
    };
    refused(&[kept, "--policy", "rr"], &["over"]);
    refused(&[kept, "--vcpu", "nosuch"], &["nosuch", "noisy/spinner"]);
    refused(
        &["starvation", "--backend", "sim", "--vcpu", "nosuch"],
        &["nosuch", "noisy/spinner"],
    );
    refused(&["nosuch"], &["nosuch"]);
    let empty = directory.path().to_str().expect("UTF-8");
    refused(&[empty], &["not a run"]);
}
