//! A suite's outcome as text: the matrix, the variants, and what did not hold, in words.

use super::{Cell, Results};
use std::fmt::Write;
use stealtime_report::expect::{Verdict, decisive};
use stealtime_workloads::scenario::expect::Figure;

/// How wide a block of the matrix may be.
const WIDTH: usize = 100;

/// All of it.
pub(super) fn text(results: &Results) -> String {
    let mut text = format!("Suite {}, on {}\n", results.suite, results.backend);
    for policies in results.policies.chunks(columns(results)) {
        block(&mut text, results, policies);
    }
    variants(&mut text, results);
    skipped(&mut text, results);
    failing(&mut text, results);
    let count = |verdict| {
        results
            .cells
            .iter()
            .filter(|c| c.verdict == verdict)
            .count()
    };
    let _ = writeln!(
        text,
        "\n{} pass, {} show a known fault, {} refused, {} fail",
        count(Verdict::Pass),
        count(Verdict::Fault),
        count(Verdict::Refused),
        count(Verdict::Fail)
    );
    text
}

/// The verdict and the figure that decided.
fn short(cell: &Cell) -> String {
    let word = match cell.verdict {
        Verdict::NotApplicable => return "–".to_owned(),
        verdict => verdict.word(),
    };
    let figure = decisive(&cell.checks).and_then(|one| {
        let name = one.figure.as_deref()?;
        let figure = Figure::ALL.iter().find(|figure| figure.word() == name)?;
        Some(figure.shown(one.measured?))
    });
    match figure {
        Some(figure) => format!("{word} {figure}"),
        None => word.to_owned(),
    }
}

fn names_width(results: &Results) -> usize {
    let names = results.scenarios.iter().map(|name| name.chars().count());
    names.max().unwrap_or(0)
}

fn cells_width(results: &Results) -> usize {
    let cells = results.cells.iter().filter(|cell| !cell.variant);
    let cells = cells.map(|cell| short(cell).chars().count());
    let heads = results.policies.iter().map(|name| name.chars().count());
    cells.chain(heads).max().unwrap_or(0)
}

fn columns(results: &Results) -> usize {
    (WIDTH.saturating_sub(names_width(results)) / (cells_width(results) + 2)).max(1)
}

fn block(text: &mut String, results: &Results, policies: &[String]) {
    let (first, other) = (names_width(results), cells_width(results));
    let mut line = |name: &str, cells: &[String]| {
        let mut line = format!("{name:first$}");
        for cell in cells {
            let _ = write!(line, "  {cell:other$}");
        }
        let _ = writeln!(text, "{}", line.trim_end());
    };
    line("", &[]);
    line("", policies);
    for scenario in &results.scenarios {
        let cell = |policy: &String| {
            let of = |cell: &&Cell| cell.scenario == *scenario && cell.policy == *policy;
            results.cells.iter().find(of).map_or("…".to_owned(), short)
        };
        line(scenario, &policies.iter().map(cell).collect::<Vec<_>>());
    }
}

fn variants(text: &mut String, results: &Results) {
    let variants: Vec<_> = results.cells.iter().filter(|cell| cell.variant).collect();
    if variants.is_empty() {
        return;
    }
    text.push_str("\nVariants that scenarios name\n");
    for cell in variants {
        let said = decisive(&cell.checks).map_or("", |one| one.claim.as_str());
        let line = format!("{} under {}: {}", cell.scenario, cell.policy, short(cell));
        item(text, &format!("{line} ({said})"));
    }
}

fn skipped(text: &mut String, results: &Results) {
    for scenario in &results.scenarios {
        let mut cells = results
            .cells
            .iter()
            .filter(|cell| cell.scenario == *scenario);
        if cells
            .clone()
            .all(|cell| cell.verdict == Verdict::NotApplicable)
            && let Some(reason) = cells.find_map(|cell| cell.reason.as_ref())
        {
            let _ = writeln!(text, "\nSkipped: {scenario}: {reason}");
        }
    }
}

fn failing(text: &mut String, results: &Results) {
    let failing = results.cells.iter().flat_map(|cell| {
        let broken = cell.checks.iter().filter(|one| !one.held);
        broken.map(move |one| (cell, one))
    });
    let lines: Vec<_> = failing
        .map(|(cell, one)| {
            let fault = if one.fault {
                "known fault not seen: "
            } else {
                ""
            };
            format!(
                "{} under {}: {fault}{}: {}",
                cell.scenario, cell.policy, one.claim, one.found
            )
        })
        .collect();
    if !lines.is_empty() {
        text.push_str("\nExpected, and not so\n");
    }
    for line in lines {
        item(text, &line);
    }
}

fn item(text: &mut String, line: &str) {
    let options = textwrap::Options::new(WIDTH)
        .word_splitter(textwrap::WordSplitter::NoHyphenation)
        .initial_indent("  * ")
        .subsequent_indent("    ");
    let _ = writeln!(text, "{}", textwrap::fill(line, options));
}
