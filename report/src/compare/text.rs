//! The comparison as its user reads it: one table a metric, rows are vCPUs, columns are policies.

use super::stats::{ENOUGH, Estimate, whole};
use super::{Better, Column, Comparison, Row, Unit};
use crate::text::format::{grouped, heading, paragraph, per_cent, rendered, table};
use std::fmt::Write;
use stealtime_scheduler::time::Nanos;

/// With more vCPUs than this, rows of single vCPUs are left to the JSON form.
const SHOWN: usize = 16;

/// Before a figure whose interval has nothing in common with the first policy's.
const APART: char = '*';

impl Comparison {
    /// The comparison as text, ending in a line break.
    #[must_use]
    pub fn to_text(&self) -> String {
        let cores = match self.cores {
            1 => "1 core".to_owned(),
            n => format!("{n} cores"),
        };
        let mut text = format!(
            "Scenario {} on {} with {cores}, each run measured for {}\n{}",
            self.scenario,
            self.backend,
            Nanos(self.wall_ns),
            self.method()
        );
        let of_run: Vec<_> = self.rows.iter().filter(|row| row.vcpu.is_none()).collect();
        heading(&mut text, "The run as a whole", "");
        text.push_str(&self.table("metric", &of_run, titled));
        let vcpus: Vec<_> = self.rows.iter().filter(|row| row.vcpu.is_some()).collect();
        let of_metric = vcpus.chunk_by(|a, b| a.metric == b.metric);
        for rows in of_metric.filter(|rows| rows.len() <= SHOWN) {
            if rows.iter().all(|row| nothing(row)) {
                continue;
            }
            let mut title = titled(rows[0]);
            if let Some(first) = title.get_mut(..1) {
                first.make_ascii_uppercase();
            }
            heading(&mut text, &title, "");
            text.push_str(&self.table("vCPU", rows, |row| row.vcpu.clone().unwrap_or_default()));
        }
        if vcpus
            .iter()
            .any(|row| vcpus.iter().filter(|r| r.metric == row.metric).count() > SHOWN)
        {
            text.push_str("\nFigures of single vCPUs are in the JSON form.\n");
        }
        heading(&mut text, "Diagnosis, of each policy's worst run", "");
        for column in &self.policies {
            text.push_str(&paragraph(&told(column)));
        }
        text
    }

    /// How the figures were made, and what they cannot tell.
    fn method(&self) -> String {
        let repeats = self.policies.iter().map(|column| column.repeats).min();
        let star = format!(
            " A {APART} marks an interval that has nothing in common with that of the first policy."
        );
        let text = match repeats.unwrap_or(0) {
            0 | 1 => "A single run of each policy: no interval can be given, so differences may be chance."
                .to_owned(),
            n if n < ENOUGH => {
                let confidence = 1.0 - 0.5_f64.powi(i32::try_from(n).unwrap_or(0) - 1);
                format!(
                    "Medians of {n} runs; in brackets the range of all, which holds the true median with {} confidence only ({ENOUGH} runs give 95 %).{star}",
                    per_cent(confidence)
                )
            }
            n => format!(
                "Medians of {n} runs; in brackets the interval that holds the true median with at least 95 % confidence.{star}"
            ),
        };
        paragraph(&text)
    }

    fn table(&self, first: &str, rows: &[&Row], name: impl Fn(&Row) -> String) -> String {
        let mut header = vec![first];
        header.extend(self.policies.iter().map(|column| column.policy.as_str()));
        let mut table = table(&header);
        for row in rows {
            let mut cells = vec![name(row)];
            let baseline = row.estimates.first().copied().flatten();
            for estimate in &row.estimates {
                cells.push(cell(row.unit, estimate.as_ref(), baseline.as_ref()));
            }
            table.add_row(cells);
        }
        rendered(&table)
    }
}

/// Nothing but zeros: not worth a table.
fn nothing(row: &Row) -> bool {
    let zero = |estimate: &Estimate| estimate.high <= 0.0;
    row.estimates.iter().flatten().all(zero)
}

fn titled(row: &Row) -> String {
    let better = match row.better {
        Better::Less => ", less is better",
        Better::More => ", more is better",
        Better::Neither => "",
    };
    format!("{}{better}", row.title)
}

fn cell(unit: Unit, estimate: Option<&Estimate>, baseline: Option<&Estimate>) -> String {
    let Some(estimate) = estimate else {
        return "-".to_owned();
    };
    let mut text = figure(unit, estimate.median);
    if estimate.count > 1 {
        let (low, high) = (figure(unit, estimate.low), figure(unit, estimate.high));
        if low != text || high != text {
            let _ = write!(text, " [{low}, {high}]");
        }
        let apart = baseline.is_some_and(|baseline| baseline.count > 1 && estimate.apart(baseline));
        if apart {
            text.insert(0, APART);
        }
    }
    text
}

fn figure(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Nanoseconds => Nanos(whole(value)).to_string(),
        Unit::Part => per_cent(value),
        Unit::Count => grouped(whole(value)),
        Unit::Index => format!("{value:.3}"),
    }
}

fn told(column: &Column) -> String {
    let mut text = format!("{}: {}", column.policy, column.diagnosis);
    if column.repeats > 1 {
        let _ = write!(
            text,
            " (Somebody starved in {} of {} runs.)",
            column.starved, column.repeats
        );
    }
    if column.lost_events > 0 {
        let _ = write!(text, " {} events were lost.", grouped(column.lost_events));
    }
    text
}
