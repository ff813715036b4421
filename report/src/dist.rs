//! The distribution of the time between two kinds of event of the same vCPU.
//!
//! Every event of the first kind is paired with the next of the second: three interrupts raised
//! before their handler runs are three samples, each with its own length. If both kinds are the same,
//! a sample is the time from one to the next. A sample counts if it begins while figures count (see
//! [`crate::collector`]), or at any time if the warm-up is asked for too. Begun and never ended are
//! counted apart, and so are those that a third kind of event came into: asked to leave its core, a vCPU
//! may block before it is preempted.
//!
//! What happened first comes first, not what was told first: that a guest has handled its interrupts is told
//! at its next exit, when others may long have raised the next one or asked for its core
//! ([`Event::happened`]). Of what happened at the same time, what was told first comes first.
//!
//! Percentiles are those of an HdrHistogram with three significant digits; count, least and greatest
//! are exact. All times in nanoseconds.

mod bins;
mod series;
#[cfg(test)]
mod tests;
mod text;

pub use bins::Bin;

use crate::kind::{Kind, Selector};
use crate::latency::LatencyReport;
use crate::names::Names;
use bins::Bins;
use serde::Serialize;
use series::{Part, Samples, Series};
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
    all: Samples,
    bins: Bins,
    /// When the measurement began, and when it ended.
    measured: (Option<Nanos>, Option<Nanos>),
    /// What is asked for may be told later than it happened.
    told_late: bool,
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

impl<'a> Collector<'a> {
    /// A collector for a question about a run with these names.
    #[must_use]
    pub fn new(question: &'a Question, names: &'a Names) -> Self {
        let asked = question.unless.iter();
        let mut asked = asked.chain([&question.from, &question.to]);
        Self {
            question,
            names,
            vcpus: (0..names.vcpus()).map(|_| Series::new()).collect(),
            all: Samples::new(),
            bins: Bins::new(),
            measured: (None, None),
            told_late: asked.any(|selector| selector.kind() == Kind::InterruptsTaken),
        }
    }

    /// Takes note of the next event.
    pub fn event(&mut self, event: &Event) {
        match event.kind {
            EventKind::Mark(Mark::MeasureStart) => self.measured.0 = Some(event.at),
            EventKind::Mark(Mark::MeasureEnd) => self.measured.1 = Some(event.at),
            _ => {}
        }
        let asked = self.question.vcpus.get(event.vcpu.index()).copied();
        if !asked.unwrap_or(false) {
            return;
        }
        let means = |selector: &Selector| selector.means(&event.kind, self.names);
        let at = event.happened();
        let part = Part {
            at,
            ends: means(&self.question.to),
            voids: self.question.unless.iter().any(means),
            begins: means(&self.question.from) && self.counts(at),
        };
        self.vcpus[event.vcpu.index()].take(part);
        // Handlers run one after the other: nothing that happened before this one's can still be told.
        if !self.told_late || matches!(event.kind, EventKind::InterruptsTaken { .. }) {
            self.settle(event.vcpu.index(), at);
        }
    }

    /// Whether a sample that begins then counts.
    fn counts(&self, at: Nanos) -> bool {
        let (start, end) = self.measured;
        let measured = start.is_some_and(|start| start <= at) && end.is_none_or(|end| at < end);
        self.question.warmup || measured
    }

    /// Nothing that happened until then is still to be told of this vCPU.
    fn settle(&mut self, vcpu: usize, until: Nanos) {
        let Self {
            vcpus, all, bins, ..
        } = self;
        vcpus[vcpu].settle(until, |length, began| {
            all.record(length, began);
            bins.record(length);
        });
    }

    /// The distribution, at the end of the stream.
    #[must_use]
    pub fn finish(mut self) -> Dist {
        for vcpu in 0..self.vcpus.len() {
            self.settle(vcpu, Nanos(u64::MAX));
        }
        let ids = (0..self.names.vcpus()).filter_map(|id| u32::try_from(id).ok());
        let rows = ids.zip(&self.vcpus).map(|(id, series)| {
            let name = self.names.parts(VcpuId(id));
            series.row(Some(name))
        });
        let open = self.vcpus.iter().flat_map(Series::open);
        let void = self.vcpus.iter().map(Series::void).sum();
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
            all: self.all.row(None, open, void),
            vcpus: rows
                .filter(|row| row.figures.count + row.unfinished + row.void > 0)
                .collect(),
            bins: self.bins.list(),
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
