//! Outcomes to read.

use super::Reproduced;
use super::agreement::{AGREE, Agreement};
use super::distribution::{Bins, Distribution};
use super::model::{Explained, Histogram, Published, Row, Unit};
use super::outcome::{CaseOutcome, Outcome, RowOutcome, show_ratio};
use super::print_cases;
use super::rounds::SIM_AS_KVM;
use std::collections::BTreeSet;
use std::fmt::Write;
use stealtime_report::compare::stats::Estimate;
use stealtime_scheduler::time::Nanos;

/// What stands above what figures told elsewhere.
const READ_WHERE: &str = "What such figures told on the machine of docs/reproductions.md";

/// Everything about one finding.
pub(super) fn finding(reproduced: &Reproduced) -> String {
    let finding = reproduced.finding;
    let mut text = format!("{}: {}\n{}\n", finding.name, finding.title, finding.place);
    let _ = writeln!(text, "\nWhat happened\n{}", wrapped(finding.history));
    let _ = writeln!(text, "\nWhy\n{}", wrapped(finding.mechanism));
    let _ = writeln!(text, "\nSet-up\n{}", wrapped(finding.model));
    let _ = writeln!(text, "\nLeft out\n{}", wrapped(finding.left_out));
    let _ = writeln!(text, "\nRuns");
    for outcome in &reproduced.outcomes {
        for case in &outcome.cases {
            let _ = writeln!(text, "  {}", set_up(outcome, case));
        }
    }
    for (number, row) in finding.rows.iter().enumerate() {
        let _ = write!(text, "\n{}", block(row, number, &reproduced.outcomes));
    }
    for outcome in &reproduced.outcomes {
        if let Some(shown) = &finding.histogram {
            let _ = write!(text, "\n{}", histogram(shown, outcome));
        }
    }
    if let Some(explained) = &finding.explained {
        for outcome in &reproduced.outcomes {
            let _ = write!(text, "\n{}", self::explained(explained, outcome));
        }
        if reproduced.outcomes.iter().all(Outcome::complete) {
            let reading = wrapped(explained.reading);
            let _ = writeln!(text, "\n{READ_WHERE}\n{reading}");
        }
    }
    if let Some(outcome) = reproduced.outcomes.last() {
        for case in &outcome.cases {
            let (name, backend) = (case.case.name, outcome.backend);
            let told = wrapped(&case.diagnosis);
            let _ = writeln!(text, "\nWho waited for whom, {name} ({backend})\n{told}");
        }
    }
    let _ = writeln!(text, "\nVerdict: {}\n", verdict(reproduced));
    text
}

/// The figures of each case, and in what order the rows are.
fn explained(explained: &Explained, outcome: &Outcome) -> String {
    let measures = 0..explained.measures.len();
    let cases = outcome.cases.iter().map(|case| {
        let figures = measures.clone().map(|number| case.measure(number));
        (case.case.name.to_owned(), figures.collect())
    });
    let mut text = print_cases::text(explained, outcome.backend, &cases.collect::<Vec<_>>());
    let rows = outcome.rows.iter();
    let rows: Vec<_> = rows
        .map(|found| (found.row.of, found.row.published.ratio(), found.ratio()))
        .collect();
    if let Some(order) = print_cases::order(outcome.backend, &rows) {
        let _ = write!(text, "\n{}\n", wrapped(&order));
    }
    for case in &outcome.cases {
        if let Some(queues) = &case.queues {
            let name = case.case.name;
            let _ = write!(
                text,
                "\n{}",
                print_cases::queues(outcome.backend, name, &case.plan.cores, queues)
            );
        }
    }
    text
}

fn verdict(reproduced: &Reproduced) -> String {
    let verdicts = reproduced.outcomes.iter().map(|outcome| {
        let word = match (outcome.met(), outcome.disturbed()) {
            (true, _) => "reproduced: every criterion is met".to_owned(),
            (false, None) => "not reproduced: a criterion is not met".to_owned(),
            (false, Some(taken)) => format!(
                "cannot be told: a criterion is not met, but others had {:.0} % of the cores meanwhile",
                taken * 100.0
            ),
        };
        format!("{word} ({})", outcome.backend)
    });
    verdicts.collect::<Vec<_>>().join("; ")
}

/// A line a finding and backend, after many findings.
pub(super) fn summary(all: &[Reproduced]) -> String {
    let mut text = String::from("All findings\n");
    for one in all {
        let _ = writeln!(text, "  {:18} {}", one.finding.name, verdict(one));
        if let Some((first, second)) = one.pair() {
            let rows = first.rows.iter().zip(&second.rows);
            let count = |holds: fn(&Agreement) -> bool| {
                let all = rows.clone().filter_map(|(a, b)| Agreement::of(a, b));
                all.filter(holds).count()
            };
            let agreeing = count(|a| a.agrees());
            let unclear = count(|a| !a.agrees() && a.told_apart != Some(true));
            let (a, b, rows) = (first.backend, second.backend, rows.len());
            let _ = write!(
                text,
                "  {:18} {a} and {b} agree in {agreeing} of {rows} rows (direction, and ratio within {AGREE})",
                ""
            );
            text.push_str(&match unclear {
                0 => "\n".to_owned(),
                some => format!("; {some} cannot be told apart\n"),
            });
        }
    }
    text
}

fn set_up(outcome: &Outcome, case: &CaseOutcome) -> String {
    let plan = &case.plan;
    let cores: Vec<_> = plan.cores.iter().map(u16::to_string).collect();
    let place = match outcome.backend {
        "sim" | SIM_AS_KVM => format!("{} simulated", count(cores.len(), "core")),
        _ => format!("host core {}", cores.join(", ")),
    };
    let warmup = match plan.warmup {
        Nanos::ZERO => "no warm-up".to_owned(),
        time => format!("{time} of warm-up"),
    };
    format!(
        "{}, {}: scenario {}, --policy {}, {place}, {} measured after {warmup}, seed {}",
        outcome.backend, case.case.name, plan.scenario, plan.policy, plan.duration, plan.seed
    )
}

fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn wrapped(text: &str) -> String {
    let options = textwrap::Options::new(100)
        .word_splitter(textwrap::WordSplitter::NoHyphenation)
        .initial_indent("  ")
        .subsequent_indent("  ");
    textwrap::fill(text, options)
}

/// What a row compares, as `x: with the fault against without`.
pub(super) fn title(row: &Row) -> String {
    match row.against {
        Some(against) => format!("{} ({} against {against})", row.name, row.of),
        None => format!("{} ({})", row.name, row.of),
    }
}

/// What was published, in words, without the ratio.
pub(super) fn published(published: &Published, unit: Unit) -> String {
    let figures = match (published.of, published.against) {
        (Some(of), Some(against)) => format!("{} against {}", unit.show(of), unit.show(against)),
        (Some(of), None) => unit.show(of),
        (None, Some(against)) => format!("against {}", unit.show(against)),
        (None, None) => String::new(),
    };
    match (figures.is_empty(), published.said.is_empty()) {
        (true, true) => "no figure".to_owned(),
        (true, false) => published.said.to_owned(),
        (false, true) => figures,
        (false, false) => format!("{figures}; {}", published.said),
    }
}

/// A row on all backends.
fn block(row: &Row, number: usize, outcomes: &[Outcome]) -> String {
    let ratio = row.published.ratio();
    let ratio = ratio.map_or_else(String::new, |ratio| format!(": {}", show_ratio(ratio)));
    let mut text = format!(
        "{}\n  published  {}{ratio}\n  criterion  {}\n",
        title(row),
        published(&row.published, row.unit),
        row.criterion()
    );
    let found = outcomes
        .iter()
        .filter_map(|o| Some((o.backend, o.rows.get(number)?)));
    let found: Vec<_> = found.collect();
    for (backend, row) in &found {
        let _ = writeln!(text, "  {backend:10} {}", measured(row));
    }
    if let [.., (a, first), (b, second)] = &found[..] {
        let told = agreement(first, second);
        let _ = writeln!(text, "  {b} against {a}: {told}");
    }
    text
}

fn agreement(first: &RowOutcome, second: &RowOutcome) -> String {
    let Some(agreement) = Agreement::of(first, second) else {
        return "nothing to compare".to_owned();
    };
    format!(
        "{} times: {}",
        show_ratio(agreement.difference),
        agreement.word()
    )
}

/// The figures of a row on one backend, and the verdict.
fn measured(found: &RowOutcome) -> String {
    let (unit, verdict) = (found.row.unit, found.verdict());
    let mut text = interval(found.of_estimate(), |figure| unit.show(figure));
    if found.row.against.is_some() {
        let against = interval(found.against_estimate(), |figure| unit.show(figure));
        let _ = write!(text, " against {against}");
        let ratio = interval(found.ratio_estimate(), show_ratio);
        let _ = write!(text, ": {ratio}");
    }
    let (rounds, held) = (found.rounds(), verdict.rounds_met);
    let there = found.results().len();
    if (1..rounds).contains(&there) {
        let _ = write!(text, " (a figure in {there} of {rounds} rounds)");
    }
    match verdict.met {
        None => {}
        Some(met) => {
            let word = if met { "met" } else { "NOT met" };
            let _ = write!(text, "  {word}");
            if rounds > 1 {
                let _ = write!(text, " (in {held} of {rounds} rounds)");
            }
        }
    }
    text
}

fn interval(estimate: Option<Estimate>, show: impl Fn(f64) -> String) -> String {
    match estimate {
        None => "nothing".to_owned(),
        Some(e) if e.count < 2 => show(e.median),
        Some(e) => format!("{} [{} to {}]", show(e.median), show(e.low), show(e.high)),
    }
}

/// Columns of bars; a bar's length is the logarithm of the count, so that a single one is seen.
const BAR: usize = 14;
/// Columns of a count.
const COUNT: usize = 11;

fn histogram(shown: &Histogram, outcome: &Outcome) -> String {
    let cases = outcome.cases.iter();
    let lengths: Vec<_> = cases
        .filter_map(|case| Some((case.case.name, case.histogram.as_ref()?)))
        .collect();
    let bins = lengths.iter();
    let bins: Vec<_> = bins
        .map(|(name, lengths)| ((*name).to_owned(), lengths.bins(shown.bin_ns)))
        .collect();
    let mut text = columns(shown, outcome.backend, &bins);
    for (name, lengths) in lengths {
        let _ = writeln!(text, "  {name}: {}", as_ping_prints(lengths));
    }
    text
}

/// Histograms side by side, each with its name.
pub(super) fn columns(shown: &Histogram, backend: &str, columns: &[(String, Bins)]) -> String {
    let mut text = format!("{} ({backend}; bars are logarithmic)\n", shown.title);
    let mut head = format!("  {:>8}", "around");
    for (name, _) in columns {
        let _ = write!(head, "  {name:>COUNT$} {:BAR$}", "");
    }
    let _ = writeln!(text, "{}", head.trim_end());
    let places = columns.iter().flat_map(|(_, bins)| bins.keys().copied());
    let places: BTreeSet<_> = places.collect();
    for place in places {
        let mut line = format!("  {:>8}", Nanos(place * shown.bin_ns).to_string());
        for (_, bins) in columns {
            let count = bins.get(&place).copied().unwrap_or(0);
            let length = count.checked_ilog2().map_or(0, |log| log as usize + 1);
            let _ = write!(
                line,
                "  {count:>COUNT$} {:BAR$}",
                "#".repeat(length.min(BAR))
            );
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// `min/avg/max/stddev` and how many.
fn as_ping_prints(lengths: &Distribution) -> String {
    let figures = [
        lengths.min(),
        lengths.mean(),
        lengths.max(),
        lengths.deviation(),
    ];
    let figures = figures.map(|f| f.map_or_else(|| "-".to_owned(), |f| Unit::Time.show(f)));
    format!(
        "{} in all, min/avg/max/stddev = {}",
        lengths.count(),
        figures.join("/")
    )
}
