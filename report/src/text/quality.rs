//! The run as a whole, and how far its figures can be trusted: one fact a line.

use super::format::{grouped, paragraph, per_cent};
use crate::model::Report;
use std::fmt::Write;
use stealtime_scheduler::time::Nanos;

/// Column at which the facts begin.
const LABEL: usize = 32;

/// Lines of a dump of cores and vCPUs that are shown.
const DUMPED: usize = 24;

struct Lines(String);

impl Lines {
    fn add(&mut self, label: &str, fact: &str) {
        let _ = writeln!(self.0, "  {label:<LABEL$}{fact}");
    }
}

/// All lines.
pub(super) fn lines(report: &Report) -> String {
    let mut lines = Lines(String::new());
    figures(report, &mut lines);
    trust(report, &mut lines);
    for vm in &report.vms {
        if let Some(failure) = &vm.failure {
            let at = Nanos(failure.at_ns).as_secs_f64();
            let fact = format!("ended at {at:.3} s: {}", failure.message);
            lines.add(&format!("VM {}", vm.vm), &fact);
        }
    }
    if report.violations.count > 0 {
        let count = grouped(report.violations.count);
        lines.add("rules broken by the policy", &format!("{count} times"));
        for violation in &report.violations.first {
            let at = Nanos(violation.at_ns).as_secs_f64();
            lines.add("", &format!("at {at:.6} s {}", violation.rule));
        }
    }
    let mut text = lines.0;
    let first = report.violations.first.first();
    let dump: Vec<&str> = first.map_or_else(Vec::new, |first| first.dump.lines().collect());
    // A single line is no state, but what a policy said when it failed, and stands among the notes.
    if dump.len() > 1 {
        text.push_str("\n  When the first was broken\n");
        for line in dump.iter().take(DUMPED) {
            let _ = writeln!(text, "    {line}");
        }
        if dump.len() > DUMPED {
            let left = dump.len() - DUMPED;
            let _ = writeln!(text, "    and {left} lines more, in the JSON form");
        }
    }
    for note in &report.quality.notes {
        text.push_str(&paragraph(&format!("Note: {note}.")));
    }
    text
}

fn figures(report: &Report, lines: &mut Lines) {
    let run = &report.run;
    lines.add(
        "fairness (Jain's index)",
        &format!("{:.3} over received ÷ entitled", run.jain),
    );
    lines.add("core time used", &per_cent(run.used));
    let work = format!("{} of the core time", per_cent(run.throughput));
    lines.add("guest work done", &work);
    let kick = &run.kick_ns;
    if kick.count > 0 {
        let fact = format!(
            "median {}, 99 % within {}, longest {} ({} times)",
            Nanos(kick.p50),
            Nanos(kick.p99),
            Nanos(kick.max),
            grouped(kick.count)
        );
        lines.add("core asked back until left", &fact);
    }
}

fn trust(report: &Report, lines: &mut Lines) {
    let run = &report.run;
    let core_time = report.wall_ns as f64 * report.cores as f64;
    let of_core_time = |ns: u64| {
        per_cent(if core_time > 0.0 {
            ns as f64 / core_time
        } else {
            0.0
        })
    };
    let fact = match run.host_interference_ns {
        0 => "none".to_owned(),
        n => format!("{} ({} of the core time)", Nanos(n), of_core_time(n)),
    };
    lines.add("host interference", &fact);
    let each = run.dispatch_overhead_ns / run.dispatch_calls.max(1);
    let calls = grouped(run.dispatch_calls);
    let fact = match run.dispatch_overhead_ns {
        0 => format!("{calls} calls, not timed"),
        n => format!("{} in {calls} calls, {} each", Nanos(n), Nanos(each)),
    };
    lines.add("dispatcher", &fact);
    let fact = format!(
        "{} arrived, {} lost",
        grouped(run.events),
        grouped(run.lost_events)
    );
    lines.add("events", &fact);
    if let Some(clock) = &report.quality.clock {
        let fact = format!(
            "differ by at most {}, known to {}",
            Nanos(clock.worst_offset_ns),
            Nanos(clock.uncertainty_ns)
        );
        lines.add("clocks of guests and host", &fact);
    }
    if let Some(calibration) = &report.quality.calibration {
        let spread = calibration.spread_ppm as f64 / 1e6;
        let fact = format!(
            "{} iterations a millisecond, repeated within {:.2} %, counter at {} MHz",
            grouped(calibration.iterations_per_ms),
            spread * 100.0,
            grouped(calibration.tsc_khz / 1_000)
        );
        lines.add("calibration of guest work", &fact);
    }
}
