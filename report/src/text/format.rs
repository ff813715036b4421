//! Pieces of text: headings, tables, per cents that sum to 100, numbers in groups.

use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};
use std::fmt::Write;

/// Columns of running text.
const WIDTH: usize = 100;

/// A heading with what its figures are.
pub(crate) fn heading(text: &mut String, title: &str, unit: &str) {
    let unit = if unit.is_empty() {
        String::new()
    } else {
        format!(", {unit}")
    };
    let _ = writeln!(text, "\n{title}{unit}");
}

/// Running text, broken into lines and indented like a table.
pub(crate) fn paragraph(text: &str) -> String {
    let options = textwrap::Options::new(WIDTH)
        .word_splitter(textwrap::WordSplitter::NoHyphenation)
        .initial_indent("  ")
        .subsequent_indent("  ");
    let mut lines = textwrap::fill(text, options);
    lines.push('\n');
    lines
}

/// An empty table: names to the left, numbers to the right.
pub(crate) fn table(header: &[&str]) -> Table {
    const STYLE: TableStyle = TableStyle::new().header_separator(
        LineStyle::none()
            .fill('─')
            .junction('─')
            .left('─')
            .right('─'),
    );
    let mut table = Table::new();
    table
        .load_style(STYLE)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(header.iter().copied());
    for (place, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 1));
        column.set_cell_alignment(if place == 0 {
            CellAlignment::Left
        } else {
            CellAlignment::Right
        });
    }
    table
}

/// The table as lines without blanks at their ends.
pub(crate) fn rendered(table: &Table) -> String {
    let mut text = String::new();
    for line in table.lines() {
        let _ = writeln!(text, " {}", line.trim_end());
    }
    text
}

/// Parts of their sum in tenths of a per cent that sum to exactly 1,000, each off by less than one
/// (largest remainders; the earlier part among equals).
pub(crate) fn tenths_of_per_cent<const N: usize>(parts: [u64; N]) -> [u64; N] {
    let whole: u128 = parts.iter().map(|part| u128::from(*part)).sum();
    if whole == 0 {
        return [0; N];
    }
    let scaled = parts.map(|part| u128::from(part) * 1_000);
    let mut tenths = scaled.map(|part| u64::try_from(part / whole).unwrap_or(1_000));
    let missing = 1_000 - tenths.iter().sum::<u64>();
    let mut order: Vec<usize> = (0..N).collect();
    order.sort_by_key(|place| (std::cmp::Reverse(scaled[*place] % whole), *place));
    for place in order
        .into_iter()
        .cycle()
        .take(usize::try_from(missing).unwrap_or(0))
    {
        tenths[place] += 1;
    }
    tenths
}

/// `12.3 %`.
pub(crate) fn per_cent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

/// `1,234,567`.
pub(crate) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    #[test]
    fn running_text_is_broken_at_blanks_and_never_within_a_name() {
        let text = format!("{} victim-1/worker, and so on", "x".repeat(WIDTH - 12));
        let lines = paragraph(&text);
        let ends = lines.lines().map(|line| line.trim_start().to_owned());
        let expected = [
            "x".repeat(WIDTH - 12),
            "victim-1/worker, and so on".to_owned(),
        ];
        assert_eq!(ends.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn digits_are_grouped_by_three() {
        let all = [0, 999, 1_000, 12_345, 1_234_567].map(grouped);
        assert_eq!(all, ["0", "999", "1,000", "12,345", "1,234,567"]);
    }

    #[test]
    fn thirds_are_rounded_so_that_they_sum_to_a_hundred() {
        assert_eq!(tenths_of_per_cent([1, 1, 1]), [334, 333, 333]);
        assert_eq!(tenths_of_per_cent([0, 0]), [0, 0]);
        assert_eq!(tenths_of_per_cent([u64::MAX, 0]), [1_000, 0]);
    }

    proptest! {
        #[test]
        fn rounded_parts_sum_to_a_hundred_and_are_off_by_less_than_one(parts: [u32; 6]) {
            let parts = parts.map(u64::from);
            let whole: u64 = parts.iter().sum();
            let tenths = tenths_of_per_cent(parts);
            if whole > 0 {
                prop_assert_eq!(tenths.iter().sum::<u64>(), 1_000);
            }
            for (tenth, part) in tenths.iter().zip(parts) {
                let exact = part as f64 * 1_000.0 / whole.max(1) as f64;
                prop_assert!((*tenth as f64 - exact).abs() < 1.0);
            }
        }

        #[test]
        fn grouping_loses_no_digit(n in any::<u64>()) {
            prop_assert_eq!(grouped(n).replace(',', ""), n.to_string());
        }
    }
}
