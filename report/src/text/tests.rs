//! A small report to the letter.

use crate::testing::starved;

#[test]
fn a_small_report_reads_as_agreed() {
    let found = starved().to_text();
    let expected = include_str!("golden.txt");
    assert!(found == expected, "the text report has changed:\n{found}");
}

#[test]
fn no_line_is_wider_than_a_terminal_or_ends_in_a_blank() {
    for line in starved().to_text().lines() {
        assert!(line.chars().count() <= 120, "{line}");
        assert_eq!(line.trim_end(), line);
    }
}
