//! The names of the JSON form are a promise: they are written down here, and in
//! `docs/report-format.md`.

use crate::model::Report;
use crate::testing::starved;
use serde_json::Value;

fn names(value: &Value) -> Vec<String> {
    let mut names: Vec<_> = value
        .as_object()
        .expect("an object")
        .keys()
        .cloned()
        .collect();
    names.sort();
    names
}

fn sorted(names: &[&str]) -> Vec<String> {
    let mut names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    names.sort();
    names
}

const TOP: [&str; 19] = [
    "format_version",
    "backend",
    "policy",
    "scenario",
    "seed",
    "cores",
    "host_cores",
    "warmup_ns",
    "wall_ns",
    "interrupted",
    "deadlocks",
    "stall",
    "vcpus",
    "vms",
    "run",
    "quality",
    "violations",
    "worst",
    "diagnosis",
];
const VCPU: [&str; 27] = [
    "vm",
    "vcpu",
    "run_ns",
    "ready_ns",
    "blocked_ns",
    "hypervisor_ns",
    "costop_ns",
    "idle_ns",
    "kernel_priority_ns",
    "preempted_ns",
    "share",
    "entitled",
    "wakeup_ns",
    "run_delay_ns",
    "longest_starvation_ns",
    "longest_starvation_at_ns",
    "starving_at_end",
    "preemptions",
    "preemptions_by_reason",
    "preemptions_in_lock",
    "migrations",
    "yields",
    "kicks",
    "user_returns",
    "exits",
    "host_delay_ns",
    "guest",
];
const LATENCY: [&str; 7] = ["count", "p50", "p90", "p99", "p999", "max", "max_at_ns"];
const GUEST: [&str; 9] = [
    "progress_ns",
    "gaps",
    "gap_total_ns",
    "gap_max_ns",
    "gap_difference_ns",
    "request_ns",
    "interrupts",
    "lock_acquisitions",
    "lock_spin_ns",
];
const RUN: [&str; 9] = [
    "jain",
    "used",
    "throughput",
    "events",
    "lost_events",
    "host_interference_ns",
    "dispatch_overhead_ns",
    "dispatch_calls",
    "kick_ns",
];
const WORST: [&str; 10] = [
    "vm",
    "vcpu",
    "from_ns",
    "length_ns",
    "ended",
    "granted_for_ns",
    "occupants",
    "known_from_ns",
    "kernel_priority",
    "also",
];
const EXITS: [&str; 7] = [
    "call",
    "halt",
    "kick",
    "interrupt-window",
    "unexpected",
    "shutdown",
    "failed",
];

#[test]
fn the_names_of_the_json_form_are_as_promised() {
    let json: Value = serde_json::from_str(&starved().to_json()).expect("JSON");
    assert_eq!(names(&json), sorted(&TOP));
    let vcpu = &json["vcpus"][0];
    assert_eq!(names(vcpu), sorted(&VCPU));
    for latency in ["wakeup_ns", "run_delay_ns"] {
        assert_eq!(names(&vcpu[latency]), sorted(&LATENCY));
    }
    assert_eq!(names(&vcpu["exits"]), sorted(&EXITS));
    assert_eq!(names(&vcpu["guest"]), sorted(&GUEST));
    assert_eq!(names(&json["run"]), sorted(&RUN));
    assert_eq!(names(&json["worst"]), sorted(&WORST));
    assert_eq!(
        names(&json["diagnosis"]),
        sorted(&["starved", "cause", "text", "fix"])
    );
    assert_eq!(json["diagnosis"]["cause"], "kernel-priority");
}

#[test]
fn every_promised_name_is_documented() {
    let page = include_str!("../../docs/report-format.md");
    let all = [&TOP[..], &VCPU, &LATENCY, &GUEST, &RUN, &WORST, &EXITS];
    for name in all.into_iter().flatten() {
        assert!(page.contains(&format!("`{name}`")), "`{name}` is missing");
    }
}

#[test]
fn the_json_form_can_be_read_back_and_nothing_unknown_is_accepted() {
    let report = starved();
    let json = report.to_json();
    assert_eq!(
        serde_json::from_str::<Report>(&json).expect("a report"),
        report
    );
    let odd = json.replacen("\"seed\"", "\"sead\"", 1);
    assert!(serde_json::from_str::<Report>(&odd).is_err());
}

#[test]
fn the_six_states_sum_to_the_time_measured() {
    let report = starved();
    for v in &report.vcpus {
        let sum = v.run_ns + v.ready_ns + v.blocked_ns + v.hypervisor_ns + v.costop_ns + v.idle_ns;
        assert_eq!(sum, report.wall_ns);
    }
}
