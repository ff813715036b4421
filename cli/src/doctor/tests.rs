//! What is told, and the model that comes of it.

use super::*;
use stealtime_sim::cost::Theft;

fn costs() -> Costs {
    let cost = |median_ns| Cost {
        samples: 10,
        median_ns,
        p90_ns: 2 * median_ns,
        p99_ns: 3 * median_ns,
    };
    Costs {
        call_round_trip: cost(90_000),
        halt_round_trip: cost(50_000),
        immediate_exit: cost(11_000),
        interrupt: cost(45_000),
        kick: None,
        slice_overshoot: cost(70_000),
        timer: cost(60_000),
        hand_over_same_core: cost(1_200),
        hand_over_other_core: None,
        clock_reading: cost(50),
        course: CourseCosts {
            timer: cost(60_000),
            kick: cost(70_000),
            hand_over: cost(2_000),
            take_over: cost(1_500),
            wake_up: cost(9_000),
            first_call: cost(95_000),
            interrupted_call: cost(140_000),
            until_handler: Some(cost(35_000)),
            call: cost(90_040),
            halt: cost(50_040),
            handling: cost(3_000),
            leaving: cost(2_500),
            op: cost(40),
            lock_step: cost(60),
            timer_work: cost(0),
            timer_wake: cost(0),
        },
    }
}

fn host() -> Host {
    let theft = |length, every, told| Theft {
        length: Nanos(length),
        every: Nanos(every),
        told,
    };
    Host {
        interference: vec![
            theft(90_000, 90_000_000, false),
            theft(3_000_000, 1_000_000_000, true),
        ],
        told_ppm: 2_900,
        slice: Some(Cost {
            samples: 99,
            median_ns: 4_000_000,
            p90_ns: 4_000_001,
            p99_ns: 4_000_002,
        }),
    }
}

#[test]
fn what_the_host_does_is_in_the_model_and_told() {
    let measured = model(&costs().course, Some(&host()));
    assert_eq!(measured.interference, host().interference);
    assert_eq!(measured.host_slice, Nanos::from_millis(4));
    let text = host().to_string();
    for word in [
        "0.40 %",
        "0.29 %, as run delay",
        "12.1 times a second",
        "up to about 3.00 ms",
        "4.00 ms at a time",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert!(!text.contains("much"), "{text}");
    let busy = Host {
        interference: vec![Theft {
            length: Nanos::from_millis(4),
            every: Nanos::from_millis(8),
            told: true,
        }],
        ..host()
    };
    assert!(busy.to_string().contains("much"), "{busy}");
    let still = Host {
        interference: Vec::new(),
        ..host()
    };
    assert!(still.to_string().contains("nothing"), "{still}");
    // Nothing was asked for.
    let unknown = model(&costs().course, None);
    assert_eq!(unknown.interference, []);
    assert_eq!(unknown.host_slice, Nanos::ZERO);
    let stubborn = Host {
        slice: None,
        ..host()
    };
    assert!(stubborn.to_string().contains("did not get the core"));
}

#[test]
fn a_measured_model_adds_up_to_what_was_measured_and_can_be_used() {
    let model = model(&costs().course, Some(&host()));
    assert_eq!(model.exit + model.entry, Nanos(90_000));
    assert_eq!(model.halt_exit + model.entry, Nanos(50_000));
    assert_eq!(model.injection + model.handler, Nanos(45_000));
    assert_eq!(model.kick, Nanos(70_000));
    assert_eq!(model.switch_same_core + model.park, Nanos(2_000));
    assert_eq!(model.park, Nanos(500));
    assert_eq!(model.check(), Ok(()));
}

#[test]
fn a_handler_begins_when_it_was_measured_to_whatever_the_way_in_costs() {
    // With the load, in parts of a round trip of 90 us and an interrupt of 45 us.
    for (handler_ns, entry, injection) in [
        (5_000, 40, 0),
        (20_000, 15_040, 0),
        (35_000, 30_000, 40),
        (60_000, 30_000, 25_040),
        (90_000, 40_040, 45_000),
    ] {
        let mut course = costs().course;
        course.until_handler = Some(Cost {
            median_ns: handler_ns,
            ..course.first_call
        });
        let model = model(&course, Some(&host()));
        assert_eq!(model.entry, Nanos(entry), "{handler_ns}");
        assert_eq!(model.injection, Nanos(injection), "{handler_ns}");
        let until_handler = model.load + model.entry + model.injection;
        assert_eq!(until_handler, Nanos(handler_ns));
        assert_eq!(model.exit + model.entry, Nanos(90_000));
        assert_eq!(model.halt_exit + model.entry, Nanos(50_000));
        assert_eq!(model.injection + model.handler, Nanos(45_000));
    }
}

#[test]
fn where_nobody_knows_when_a_handler_begins_all_is_as_on_bare_hardware() {
    let mut course = costs().course;
    course.until_handler = None;
    let model = model(&course, None);
    assert_eq!(model.entry, Nanos(30_000));
    assert_eq!(
        (model.injection, model.handler),
        (Nanos(45_000), Nanos::ZERO)
    );
    assert!(about_course(&course).contains("not known"));
}

#[test]
fn timers_are_late_as_measured_in_the_median_however_far_they_spread() {
    for p90_ns in [60_000, 61_000, 90_000, 200_000, 10_000_000] {
        let mut course = costs().course;
        course.timer = Cost {
            samples: 100,
            median_ns: 60_000,
            p90_ns,
            p99_ns: 20_000_000,
        };
        let model = model(&course, Some(&host()));
        let median = model.clone().without_chance().timer.get();
        assert!(median.abs_diff(60_000) <= 1, "{p90_ns}: {median}");
        // Of an exponential distribution from 0 the 90th percentile is at 3.32 medians.
        let mean = model.timer_spread.get() as f64;
        let beyond = model.timer.get() as f64 + mean * 10_f64.ln();
        let expected = (p90_ns as f64).min(3.32 * 60_000.0);
        assert!((beyond - expected).abs() < 500.0, "{p90_ns}: {beyond}");
    }
}

#[test]
fn what_a_busy_machine_measured_the_wrong_way_round_is_no_negative_cost() {
    let mut odd = costs().course;
    std::mem::swap(&mut odd.first_call, &mut odd.call);
    odd.until_handler = Some(std::mem::replace(&mut odd.halt, odd.call));
    odd.op.median_ns = 0;
    let model = model(&odd, Some(&host()));
    assert_eq!(model.load, Nanos::ZERO);
    let round_trip = Nanos(odd.call.median_ns - 1);
    assert_eq!(model.exit + model.entry, round_trip);
    assert_eq!(model.check(), Ok(()));
}

#[test]
fn what_one_core_cannot_show_is_said() {
    assert!(about_costs(&costs()).contains("one core"));
}
