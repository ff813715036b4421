//! Reports beside files that hold what they are to say.
//!
//! The file has every figure as `#`: on the lab's emulated machine figures are the same from run to run, but not
//! from one build of the program to the next. Tables, their rows and columns, sentences, who is named as starved and
//! why must be the file's to the byte.

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
    let said = without_figures(report);
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

/// The text with `#` for each figure and its unit, single blanks, and rules of one dash.
fn without_figures(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        // Headings stand where the widths of figures put them.
        let indent = (line.len() - line.trim_start().len()).min(4);
        let mut words: Vec<&str> = Vec::new();
        for word in line.split_whitespace() {
            let figure = word.trim_start_matches(['(', '+', '−', '-', '<']);
            let word = if figure.starts_with(|sign: char| sign.is_ascii_digit()) {
                "#"
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
