//! `trace` and `dist`: the events of kept runs, and the times between them.

use crate::support::{program, stealtime};
use serde_json::Value;
use std::io::Read;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A short run of a scenario, kept.
struct Kept {
    #[expect(dead_code, reason = "removed when it is dropped")]
    directory: TempDir,
    path: String,
    report: Value,
}

fn keep(arguments: &[&str]) -> Kept {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("kept");
    let path = path.to_str().expect("UTF-8").to_owned();
    let mut all = vec!["run"];
    all.extend(arguments);
    all.extend([
        "--backend",
        "sim",
        "--format",
        "json",
        "--output",
        &path,
        "--quiet",
    ]);
    let report = stealtime(&all).expect_status(0).json();
    Kept {
        directory,
        path,
        report,
    }
}

#[track_caller]
fn trace(kept: &Kept, arguments: &[&str]) -> String {
    let all = [&["trace", &kept.path], arguments].concat();
    stealtime(&all).expect_status(0).stdout
}

#[test]
fn a_trace_has_every_event_of_the_run_in_order() {
    let kept = keep(&["starvation", "--duration", "2s"]);
    let rows: Vec<Value> = trace(&kept, &["--format", "json"])
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let emitted = kept.report["run"]["events"].as_u64().expect("a number");
    assert_eq!(rows.len() as u64, emitted, "{:#}", kept.report["run"]);
    let times: Vec<_> = rows.iter().map(|row| row["at_ns"].as_u64()).collect();
    assert!(times.is_sorted());
    // The flag is caught on the core, and never lost.
    let standings: Vec<_> = rows
        .iter()
        .filter(|row| row["event"] == "standing")
        .collect();
    assert_eq!(standings.len(), 1, "{standings:#?}");
    assert_eq!(standings[0]["vm"], "noisy");
    assert_eq!(standings[0]["detail"], "kernel-priority");
    let text = trace(&kept, &[]);
    assert_eq!(text.lines().count() as u64, emitted + 1);
}

#[test]
fn masks_of_a_trace_part_the_events_among_them() {
    let kept = keep(&["ping", "--duration", "200ms"]);
    let lines = |mask: &str| {
        trace(&kept, &["--mask", mask, "--format", "json"])
            .lines()
            .count()
    };
    let all = lines("events");
    let union = lines("proc,sched,intr,lock,exit,host,mark");
    assert_eq!(all, union);
    assert!(lines("intr") > 0 && lines("proc") > 0 && lines("lock") == 0);
    assert!(lines("all") > all + lines("effect"));
}

#[test]
fn a_trace_that_nobody_reads_to_its_end_ends_quietly() {
    let kept = keep(&["crowd", "--duration", "2s"]);
    let mut child = Command::new(program())
        .args(["trace", &kept.path])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut first = [0; 100];
    let mut pipe = child.stdout.take().expect("piped");
    pipe.read_exact(&mut first)
        .expect("there is more than that");
    drop(pipe);
    let ended = child.wait_with_output().expect("it ends");
    assert_eq!(ended.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "");
}

#[test]
fn a_trace_for_viewers_is_one_document() {
    let kept = keep(&["starvation", "--duration", "1500ms"]);
    let text = trace(
        &kept,
        &["--format", "perfetto", "--from", "1s", "--to", "1.2s"],
    );
    let document: Value = serde_json::from_str(&text).expect("JSON");
    let rows = document["traceEvents"].as_array().expect("a list");
    let named = |name: &str| rows.iter().filter(|row| row["name"] == name).count();
    assert!(named("noisy/spinner (kernel priority)") > 0, "{text}");
    for row in rows.iter().filter(|row| row["ph"] == "X") {
        let at = row["ts"].as_f64().expect("a number");
        assert!((1e6..=1.2e6).contains(&at), "{row}");
    }
}

#[test]
fn what_a_trace_does_not_know_is_answered_with_what_there_is() {
    let kept = keep(&["starvation", "--duration", "100ms"]);
    let refused = |arguments: &[&str], words: &[&str]| {
        let all = [&["trace", &kept.path], arguments].concat();
        stealtime(&all).expect_status(2).expect_error(words);
    };
    refused(
        &["--mask", "intr,nosuch"],
        &["nosuch", "proc", "sched", "intr", "lock"],
    );
    refused(&["--vcpu", "nosuch/x"], &["nosuch/x", "noisy/spinner"]);
    refused(&["--cpu", "9"], &["core 9"]);
    refused(&["--from", "2s", "--to", "1s"], &["before"]);
    stealtime(&["trace", "/nosuch"])
        .expect_status(2)
        .expect_error(&["/nosuch"]);
}

#[track_caller]
fn dist(kept: &Kept, from: &str, to: &str) -> Value {
    let all = [
        "dist", &kept.path, "--from", from, "--to", to, "--format", "json",
    ];
    stealtime(&all).expect_status(0).json()
}

#[test]
fn the_time_from_waking_to_running_is_the_reports_wakeup_latency() {
    let kept = keep(&[
        "crowd",
        "--duration",
        "3s",
        "--warmup",
        "500ms",
        "--policy",
        "eevdf",
    ]);
    let found = dist(&kept, "woken", "running");
    let mut compared = 0;
    for row in found["vcpus"].as_array().expect("a list") {
        let reported = crate::sim_runs::row(
            &kept.report,
            row["vm"].as_str().expect("a name"),
            row["vcpu"].as_str().expect("a name"),
        );
        let reported = &reported["wakeup_ns"];
        // A wake-up before the measurement counts in the report from its start, here not at all.
        if row["count"] == reported["count"] {
            assert_eq!(row["max"], reported["max"], "{row:#} {reported:#}");
            assert_eq!(row["p99"], reported["p99"], "{row:#} {reported:#}");
            compared += 1;
        }
    }
    assert!(compared > 10, "{compared}");
}

#[test]
fn the_time_from_interrupt_to_handler_is_shown_with_its_histogram() {
    let kept = keep(&["ping", "--duration", "1s"]);
    let found = dist(&kept, "irq_raise", "handler_run");
    let count = found["all"]["count"].as_u64().expect("a number");
    assert!(count > 500, "{found:#}");
    let bins = found["bins"].as_array().expect("a list");
    let sum: u64 = bins.iter().filter_map(|bin| bin["count"].as_u64()).sum();
    assert_eq!(sum, count);
    let arguments = [
        "dist",
        &kept.path,
        "--from",
        "irq_raise",
        "--to",
        "handler_run",
    ];
    let text = stealtime(&arguments).expect_status(0).stdout;
    for word in ["99.9 %", "longest", "server/main", "Histogram", "█"] {
        assert!(text.contains(word), "{word} is missing: {text}");
    }
}

#[test]
fn kinds_of_events_that_there_are_not_are_answered_with_those_there_are() {
    let kept = keep(&["starvation", "--duration", "100ms"]);
    let refused = |from: &str, words: &[&str]| {
        let all = ["dist", &kept.path, "--from", from, "--to", "running"];
        stealtime(&all).expect_status(2).expect_error(words);
    };
    refused("nosuch", &["nosuch", "irq_raise", "handler_run", "blocked"]);
    refused("blocked:nosuch", &["nosuch", "host-lock"]);
    refused("host_lock_taken:nosuch", &["nosuch", "pages"]);
}

#[test]
fn the_page_on_commands_names_every_class_and_every_kind() {
    let page = include_str!("../../docs/commands.md");
    let listed = |command: &str| {
        let help = stealtime(&[command, "--help"]).expect_status(0).stdout;
        let (_, list) = help.split_once("of events").expect("a list at the end");
        let lines = list.lines().skip(1);
        // Continued lines have no two blanks behind their first word.
        lines
            .filter_map(|line| line.strip_prefix("  ")?.split_once("  "))
            .map(|(name, _)| name.to_owned())
            .collect::<Vec<_>>()
    };
    let (classes, kinds) = (listed("trace"), listed("dist"));
    assert!(
        classes.len() >= 10 && kinds.len() >= 23,
        "{classes:?} {kinds:?}"
    );
    for name in classes.iter().chain(&kinds) {
        assert!(page.contains(&format!("`{name}`")), "`{name}` is missing");
    }
}
