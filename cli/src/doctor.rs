//! `stealtime doctor`: what this machine can do, and what switching guests costs on it.
//!
//! Everything is asked or measured. Beside the measured costs stand those that `sim` assumes of bare
//! hardware where nothing was measured, for orientation only.

use crate::cores::CoreList;
use crate::failure::{Blame, Failure, Outcome, Status};
use crate::show;
use anyhow::anyhow;
use std::fmt::{self, Write};
use stealtime_scheduler::time::Nanos;
use stealtime_sim::cost::{CostModel, InvalidCosts, Theft, median_of_chance};
use stealtime_sim::stored::Place;
use stealtime_vmm::probe::{self, Cost, Costs, CourseCosts, Gaps, KvmStatus, MeasureError, Rights};

/// Name of a cost model that was measured.
const MEASURED: &str = "measured";
/// More than this part of each core is hardly taken by the host alone.
const MUCH: f64 = 0.1;

/// Tells, and stores the costs if asked to: with what the host itself does, or without.
///
/// # Errors
/// If costs are to be stored and cannot be measured or written.
pub fn doctor(calibrate: bool, only_costs: bool) -> Outcome {
    let status = probe::check();
    let mut text = about_kvm(&status);
    text.push_str(&about_rights(&probe::rights()));
    if !status.usable() {
        text.push_str("\nCosts\n  not measured: that needs KVM\n");
        show::print(&text).not_kept()?;
        return if calibrate {
            Err(Failure::new(
                Status::Machine,
                anyhow!("costs can only be measured where KVM can be used"),
            ))
        } else {
            Ok(Status::Done)
        };
    }
    let costs = probe::measure().machine()?;
    text.push_str(&about_costs(&costs));
    if calibrate {
        let place = Place::of_environment().bad_input()?;
        let host = if only_costs {
            None
        } else {
            Some(Host::measure().machine()?)
        };
        if let Some(host) = &host {
            text.push_str(&host.to_string());
        }
        let model = model(&costs.course, host.as_ref());
        if let Err(error) = model.check() {
            // What was measured is worth reading all the more.
            show::print(&text).not_kept()?;
            let advice = match error {
                InvalidCosts::MostTaken { .. } => {
                    "nothing is stored; measure again when nothing else runs, or with --only-costs"
                }
                _ => "nothing is stored; measure again when nothing else runs",
            };
            return Err(Failure::new(
                Status::Machine,
                anyhow!(error).context(advice),
            ));
        }
        model.store(place.path()).not_kept()?;
        let _ = writeln!(
            text,
            "\nThe simulator takes these costs from now on: {}",
            place.path().display()
        );
    }
    show::print(&text).not_kept()?;
    Ok(Status::Done)
}

/// What the host itself does, as the cost model has it.
#[derive(Debug)]
struct Host {
    interference: Vec<Theft>,
    /// How much of each core it says that it takes, in millionths.
    told_ppm: u64,
    /// None if it never took a core from one thread for another.
    slice: Option<Cost>,
}

impl Host {
    fn measure() -> Result<Self, MeasureError> {
        let theft = |gaps: Gaps| Theft {
            length: Nanos(gaps.length_ns),
            every: Nanos(gaps.every_ns),
            told: gaps.told,
        };
        let found = probe::interference()?;
        Ok(Self {
            interference: found.gaps.into_iter().map(theft).collect(),
            told_ppm: found.told_ppm,
            slice: probe::host_slice()?,
        })
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nThe host itself, measured just now")?;
        let each = self.interference.iter();
        let taken: f64 = each.clone().map(Theft::part).sum();
        let often: f64 = each
            .clone()
            .map(|theft| 1e9 / theft.every.get() as f64)
            .sum();
        match each.map(|theft| theft.length).max() {
            Some(longest) => writeln!(
                f,
                "  takes of each core         {:.2} %, {often:.1} times a second, for up to about {longest}\n  \
                 and tells of it            {:.2} %, as run delay; the rest is interrupts, and what a hypervisor below it takes",
                taken * 100.0,
                self.told_ppm as f64 / 1e4
            )?,
            None => writeln!(f, "  takes of each core         nothing")?,
        }
        if taken > MUCH {
            writeln!(
                f,
                "  That is much. If other programs were running, measure again when they are not."
            )?;
        }
        match self.slice {
            Some(slice) => writeln!(
                f,
                "  lets a busy thread run     {} at a time while another waits ({} times)",
                Nanos(slice.median_ns),
                slice.samples
            ),
            None => writeln!(
                f,
                "  lets a busy thread run     for longer than was looked: another one did not get the core"
            ),
        }
    }
}

fn about_kvm(status: &KvmStatus) -> String {
    let mut text = String::from("KVM\n");
    if status.usable() {
        text.push_str("  /dev/kvm can be used: runs take real guests\n");
    } else {
        text.push_str("  /dev/kvm cannot be used: runs are simulated\n");
        for problem in &status.problems {
            let _ = writeln!(text, "  {problem}");
        }
    }
    if let Some(version) = status.api_version {
        let _ = writeln!(text, "  interface version        {version}");
    }
    if let Some(most) = status.max_vcpus {
        let _ = writeln!(text, "  vCPUs in a VM            at most {most}");
    }
    text
}

fn about_rights(rights: &Rights) -> String {
    let cores = CoreList(rights.cores.clone());
    let realtime = match &rights.no_realtime {
        None => "allowed".to_owned(),
        Some(why) => format!("not allowed ({why}); everything works, timers are less exact"),
    };
    format!(
        "\nCores and rights of this process\n  host cores               {cores}\n  real-time priority       {realtime}\n  timer resolution         {}\n",
        Nanos(rights.timer_resolution_ns)
    )
}

/// What is measured, and where bare hardware's figure for it is.
fn about_costs(costs: &Costs) -> String {
    let bare = CostModel::bare_hardware();
    let halt = bare.halt_exit + bare.entry;
    let rows: [(&str, Option<Cost>, Option<Nanos>); 10] = [
        (
            "exit for a call, and entry",
            Some(costs.call_round_trip),
            Some(bare.exit + bare.entry),
        ),
        (
            "exit for a halt, and entry",
            Some(costs.halt_round_trip),
            Some(halt),
        ),
        (
            "entry that a kick forestalled",
            Some(costs.immediate_exit),
            None,
        ),
        (
            "interrupt: injection, handler, return",
            Some(costs.interrupt),
            Some(bare.injection + bare.handler),
        ),
        (
            "kick of another core until it stopped",
            costs.kick,
            Some(bare.kick),
        ),
        (
            "end of a slice until it stopped",
            Some(costs.slice_overshoot),
            Some(bare.timer + bare.kick),
        ),
        ("timer: lateness", Some(costs.timer), Some(bare.timer)),
        (
            "switch to a thread on the same core",
            Some(costs.hand_over_same_core),
            Some(bare.switch_same_core),
        ),
        (
            "switch to a thread on another core",
            costs.hand_over_other_core,
            Some(bare.switch_other_core),
        ),
        ("reading of the clock", Some(costs.clock_reading), None),
    ];
    let mut text = format!(
        "\nCosts, measured just now\n  {:38}  {:>9}  {:>9}  {:>7}   {}\n",
        "", "median", "99 %", "samples", "bare hardware"
    );
    for (what, cost, bare) in rows {
        let bare = bare.map_or_else(|| "-".to_owned(), |cost| format!("about {cost}"));
        let _ = match cost {
            Some(cost) => writeln!(
                text,
                "  {what:38}  {:>9}  {:>9}  {:>7}   {bare}",
                Nanos(cost.median_ns),
                Nanos(cost.p99_ns),
                cost.samples
            ),
            None => writeln!(
                text,
                "  {what:38}  {:>9}  {:>9}  {:>7}   {bare}",
                "one core", "-", "-"
            ),
        };
    }
    text.push_str(&about_course(&costs.course));
    text.push_str(
        "  \"Bare hardware\" is the order of magnitude that `sim` assumes unless it was calibrated.\n",
    );
    text
}

/// The same things as they come in the course of a run, with all that a run does beside them.
fn about_course(costs: &CourseCosts) -> String {
    let rows = [
        ("timer until it is told", costs.timer),
        ("then until a vCPU has stopped for it", costs.kick),
        ("then until the one that woke is there", costs.take_over),
        ("block until the next one is there", costs.hand_over),
        ("grant of an idle core until it is there", costs.wake_up),
        ("from there until the first call", costs.first_call),
        ("the same with an interrupt", costs.interrupted_call),
        ("entry until the next call", costs.call),
        ("entry until the next halt", costs.halt),
        ("call that raises an interrupt until entry", costs.handling),
        ("on top of a call that may cost the core", costs.leaving),
        ("op of the guest's that takes no time", costs.op),
        ("timer that changes nothing", costs.timer_work),
        ("timer that is armed before all others", costs.timer_wake),
    ];
    let mut text = String::from("  in the course of a run\n");
    let rows = rows.map(|(what, cost)| (what, Some(cost)));
    let handler = "its arrival until the interrupt's handler";
    for (what, cost) in rows.into_iter().chain([(handler, costs.until_handler)]) {
        let _ = match cost {
            Some(cost) => writeln!(
                text,
                "    {what:42}{:>7}  {:>9}  {:>7}",
                Nanos(cost.median_ns),
                Nanos(cost.p99_ns),
                cost.samples
            ),
            None => writeln!(text, "    {what:42}not known: nor is the guest's clock"),
        };
    }
    text
}

/// The cost model of this machine: medians in the course of a run, and what the host does if that is known; what
/// cannot be measured apart is as on bare hardware.
fn model(costs: &CourseCosts, host: Option<&Host>) -> CostModel {
    let bare = CostModel::bare_hardware();
    let median = |cost: Cost| Nanos(cost.median_ns);
    let take_over = median(costs.take_over);
    let op = median(costs.op).max(Nanos(1));
    let timer_spread = spread(costs.timer);
    let load = median(costs.first_call) - median(costs.call);
    // A round trip is measured as a whole. It is shared out as on bare hardware, as far as that fits to when a handler
    // begins if that is known: an entry and an injection are over then, and each is no longer than with what comes
    // after.
    let round_trip = median(costs.call) - op;
    let halt = median(costs.halt) - op;
    let interrupt = median(costs.interrupted_call) - median(costs.first_call);
    let share = Nanos(round_trip.get() * bare.entry.get() / (bare.exit + bare.entry).get());
    let until_handler = costs
        .until_handler
        .map_or(share + interrupt, |cost| median(cost) - load);
    let entry = share
        .max(until_handler - interrupt)
        .min(until_handler)
        .min(round_trip)
        .min(halt);
    let injection = (until_handler - entry).min(interrupt);
    CostModel {
        name: MEASURED.into(),
        exit: round_trip - entry,
        halt_exit: halt - entry,
        entry,
        load,
        handling: median(costs.handling),
        leaving: median(costs.leaving),
        kick: median(costs.kick),
        switch_same_core: take_over,
        park: median(costs.hand_over) - take_over,
        switch_other_core: median(costs.wake_up),
        migration: bare.migration,
        injection,
        handler: interrupt - injection,
        timer: median(costs.timer) - median_of_chance(timer_spread),
        timer_spread,
        timer_work: median(costs.timer_work),
        timer_wake: median(costs.timer_wake),
        op,
        host_slice: host.and_then(|host| host.slice).map_or(Nanos::ZERO, median),
        interference: host.map_or_else(Vec::new, |host| host.interference.clone()),
    }
}

/// The mean of an exponential distribution that has as much between its median and its 90th percentile: ln 5 of it.
/// What is beyond is mostly the host's interference, which is measured apart. The distribution begins at 0
/// at the earliest, so that its median is what was measured.
fn spread(cost: Cost) -> Nanos {
    let mean = cost.p90_ns.saturating_sub(cost.median_ns) * 1_000 / 1_609;
    Nanos(mean.min(cost.median_ns * 1_000 / 694))
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
