//! Bad input: one clear line that says what was expected, status 2, and nothing runs.

use crate::support::{Started, kvm, program, stealtime};
use rustix::process::Signal;
use std::process::Command;
use std::time::Duration;

#[test]
fn an_unknown_policy_is_refused_with_all_that_there_are() {
    stealtime(&["run", "--policy", "fass"])
        .expect_status(2)
        .expect_error(&["no policy `fass`", "rr", "fss", "eevdf", "host"]);
}

#[test]
fn an_unknown_policy_option_is_refused_with_those_it_has() {
    stealtime(&["run", "--policy", "fss:quantom=10ms"])
        .expect_status(2)
        .expect_error(&["no option `quantom`", "quantum"]);
}

#[test]
fn a_policy_value_that_does_not_fit_is_refused_with_what_would() {
    stealtime(&["run", "--policy", "eevdf:slice=fast"])
        .expect_status(2)
        .expect_error(&["slice", "`fast`", "a time from"]);
}

#[test]
fn a_duration_of_zero_is_refused() {
    stealtime(&["run", "--duration", "0"])
        .expect_status(2)
        .expect_error(&["--duration", "longer than 0"]);
}

#[test]
fn a_duration_without_a_unit_is_refused_with_the_units() {
    stealtime(&["run", "--duration", "5"])
        .expect_status(2)
        .expect_error(&["`5` is not a length of time", "500us"]);
}

#[test]
fn an_unknown_policy_is_not_described() {
    stealtime(&["policies", "nosuch"])
        .expect_status(2)
        .expect_error(&["no policy `nosuch`", "fss"]);
}

/// Runs a scenario file with this text in `sim`, and expects it to be refused with these words.
#[track_caller]
fn refused(text: &str, words: &[&str]) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("mine.toml");
    std::fs::write(&file, text).expect("writable");
    let file = file.to_str().expect("UTF-8");
    stealtime(&["run", file, "--backend", "sim"])
        .expect_status(2)
        .expect_error(words);
}

/// A scenario with one vCPU and this program.
fn with_program(program: &str) -> String {
    format!(
        "name = \"mine\"\ndescription = \"x\"\n\n[[vm]]\nname = \"a\"\n\n[[vm.vcpu]]\nname = \"b\"\nprogram = [{program}]\n"
    )
}

#[test]
fn a_missing_scenario_is_refused_with_those_that_there_are() {
    stealtime(&["run", "starvatoin"])
        .expect_status(2)
        .expect_error(&["starvatoin", "no such scenario", "starvation", "kpri-fss"]);
}

#[test]
fn costs_are_not_measured_for_a_simulator_that_takes_no_part() {
    stealtime(&["reproduce", "ping", "--backend", "lab", "--calibrate"])
        .expect_status(2)
        .expect_error(&["--calibrate", "--backend all or sim"]);
}

#[test]
fn what_might_never_end_is_not_read_as_a_scenario() {
    stealtime(&["run", "/dev/zero", "--backend", "sim"])
        .expect_status(2)
        .expect_error(&["/dev/zero", "not a regular file"]);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let pipe = directory.path().join("pipe.toml");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo").success());
    stealtime(&["run", pipe.to_str().expect("UTF-8"), "--backend", "sim"])
        .expect_status(2)
        .expect_error(&["pipe.toml", "not a regular file"]);
}

#[test]
fn a_policy_option_given_twice_is_refused() {
    stealtime(&["run", "--policy", "eevdf:slice=1ms,slice=2ms"])
        .expect_status(2)
        .expect_error(&["given twice"]);
}

#[test]
fn a_missing_scenario_file_is_refused_with_its_path() {
    stealtime(&["run", "./nowhere/mine.toml"])
        .expect_status(2)
        .expect_error(&["./nowhere/mine.toml", "No such file"]);
}

#[test]
fn a_wrong_step_is_refused_with_file_line_and_what_was_expected() {
    refused(
        &with_program("\"rum 5ms\""),
        &["mine.toml:9:", "rum", "run"],
    );
}

#[test]
fn a_scenario_without_vcpus_is_refused() {
    refused(
        "name = \"mine\"\ndescription = \"x\"\n\n[[vm]]\nname = \"a\"\n",
        &["mine.toml", "vcpu"],
    );
}

#[test]
fn no_vcpus_by_number_are_refused() {
    let text = with_program("\"spin\"").replace("name = \"b\"", "name = \"b\"\ncount = 0");
    refused(&text, &["mine.toml:", "count", "0", "whole number from 1"]);
}

#[test]
fn a_parameter_that_the_policy_does_not_know_is_refused_by_name() {
    stealtime(&["run", "weights", "--policy", "rr", "--backend", "sim"])
        .expect_status(2)
        .expect_error(&["weight", "rr", "equal"]);
}

#[test]
fn a_core_that_does_not_exist_is_refused_with_those_that_may_be_used() {
    // Without KVM there are no host cores to speak of.
    let Some(_kvm) = kvm() else { return };
    stealtime(&["run", "--backend", "kvm", "--cores", "4095"])
        .expect_status(2)
        .expect_error(&["core 4095", "may use"]);
}

#[test]
fn more_vcpus_than_kvm_allows_are_refused_before_anything_runs() {
    let Some(_kvm) = kvm() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("wide.toml");
    let text = with_program("\"spin\"").replace("name = \"b\"", "name = \"b\"\ncount = 50000");
    std::fs::write(&file, text).expect("writable");
    let ran = stealtime(&["run", file.to_str().expect("UTF-8"), "--backend", "kvm"]);
    assert!(matches!(ran.status, Some(2 | 3)), "{ran:#?}");
    ran.expect_error(&["vCPUs", "50000"]);
}

#[test]
fn an_output_that_cannot_be_written_is_refused_before_anything_runs() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("file");
    std::fs::write(&file, "").expect("writable");
    let below = file.join("kept");
    let ran = stealtime(&[
        "run",
        "--backend",
        "sim",
        "--output",
        below.to_str().expect("UTF-8"),
    ]);
    ran.expect_status(2).expect_error(&["file/kept"]);
}

#[test]
fn an_output_that_is_there_already_is_not_overwritten() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let there = directory.path().join("there");
    std::fs::create_dir(&there).expect("writable");
    std::fs::write(there.join("precious"), "").expect("writable");
    let path = there.to_str().expect("UTF-8");
    stealtime(&["run", "--backend", "sim", "--output", path])
        .expect_status(2)
        .expect_error(&[path]);
    assert!(there.join("precious").exists());
}

#[test]
fn what_is_no_kept_run_is_refused() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().to_str().expect("UTF-8");
    for command in ["report", "replay"] {
        stealtime(&[command, path])
            .expect_status(2)
            .expect_error(&[path]);
        stealtime(&[command, "./nowhere"])
            .expect_status(2)
            .expect_error(&["./nowhere"]);
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let status = directory.path().join("status");
    let script = format!(
        "{{ {} policies; echo $? > {}; }} | true",
        program().display(),
        status.display()
    );
    let ran =
        Started::spawn(Command::new("sh").args(["-c", &script])).finish(Duration::from_secs(20));
    assert_eq!(ran.stderr, "");
    assert_eq!(
        std::fs::read_to_string(status).expect("written").trim(),
        "0"
    );
}

#[test]
fn closed_standard_output_is_an_error() {
    let script = format!("{} policies >&-", program().display());
    Started::spawn(Command::new("sh").args(["-c", &script]))
        .finish(Duration::from_secs(20))
        .expect_status(4)
        .expect_error(&["standard output is closed"]);
    // Thrown away on purpose is another thing.
    let script = format!("{} policies >/dev/null", program().display());
    let ran = Started::spawn(Command::new("sh").args(["-c", &script]));
    ran.finish(Duration::from_secs(20)).expect_status(0);
}

#[test]
fn an_empty_scenario_name_is_refused_as_missing() {
    stealtime(&["run", ""])
        .expect_status(2)
        .expect_error(&["a value is required", "[SCENARIO]"]);
}

#[test]
fn a_run_that_is_ended_early_says_so_unless_it_is_quiet() {
    for (quiet, signal) in [(false, Signal::TERM), (true, Signal::HUP)] {
        // A day of virtual time, so that the run is under way whenever the signal comes.
        let mut arguments = vec![
            "run",
            "spin-pair",
            "--backend",
            "sim",
            "--duration",
            "1440m",
        ];
        arguments.extend(quiet.then_some("--quiet"));
        let started = Started::new(&arguments);
        std::thread::sleep(Duration::from_millis(1_500));
        rustix::process::kill_process(started.id(), signal).expect("our own child");
        let ran = started.finish(Duration::from_secs(60)).expect_status(130);
        let said = ran.stderr.contains("ending early");
        assert_eq!(said, !quiet, "{signal:?}: {ran:#?}");
    }
}
