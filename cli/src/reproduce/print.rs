//! The outcome of a reproduction, to read and for machines.

use super::Reproduction;
use super::criterion::{Row, Side, Verdict};
use crate::args::Format;
use serde_json::{Value, json};
use std::fmt::Write;
use stealtime_scheduler::time::Nanos;

pub(super) fn render(outcome: &Reproduction<'_>, format: Format) -> String {
    match format {
        Format::Text => text(outcome),
        Format::Json => format!("{:#}", document(outcome)),
        Format::Csv => csv(outcome),
    }
}

fn text(outcome: &Reproduction<'_>) -> String {
    let (finding, plan) = (outcome.finding, &outcome.plan);
    let mut text = format!("{}: {}\n{}\n", finding.name, finding.title, finding.place);
    let _ = writeln!(text, "\nWhat happened\n{}", indented(finding.story));
    let cores: Vec<_> = plan.cores.iter().map(u16::to_string).collect();
    let place = match outcome.backend {
        "sim" => format!("{} simulated", count(cores.len(), "core")),
        _ => format!("host core {}", cores.join(", ")),
    };
    let warmup = match plan.warmup {
        Nanos::ZERO => "no warm-up".to_owned(),
        time => format!("{time} of warm-up"),
    };
    let _ = writeln!(
        text,
        "\nSet-up\n  scenario {}, backend {}, {place}, {} measured after {}, seed {}",
        plan.scenario, outcome.backend, plan.duration, warmup, plan.seed
    );
    for way in finding.ways {
        let _ = writeln!(text, "  {:6} --policy {}", way.name, way.policy);
    }
    for row in &outcome.rows {
        let _ = write!(text, "\n{}", block(row));
    }
    for (way, diagnosis) in &outcome.diagnoses {
        let _ = writeln!(text, "\nWho waited for whom, {way}\n{}", wrapped(diagnosis));
    }
    let _ = writeln!(
        text,
        "\nVerdict: {}",
        match outcome.verdict() {
            Verdict::Met => "reproduced: every criterion is met",
            Verdict::NotMet => "not reproduced: a criterion is not met",
        }
    );
    text
}

fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn wrapped(text: &str) -> String {
    let options = textwrap::Options::new(100)
        .initial_indent("  ")
        .subsequent_indent("  ");
    textwrap::fill(text, options)
}

fn indented(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(|line| format!("  {line}")).collect();
    lines.join("\n")
}

/// A block of four lines for a row.
fn block(row: &Row) -> String {
    format!(
        "{}\n  published  {}\n  measured   {}\n  criterion  {}: {}\n  met        {}\n",
        row.name,
        row.published,
        measured(row),
        row.criterion,
        row.bound,
        yes_or_no(row)
    )
}

fn measured(row: &Row) -> String {
    let deciding = row
        .deciding()
        .map_or_else(|| "nothing".to_owned(), |figure| figure.to_string());
    if row.measured.len() < 2 {
        return deciding;
    }
    let which = match row.side {
        Side::AtLeast => "least",
        Side::AtMost => "most",
    };
    let all: Vec<_> = row.measured.iter().map(Nanos::to_string).collect();
    format!("{deciding} ({which} of {})", all.join(", "))
}

fn yes_or_no(row: &Row) -> &'static str {
    match row.verdict() {
        Verdict::Met => "yes",
        Verdict::NotMet => "no",
    }
}

fn document(outcome: &Reproduction<'_>) -> Value {
    let (finding, plan) = (outcome.finding, &outcome.plan);
    let ways = finding
        .ways
        .iter()
        .map(|way| json!({ "name": way.name, "policy": way.policy }));
    json!({
        "finding": finding.name,
        "place": finding.place,
        "backend": outcome.backend,
        "scenario": plan.scenario,
        "cores": plan.cores,
        "duration_ns": plan.duration.get(),
        "warmup_ns": plan.warmup.get(),
        "seed": plan.seed,
        "ways": ways.collect::<Vec<_>>(),
        "diagnoses": outcome
            .diagnoses
            .iter()
            .map(|(way, text)| json!({ "way": way, "text": text }))
            .collect::<Vec<_>>(),
        "rows": outcome.rows.iter().map(Row::json).collect::<Vec<_>>(),
        "reproduced": outcome.verdict() == Verdict::Met,
    })
}

fn csv(outcome: &Reproduction<'_>) -> String {
    let mut text = String::from("name,published,measured_ns,criterion,bound_ns,met\n");
    for row in &outcome.rows {
        let measured = row
            .deciding()
            .map_or_else(String::new, |figure| figure.get().to_string());
        let _ = writeln!(
            text,
            "\"{}\",\"{}\",{measured},\"{}\",{},{}",
            row.name,
            row.published,
            row.criterion,
            row.bound.get(),
            row.verdict() == Verdict::Met
        );
    }
    text
}
