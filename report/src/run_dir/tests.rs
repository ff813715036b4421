//! A run is kept, read and replayed; whatever is done to its files is noticed.

use super::{
    HEADER_BYTES, Kind, LoadError, RUN_FILE, RUN_VERSION, Recording, ReplayError, RunFile,
    RunWriter, STREAM_FILE, STREAM_VERSION, WriteError, load, replay, stream,
};
use crate::collector::Collector;
use crate::model::Report;
use crate::testing::plan;
use crate::testing::player::{STRANGER, play};
use std::fs;
use std::path::{Path, PathBuf};
use stealtime_scheduler::effect::Effect;
use stealtime_scheduler::event::EventKind;
use stealtime_scheduler::input::Input;
use stealtime_scheduler::record::RECORD_BYTES;
use stealtime_scheduler::time::Nanos;
use stealtime_workloads::run::{Entry, Observer, Outcome, Plan};
use tempfile::TempDir;

fn report(plan: &Plan, entries: &[Entry]) -> Report {
    let mut collector = Collector::new(plan);
    collector.entries(entries);
    let mut outcome = Outcome::default();
    let is_event = |entry: &&Entry| matches!(entry, Entry::Event(_));
    outcome.quality.events_emitted = entries.iter().filter(is_event).count() as u64;
    Report::build(plan, "sim", collector, &outcome)
}

fn keep(dir: &Path, plan: &Plan, entries: &[Entry]) -> Report {
    let report = report(plan, entries);
    let mut writer = RunWriter::create(dir).expect("a place to write");
    for part in entries.chunks(7) {
        writer.entries(part);
    }
    let place = writer.finish(plan, &report).expect("written");
    assert!(place.is_absolute());
    report
}

/// A run under `fss`, kept in a directory.
fn kept() -> (TempDir, PathBuf, Plan, Vec<Entry>) {
    let plan = plan("fss", 4, 2);
    let entries = play(&plan, Nanos::from_secs(2));
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("run");
    keep(&dir, &plan, &entries);
    (home, dir, plan, entries)
}

/// What lies beside the run.
fn names(home: &Path) -> Vec<String> {
    let all = fs::read_dir(home).expect("a directory");
    let mut names: Vec<_> = all
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    names
}

#[test]
fn a_kept_run_is_read_as_it_was_and_replays_the_same() {
    for (policy, cores) in [("rr", 1), ("fss", 2), ("fss", 1), ("eevdf", 2), ("host", 2)] {
        let plan = plan(policy, 5, cores);
        let entries = play(&plan, Nanos::from_secs(2));
        let home = tempfile::tempdir().expect("a directory");
        let dir = home.path().join("run");
        let report = keep(&dir, &plan, &entries);
        assert_eq!(names(home.path()), ["run"]);
        let recording = load(&dir).expect("a run");
        assert_eq!(recording.run.report, report);
        assert_eq!(recording.run.plan, plan);
        assert_eq!(recording.run.config, plan.config());
        let read: Vec<_> = recording
            .entries()
            .expect("a stream")
            .collect::<Result<_, _>>()
            .expect("whole");
        assert_eq!(read, entries);
        let replay = replay(&recording).expect("a replay");
        assert_eq!(replay.difference, None, "{replay}");
        assert!(replay.inputs > 1_000, "{replay}");
        assert_eq!(
            replay.inputs + replay.effects + replay.events,
            entries.len() as u64
        );
        assert!(replay.to_string().starts_with("The same: "), "{replay}");
    }
}

#[test]
fn the_figures_can_be_computed_again_from_the_kept_stream() {
    let (_home, dir, plan, _) = kept();
    let recording = load(&dir).expect("a run");
    let entries: Vec<_> = recording
        .entries()
        .expect("a stream")
        .collect::<Result<_, _>>()
        .expect("whole");
    assert_eq!(report(&plan, &entries), recording.run.report);
    assert_eq!(recording.run.report.run.lost_events, 0);
}

#[test]
fn one_changed_byte_anywhere_in_the_stream_is_noticed() {
    let (_home, dir, ..) = kept();
    let file = dir.join(STREAM_FILE);
    let whole = fs::read(&file).expect("a stream");
    let step = whole.len() / 97;
    for place in (0..whole.len()).step_by(step) {
        let mut changed = whole.clone();
        changed[place] ^= 0x10;
        fs::write(&file, &changed).expect("written");
        let error = load(&dir).expect_err("a changed byte");
        match error {
            LoadError::Header { .. } => assert!(place < HEADER_BYTES),
            LoadError::Checksum { .. } => assert!(place >= HEADER_BYTES),
            other => panic!("{other}"),
        }
    }
    fs::write(&file, &whole).expect("written");
    assert!(load(&dir).is_ok());
}

/// Changes the stream and writes the checksum that fits, as one would who wants to deceive.
fn forge(dir: &Path, change: impl FnOnce(&mut Vec<u8>)) -> Recording {
    let file = dir.join(STREAM_FILE);
    let mut bytes = fs::read(&file).expect("a stream");
    change(&mut bytes);
    fs::write(&file, &bytes).expect("written");
    let path = dir.join(RUN_FILE);
    let mut run: RunFile = serde_json::from_slice(&fs::read(&path).expect("read")).expect("JSON");
    run.crc32 = crc32fast::hash(&bytes);
    run.records = ((bytes.len() - HEADER_BYTES) / RECORD_BYTES) as u64;
    fs::write(&path, serde_json::to_vec(&run).expect("JSON")).expect("written");
    load(dir).expect("a run that looks whole")
}

fn record_at(entry: usize) -> std::ops::Range<usize> {
    let start = HEADER_BYTES + entry * RECORD_BYTES;
    start..start + RECORD_BYTES
}

#[test]
fn a_forged_effect_is_found_by_replay_and_shown_with_what_came_before() {
    let (_home, dir, _, entries) = kept();
    let run = |entry: &Entry| matches!(entry, Entry::Effect(Effect::Run { .. }));
    let place = entries.iter().skip(200).position(run).expect("one") + 200;
    let Entry::Effect(Effect::Run { core, vcpu }) = entries[place] else {
        panic!("not an effect");
    };
    let forged = Entry::Effect(Effect::Kick { core, vcpu });
    let recording = forge(&dir, |bytes| {
        bytes[record_at(place)].copy_from_slice(&stream::encode(&forged));
    });
    let replay = replay(&recording).expect("a replay");
    let difference = replay.difference.clone().expect("a difference");
    assert_eq!(difference.kind, Kind::Effect);
    assert_eq!(
        difference.recorded,
        Some(format!("Kick {{ core: {core:?}, vcpu: {vcpu:?} }}"))
    );
    assert_eq!(
        difference.replayed,
        Some(format!("Run {{ core: {core:?}, vcpu: {vcpu:?} }}"))
    );
    assert_eq!(difference.before.len(), 5);
    let is_input = |entry: &&Entry| matches!(entry, Entry::Input(..));
    let inputs = entries[..place].iter().filter(is_input).count() as u64;
    assert_eq!((difference.input_number, replay.inputs), (inputs, inputs));
    let shown = replay.to_string();
    assert!(
        shown.starts_with("Not the same") && shown.contains("replayed   Run"),
        "{shown}"
    );
}

#[test]
fn a_missing_event_and_a_time_that_is_off_by_one_are_found_by_replay() {
    let (_home, dir, _, entries) = kept();
    let event =
        |entry: &Entry| matches!(entry, Entry::Event(e) if matches!(e.kind, EventKind::Running(_)));
    let place = entries.iter().skip(500).position(event).expect("one") + 500;
    let recording = forge(&dir, |bytes| {
        bytes.drain(record_at(place));
    });
    let found = replay(&recording)
        .expect("a replay")
        .difference
        .expect("a difference");
    assert_eq!((found.kind, found.recorded), (Kind::Event, None));

    let (_home, dir, _, entries) = kept();
    let entered = |entry: &Entry| matches!(entry, Entry::Input(_, Input::Entered { .. }));
    let place = entries.iter().skip(500).position(entered).expect("one") + 500;
    let recording = forge(&dir, |bytes| bytes[record_at(place)][8] ^= 1);
    assert!(replay(&recording).expect("a replay").difference.is_some());
}

#[test]
fn records_that_mean_nothing_or_name_strangers_are_errors_not_panics() {
    let (_home, dir, ..) = kept();
    let recording = forge(&dir, |bytes| bytes[record_at(9)][1] = 200);
    let error = replay(&recording).expect_err("nonsense");
    assert!(
        matches!(
            error,
            ReplayError::Load(LoadError::Record { number: 9, .. })
        ),
        "{error}"
    );

    let (_home, dir, ..) = kept();
    let stranger = stream::encode(&Entry::Input(Nanos(1), STRANGER));
    let recording = forge(&dir, |bytes| bytes.extend_from_slice(&stranger));
    let error = replay(&recording).expect_err("a stranger");
    assert!(matches!(error, ReplayError::Stranger { .. }), "{error}");
}

#[test]
fn what_is_missing_cut_off_or_foreign_is_named() {
    let (_home, dir, ..) = kept();
    let message = |dir: &Path| load(dir).expect_err("not a run").to_string();
    assert!(message(&dir.join("nowhere")).contains("it has no `run.json`"));
    let file = dir.join(STREAM_FILE);
    let whole = fs::read(&file).expect("a stream");
    for length in [0, 5, HEADER_BYTES, whole.len() - 1] {
        fs::write(&file, &whole[..length]).expect("written");
        let text = message(&dir);
        assert!(
            text.contains(&format!("has {length} bytes instead of {}", whole.len())),
            "{text}"
        );
    }
    let mut newer = whole;
    let known = super::STREAM_VERSION;
    newer[8] += 1;
    fs::write(&file, &newer).expect("written");
    let expected = format!(
        "has version {}, and this program knows version {known}",
        known + 1
    );
    assert!(message(&dir).contains(&expected));
    fs::remove_file(&file).expect("removed");
    assert!(message(&dir).contains("it has no `stream.bin`"));
    let description = dir.join(RUN_FILE);
    for (text, expected) in [
        (
            "{\"format\":\"stealtime-run\",\"version\":7}",
            "has format version 7",
        ),
        (
            "{\"format\":\"other\",\"version\":1}",
            "does not describe a run",
        ),
        ("[1, 2", "does not describe a run"),
        (
            "{\"format\":\"stealtime-run\",\"version\":1}",
            "does not describe a run",
        ),
    ] {
        fs::write(&description, text).expect("written");
        assert!(
            message(&dir).contains(expected),
            "{text}: {}",
            message(&dir)
        );
    }
}

#[test]
fn nothing_is_left_of_a_run_that_was_not_finished() {
    let home = tempfile::tempdir().expect("a directory");
    let mut writer = RunWriter::create(&home.path().join("run")).expect("a place");
    writer.entries(&play(&plan("rr", 2, 1), Nanos::from_millis(50)));
    assert_eq!(names(home.path()).len(), 1);
    drop(writer);
    assert_eq!(names(home.path()), Vec::<String>::new());
}

#[test]
fn an_empty_directory_and_an_earlier_run_are_replaced_and_nothing_else_is() {
    let (home, dir, plan, _) = kept();
    let entries = play(&plan, Nanos::from_millis(100));
    let second = keep(&dir, &plan, &entries);
    assert_eq!(load(&dir).expect("a run").run.report, second);
    assert_eq!(names(home.path()), ["run"]);
    let empty = home.path().join("empty");
    fs::create_dir(&empty).expect("made");
    keep(&empty, &plan, &entries);
    keep(&home.path().join("new/deeper"), &plan, &entries);
    fs::write(dir.join("thesis.txt"), "years of work").expect("written");
    let error = RunWriter::create(&dir).expect_err("somebody's work");
    assert!(matches!(error, WriteError::Exists { .. }), "{error}");
    let error = RunWriter::create(&dir.join("thesis.txt")).expect_err("a file");
    assert!(matches!(error, WriteError::NotADirectory { .. }), "{error}");
    let error = RunWriter::create(&dir.join("thesis.txt/run")).expect_err("below a file");
    assert!(matches!(error, WriteError::Make { .. }), "{error}");
    assert_eq!(names(home.path()), ["empty", "new", "run"]);
}

#[test]
fn the_page_about_kept_runs_has_the_versions_that_are_written() {
    let page = include_str!("../../../docs/trace-format.md");
    let rows: Vec<_> = page.lines().filter(|line| line.starts_with('|')).collect();
    for row in [
        format!("| `version` | {RUN_VERSION} |"),
        format!("| 8–11 | version: {STREAM_VERSION} ("),
        format!("| 12–15 | length of a record: {RECORD_BYTES} |"),
    ] {
        assert!(rows.iter().any(|line| line.starts_with(&row)), "{row}");
    }
}
