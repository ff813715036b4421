//! The distribution of the time between two kinds of event of the same vCPU.
//!
//! Every event of the first kind is paired with the next of the second: three interrupts raised
//! before their handler runs are three samples, each with its own length. If both kinds are the same,
//! a sample is the time from one to the next. A sample counts if it begins while figures count (see
//! [`crate::collector`]), or at any time if the warm-up is asked for too. Begun and never ended are
//! counted apart, and so are those that a third kind of event came into: asked to leave its core, a vCPU
//! may block before it is preempted.
//!
//! Percentiles are those of an HdrHistogram with three significant digits; count, least and greatest
//! are exact. All times in nanoseconds.

mod bins;
#[cfg(test)]
mod tests;
mod text;

pub use bins::Bin;

use crate::kind::Selector;
use crate::latency::{Latency, LatencyReport};
use crate::names::Names;
use bins::Bins;
use serde::Serialize;
use stealtime_scheduler::event::{Event, EventKind};
use stealtime_scheduler::ids::VcpuId;
use stealtime_scheduler::input::Mark;
use stealtime_scheduler::time::Nanos;

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Question {
    /// What begins a sample.
    pub from: Selector,
    /// What ends it.
    pub to: Selector,
    /// What makes what has begun and not ended void: the vCPU went another way.
    pub unless: Vec<Selector>,
    /// Whose; a flag for each vCPU.
    pub vcpus: Vec<bool>,
    /// Samples that begin before the measurement count too.
    pub warmup: bool,
}

/// Listens to events and keeps the times between the two kinds.
#[derive(Debug)]
pub struct Collector<'a> {
    question: &'a Question,
    names: &'a Names,
    vcpus: Vec<Series>,
    all: Series,
    bins: Bins,
    measuring: bool,
}

/// The samples of one vCPU, or of all.
#[derive(Debug)]
struct Series {
    lengths: Latency,
    min: u64,
    sum: u128,
    /// Begun and not yet ended.
    open: Vec<Nanos>,
    void: u64,
}

/// A distribution as it is printed. Times in nanoseconds.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Dist {
    /// The version of this form.
    pub format_version: u32,
    /// What begins a sample.
    pub from: String,
    /// What ends it.
    pub to: String,
    /// What makes it void.
    pub unless: Vec<String>,
    /// Of all vCPUs asked for.
    pub all: Row,
    /// Of each vCPU that has any, by number.
    pub vcpus: Vec<Row>,
    /// How many samples of all lie between which bounds, the shortest first.
    pub bins: Vec<Bin>,
}

/// The figures of one vCPU, or of all. All are 0 if `count` is 0.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// The VM; none for all.
    pub vm: Option<String>,
    /// The vCPU; none for all.
    pub vcpu: Option<String>,
    /// The least.
    pub min: u64,
    /// The mean.
    pub mean: u64,
    /// Count, percentiles, the greatest, and when that began.
    #[serde(flatten)]
    pub figures: LatencyReport,
    /// Samples that were begun and made void.
    pub void: u64,
    /// Samples that began and did not end in the run.
    pub unfinished: u64,
    /// When the first of these began.
    pub unfinished_since_ns: Option<u64>,
}

impl Series {
    const fn new() -> Self {
        Self {
            lengths: Latency::new(1),
            min: u64::MAX,
            sum: 0,
            open: Vec::new(),
            void: 0,
        }
    }

    fn record(&mut self, length: u64, began: Nanos) {
        self.lengths.record(length, began.0);
        self.min = self.min.min(length);
        self.sum += u128::from(length);
    }

    fn row(&self, name: Option<(&str, &str)>, open: &[Nanos]) -> Row {
        let figures = self.lengths.report();
        let mean = self.sum.checked_div(u128::from(figures.count)).unwrap_or(0);
        Row {
            vm: name.map(|(vm, _)| vm.to_owned()),
            vcpu: name.map(|(_, vcpu)| vcpu.to_owned()),
            min: if figures.count == 0 { 0 } else { self.min },
            mean: u64::try_from(mean).unwrap_or(u64::MAX),
            figures,
            void: self.void,
            unfinished: open.len() as u64,
            unfinished_since_ns: open.iter().min().map(|since| since.0),
        }
    }
}

impl<'a> Collector<'a> {
    /// A collector for a question about a run with these names.
    #[must_use]
    pub fn new(question: &'a Question, names: &'a Names) -> Self {
        Self {
            question,
            names,
            vcpus: (0..names.vcpus()).map(|_| Series::new()).collect(),
            all: Series::new(),
            bins: Bins::new(),
            measuring: question.warmup,
        }
    }

    /// Takes note of the next event.
    pub fn event(&mut self, event: &Event) {
        match event.kind {
            EventKind::Mark(Mark::MeasureStart) => self.measuring = true,
            EventKind::Mark(Mark::MeasureEnd) => self.measuring = self.question.warmup,
            _ => {}
        }
        let asked = self.question.vcpus.get(event.vcpu.index()).copied();
        if !asked.unwrap_or(false) {
            return;
        }
        let series = &mut self.vcpus[event.vcpu.index()];
        if self.question.to.means(&event.kind, self.names) {
            // What began after it happened, though it is told later, is still open.
            let end = event.happened();
            let ended: Vec<_> = series.open.extract_if(.., |began| *began <= end).collect();
            for began in ended {
                let length = end.since(began).0;
                series.record(length, began);
                self.all.record(length, began);
                self.bins.record(length);
            }
        }
        let means = |selector: &Selector| selector.means(&event.kind, self.names);
        if self.question.unless.iter().any(means) {
            series.void += series.open.len() as u64;
            series.open.clear();
        }
        if self.measuring && means(&self.question.from) {
            series.open.push(event.happened());
        }
    }

    /// The distribution, at the end of the stream.
    #[must_use]
    pub fn finish(self) -> Dist {
        let ids = (0..self.names.vcpus()).filter_map(|id| u32::try_from(id).ok());
        let rows = ids.zip(&self.vcpus).map(|(id, series)| {
            let name = self.names.parts(VcpuId(id));
            series.row(Some(name), &series.open)
        });
        let void = self.vcpus.iter().map(|series| series.void).sum();
        let open: Vec<_> = self
            .vcpus
            .iter()
            .flat_map(|series| series.open.iter().copied())
            .collect();
        Dist {
            format_version: 1,
            from: self.question.from.to_string(),
            to: self.question.to.to_string(),
            unless: self
                .question
                .unless
                .iter()
                .map(Selector::to_string)
                .collect(),
            vcpus: rows
                .filter(|row| row.figures.count + row.unfinished + row.void > 0)
                .collect(),
            bins: self.bins.list(),
            all: Row {
                void,
                ..self.all.row(None, &open)
            },
        }
    }
}

impl Dist {
    /// The distribution as one JSON document.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Numbers and texts only: this cannot fail.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}
