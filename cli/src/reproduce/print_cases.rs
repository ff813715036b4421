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

/// A table for a terminal: a letter for each measure, a line for each case.
pub(super) fn text(explained: &Explained, backend: &str, cases: &[Figures]) -> String {
    let mut text = format!("Where the time went ({backend})\n");
    let letters = || ('a'..='z').zip(explained.measures);
    for (letter, measure) in letters() {
        let _ = writeln!(text, "  {letter}  {}", measure.name);
    }
    let width = cases.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let _ = write!(text, "  {:width$}", "");
    for (letter, _) in letters() {
        let _ = write!(text, "  {letter:>8}");
    }
    text.push('\n');
    for (name, figures) in cases {
        let _ = write!(text, "  {name:width$}");
        for (measure, figure) in explained.measures.iter().zip(figures) {
            let _ = write!(text, "  {:>8}", cell(measure, *figure));
        }
        text.push('\n');
    }
    text
}

/// The length of each core's queue over time.
pub(super) fn queues(backend: &str, case: &str, queues: &QueuesOverTime) -> String {
    let step = queues.step;
    let mut text = format!(
        "Length of each core's queue in steps of {step}, from the middle of the time on ({backend}, {case})\n"
    );
    for (core, lengths) in queues.cores.iter().enumerate() {
        let _ = write!(text, "  core {core:<2}");
        for length in lengths {
            let _ = write!(text, "  {length:>4.1}");
        }
        text.push('\n');
    }
    text
}

/// A row's name, its published ratio, and ours.
pub(super) type Place<'a> = (&'a str, Option<f64>, Option<f64>);

/// From the least ratio to the greatest, as published and as measured; none unless several rows have
/// both.
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
    use super::*;

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
