//! Distributions of streams written by hand.

use super::*;
use crate::testing::plan;
use stealtime_scheduler::event::{PreemptReason, WakeSource};
use stealtime_scheduler::ids::CoreId;

const RAISED: EventKind = EventKind::InterruptRaised {
    vector: 33,
    from: None,
};

fn dist(from: &str, to: &str, warmup: bool, events: &[(u64, u32, EventKind)]) -> Dist {
    let names = Names::new(&plan("fss", 3, 1));
    let question = Question {
        from: from.parse().expect("known"),
        to: to.parse().expect("known"),
        unless: vec!["blocked".parse().expect("known")],
        vcpus: names.select(None).expect("all"),
        warmup,
    };
    let mut collector = Collector::new(&question, &names);
    for (at, vcpu, kind) in events {
        collector.event(&Event {
            at: Nanos(*at),
            vcpu: VcpuId(*vcpu),
            kind: *kind,
        });
    }
    collector.finish()
}

/// That the guest has taken its interrupts, then.
const fn taken(at: u64) -> EventKind {
    EventKind::InterruptsTaken { at: Nanos(at) }
}

#[test]
fn every_beginning_is_paired_with_the_next_end_of_its_own_vcpu() {
    let dist = dist(
        "irq_raise",
        "handler_run",
        true,
        &[
            (100, 0, RAISED),
            (300, 0, RAISED),
            (400, 1, taken(400)),
            (1_100, 0, RAISED),
            (1_200, 0, taken(1_000)),
            (2_000, 0, taken(2_000)),
            (5_000, 1, RAISED),
        ],
    );
    let all = &dist.all;
    assert_eq!((all.figures.count, all.min, all.figures.max), (3, 700, 900));
    assert_eq!((all.mean, all.figures.max_at_ns), (833, 100));
    assert_eq!((all.unfinished, all.unfinished_since_ns), (1, Some(5_000)));
    assert_eq!(dist.vcpus.len(), 2);
    assert_eq!(dist.vcpus[0].vm.as_deref(), Some("vm0"));
    assert_eq!(dist.vcpus[1].unfinished, 1);
}

#[test]
fn of_one_kind_it_is_the_time_from_one_to_the_next() {
    let ran = EventKind::Running(CoreId(0));
    let dist = dist(
        "running",
        "running",
        true,
        &[(10, 0, ran), (30, 0, ran), (70, 0, ran)],
    );
    assert_eq!(
        (dist.all.figures.count, dist.all.min, dist.all.figures.max),
        (2, 20, 40)
    );
}

#[test]
fn what_another_event_comes_into_is_void() {
    let idle = EventKind::Blocked(stealtime_scheduler::event::Waits::Idle);
    let events = [
        (10, 0, RAISED),
        (20, 0, idle),
        (30, 0, taken(30)),
        (40, 0, RAISED),
        (45, 1, idle),
        (50, 0, taken(50)),
    ];
    let dist = dist("irq_raise", "handler_run", true, &events);
    assert_eq!((dist.all.figures.count, dist.all.void), (1, 1));
    assert!(
        dist.to_text()
            .contains("1 irq_raise, of which blocked came first")
    );
}

const KICKED: EventKind = EventKind::Kicked(CoreId(0), PreemptReason::Tick);

/// As `dist`, with something else that voids.
fn unless(unless: &str, from: &str, to: &str, events: &[(u64, EventKind)]) -> Row {
    let names = Names::new(&plan("fss", 3, 1));
    let question = Question {
        from: from.parse().expect("known"),
        to: to.parse().expect("known"),
        unless: vec![unless.parse().expect("known")],
        vcpus: names.select(None).expect("all"),
        warmup: true,
    };
    let mut collector = Collector::new(&question, &names);
    for (at, kind) in events {
        collector.event(&Event {
            at: Nanos(*at),
            vcpu: VcpuId(0),
            kind: *kind,
        });
    }
    collector.finish().all
}

#[test]
fn what_had_ended_before_another_event_is_not_void_though_its_end_is_told_later() {
    // Handled at 20, asked for its core at 30, out of its guest at 40.
    let events = [(10, RAISED), (30, KICKED), (40, taken(20))];
    let row = unless("kicked", "irq_raise", "handler_run", &events);
    assert_eq!((row.figures.count, row.min, row.void), (1, 10, 0));
    // The second was raised after the handling that is told first, and is asked for its core before its own.
    let events = [
        (10, RAISED),
        (25, RAISED),
        (30, KICKED),
        (40, taken(20)),
        (60, taken(50)),
    ];
    let row = unless("kicked", "irq_raise", "handler_run", &events);
    assert_eq!((row.figures.count, row.min, row.void), (1, 10, 1));
    let row = unless("preempted", "irq_raise", "handler_run", &events);
    assert_eq!((row.figures.count, row.figures.max, row.void), (2, 25, 0));
}

#[test]
fn what_begins_with_something_that_is_told_late_ends_with_the_next_that_happened() {
    let events = [(30, RAISED), (40, taken(20)), (50, RAISED)];
    let row = unless("blocked", "handler_run", "irq_raise", &events);
    assert_eq!((row.figures.count, row.min, row.unfinished), (1, 10, 0));
    let events = [(30, KICKED), (40, taken(20)), (50, RAISED)];
    let row = unless("kicked", "handler_run", "irq_raise", &events);
    assert_eq!((row.figures.count, row.void), (0, 1));
    let events = [(40, taken(20)), (90, taken(50))];
    let row = unless("blocked", "handler_run", "handler_run", &events);
    assert_eq!((row.figures.count, row.min, row.unfinished), (1, 30, 1));
}

#[test]
fn what_is_void_is_not_if_it_began_after_what_voids() {
    // Handled at 20, raised at 30, told of the handling at 40.
    let events = [(30, RAISED), (40, taken(20)), (60, KICKED)];
    let row = unless("handler_run", "irq_raise", "kicked", &events);
    assert_eq!((row.figures.count, row.min, row.void), (1, 30, 0));
}

#[test]
fn what_is_told_late_counts_by_when_it_happened() {
    let events = [
        (10, 0, EventKind::Mark(Mark::MeasureStart)),
        (15, 0, taken(5)),
        (30, 0, RAISED),
        (60, 0, EventKind::Mark(Mark::MeasureEnd)),
        (70, 0, taken(40)),
        (80, 0, RAISED),
    ];
    let dist = dist("handler_run", "irq_raise", false, &events);
    assert_eq!((dist.all.figures.count, dist.all.min), (1, 40));
    let handled = self::dist("irq_raise", "handler_run", false, &events);
    assert_eq!((handled.all.figures.count, handled.all.min), (1, 10));
    assert_eq!(handled.all.unfinished, 0, "the last is after the end");
}

#[test]
fn only_what_begins_in_the_measurement_counts_unless_the_warmup_is_asked_for() {
    let woken = EventKind::Woken(WakeSource::Timer);
    let ran = EventKind::Running(CoreId(0));
    let events = [
        (10, 0, woken),
        (20, 0, EventKind::Mark(Mark::MeasureStart)),
        (30, 0, ran),
        (40, 0, woken),
        (45, 0, ran),
        (50, 0, woken),
        (60, 0, EventKind::Mark(Mark::MeasureEnd)),
        (70, 0, ran),
        (80, 0, woken),
        (90, 0, ran),
    ];
    let count = |warmup| {
        dist("woken:timer", "running", warmup, &events)
            .all
            .figures
            .count
    };
    assert_eq!((count(false), count(true)), (2, 4));
}

#[test]
fn the_text_has_a_row_a_vcpu_and_shows_the_tail() {
    let mut events = Vec::new();
    for n in 0..1_000_u64 {
        let at = n * 100_000_000;
        events.push((at, 0, RAISED));
        let length = if n == 500 { 20_336_000 } else { 200_000 };
        events.push((at + length, 0, taken(at + length)));
    }
    let text = dist("irq_raise", "handler_run", true, &events).to_text();
    let line = |start: &str| {
        let found = text
            .lines()
            .find(|line| line.trim_start().starts_with(start));
        found.unwrap_or_else(|| panic!("no `{start}` in {text}"))
    };
    assert!(line("vm0/main").contains("200 us") && line("vm0/main").contains("20.3 ms"));
    assert!(line("200 us – 500 us").contains("999") && line("200 us – 500 us").contains("█"));
    assert!(line("20 ms – 50 ms").contains('·'), "{text}");
    assert!(line("10 ms – 20 ms").contains(" 0 "), "{text}");
}

#[test]
fn if_there_is_nothing_that_is_said() {
    let dist = dist("irq_raise", "handler_run", true, &[(5, 0, RAISED)]);
    let text = dist.to_text();
    assert!(
        text.contains("no such time") && text.contains("0.000000 s"),
        "{text}"
    );
    assert_eq!(dist.all.figures.count, 0);
    let json: serde_json::Value = serde_json::from_str(&dist.to_json()).expect("JSON");
    assert_eq!(json["all"]["unfinished"], 1);
    assert_eq!(json["all"]["count"], 0);
}
