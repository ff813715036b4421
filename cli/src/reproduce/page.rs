//! `docs/reproductions.md`: what each finding says of itself, with the figures of committed files.
//!
//! `stealtime reproduce all --backend all --calibrate --format json` writes `docs/reproductions/results.json`,
//! `stealtime reproduce all --sweep --format json` writes `docs/reproductions/sweep.json`, and
//! `STEALTIME_WRITE_DOCS=1 cargo test -p stealtime page` writes the page from both. No figure is
//! typed in.

use super::agreement::Agreement;
use super::findings;
use super::model::{Explained, Knob, Measure, Reproduction, Row};
use super::outcome::show_ratio;
use super::print;
use super::print_cases;
use super::rounds::SIM_AS_KVM;
use super::traffic::QueuesOverTime;
use serde_json::Value;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use stealtime_scheduler::time::Nanos;

const HEAD: &str = "\
# Reproductions

What was seen on real systems, with the fault and without, on real guests and in the simulator.
`stealtime reproduce NAME` runs one, `stealtime reproduce all --backend all` all of them on both.

This page is written from the code, and its figures are those of `reproductions/results.json` and
`reproductions/sweep.json`: see `cli/src/reproduce/page.rs`. To add a finding: one file in
`cli/src/reproduce/findings/` and one line in its `mod.rs`.

How to read a table: *published* is what the source says, for comparison only. *Measured* is the median
of the rounds, with the interval that holds the true median; a ratio is the median of the rounds' ratios.
`sim` is the simulator with costs that were measured on the same machine; where KVM was set up otherwise (on the
cores that there are, with less to do) *sim as kvm* is the simulator with that set-up, and it is what KVM is
compared with. A criterion is judged on the
medians; beside it stands in how many of the rounds it holds. Times from an interrupt to its handler, and
round trips, are less what the host took from the threads meanwhile (by its own account, and of a timer by how
late it came; both sides of a comparison share the rule); all other times are as they were. Where the load stands far above the number of
cores, others worked on the machine too: what is not met on KVM then, and where it differs from `sim`, has
their work in it.
";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

fn read(file: &str) -> Value {
    let path = root().join("reproductions").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn list<'a>(document: &'a Value, key: &str) -> &'a [Value] {
    document[key].as_array().map_or(&[], Vec::as_slice)
}

fn paragraph(page: &mut String, title: &str, text: &str) {
    let _ = writeln!(page, "\n**{title}.** {}", filled(text));
}

fn filled(text: &str) -> String {
    textwrap::fill(text, textwrap::Options::new(104).break_words(false))
}

/// A median with its interval.
fn estimate(estimate: &Value, show: impl Fn(f64) -> String) -> String {
    let figure = |key: &str| estimate[key].as_f64();
    match (figure("median"), figure("low"), figure("high")) {
        (Some(median), Some(low), Some(high)) if show(low) != show(high) => {
            format!("{} ({} to {})", show(median), show(low), show(high))
        }
        (Some(median), _, _) => show(median),
        _ => "nothing".to_owned(),
    }
}

fn is_of(value: &Value, finding: &Reproduction, row: &Row) -> bool {
    value["reproduction"] == finding.name
        && value["name"] == row.name
        && value["of"] == row.of
        && value["against"].as_str() == row.against
}

fn measured(value: &Value, row: &Row) -> (String, String) {
    let show = |figure: f64| row.unit.show(figure);
    let of = estimate(&value["measured"]["of"], show);
    if row.against.is_none() {
        return (of, String::new());
    }
    let against = estimate(&value["measured"]["against"], show);
    let zero = value["measured"]["against"]["median"].as_f64() == Some(0.0);
    let ratio = match value["ratio_measured"].as_f64() {
        Some(ratio) => show_ratio(ratio),
        None if zero => "infinite".to_owned(),
        None => "-".to_owned(),
    };
    (format!("{of} against {against}"), ratio)
}

fn verdict(value: &Value) -> String {
    let rounds = (&value["rounds_met"], &value["rounds"]);
    match value["met"].as_bool() {
        None => "informs".to_owned(),
        Some(true) => format!("met, {} of {}", rounds.0, rounds.1),
        Some(false) => format!("**not met**, {} of {}", rounds.0, rounds.1),
    }
}

fn results(page: &mut String, finding: &Reproduction, document: &Value) {
    let _ = writeln!(
        page,
        "\n| figure | backend | measured | ratio | criterion |\n|---|---|---|---|---|"
    );
    for row in finding.rows {
        let published = &row.published;
        let ratio = published.ratio().map(show_ratio).unwrap_or_default();
        let _ = writeln!(
            page,
            "| {} | published | {} | {ratio} | {} |",
            print::title(row),
            print::published(published, row.unit),
            row.criterion()
        );
        let mut found = false;
        for value in list(document, "rows")
            .iter()
            .filter(|v| is_of(v, finding, row))
        {
            let (figures, ratio) = measured(value, row);
            let backend = value["backend"].as_str().unwrap_or("?");
            let _ = writeln!(
                page,
                "| | {backend} | {figures} | {ratio} | {} |",
                verdict(value)
            );
            found = true;
        }
        if !found {
            let _ = writeln!(page, "| | | not measured yet | | |");
        }
        agreement(page, finding, row, document);
    }
}

fn agreement(page: &mut String, finding: &Reproduction, row: &Row, document: &Value) {
    let set = list(document, "agreement").iter();
    for value in set.filter(|v| is_of(v, finding, row)) {
        let difference = value["difference"].as_f64();
        let parts = ["agree", "told_apart", "same_direction"].map(|part| value[part].as_bool());
        let word = match parts {
            [Some(agree), apart, Some(direction)] => Agreement::in_words(agree, apart, direction),
            _ => "nothing to compare".to_owned(),
        };
        let difference = difference.map_or_else(|| "-".to_owned(), show_ratio);
        let first = value["backends"][0].as_str().unwrap_or("sim");
        let _ = writeln!(page, "| | kvm ÷ {first} | | {difference} | {word} |");
    }
}

/// The histograms of a finding's cases, one backend after the other.
fn histograms(page: &mut String, finding: &Reproduction, document: &Value) {
    let Some(shown) = &finding.histogram else {
        return;
    };
    for backend in ["sim", "kvm"] {
        let cases = list(document, "cases")
            .iter()
            .filter(|case| case["reproduction"] == finding.name && case["backend"] == backend);
        let columns: Vec<_> = cases
            .map(|case| {
                let bins = list(&case["histogram"], "bins").iter();
                let bins = bins.filter_map(|bin| Some((bin[0].as_u64()?, bin[1].as_u64()?)));
                (
                    case["name"].as_str().unwrap_or("?").to_owned(),
                    bins.collect(),
                )
            })
            .collect();
        if !columns.is_empty() {
            let text = print::columns(shown, backend, &columns);
            let _ = write!(page, "\n```text\n{text}```\n");
        }
    }
}

/// What `print_cases::text` shows, for a page.
fn markdown(explained: &Explained, backend: &str, cases: &[print_cases::Figures]) -> String {
    let names: Vec<_> = explained.measures.iter().map(|m| m.name).collect();
    let mut text = format!("| {backend} | {} |\n|---|", names.join(" | "));
    text.push_str(&"---|".repeat(names.len()));
    text.push('\n');
    for (name, figures) in cases {
        let cells = explained.measures.iter().zip(figures);
        let cells: Vec<_> = cells
            .map(|(m, figure)| print_cases::cell(m, *figure))
            .collect();
        let _ = writeln!(text, "| {name} | {} |", cells.join(" | "));
    }
    text
}

/// What explains a finding's rows: the figures of its cases, the order of its rows, and what they tell.
fn explained(page: &mut String, finding: &Reproduction, document: &Value) {
    let Some(explained) = &finding.explained else {
        return;
    };
    let mut any = false;
    for backend in ["sim", SIM_AS_KVM, "kvm"] {
        let cases = list(document, "cases").iter();
        let cases = cases.filter(|case| {
            case["reproduction"] == finding.name
                && case["backend"] == backend
                && !case["explained"].is_null()
        });
        let cases: Vec<_> = cases.collect();
        if cases.is_empty() {
            continue;
        }
        any = true;
        let name = |case: &Value| case["name"].as_str().unwrap_or("?").to_owned();
        let figures = cases.iter().map(|case| {
            let found = list(&case["explained"], "measures");
            let figure = |wanted: &Measure| {
                let mut found = found.iter();
                found.find(|one| one["name"] == wanted.name)?["median"].as_f64()
            };
            (name(case), explained.measures.iter().map(figure).collect())
        });
        let table = markdown(explained, backend, &figures.collect::<Vec<_>>());
        let _ = write!(page, "\n{table}");
        if let Some(order) = order(finding, backend, document) {
            let _ = writeln!(page, "\n{}", filled(&order));
        }
        for case in cases {
            let shown = &case["explained"]["queues"];
            let step = Nanos(shown["step_ns"].as_u64().unwrap_or_default());
            let cores = list(shown, "cores").iter();
            let lengths = |core: &Value| -> Vec<f64> {
                let lengths = core.as_array().map_or(&[][..], Vec::as_slice);
                lengths.iter().filter_map(Value::as_f64).collect()
            };
            let cores: Vec<_> = cores.map(lengths).collect();
            if !cores.is_empty() {
                let queues = QueuesOverTime { step, cores };
                let numbers = list(case, "cores").iter().filter_map(Value::as_u64);
                let numbers: Vec<_> = numbers.filter_map(|n| u16::try_from(n).ok()).collect();
                let text = print_cases::queues(backend, &name(case), &numbers, &queues);
                let _ = write!(page, "\n```text\n{text}```\n");
            }
        }
    }
    if any {
        paragraph(page, "What these figures tell", explained.reading);
    }
}

fn order(finding: &Reproduction, backend: &str, document: &Value) -> Option<String> {
    let rows = finding.rows.iter().map(|row| {
        let mut values = list(document, "rows").iter();
        let found = values.find(|v| v["backend"] == backend && is_of(v, finding, row));
        let ours = found.and_then(|value| value["ratio_measured"].as_f64());
        (row.of, row.published.ratio(), ours)
    });
    print_cases::order(backend, &rows.collect::<Vec<_>>())
}

/// Where each criterion holds while a parameter is varied.
fn parameters(page: &mut String, finding: &Reproduction, sweep: &Value) {
    if finding.knobs.is_empty() {
        return;
    }
    let _ = writeln!(
        page,
        "\n| parameter | value | all criteria hold at | one fails at |\n|---|---|---|---|"
    );
    for knob in finding.knobs {
        let mut parameters = list(sweep, "parameters").iter();
        let found =
            parameters.find(|p| p["reproduction"] == finding.name && p["parameter"] == knob.name);
        let (mut hold, mut fail) = (Vec::new(), Vec::new());
        for value in knob.values {
            let Some(found) = found else { break };
            let rows = list(found, "rows").iter();
            let mut tried = rows.flat_map(|row| {
                let values = list(row, "values").iter();
                values.filter(|tried| tried["value"] == *value)
            });
            let place = if tried.all(|tried| tried["met"] != false) {
                &mut hold
            } else {
                &mut fail
            };
            place.push(format!("`{}`", Knob::show(value)));
        }
        let text = |values: Vec<String>| match values.is_empty() {
            true => "-".to_owned(),
            false => values.join(", "),
        };
        let _ = writeln!(
            page,
            "| {} | `{}` | {} | {} |",
            knob.name,
            Knob::show(knob.documented),
            text(hold),
            text(fail)
        );
    }
}

/// What the simulator took things to cost for each finding.
fn costs(page: &mut String, document: &Value) {
    let known = list(document, "costs");
    if known.is_empty() {
        return;
    }
    let when = match known.iter().all(|one| one["measured_for_it"] == true) {
        true => "measured before each finding, for about a quarter of a minute",
        false => "not all measured before the finding",
    };
    let _ = write!(
        page,
        "\nThe simulator's costs were {when}. Some of them, and how much of each core the host took:\n\n\
         | finding | call, and entry | halt, and entry | kick | interrupt | idle core is there | taken |\n\
         |---|---:|---:|---:|---:|---:|---:|\n",
    );
    for one in known {
        let model = &one["model"];
        let sum = |fields: &[&str]| {
            let costs = fields.iter().filter_map(|field| model[*field].as_u64());
            Nanos(costs.sum())
        };
        let thefts = list(model, "interference").iter();
        let parts = thefts
            .filter_map(|theft| Some(theft["length_ns"].as_f64()? / theft["every_ns"].as_f64()?));
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} | {} | {} | {:.1} % |",
            one["reproduction"].as_str().unwrap_or("?"),
            sum(&["exit_ns", "entry_ns"]),
            sum(&["halt_exit_ns", "entry_ns"]),
            sum(&["kick_ns"]),
            sum(&["injection_ns", "handler_ns"]),
            sum(&["switch_other_core_ns"]),
            parts.sum::<f64>() * 100.0
        );
    }
}

fn page() -> String {
    let (document, sweep) = (read("results.json"), read("sweep.json"));
    let mut page = HEAD.to_owned();
    let machine = &document["machine"];
    let mut rows = list(&document, "rows").iter();
    let on_kvm = rows.find(|row| row["backend"] == "kvm");
    let rounds = on_kvm.map_or(&Value::Null, |row| &row["rounds"]);
    let _ = writeln!(
        page,
        "\nThe figures below are of {}: {} cores, KVM by {}, {} rounds on KVM unless a row says otherwise, load {} before the first.",
        machine["date"].as_str().unwrap_or("an unknown day"),
        machine["cores"],
        machine["kvm"].as_str().unwrap_or("?"),
        rounds,
        machine["load_before"]
    );
    costs(&mut page, &document);
    for finding in findings::ALL {
        let (name, title) = (finding.name, finding.title);
        let _ = writeln!(
            page,
            "\n## {name}\n\n{}{}.",
            title[..1].to_uppercase(),
            &title[1..]
        );
        let _ = writeln!(page, "Seen: {}.", finding.place);
        paragraph(&mut page, "What happened", finding.history);
        paragraph(&mut page, "Why", finding.mechanism);
        paragraph(&mut page, "Model", finding.model);
        paragraph(&mut page, "Left out", finding.left_out);
        results(&mut page, finding, &document);
        histograms(&mut page, finding, &document);
        explained(&mut page, finding, &document);
        parameters(&mut page, finding, &sweep);
    }
    page
}

#[test]
fn the_page_and_the_results_agree() {
    let path = root().join("reproductions.md");
    let page = page();
    if std::env::var_os("STEALTIME_WRITE_DOCS").is_some() {
        std::fs::write(&path, page).expect("the page can be written");
        return;
    }
    let there = std::fs::read_to_string(&path).expect("the page is there");
    assert!(
        there == page,
        "docs/reproductions.md is out of date; STEALTIME_WRITE_DOCS=1 writes it anew"
    );
}

#[test]
fn published_figures_in_the_results_are_those_of_the_code() {
    let document = read("results.json");
    for value in list(&document, "rows") {
        let finding = findings::ALL
            .iter()
            .find(|f| value["reproduction"] == f.name);
        let finding = finding.unwrap_or_else(|| panic!("no such finding: {value:#}"));
        let row = finding.rows.iter().find(|row| is_of(value, finding, row));
        let row = row.unwrap_or_else(|| panic!("no such row: {value:#}"));
        assert_eq!(value["published"]["of"].as_f64(), row.published.of);
        assert_eq!(value["criterion"], row.criterion(), "{}", row.name);
        assert_eq!(value["unit"], row.unit.name());
    }
}

#[test]
fn the_sweep_has_every_value_of_every_parameter_and_row() {
    let sweep = read("sweep.json");
    for finding in findings::ALL {
        for knob in finding.knobs {
            let mut all = list(&sweep, "parameters").iter();
            let found =
                all.find(|p| p["reproduction"] == finding.name && p["parameter"] == knob.name);
            let found = found.unwrap_or_else(|| panic!("{}: {}", finding.name, knob.name));
            assert_eq!(found["documented"], knob.documented);
            let rows = list(found, "rows");
            assert_eq!(
                rows.len(),
                finding.rows.len(),
                "{}: {}",
                finding.name,
                knob.name
            );
            for (row, known) in rows.iter().zip(finding.rows) {
                assert_eq!(row["name"], known.name);
                let tried = list(row, "values").iter().map(|tried| &tried["value"]);
                assert!(tried.eq(knob.values), "{}: {}", finding.name, knob.name);
            }
        }
    }
}
