//! A report in the format asked for.

use crate::args::Format;
use stealtime_report::Report;

/// The report as it is printed.
#[must_use]
pub fn report(report: &Report, format: Format) -> String {
    match format {
        Format::Text => report.to_text(),
        Format::Json => report.to_json(),
        Format::Csv => report.to_csv(),
    }
}
