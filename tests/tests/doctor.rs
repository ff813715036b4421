//! What `doctor` tells, and the cost model that it stores.

use crate::support::{Started, kvm, program, stealtime};
use std::fs;
use std::process::Command;
use std::time::Duration;

#[test]
fn doctor_tells_whether_kvm_can_be_used_and_what_the_process_may_do() {
    let ran = stealtime(&["doctor"]).expect_status(0);
    for word in ["/dev/kvm can", "host cores", "real-time priority", "Costs"] {
        assert!(ran.stdout.contains(word), "{word}: {ran:#?}");
    }
}

#[test]
fn measured_costs_are_stored_and_taken_by_sim() {
    let Some(_kvm) = kvm() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("costs.json");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(program());
        command.args(arguments).env("STEALTIME_COSTS", &file);
        Started::spawn(&mut command).finish(Duration::from_secs(60))
    };
    run(&["run", "--backend", "sim"])
        .expect_status(3)
        .expect_error(&["costs.json"]);
    let stored = run(&["doctor", "--calibrate", "--only-costs"]).expect_status(0);
    assert!(stored.stdout.contains("costs.json"), "{stored:#?}");
    assert!(!stored.stdout.contains("The host itself"), "{stored:#?}");
    let text = fs::read_to_string(&file).expect("it was stored");
    assert!(text.contains("\"interference\": []"), "{text}");
    let simulated = run(&["run", "--backend", "sim", "--duration", "100ms"]).expect_status(0);
    assert!(
        simulated.stdout.contains("cost model: measured"),
        "{simulated:#?}"
    );
}

#[test]
fn what_the_host_does_is_stored_too_unless_other_programs_leave_nothing_to_measure() {
    let Some(_kvm) = kvm() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("costs.json");
    let mut command = Command::new(program());
    command
        .args(["doctor", "--calibrate"])
        .env("STEALTIME_COSTS", &file);
    let ran = Started::spawn(&mut command).finish(Duration::from_secs(60));
    if ran.status == Some(3) {
        ran.expect_error(&["nine tenths"]);
        return;
    }
    let ran = ran.expect_status(0);
    assert!(ran.stdout.contains("takes of each core"), "{ran:#?}");
    let text = fs::read_to_string(&file).expect("it was stored");
    assert!(text.contains("\"interference\": ["), "{text}");
    assert!(!text.contains("\"host_slice_ns\": 0"), "{text}");
}
