//! The figures of each case that explain a finding's rows, for people.

use super::model::{Explained, Measure};
use super::outcome::show_ratio;
use super::traffic::QueuesOverTime;
use std::fmt::Write;

/// A case and its figures, in the order of the measures.
pub(super) type Figures = (String, Vec<Option<f64>>);

/// A figure as it is shown.
pub(super) fn cell(measure: &Measure, figure: Option<f64>) -> String {
    figure.map_or_else(|| "-".to_owned(), |figure| measure.unit.show(figure))
}

/// A table for a terminal: a letter for each measure, a line for each case, and every column as wide as it
/// has to be.
pub(super) fn text(explained: &Explained, backend: &str, cases: &[Figures]) -> String {
    let mut text = format!("What cores and queues did ({backend})\n");
    for (letter, measure) in ('a'..='z').zip(explained.measures) {
        let _ = writeln!(text, "  {letter}  {}", measure.name);
    }
    let first = cases.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut lines = vec![format!("  {:first$}", "")];
    lines.extend(cases.iter().map(|(name, _)| format!("  {name:first$}")));
    for (place, (letter, measure)) in ('a'..='z').zip(explained.measures).enumerate() {
        let mut column = vec![letter.to_string()];
        let figures = cases.iter().map(|(_, figures)| figures.get(place));
        column.extend(figures.map(|figure| cell(measure, figure.copied().flatten())));
        let width = column.iter().map(|cell| cell.chars().count()).max();
        let width = width.unwrap_or(0);
        for (line, cell) in lines.iter_mut().zip(column) {
            let _ = write!(line, "  {cell:>width$}");
        }
    }
    for line in lines {
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// The length of each core's queue over time; `cores` has the number of each core on its machine.
pub(super) fn queues(backend: &str, case: &str, cores: &[u16], queues: &QueuesOverTime) -> String {
    let step = queues.step;
    let mut text = format!(
        "Length of each core's queue in steps of {step}, from the middle of the time on ({backend}, {case})\n"
    );
    for (core, lengths) in cores.iter().zip(&queues.cores) {
        let _ = write!(text, "  core {core:<3}");
        for length in lengths {
            let _ = write!(text, "  {length:>4.1}");
        }
        text.push('\n');
    }
    text
}

/// A row's name, its published ratio, and ours.
pub(super) type Place<'a> = (&'a str, Option<f64>, Option<f64>);

/// From the least ratio to the greatest, as published and as measured; none unless three rows or more have
/// both: of two the figures themselves tell.
pub(super) fn order(backend: &str, rows: &[Place<'_>]) -> Option<String> {
    let both = rows
        .iter()
        .filter_map(|(name, published, ours)| Some((*name, (*published)?, (*ours)?)));
    let both: Vec<_> = both.collect();
    if both.len() < 3 {
        return None;
    }
    let line = |ratio: fn(&(&str, f64, f64)) -> f64| {
        let mut sorted = both.clone();
        sorted.sort_by(|a, b| ratio(a).total_cmp(&ratio(b)));
        let named = sorted.iter();
        let named = named.map(|row| format!("\"{}\" ({})", row.0, show_ratio(ratio(row))));
        named.collect::<Vec<_>>().join(", ")
    };
    Some(format!(
        "From the least to the most, published: {}; {backend}: {}.",
        line(|row| row.1),
        line(|row| row.2)
    ))
}

#[cfg(test)]
mod tests {
    use super::super::findings;
    use super::super::model::Unit;
    use super::*;
    use stealtime_scheduler::time::Nanos;

    /// Columns of everything else that is printed.
    const WIDTH: usize = 100;

    #[test]
    fn columns_are_as_wide_as_their_figures_and_no_table_is_wider_than_the_text() {
        for finding in findings::ALL {
            let Some(explained) = &finding.explained else {
                continue;
            };
            let figure = |measure: &Measure| match measure.unit {
                Unit::Time => 123_456.0,
                _ => 0.98,
            };
            let cases = finding.cases.iter().map(|case| {
                let figures = explained.measures.iter().map(|m| Some(figure(m)));
                (case.name.to_owned(), figures.collect())
            });
            let table = text(explained, "kvm", &cases.collect::<Vec<_>>());
            let heads = explained.measures.len() + 1;
            let lines: Vec<_> = table.lines().skip(heads).collect();
            assert_eq!(lines.len(), finding.cases.len() + 1);
            let widths = lines.iter().map(|line| line.chars().count());
            let widths: Vec<_> = widths.collect();
            assert!(widths.iter().all(|w| *w == widths[0]), "{table}");
            assert!(widths[0] <= WIDTH, "{table}");
        }
    }

    #[test]
    fn queues_have_their_cores_numbers() {
        let over_time = QueuesOverTime {
            step: Nanos::from_millis(1),
            cores: vec![vec![10.0; 12], vec![0.5; 12]],
        };
        let text = queues("kvm", "spinning", &[2, 130], &over_time);
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[1].starts_with("  core 2    10.0  10.0"), "{text}");
        assert!(lines[2].starts_with("  core 130   0.5   0.5"), "{text}");
        assert!(lines[1..].iter().all(|line| line.len() <= WIDTH), "{text}");
    }

    #[test]
    fn rows_are_put_in_order_by_both_ratios_if_there_is_an_order() {
        let rows = [
            ("a", Some(3.0), Some(2.0)),
            ("b", Some(1.0), Some(4.0)),
            ("c", None, Some(1.0)),
        ];
        assert_eq!(order("sim", &rows), None, "two have both");
        let more = [&rows[..], &[("d", Some(2.0), Some(3.0))]].concat();
        let text = order("sim", &more).expect("three have");
        assert_eq!(
            text,
            "From the least to the most, published: \"b\" (1.00), \"d\" (2.00), \"a\" (3.00); \
             sim: \"a\" (2.00), \"d\" (3.00), \"b\" (4.00)."
        );
    }
}
