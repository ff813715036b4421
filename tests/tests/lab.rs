//! The lab: the product on the kernel's own `kvm_amd`, in an emulated machine.
//!
//! Every test boots a machine, one at a time. Real time says nothing about an emulated machine on a busy
//! host: what is asserted are books, orders, and, in exact runs, figures to the byte or to the
//! instruction. Where the lab cannot be had (no Debian, no network), the tests say so and are skipped.

use crate::golden::assert_says;
use crate::sim_runs::{assert_accounted, number, row};
use crate::support::{Ran, Started, program};
use serde_json::Value;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// A boot and a run of some seconds, on a host that may be very busy.
const LIMIT: Duration = Duration::from_secs(400);

/// The page that holds the table of costs.
const PAGE: &str = include_str!("../../docs/lab.md");

/// How far a cost may be from the table's.
const TOLERANCE: f64 = 0.15;

/// The right to boot a machine while no other test does.
struct Lab(#[expect(dead_code, reason = "held, not read")] File);

/// Sets the lab up at its first call. None, with a loud line, if it cannot be had.
fn lab() -> Option<Lab> {
    static SET_UP: OnceLock<Option<String>> = OnceLock::new();
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lab.lock");
    let file = File::create(path).expect("the build directory is writable");
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)
        .expect("a file of our own can be locked");
    let problem = SET_UP.get_or_init(|| {
        let ran = Started::new(&["lab", "setup"]).finish(LIMIT);
        (ran.status != Some(0)).then_some(ran.stderr)
    });
    match problem {
        None => Some(Lab(file)),
        Some(problem) => {
            eprintln!("SKIPPED: this test needs the lab, and it cannot be had: {problem}");
            None
        }
    }
}

#[track_caller]
fn stealtime(arguments: &[&str]) -> Ran {
    Started::new(arguments).finish(LIMIT).expect_status(0)
}

#[track_caller]
fn run(arguments: &[&str]) -> Value {
    let mut all = vec!["lab", "run"];
    all.extend(arguments);
    all.extend(["--format", "json", "--quiet"]);
    let report = stealtime(&all).json();
    assert_eq!(report["backend"], "lab");
    assert_eq!(number(&report["run"], "lost_events"), 0.0, "{report:#}");
    report
}

fn vcpus(report: &Value) -> &Vec<Value> {
    report["vcpus"].as_array().expect("a list")
}

#[test]
#[ignore = "boots emulated machines; .ci/run does: cargo test ... -- --ignored lab::"]
fn the_default_run_is_accounted_for_and_replays() {
    let Some(_lab) = lab() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let kept = folder.path().join("run");
    let kept = kept.to_str().expect("a plain path");
    let report = run(&["--duration", "1s", "--output", kept]);
    assert_accounted(&report);
    let replayed = stealtime(&["replay", kept]);
    assert!(!replayed.stdout.is_empty());
}

#[test]
#[ignore = "boots emulated machines; .ci/run does: cargo test ... -- --ignored lab::"]
fn exact_runs_are_the_same_to_the_byte_streams_included() {
    let Some(_lab) = lab() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let runs = ["one", "two"].map(|name| {
        let kept = folder.path().join(name);
        let kept_path = kept.to_str().expect("a plain path");
        let report = run(&[
            "ping",
            "--exact",
            "--duration",
            "300ms",
            "--warmup",
            "50ms",
            "--output",
            kept_path,
        ]);
        (report, kept)
    });
    let [(first, one), (second, two)] = runs;
    assert_eq!(first, second);
    assert_accounted(&first);
    for entry in fs::read_dir(&one).expect("kept") {
        let name = entry.expect("kept").file_name();
        let (a, b) = (fs::read(one.join(&name)), fs::read(two.join(&name)));
        assert!(a.expect("kept") == b.expect("kept"), "{name:?} differs");
    }
    let interrupts: f64 = vcpus(&first)
        .iter()
        .map(|row| number(&row["guest"], "interrupts"))
        .sum();
    assert!(interrupts > 10.0, "{first:#}");
    assert_report_says(&one, "lab/ping.txt");
}

/// Compares the text of a kept run's report with the golden file.
#[track_caller]
fn assert_report_says(kept: &Path, golden: &str) {
    let report = stealtime(&["report", kept.to_str().expect("a plain path")]).stdout;
    assert_says(&report, golden);
}

#[test]
#[ignore = "boots emulated machines; .ci/run does: cargo test ... -- --ignored lab::"]
fn the_kernel_priority_fault_starves_its_victims_and_the_fix_helps_them() {
    let Some(_lab) = lab() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let longest = |policy, name| {
        let kept = folder.path().join(name);
        let report = run(&[
            "kpri-fss",
            "--exact",
            "--policy",
            policy,
            "--duration",
            "2s",
            "--warmup",
            "100ms",
            "--output",
            kept.to_str().expect("a plain path"),
        ]);
        assert_report_says(&kept, &format!("lab/kpri-fss-{name}.txt"));
        let victims = vcpus(&report).iter().filter(|row| row["vm"] != "noisy");
        victims
            .map(|row| number(row, "longest_starvation_ns"))
            .fold(0.0, f64::max)
    };
    let (fault, fixed) = (
        longest("fss", "fault"),
        longest("fss:variant=after", "fixed"),
    );
    assert!(fault >= 1.6e9, "with the fault: {fault}");
    assert!(fixed <= 1.0e9, "with the fix: {fixed}");
}

#[test]
#[ignore = "boots emulated machines; .ci/run does: cargo test ... -- --ignored lab::"]
fn shares_by_weight_are_within_a_point_in_an_exact_run() {
    let Some(_lab) = lab() else {
        return;
    };
    let report = run(&[
        "weights",
        "--exact",
        "--policy",
        "eevdf",
        "--duration",
        "2s",
        "--warmup",
        "200ms",
    ]);
    for row in vcpus(&report) {
        let off = (number(row, "share") - number(row, "entitled")).abs();
        assert!(off <= 0.01, "{off}: {row:#}");
    }
}

#[test]
#[ignore = "boots emulated machines; .ci/run does: cargo test ... -- --ignored lab::"]
fn a_guest_that_faults_ends_its_own_vm_only() {
    let Some(_lab) = lab() else {
        return;
    };
    let report = run(&["faults", "--exact", "--duration", "1s", "--warmup", "0ms"]);
    let vms = report["vms"].as_array().expect("a list");
    for vm in vms {
        let name = vm["vm"].as_str().expect("a name");
        let faults = !matches!(name, "flood" | "healthy");
        assert_eq!(vm["failure"].is_null(), !faults, "{vm:#}");
    }
    let healthy = row(&report, "healthy", "main");
    assert!(
        number(&healthy["guest"], "progress_ns") > 1e6,
        "{healthy:#}"
    );
}

#[test]
#[ignore = "boots emulated machines; .ci/run does: cargo test ... -- --ignored lab::"]
fn eight_vcpus_get_along_on_one_core_and_on_two() {
    let Some(_lab) = lab() else {
        return;
    };
    for cores in ["0", "0,1"] {
        let report = run(&[
            "locks",
            "--lab-cores",
            "2",
            "--cores",
            cores,
            "--policy",
            "eevdf",
            "--duration",
            "1s",
        ]);
        assert_accounted(&report);
        assert_eq!(vcpus(&report).len(), 8, "the scenario has eight");
        for row in vcpus(&report) {
            assert!(number(row, "run_ns") > 0.0, "{row:#}");
        }
    }
}

#[test]
#[ignore = "boots emulated machines; .ci/run does: cargo test ... -- --ignored lab::"]
fn the_labs_costs_are_those_of_the_page() {
    let Some(_lab) = lab() else {
        return;
    };
    let doctor = stealtime(&["lab", "exec", "--exact", "--", "doctor"]);
    assert!(
        doctor.stdout.contains("/dev/kvm can be used"),
        "{doctor:#?}"
    );
    let setup = stealtime(&["lab", "setup"]).stdout;
    let machine = PAGE
        .lines()
        .find(|line| line.starts_with("Measured with "))
        .expect("said");
    let known = machine
        .split('`')
        .skip(1)
        .step_by(2)
        .all(|version| setup.contains(version));
    for line in PAGE.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, what, expected, _] = cells[..] else {
            continue;
        };
        let Ok(expected) = expected.replace(',', "").parse::<f64>() else {
            continue;
        };
        let measured = median(&doctor.stdout, what);
        let off = measured / expected - 1.0;
        println!("{what}: {measured} instructions, {expected} in docs/lab.md");
        if !known || cfg!(debug_assertions) {
            eprintln!(
                "NOT COMPARED: this is a debug build, or not what docs/lab.md has: {machine}"
            );
            continue;
        }
        assert!(
            off.abs() <= TOLERANCE,
            "{what}: {measured} instructions, but docs/lab.md has {expected} ({:+.0} %)",
            off * 100.0
        );
    }
}

/// The median in a line of `doctor`'s table, in nanoseconds, which are instructions here.
fn median(doctor: &str, what: &str) -> f64 {
    let line = doctor
        .lines()
        .find(|line| line.trim_start().starts_with(what))
        .expect("a row");
    let mut words = line.trim_start()[what.len()..].split_whitespace();
    let number: f64 = words.next().expect("a figure").parse().expect("a number");
    match words.next().expect("a unit") {
        "ns" => number,
        "us" => number * 1e3,
        "ms" => number * 1e6,
        other => panic!("the unit {other} in {line}"),
    }
}

/// Where the page has the table of predictions.
const PREDICTIONS: [&str; 2] = ["<!-- predictions -->\n", "<!-- /predictions -->"];

#[test]
#[ignore = "boots emulated machines; .ci/run does: cargo test ... -- --ignored lab::"]
fn sim_with_the_labs_costs_predicts_the_lab() {
    let Some(_lab) = lab() else {
        return;
    };
    let mut arguments = vec!["lab", "predict", "--quiet"];
    let anew = std::env::var_os("STEALTIME_WRITE_DOCS").is_some();
    if !anew {
        arguments.extend(["ping", "nice"]);
    }
    // A boot to measure costs and one for each scenario; the criterion is the program's own.
    let ran = Started::new(&arguments).finish(3 * LIMIT);
    println!("{}", ran.stdout);
    let ran = ran.expect_status(0);
    let medians = ran.stdout.lines().filter(|line| line.contains(" us |"));
    assert!(medians.count() >= 3, "{ran:#?}");
    if anew {
        let [begin, end] = PREDICTIONS;
        let (before, rest) = PAGE.split_once(begin).expect("marked");
        let (_, after) = rest.split_once(end).expect("marked");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/lab.md");
        let page = format!("{before}{begin}{}{end}{after}", ran.stdout);
        fs::write(path, page).expect("the page can be written");
    }
}

#[test]
#[ignore = "boots emulated machines; .ci/run does: cargo test ... -- --ignored lab::"]
fn ctrl_c_ends_the_machine_and_what_was_measured_is_reported() {
    let Some(_lab) = lab() else {
        return;
    };
    let mut command = Command::new(program());
    command.args([
        "lab",
        "run",
        "spin-pair",
        "--duration",
        "100s",
        "--format",
        "json",
        "--quiet",
    ]);
    let started = Started::spawn(&mut command);
    let id = started.id();
    std::thread::sleep(Duration::from_secs(30));
    rustix::process::kill_process(id, rustix::process::Signal::INT).expect("our own child");
    let ran = started.finish(LIMIT);
    assert_eq!(ran.status, Some(130), "{ran:#?}");
}

#[test]
fn what_the_lab_cannot_be_is_said_before_anything_boots() {
    let two = Started::new(&["lab", "run", "--exact", "--lab-cores", "2"]).finish(LIMIT);
    two.expect_status(2)
        .expect_error(&["one emulated core", "--exact"]);
    let other = Started::new(&["run", "--backend", "sim", "--exact"]).finish(LIMIT);
    other.expect_status(2).expect_error(&["--backend lab"]);
    let none = Started::new(&["lab", "setup", "--qemu", "/no/such/qemu"]);
    none.finish(LIMIT)
        .expect_status(3)
        .expect_error(&["/no/such/qemu"]);
}
