//! What scheduling guests ourselves costs them: throughput ratios, measured on KVM in one go.
//!
//! 1. One spinning vCPU under `eevdf`, against the same one under `host`.
//! 2. Two spinning vCPUs on one core under `eevdf` with 10 ms slices, together, against one alone.
//!
//! Throughput is the guests' own progress (calibrated work) per second. The settings run in turn, and
//! each round gives one ratio of neighbours in time, so that slow changes of the machine fall out.
//!
//! `cargo bench -p stealtime --bench throughput [-- --duration 2s --rounds 9]`

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use stealtime_cli::args::{BackendChoice, Conditions};
use stealtime_cli::execute::Remarks;
use stealtime_cli::planning::Setting;
use stealtime_scheduler::spec::PolicySpec;
use stealtime_scheduler::time::Nanos;
use stealtime_workloads::run::{Entry, Observer, Plan};

/// Nobody listens: the figures are the guests' own.
#[derive(Debug)]
struct Deaf;

impl Observer for Deaf {
    fn entries(&mut self, _entries: &[Entry]) {}
}

#[derive(Debug)]
struct Options {
    duration: Nanos,
    rounds: usize,
}

fn main() -> ExitCode {
    match options(std::env::args().skip(1)).and_then(|options| bench(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options {
        duration: Nanos::from_secs(2),
        rounds: 9,
    };
    while let Some(argument) = arguments.next() {
        let mut value = || {
            let missing = || format!("{argument} needs a value");
            arguments.next().ok_or_else(missing)
        };
        match &*argument {
            "--duration" => options.duration = value()?.parse().map_err(|e| format!("{e}"))?,
            "--rounds" => options.rounds = value()?.parse().map_err(|e| format!("{e}"))?,
            // Cargo's own.
            "--bench" => {}
            other => return Err(format!("`{other}` means nothing here")),
        }
    }
    Ok(options)
}

fn plan(scenario: &str, policy: &str, duration: Nanos) -> Result<(Setting, Plan), String> {
    let conditions = Conditions {
        backend: BackendChoice::Kvm,
        duration: Some(duration),
        ..Conditions::default()
    };
    let policy: PolicySpec = policy.parse().map_err(|error| format!("{error}"))?;
    let setting = Setting::new(scenario, &conditions).map_err(|failure| failure.lines())?;
    let plan = setting
        .plan(Some(&policy))
        .map_err(|failure| failure.lines())?;
    Ok((setting, plan))
}

/// Seconds of calibrated work per second of the run, all vCPUs together.
fn throughput((setting, plan): &(Setting, Plan)) -> Result<f64, String> {
    let outcome = setting
        .backend
        .run(plan, Remarks::new(true), &AtomicBool::new(false), &mut Deaf)
        .map_err(|failure| failure.lines())?;
    let progress: u64 = outcome.guests.iter().map(|guest| guest.progress_ns).sum();
    Ok(Nanos(progress).as_secs_f64() / plan.duration.as_secs_f64())
}

fn bench(options: &Options) -> Result<(), String> {
    let host = plan("spin-alone", "host", options.duration)?;
    let alone = plan("spin-alone", "eevdf", options.duration)?;
    let pair = plan("spin-pair", "eevdf:slice=10ms", options.duration)?;
    let (mut ours, mut shared) = (Vec::new(), Vec::new());
    println!("round     host    eevdf     pair   eevdf/host   pair/host");
    for round in 1..=options.rounds {
        let (h, a, p) = (throughput(&host)?, throughput(&alone)?, throughput(&pair)?);
        println!(
            "{round:>5}  {h:7.4}  {a:7.4}  {p:7.4}      {:7.4}     {:7.4}",
            a / h,
            p / h
        );
        ours.push(a / h);
        shared.push(p / h);
    }
    show("one spinning vCPU alone, eevdf / host", 0.98, &mut ours);
    show(
        "two on one core with 10 ms slices, together, eevdf / one alone under host",
        0.95,
        &mut shared,
    );
    Ok(())
}

fn show(what: &str, promised: f64, ratios: &mut [f64]) {
    ratios.sort_by(f64::total_cmp);
    if let [low, .., high] = *ratios {
        let median = ratios[ratios.len() / 2];
        println!(
            "{what}: median {median:.4}, from {low:.4} to {high:.4} (promised: at least {promised})"
        );
    }
}
