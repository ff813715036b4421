//! A distribution as its user reads it.

use super::{Bin, Dist, Row};
use crate::text::format::{grouped, heading, rendered, table};
use std::fmt::Write;
use stealtime_scheduler::time::Nanos;

/// Of so many vCPUs there is a row each; of more, only of those with the longest samples.
const SHOWN: usize = 16;

/// The length of the longest bar.
const BAR: u64 = 50;

impl Dist {
    /// The distribution as text, ending in a line break.
    #[must_use]
    pub fn to_text(&self) -> String {
        let unless = match self.unless.as_slice() {
            [] => String::new(),
            all => format!(" unless {} comes first", all.join(" or ")),
        };
        let mut text = format!(
            "From {} to {} of the same vCPU{unless}\n",
            self.from, self.to
        );
        if self.all.figures.count == 0 {
            let _ = writeln!(text, "\nThere was no such time.");
            self.unfinished(&mut text);
            return text;
        }
        heading(&mut text, "How long it took", "");
        text.push_str(&self.rows());
        heading(&mut text, "Histogram", "steps of 1, 2 and 5");
        text.push_str(&histogram(&self.bins, self.all.figures.count));
        self.unfinished(&mut text);
        text
    }

    fn rows(&self) -> String {
        let mut table = table(&[
            "vCPU", "count", "least", "mean", "50 %", "90 %", "99 %", "99.9 %", "longest",
            "began at",
        ]);
        let mut shown: Vec<&Row> = self.vcpus.iter().collect();
        if shown.len() > SHOWN {
            shown.sort_by_key(|row| std::cmp::Reverse(row.figures.max));
            shown.truncate(SHOWN);
        }
        let left_out = self.vcpus.len() - shown.len();
        let one = self.vcpus.len() == 1;
        for row in shown.into_iter().chain((!one).then_some(&self.all)) {
            table.add_row(cells(row));
        }
        let mut text = rendered(&table);
        if left_out > 0 {
            let _ = writeln!(
                text,
                " Shown are the {SHOWN} vCPUs with the longest times; {left_out} more are in the JSON form."
            );
        }
        text
    }

    fn unfinished(&self, text: &mut String) {
        if self.all.void > 0 {
            let (n, unless) = (grouped(self.all.void), self.unless.join(" or "));
            let _ = writeln!(
                text,
                "\nNot counted: {n} {}, of which {unless} came first.",
                self.from
            );
        }
        let (n, Some(since)) = (self.all.unfinished, self.all.unfinished_since_ns) else {
            return;
        };
        let _ = writeln!(
            text,
            "\nNot counted: {} {}, of which no {} followed, the first at {}.",
            grouped(n),
            self.from,
            self.to,
            instant(since)
        );
    }
}

fn instant(ns: u64) -> String {
    format!("{:.6} s", Nanos(ns).as_secs_f64())
}

fn cells(row: &Row) -> Vec<String> {
    let name = match (&row.vm, &row.vcpu) {
        (Some(vm), Some(vcpu)) => format!("{vm}/{vcpu}"),
        _ => "all".to_owned(),
    };
    let figures = &row.figures;
    let mut cells = vec![name, grouped(figures.count)];
    if figures.count == 0 {
        cells.resize(10, "-".to_owned());
        return cells;
    }
    let times = [
        row.min,
        row.mean,
        figures.p50,
        figures.p90,
        figures.p99,
        figures.p999,
        figures.max,
    ];
    cells.extend(times.map(|time| Nanos(time).to_string()));
    cells.push(instant(figures.max_at_ns));
    cells
}

/// A bound without digits that say nothing: `20 us`.
fn bound(ns: u64) -> String {
    let (value, unit) = match ns {
        u64::MAX => return "…".to_owned(),
        0..1_000 => (ns, "ns"),
        1_000..1_000_000 => (ns / 1_000, "us"),
        1_000_000..1_000_000_000 => (ns / 1_000_000, "ms"),
        _ => (ns / 1_000_000_000, "s"),
    };
    format!("{value} {unit}")
}

/// A line a step. Bars are proportional to the counts; one that would vanish is a dot.
fn histogram(bins: &[Bin], count: u64) -> String {
    let most = bins.iter().map(|bin| bin.count).max().unwrap_or(0).max(1);
    let digits = grouped(most).len();
    let mut text = String::new();
    let mut below = 0;
    for bin in bins {
        below += bin.count;
        let length = usize::try_from(bin.count * BAR / most).unwrap_or(0);
        let bar = match (bin.count, length) {
            (0, _) => String::new(),
            (_, 0) => "·".to_owned(),
            (_, length) => "█".repeat(length),
        };
        let (from, to) = (bound(bin.from_ns), bound(bin.to_ns));
        let (n, part) = (
            grouped(bin.count),
            100.0 * below as f64 / count.max(1) as f64,
        );
        let line = format!(" {from:>6} – {to:<6} {n:>digits$} {part:>6.2} % {bar}");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
