//! `stealtime doctor`: what this machine can do, and what switching guests costs on it.
//!
//! Everything is asked or measured. Beside the measured costs stand those that `sim` assumes of bare
//! hardware where nothing was measured, for orientation only.

mod host;
mod model;
#[cfg(test)]
mod tests;

use crate::cores::CoreList;
use crate::failure::{Blame, Failure, Outcome, Status};
use crate::show;
use anyhow::anyhow;
use host::Host;
use model::{how_much_they_vary, model};
use std::fmt::Write;
use stealtime_scheduler::time::Nanos;
use stealtime_sim::cost::{CostModel, InvalidCosts};
use stealtime_sim::stored::Place;
use stealtime_vmm::probe::{self, Cost, Costs, CourseCosts, KvmStatus, Rights};

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
        if let Err(failure) = store(&costs, host.as_ref(), &place) {
            // What was measured is worth reading all the more.
            show::print(&text).not_kept()?;
            return Err(failure);
        }
        let _ = writeln!(
            text,
            "\nThe simulator takes these costs from now on: {}",
            place.path().display()
        );
    }
    show::print(&text).not_kept()?;
    Ok(Status::Done)
}

/// Measures costs and the host, stores what the simulator is to take, and says nothing. Takes about a quarter of a
/// minute.
///
/// # Errors
/// If KVM cannot be used, or costs cannot be measured or written.
pub fn calibrate() -> Result<CostModel, Failure> {
    let place = Place::of_environment().bad_input()?;
    let costs = probe::measure().machine()?;
    store(&costs, Some(&Host::measure().machine()?), &place)
}

/// What the simulator takes from now on.
fn store(costs: &Costs, host: Option<&Host>, place: &Place) -> Result<CostModel, Failure> {
    let model = model(&costs.course, host);
    if let Err(error) = model.check() {
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
    Ok(model)
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
        ("call that wakes another one until entry", costs.handling),
        ("on top of a call that may cost the core", costs.leaving),
        ("op of the guest's that takes no time", costs.op),
        ("step with a free lock of the guest's", costs.lock_step),
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
    let _ = writeln!(
        text,
        "    beyond the least that it is, such a cost is more by about {:.1} % of its median, on average",
        how_much_they_vary(costs) as f64 / 10.0
    );
    text
}
