//! Figures from events, against what the report says of the same run.

use super::*;
use std::sync::atomic::AtomicBool;
use stealtime_report::Collector;
use stealtime_sim::SimBackend;
use stealtime_sim::cost::CostModel;
use stealtime_workloads::run::Backend;
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
