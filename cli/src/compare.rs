//! `stealtime compare`: several policies on the same guests, in turn, side by side.

use crate::args::{CompareArgs, Format};
use crate::execute::{self, Remarks};
use crate::failure::{Blame, Outcome, Status};
use crate::interrupt;
use crate::planning::Setting;
use crate::show;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use stealtime_report::{Comparison, Report};
use stealtime_scheduler::spec::PolicySpec;

/// Runs A B A B …, and shows medians with confidence intervals.
///
/// # Errors
/// If a run did not take place, or something could not be kept or printed.
pub fn compare(arguments: &CompareArgs) -> Outcome {
    let remarks = Remarks::new(arguments.quiet);
    let setting = Setting::new(&arguments.scenario, &arguments.conditions)?;
    let mut plans = Vec::new();
    for policy in &arguments.policies {
        plans.push(setting.plan(Some(policy))?);
    }
    let mut reports: Vec<Vec<Report>> = vec![Vec::new(); plans.len()];
    'rounds: for round in 1..=arguments.repeat {
        for ((plan, policy), done) in plans.iter().zip(&arguments.policies).zip(&mut reports) {
            let label = format!("{policy} {round}/{}", arguments.repeat);
            // Every round has random lengths of its own, the same for all policies.
            let mut plan = plan.clone();
            plan.seed = plan.seed.wrapping_add(u64::from(round - 1));
            let directory = arguments
                .output
                .as_deref()
                .map(|below| place(below, round, policy));
            let ran = execute::run(&setting, &plan, &label, remarks, directory.as_deref())?;
            ran.kept.transpose()?;
            if interrupt::pressed() {
                break 'rounds;
            }
            done.push(ran.report);
        }
    }
    let interrupted = interrupt::pressed();
    let Some(comparison) = Comparison::of(&reports) else {
        eprintln!("ended early: no run was complete, so there is nothing to compare");
        return Ok(Status::Interrupted);
    };
    show::print(&render(&comparison, arguments.format)).not_kept()?;
    if interrupted {
        return Ok(Status::Interrupted);
    }
    let broken = |column: &stealtime_report::compare::Column| {
        column.violations > 0 || column.lost_events > 0
    };
    if comparison.policies.iter().any(broken) {
        eprintln!("check failed: a policy broke a rule, or events were lost");
        return Ok(Status::CheckFailed);
    }
    Ok(Status::Done)
}

/// Where a run is kept: the round, then the policy without what file names dislike.
fn place(below: &Path, round: u32, policy: &PolicySpec) -> PathBuf {
    let name: String = policy
        .to_string()
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || "-.=+".contains(c) {
                c
            } else {
                '_'
            }
        })
        .collect();
    below.join(format!("{round:03}-{name}"))
}

fn render(comparison: &Comparison, format: Format) -> String {
    match format {
        Format::Text => comparison.to_text(),
        Format::Json => comparison.to_json(),
        Format::Csv => csv(comparison),
    }
}

/// A line for each figure of each policy.
fn csv(comparison: &Comparison) -> String {
    let mut text = String::from("metric,vcpu,policy,runs,median,low,high,confidence\n");
    for row in &comparison.rows {
        let vcpu = row.vcpu.as_deref().unwrap_or("");
        for (column, estimate) in comparison.policies.iter().zip(&row.estimates) {
            if let Some(e) = estimate {
                let _ = writeln!(
                    text,
                    "{},{vcpu},\"{}\",{},{},{},{},{}",
                    row.metric, column.policy, e.count, e.median, e.low, e.high, e.confidence
                );
            }
        }
    }
    text
}
