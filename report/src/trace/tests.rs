//! Traces of streams written by hand.

use super::*;
use crate::names::Names;
use crate::testing::plan;
use serde_json::Value;
use stealtime_scheduler::event::{EventKind, PreemptReason, Standing, Waits, WakeSource};
use stealtime_scheduler::ids::HostLockId;
use stealtime_scheduler::input::ExitReason;

const C0: CoreId = CoreId(0);
const C1: CoreId = CoreId(1);

/// Two cores: vCPU 0 runs, is given a kernel priority, vCPU 1 waits for its lock and is woken by it.
fn events() -> Vec<Entry> {
    let kernel = Standing {
        kernel_priority: true,
        ..Standing::default()
    };
    let lock = HostLockId(1);
    let list = [
        (0, 0, EventKind::Admitted),
        (0, 1, EventKind::Admitted),
        (0, 0, EventKind::Granted(C0)),
        (1_000, 0, EventKind::Running(C0)),
        (1_000, 1, EventKind::Granted(C1)),
        (2_000, 1, EventKind::Running(C1)),
        (3_000, 0, EventKind::HostLockTaken(lock)),
        (3_000, 0, EventKind::Standing(kernel)),
        (4_000, 1, EventKind::Exited(ExitReason::Call)),
        (
            4_000,
            1,
            EventKind::Blocked(Waits::HostLock(lock, VcpuId(0))),
        ),
        (9_000, 0, EventKind::HostLockReleased(lock)),
        (9_000, 1, EventKind::HostLockTaken(lock)),
        (9_000, 1, EventKind::Woken(WakeSource::HostLock(VcpuId(0)))),
        (9_000, 1, EventKind::Migrated { from: C1, to: C0 }),
        (9_500, 0, EventKind::Preempted(C0, PreemptReason::Tick)),
        (9_500, 1, EventKind::Granted(C0)),
        (10_000, 1, EventKind::Running(C0)),
        (
            12_000,
            0,
            EventKind::InterruptRaised {
                vector: 33,
                from: Some(VcpuId(1)),
            },
        ),
    ];
    let entry = |(at, vcpu, kind): (u64, u32, EventKind)| {
        Entry::Event(Event {
            at: Nanos(at),
            vcpu: VcpuId(vcpu),
            kind,
        })
    };
    list.map(entry).to_vec()
}

fn names() -> Names {
    let mut plan = plan("fss", 2, 2);
    plan.cores = vec![2, 3];
    Names::new(&plan)
}

fn text(filter: &Filter) -> Vec<String> {
    let mut written = Vec::new();
    let mut form = Text::new(names(), &mut written);
    let told = trace(events().into_iter().map(Ok), filter, &mut form);
    let told = told.expect("memory can be written");
    let text = String::from_utf8(written).expect("UTF-8");
    let lines: Vec<_> = text.lines().map(str::to_owned).collect();
    // With the heading.
    assert_eq!(told.items + 1, lines.len() as u64);
    assert!(told.looked_at.is_some_and(|(first, last)| first <= last));
    lines
}

fn masked(mask: &str) -> Filter {
    Filter {
        mask: mask.parse().expect("known"),
        ..Filter::default()
    }
}

#[test]
fn a_line_has_time_distance_core_vcpu_and_event() {
    let lines = text(&Filter::default());
    assert_eq!(lines.len(), 1 + events().len());
    assert!(lines[1 + 9].trim_start().starts_with("0.000004000"));
    assert!(lines[1 + 9].ends_with("waits for host lock `pages`, which vm0/main holds"));
    assert!(lines[1 + 10].contains("5.00 us"), "{}", lines[11]);
    // Woken and on no core yet; then on the core with the host's number.
    let core = |line: usize| lines[1 + line][26..31].trim();
    assert_eq!((core(9), core(12), core(16)), ("3", "-", "2"));
}

#[test]
fn masks_vcpus_cores_and_times_let_through_what_they_say() {
    let kinds = |filter: &Filter| {
        let lines = text(filter);
        let kind = |line: &String| {
            let (_, event) = line.split_once("/main ").expect("a vCPU");
            let kind = event.split_whitespace().next().expect("a kind");
            kind.replace(':', "")
        };
        lines.iter().skip(2).map(kind).collect::<Vec<_>>()
    };
    assert_eq!(
        kinds(&masked("lock")),
        ["blocked", "host_lock_released", "host_lock_taken", "woken"]
    );
    assert_eq!(text(&masked("intr")).len(), 2);
    let of_one = Filter {
        vcpus: Some(vec![true, false]),
        ..masked("proc")
    };
    assert_eq!(kinds(&of_one), ["granted", "running", "preempted"]);
    let on_one = Filter {
        core: Some(C1),
        ..Filter::default()
    };
    assert_eq!(kinds(&on_one), ["running", "exited", "blocked"]);
    let between = Filter {
        from: Nanos(2_000),
        to: Nanos(3_000),
        ..Filter::default()
    };
    assert_eq!(kinds(&between), ["host_lock_taken", "standing"]);
}

#[test]
fn in_json_every_line_is_an_object() {
    let mut written = Vec::new();
    let mut form = JsonLines::new(names(), &mut written);
    trace(events().into_iter().map(Ok), &Filter::default(), &mut form).expect("memory");
    let text = String::from_utf8(written).expect("UTF-8");
    let rows: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(rows.len(), events().len());
    assert_eq!(rows[9]["event"], "blocked");
    assert_eq!(rows[9]["detail"], "host-lock");
    assert_eq!(rows[9]["host_lock"], "pages");
    assert_eq!(rows[9]["owner"], "vm0/main");
    assert_eq!(rows[9]["core"], 3);
    assert_eq!(rows[12]["core"], Value::Null);
    assert_eq!(rows[7]["standing"]["kernel_priority"], true);
    assert_eq!(rows[13]["from_core"], 3);
    assert_eq!(rows[17]["by"], "vm1/main");
}

fn chrome(filter: &Filter) -> Vec<Value> {
    let mut written = Vec::new();
    let mut form = Chrome::new(names(), filter.clone(), &mut written);
    trace(events().into_iter().map(Ok), filter, &mut form).expect("memory");
    let document: Value = serde_json::from_slice(&written).expect("JSON");
    document["traceEvents"].as_array().expect("a list").clone()
}

/// Name, beginning and length of the spans of a process, in nanoseconds.
fn spans(rows: &[Value], process: u64) -> Vec<(String, u64, u64)> {
    let rows = rows
        .iter()
        .filter(|row| row["ph"] == "X" && row["pid"] == process);
    rows.map(|row| {
        let ns = |key: &str| {
            let time: Nanos = format!("{}us", row[key]).parse().expect("microseconds");
            time.0
        };
        (
            row["name"].as_str().expect("a name").to_owned(),
            ns("ts"),
            ns("dur"),
        )
    })
    .collect()
}

#[test]
fn viewers_see_cores_locks_and_states_without_gaps_and_the_wake_as_an_arrow() {
    let rows = chrome(&Filter::default());
    let span = |name: &str, at, length| (name.to_owned(), at, length);
    assert_eq!(
        spans(&rows, 1),
        [
            span("vm0/main", 1_000, 2_000),
            span("vm1/main", 2_000, 2_000),
            span("vm0/main (kernel priority)", 3_000, 6_500),
            span("vm1/main", 10_000, 2_000),
        ]
    );
    assert_eq!(
        spans(&rows, 2),
        [
            span("vm0/main", 3_000, 6_000),
            span("vm1/main", 9_000, 3_000)
        ]
    );
    let second = spans(&rows, 4);
    assert!(
        second.contains(&span("waits for pages", 4_000, 5_000)),
        "{second:?}"
    );
    let total: u64 = second.iter().map(|(_, _, length)| length).sum();
    assert_eq!(total, 12_000, "{second:?}");
    let ends: Vec<_> = rows
        .iter()
        .filter(|row| row["ph"] == "s" || row["ph"] == "f")
        .map(|row| {
            (
                row["ph"].as_str().expect("a phase"),
                row["pid"].as_u64(),
                row["id"].as_u64(),
            )
        })
        .collect();
    assert_eq!(ends, [("s", Some(3), Some(1)), ("f", Some(4), Some(1))]);
}

#[test]
fn the_length_of_each_core_s_queue_is_counted_in_a_viewer_s_document() {
    let rows = chrome(&Filter::default());
    let queue = |core| format!("queue of {}", names().core_in_words(core));
    let lengths = rows.iter().filter(|row| row["ph"] == "C");
    let lengths = lengths.filter_map(|row| {
        let name = row["name"].as_str()?.to_owned();
        Some((row["ts"].as_f64()?, name, row["args"]["queued"].as_u64()?))
    });
    let expected = [
        (9.0, queue(C1), 1),
        (9.5, queue(C0), 1),
        (9.5, queue(C1), 0),
    ];
    assert_eq!(lengths.collect::<Vec<_>>(), expected);
}

#[test]
fn viewers_see_only_the_time_asked_for() {
    let filter = Filter {
        from: Nanos(5_000),
        to: Nanos(9_200),
        ..Filter::default()
    };
    let rows = chrome(&filter);
    for (name, at, length) in [spans(&rows, 1), spans(&rows, 4)].concat() {
        assert!(at >= 5_000 && at + length <= 9_200, "{name} {at} {length}");
    }
}
