//! Figures from events, against what the report says of the same run.

use super::*;
use std::sync::atomic::AtomicBool;
use stealtime_report::Collector;
use stealtime_scheduler::event::WakeSource;
use stealtime_sim::SimBackend;
use stealtime_sim::cost::CostModel;
use stealtime_workloads::run::{Backend, Outcome};
use stealtime_workloads::scenario::{Overrides, Scenario};

struct Both<'a>(&'a mut Collector, &'a mut Trace);

impl Observer for Both<'_> {
    fn entries(&mut self, entries: &[Entry]) {
        self.0.entries(entries);
        self.1.entries(entries);
    }
}

/// Runs a second of an embedded scenario in virtual time.
fn look(scenario: &str, policy: &str, check: impl FnOnce(&Run<'_>)) {
    let scenario = Scenario::load(scenario).expect("embedded");
    let overrides = Overrides {
        policy: Some(policy.parse().expect("a policy")),
        duration: Some(Nanos::from_secs(1)),
        ..Overrides::default()
    };
    let plan = scenario.plan(&overrides).expect("in order");
    let (mut collector, mut trace) = (Collector::new(&plan), Trace::default());
    let mut sim = SimBackend::new(CostModel::bare_hardware());
    let stop = AtomicBool::new(false);
    let outcome = sim.run(&plan, &stop, &mut Both(&mut collector, &mut trace));
    let report = Report::build(&plan, "sim", collector, &outcome.expect("it runs"));
    check(&Run::new(&plan, &report, &trace));
}

const fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

/// Looks at a run of an embedded scenario with these events, written by hand: when, to whom, and what. It is
/// measured from 1 ms on to 1000 ms, unless its end is among them.
fn written(
    scenario: &str,
    events: impl FnOnce(&Plan) -> Vec<(Nanos, VcpuId, EventKind)>,
    check: impl FnOnce(&Run<'_>),
) {
    let scenario = Scenario::load(scenario).expect("embedded");
    let plan = scenario.plan(&Overrides::default()).expect("in order");
    let mark = |at, mark| (at, VcpuId(0), EventKind::Mark(mark));
    let mut all = events(&plan);
    all.push(mark(ms(1), Mark::MeasureStart));
    let end = mark(ms(1_000), Mark::MeasureEnd);
    if !all.iter().any(|(.., kind)| *kind == end.2) {
        all.push(end);
    }
    all.sort_by_key(|(at, ..)| *at);
    let mut trace = Trace::default();
    for (at, vcpu, kind) in all {
        trace.entries(&[Entry::Event(Event { at, vcpu, kind })]);
    }
    let report = Report::build(&plan, "sim", Collector::new(&plan), &Outcome::default());
    check(&Run::new(&plan, &report, &trace));
}

fn named(plan: &Plan, prefix: &str) -> VcpuId {
    let mut all = (0..).map(VcpuId).take(plan.vcpus.len());
    let found = all.find(|vcpu| plan.vcpu_name(*vcpu).starts_with(prefix));
    found.unwrap_or_else(|| panic!("no {prefix}"))
}

const RAISED: EventKind = EventKind::InterruptRaised {
    vector: 33,
    from: None,
};

const fn taken(at: Nanos) -> EventKind {
    EventKind::InterruptsTaken { at }
}

/// The lengths from an interrupt to its handler in a run of `ithread` with these events of its device.
fn handled(events: &[(Nanos, EventKind)]) -> Distribution {
    let mut lengths = None;
    let of_device = |plan: &Plan| {
        let device = named(plan, "device");
        let events = events.iter().map(|(at, kind)| (*at, device, *kind));
        events.collect()
    };
    written("ithread", of_device, |run| {
        lengths = Some(run.handled("device"));
    });
    lengths.expect("it was looked at")
}

fn lengths(of: &[Nanos]) -> Distribution {
    Distribution::new(of.iter().map(|length| length.get()).collect())
}

#[test]
fn what_the_host_takes_after_a_handler_is_none_of_the_interrupt_s_delay() {
    let us = Nanos::from_micros;
    let stolen = EventKind::HostDelay(ms(3));
    let seen = handled(&[
        // Handled after 80 us; 3 ms are stolen later, and told before the exit.
        (ms(10), RAISED),
        (ms(100), stolen),
        (ms(120), taken(ms(10) + us(80))),
        // 3 of 8 ms are stolen before the handler.
        (ms(200), RAISED),
        (ms(205), stolen),
        (ms(209), taken(ms(208))),
    ]);
    assert_eq!(seen, lengths(&[us(80), ms(5)]));
}

#[test]
fn the_next_interrupt_s_delay_is_less_what_was_taken_since_it_was_raised() {
    let seen = handled(&[
        (ms(10), RAISED),
        // Handled at 11, told at 40. The next was raised before that was told, and the host took 4 ms of it.
        (ms(20), RAISED),
        (ms(25), EventKind::HostDelay(ms(4))),
        (ms(40), taken(ms(11))),
        (ms(41), taken(ms(30))),
    ]);
    assert_eq!(seen, lengths(&[ms(1), ms(6)]));
}

#[test]
fn of_several_interrupts_that_come_after_a_handler_the_first_begins_the_next_time() {
    let seen = handled(&[
        (ms(10), RAISED),
        (ms(20), RAISED),
        (ms(28), RAISED),
        (ms(40), taken(ms(11))),
        (ms(41), taken(ms(30))),
        // Before any was raised: that is of none.
        (ms(50), RAISED),
        (ms(60), taken(ms(45))),
        (ms(70), taken(ms(65))),
    ]);
    assert_eq!(seen, lengths(&[ms(1), ms(10), ms(15)]));
}

#[test]
fn delays_count_that_lie_in_the_measured_time_whenever_they_are_told() {
    let half = Nanos::from_micros(500);
    let seen = handled(&[
        // In the warm-up still; the second goes with the first, though it comes in the measured time.
        (half, RAISED),
        (ms(2), RAISED),
        (ms(3), taken(ms(3))),
        (ms(990), RAISED),
        (ms(1_001), taken(ms(992))),
        (ms(1_002), taken(ms(1_002))),
    ]);
    assert_eq!(seen, lengths(&[ms(2)]));
}

#[test]
fn a_round_trip_does_not_end_with_an_interrupt_that_was_taken_before_the_answer() {
    let events = |plan: &Plan| {
        let (client, server) = (named(plan, "client/ping"), named(plan, "wire/packet"));
        let by = |from| EventKind::InterruptRaised {
            vector: 33,
            from: Some(from),
        };
        vec![
            (ms(10), server, by(client)),
            (ms(11), client, RAISED),
            (ms(15), client, by(server)),
            // What it took at 12 is told with the exit that the answer made.
            (ms(16), client, taken(ms(12))),
            (ms(18), client, taken(ms(17))),
            // Told late, and the client's thread waited for the host meanwhile, after it had taken the answer.
            (ms(30), server, by(client)),
            (ms(32), client, by(server)),
            (ms(50), client, EventKind::HostDelay(ms(9))),
            (ms(51), client, taken(ms(33))),
            // An answer that nobody asked for.
            (ms(60), client, by(server)),
            (ms(61), client, taken(ms(61))),
        ]
    };
    written("ping-flood", events, |run| {
        let trips = run.round_trips("client/ping", "wire/packet");
        assert_eq!(trips, lengths(&[ms(7), ms(3)]));
    });
}

#[test]
fn who_waits_at_the_end_is_not_woken_by_the_run_s_being_taken_down() {
    let events = |plan: &Plan| {
        let lock = plan.host_locks.iter().position(|name| name == "dtrace");
        let lock = HostLockId(u16::try_from(lock.expect("a lock")).expect("few"));
        let waiter = named(plan, "vmadm");
        let owner = VcpuId(waiter.0 + 1);
        let blocked = EventKind::Blocked(Waits::HostLock(lock, owner));
        let end = ms(1_000);
        let over = EventKind::Retired(RetireReason::RunOver);
        vec![
            (ms(500), waiter, blocked),
            (end, owner, EventKind::Mark(Mark::MeasureEnd)),
            (end, owner, over),
            (end, waiter, EventKind::Woken(WakeSource::HostLock(owner))),
        ]
    };
    written("convoy", events, |run| {
        assert_eq!(run.waits_at_end("vmadm", "dtrace"), Some(vec![ms(500)]));
        assert_eq!(run.waits_at_end("vmadm", "cpu"), Some(Vec::new()));
        assert_eq!(run.waits_at_end("vmadm", "nosuch"), None);
    });
}

#[test]
fn user_and_sys_are_what_the_report_sums_up() {
    for name in ["build", "audio", "convoy"] {
        look(name, "ts:variant=after", |run| {
            let rows = || run.report.vcpus.iter();
            let (user, sys) = run.user_and_sys(run.length());
            assert_eq!(run.length().get(), run.report.wall_ns);
            assert_eq!(
                user.get(),
                rows().map(|row| row.run_ns).sum::<u64>(),
                "{name}"
            );
            let hypervisor = rows().map(|row| row.hypervisor_ns).sum::<u64>();
            assert_eq!(sys.get(), hypervisor, "{name}");
        });
    }
}

#[test]
fn round_trips_are_the_requests_that_the_guest_counts() {
    look("ping-flood", "4bsd", |run| {
        let trips = run.round_trips("client/ping", "wire/packet");
        let guest = &run.reports("client")[0].guest.request_ns;
        assert!(
            trips
                .count()
                .abs_diff(usize::try_from(guest.count).expect("few"))
                <= 1
        );
        // The guest's clock runs on for the exits before and after.
        let longest = trips.max().expect("some");
        assert!(
            (longest - guest.max as f64).abs() < 10_000.0,
            "{longest} {guest:?}"
        );
    });
}

#[test]
fn an_interrupt_s_delay_is_that_to_its_being_taken() {
    look("ithread", "4bsd", |run| {
        let delays = run.handled("device");
        let taken = run.reports("device")[0].guest.interrupts;
        assert!(
            delays
                .count()
                .abs_diff(usize::try_from(taken).expect("few"))
                <= 1
        );
        assert!(delays.max().expect("some") < 1e6);
    });
}

#[test]
fn a_player_that_is_always_back_misses_nothing() {
    look("audio", "ule", |run| {
        let (missed, all) = run
            .underruns("card/", "sound/", "buffer")
            .expect("deadlines");
        assert_eq!((missed, all), (0, 100));
        assert_eq!(run.underruns("card/", "sound/", "nosuch"), None);
    });
}

#[test]
fn a_build_that_is_not_done_has_no_end() {
    look("build", "ts:variant=after", |run| {
        assert_eq!(run.elapsed("cc/"), None);
    });
    look("sleeper", "rr", |run| {
        assert_eq!(run.elapsed("nosuch"), None);
    });
}
