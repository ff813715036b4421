//! Reports beside files that hold what they are to say.
//!
//! The file has every figure as `#`: on the lab's emulated machine figures are the same from run to run, but not
//! from one build of the program to the next. Tables, their rows and columns, sentences, who is named as starved and
//! why must be the file's to the byte. Running text stands there as one line a paragraph: where it is broken
//! depends on the widths of its figures.

use std::fmt::Write;
use std::path::Path;

/// Set to write the files anew.
const WRITE: &str = "STEALTIME_WRITE_DOCS";

/// Compares a report with the file of this name in `tests/golden`.
#[track_caller]
pub(crate) fn assert_says(report: &str, name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("golden")
        .join(name);
    let said = without_figures(&unwrapped(report));
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &said).expect("the file can be written");
        return;
    }
    let expected = std::fs::read_to_string(&path).expect("the file is there");
    if said != expected {
        let pairs = said.lines().zip(expected.lines());
        let first = pairs.clone().position(|(a, b)| a != b);
        let line = first.unwrap_or_else(|| pairs.count()) + 1;
        panic!(
            "{name}, line {line}: the report says other things than the file (with {WRITE}=1 the file is \
             written anew):\n{said}"
        );
    }
}

/// How a paragraph of running text begins, wherever it stands in a report.
const PARAGRAPHS: [&str; 2] = ["Note: ", "Fix: "];

/// The heading below which everything is running text.
const RUNNING_TEXT: &str = "Diagnosis";

/// The text with each paragraph of running text on one line.
fn unwrapped(text: &str) -> String {
    let mut out = String::new();
    let (mut diagnosis, mut goes_on) = (false, false);
    for line in text.lines() {
        let begins = PARAGRAPHS
            .iter()
            .any(|word| line.trim_start().starts_with(word));
        if goes_on && !begins && !line.is_empty() {
            out.pop();
            let _ = writeln!(out, " {}", line.trim_start());
            continue;
        }
        let _ = writeln!(out, "{line}");
        goes_on = begins || (diagnosis && !line.is_empty());
        diagnosis |= line == RUNNING_TEXT;
    }
    out
}

/// How the diagnosis begins where nobody starved: which of those who are alike waited longest by a hair is then
/// no more the same from build to build than how long.
const NOBODY: &str = "No vCPU starved";

/// The text with `#` for each figure and its unit, single blanks, and rules of one dash.
fn without_figures(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        // Headings stand where the widths of figures put them.
        let indent = (line.len() - line.trim_start().len()).min(4);
        let nobody = line.trim_start().starts_with(NOBODY);
        let mut words: Vec<&str> = Vec::new();
        for word in line.split_whitespace() {
            let figure = word.trim_start_matches(['(', '+', '−', '-', '<']);
            let word = if figure.starts_with(|sign: char| sign.is_ascii_digit()) {
                "#"
            } else if nobody && word.contains('/') {
                "(somebody"
            } else if word.chars().all(|sign| sign == '─') {
                "─"
            } else {
                word
            };
            let unit = matches!(
                word.trim_end_matches([',', ';', '.', ')', ':']),
                "ns" | "us" | "ms" | "s" | "%"
            );
            if !(unit && words.last() == Some(&"#")) {
                words.push(word);
            }
        }
        let _ = writeln!(out, "{:indent$}{}", "", words.join(" "));
    }
    out
}

#[test]
fn figures_and_their_units_are_left_out_and_nothing_else() {
    let text = "        us\n  noisy-1/spinner  571   197 us  (0.9 s)  −12 ms\n ────────\nfor 3 of 4 turns, -\n";
    let expected = "    us\n  noisy-1/spinner # # # #\n ─\nfor # of # turns, -\n";
    assert_eq!(without_figures(text), expected);
}

#[test]
fn figures_of_any_width_leave_the_same_text_though_lines_break_elsewhere() {
    let narrow = "The run\n  events   9 arrived\n  Note: lab: QEMU 9.2 (Debian 1:9)\n  is exact.\n  \
                  Note: so.\n\nDiagnosis\n  The longest wait was 9 ms (victim-1/worker, from 1 s on, among\n  \
                  3 others).\n  Fix: another policy.\n";
    let wide = "The run\n  events  99 arrived\n  Note: lab: QEMU 9.2.10 (Debian\n  1:9.2.10) is exact.\n  \
                Note: so.\n\nDiagnosis\n  The longest wait was 9.99\n  ms (victim-1/worker, from 1.001\n  s on, \
                among 3 others).\n  Fix: another\n  policy.\n";
    let said = without_figures(&unwrapped(narrow));
    assert_eq!(said, without_figures(&unwrapped(wide)));
    let expected = "The run\n  events # arrived\n  Note: lab: QEMU # (Debian # is exact.\n  Note: so.\n\n\
                    Diagnosis\n  The longest wait was # (victim-1/worker, from # on, among # others).\n  \
                    Fix: another policy.\n";
    assert_eq!(said, expected);
    assert_ne!(
        said,
        without_figures(&unwrapped(&wide.replace("others", "more")))
    );
}

#[test]
fn who_waited_longest_counts_where_somebody_starved_only() {
    let of = |who: &str, begin: &str| {
        without_figures(&format!(
            "  {begin}: the longest wait was 3 ms ({who}, from 1 s on).\n"
        ))
    };
    assert_eq!(of("vm-1/a", NOBODY), of("vm-2/a", NOBODY));
    assert_ne!(
        of("vm-1/a", "vm-1/a starved"),
        of("vm-2/a", "vm-1/a starved")
    );
}
