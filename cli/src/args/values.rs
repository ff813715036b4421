//! Values that several commands take.

use clap::ValueEnum;
use stealtime_scheduler::registry;
use stealtime_scheduler::spec::PolicySpec;
use stealtime_scheduler::time::Nanos;

/// How a report is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum Format {
    /// Tables to read
    #[default]
    Text,
    /// One JSON document (docs/report-format.md)
    Json,
    /// One line a vCPU, for spreadsheets
    Csv,
}

/// How what has no rows is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum Form {
    /// To read
    #[default]
    Text,
    /// One JSON document (docs/commands.md)
    Json,
}

pub(crate) fn positive_time(text: &str) -> Result<Nanos, String> {
    match text.parse::<Nanos>() {
        Ok(Nanos::ZERO) => Err("a run must last longer than 0".to_owned()),
        Ok(time) => Ok(time),
        Err(error) => Err(error.to_string()),
    }
}

pub(crate) fn policy(text: &str) -> Result<PolicySpec, String> {
    let spec: PolicySpec = text.parse().map_err(|error| format!("{error}"))?;
    registry::check(&spec).map_err(|error| error.to_string())?;
    Ok(spec)
}
