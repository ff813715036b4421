//! Several policies side by side: medians of repeated runs with confidence intervals.
//!
//! Rows are metrics, for the run and for every vCPU; columns are policies in the order given. The
//! interval is that of order statistics ([`stats`]), which assumes nothing of the distribution; what
//! few repeats cannot tell is said.

pub mod stats;
#[cfg(test)]
mod tests;
mod text;

use crate::model::{FORMAT_VERSION, Report, VcpuReport};
use serde::{Deserialize, Serialize};
use stats::Estimate;

/// What a figure is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Nanoseconds.
    Nanoseconds,
    /// A part of a whole, 0 to 1.
    Part,
    /// A number of times.
    Count,
    /// An index from 0 to 1.
    Index,
}

/// Whether less or more is better.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// Less is better.
    Less,
    /// More is better.
    More,
    /// Neither: it depends.
    Neither,
}

/// A metric under every policy.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Its name, that of the report's JSON form.
    pub metric: String,
    /// Its name in words.
    pub title: String,
    /// Of which vCPU, as `VM/vCPU`; none for the run as a whole.
    pub vcpu: Option<String>,
    /// What the figures are.
    pub unit: Unit,
    /// What is better.
    pub better: Better,
    /// One a policy, in the order of the policies; none where no run had the figure.
    pub estimates: Vec<Option<Estimate>>,
}

/// A policy of a comparison.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// The policy with its options.
    pub policy: String,
    /// How many runs there were.
    pub repeats: u64,
    /// In how many of them somebody starved.
    pub starved: u64,
    /// The diagnosis of the run whose longest wait was the longest.
    pub diagnosis: String,
    /// Events lost in all runs together. Must be 0.
    pub lost_events: u64,
    /// Rules that the policy broke in all runs together.
    pub violations: u64,
}

/// Several policies side by side.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// [`FORMAT_VERSION`].
    pub format_version: u32,
    /// The scenario.
    pub scenario: String,
    /// What ran it.
    pub backend: String,
    /// How many cores were handed out.
    pub cores: u64,
    /// How long figures counted in each run.
    pub wall_ns: u64,
    /// The policies.
    pub policies: Vec<Column>,
    /// The metrics.
    pub rows: Vec<Row>,
}

/// A metric: name, title, unit, what is better, and where it is found.
struct Metric<T> {
    name: &'static str,
    title: &'static str,
    unit: Unit,
    better: Better,
    of: fn(&T) -> Option<f64>,
}

const RUN: [Metric<Report>; 5] = [
    Metric {
        name: "worst.length_ns",
        title: "longest starvation of all",
        unit: Unit::Nanoseconds,
        better: Better::Less,
        of: |report| {
            let longest = report.vcpus.iter().map(|vcpu| vcpu.longest_starvation_ns);
            longest.max().map(|ns| ns as f64)
        },
    },
    Metric {
        name: "run.jain",
        title: "fairness (Jain's index)",
        unit: Unit::Index,
        better: Better::More,
        of: |report| Some(report.run.jain),
    },
    Metric {
        name: "run.throughput",
        title: "guest work done",
        unit: Unit::Part,
        better: Better::More,
        of: |report| Some(report.run.throughput),
    },
    Metric {
        name: "run.kick_ns.p99",
        title: "core asked back until left, 99 %",
        unit: Unit::Nanoseconds,
        better: Better::Less,
        of: |report| (report.run.kick_ns.count > 0).then_some(report.run.kick_ns.p99 as f64),
    },
    Metric {
        name: "run.host_interference_ns",
        title: "host interference",
        unit: Unit::Nanoseconds,
        better: Better::Less,
        of: |report| Some(report.run.host_interference_ns as f64),
    },
];

const VCPU: [Metric<VcpuReport>; 8] = [
    Metric {
        name: "share",
        title: "received share of the core time",
        unit: Unit::Part,
        better: Better::Neither,
        of: |vcpu| Some(vcpu.share),
    },
    Metric {
        name: "longest_starvation_ns",
        title: "longest starvation",
        unit: Unit::Nanoseconds,
        better: Better::Less,
        of: |vcpu| Some(vcpu.longest_starvation_ns as f64),
    },
    Metric {
        name: "ready_ns",
        title: "time ready (steal)",
        unit: Unit::Nanoseconds,
        better: Better::Less,
        of: |vcpu| Some(vcpu.ready_ns as f64),
    },
    Metric {
        name: "wakeup_ns.p50",
        title: "wake-up latency, median",
        unit: Unit::Nanoseconds,
        better: Better::Less,
        of: |vcpu| (vcpu.wakeup_ns.count > 0).then_some(vcpu.wakeup_ns.p50 as f64),
    },
    Metric {
        name: "wakeup_ns.p99",
        title: "wake-up latency, 99 %",
        unit: Unit::Nanoseconds,
        better: Better::Less,
        of: |vcpu| (vcpu.wakeup_ns.count > 0).then_some(vcpu.wakeup_ns.p99 as f64),
    },
    Metric {
        name: "run_delay_ns.p99",
        title: "run delay, 99 %",
        unit: Unit::Nanoseconds,
        better: Better::Less,
        of: |vcpu| (vcpu.run_delay_ns.count > 0).then_some(vcpu.run_delay_ns.p99 as f64),
    },
    Metric {
        name: "guest.request_ns.p99",
        title: "request latency, 99 %",
        unit: Unit::Nanoseconds,
        better: Better::Less,
        of: |vcpu| {
            let request = &vcpu.guest.request_ns;
            (request.count > 0).then_some(request.p99 as f64)
        },
    },
    Metric {
        name: "preemptions_in_lock",
        title: "preemptions while holding a guest lock",
        unit: Unit::Count,
        better: Better::Less,
        of: |vcpu| Some(vcpu.preemptions_in_lock as f64),
    },
];

impl Comparison {
    /// Puts runs side by side: for each policy its repeats, all of the same scenario. None if there
    /// is no run at all.
    #[must_use]
    pub fn of(runs: &[Vec<Report>]) -> Option<Self> {
        let runs: Vec<&[Report]> = runs.iter().map(Vec::as_slice).collect();
        let first = runs.iter().find_map(|repeats| repeats.first())?;
        let walls: Vec<f64> = runs
            .iter()
            .copied()
            .flatten()
            .map(|r| r.wall_ns as f64)
            .collect();
        let policies = runs.iter().filter_map(|repeats| column(repeats)).collect();
        let runs: Vec<_> = runs
            .into_iter()
            .filter(|repeats| !repeats.is_empty())
            .collect();
        let mut rows: Vec<Row> = Vec::new();
        for metric in &RUN {
            let row = row(metric, None, &runs, |report| Some(report));
            rows.extend(Some(row).filter(Row::known));
        }
        for metric in &VCPU {
            let vcpus = first.vcpus.iter().enumerate().map(|(number, vcpu)| {
                let name = Some(vcpu.name());
                row(metric, name, &runs, |report| report.vcpus.get(number))
            });
            let vcpus: Vec<_> = vcpus.collect();
            if vcpus.iter().any(Row::known) {
                rows.extend(vcpus);
            }
        }
        Some(Self {
            format_version: FORMAT_VERSION,
            scenario: first.scenario.clone(),
            backend: first.backend.clone(),
            cores: first.cores,
            wall_ns: stats::whole(stats::median(&walls)?),
            policies,
            rows,
        })
    }

    /// As JSON, on several lines.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut json = serde_json::to_string_pretty(self)
            .expect("numbers are finite, keys are strings: nothing in it can fail to be written");
        json.push('\n');
        json
    }
}

fn column(repeats: &[Report]) -> Option<Column> {
    let worst = repeats
        .iter()
        .max_by_key(|report| report.worst.as_ref().map_or(0, |worst| worst.length_ns))?;
    Some(Column {
        policy: worst.policy.clone(),
        repeats: repeats.len() as u64,
        starved: repeats.iter().filter(|r| r.diagnosis.starved).count() as u64,
        diagnosis: worst.diagnosis.text.clone(),
        lost_events: repeats.iter().map(|r| r.run.lost_events).sum(),
        violations: repeats.iter().map(|r| r.violations.count).sum(),
    })
}

fn row<T>(
    metric: &Metric<T>,
    vcpu: Option<String>,
    runs: &[&[Report]],
    part: impl Fn(&Report) -> Option<&T>,
) -> Row {
    let estimates = runs
        .iter()
        .map(|repeats| {
            let figures = repeats
                .iter()
                .filter_map(|report| (metric.of)(part(report)?));
            Estimate::of(&figures.collect::<Vec<_>>())
        })
        .collect();
    Row {
        metric: metric.name.to_owned(),
        title: metric.title.to_owned(),
        vcpu,
        unit: metric.unit,
        better: metric.better,
        estimates,
    }
}

impl Row {
    /// At least one run has the figure.
    fn known(&self) -> bool {
        self.estimates.iter().any(Option::is_some)
    }
}
