//! The samples of one vCPU: what begins, ends and voids them, put in the order in which it happened.

use super::Row;
use crate::latency::Latency;
use stealtime_scheduler::time::Nanos;

/// What an event is to the samples of its vCPU. If it is several of these, it is so in this order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// When it happened.
    pub(super) at: Nanos,
    /// It ends all that has begun.
    pub(super) ends: bool,
    /// It makes all that has begun void.
    pub(super) voids: bool,
    /// It begins one that counts.
    pub(super) begins: bool,
}

/// Lengths of samples.
#[derive(Debug)]
pub(super) struct Samples {
    lengths: Latency,
    min: u64,
    sum: u128,
}

/// The samples of a vCPU.
#[derive(Debug)]
pub(super) struct Series {
    samples: Samples,
    /// What may have to wait for something that happened before it and is not told yet.
    waiting: Vec<Part>,
    /// When samples began that have not ended.
    open: Vec<Nanos>,
    void: u64,
}

impl Samples {
    /// None yet.
    pub(super) const fn new() -> Self {
        Self {
            lengths: Latency::new(1),
            min: u64::MAX,
            sum: 0,
        }
    }

    /// One more, in nanoseconds.
    pub(super) fn record(&mut self, length: u64, began: Nanos) {
        self.lengths.record(length, began.0);
        self.min = self.min.min(length);
        self.sum += u128::from(length);
    }

    /// The figures, with those that have not ended and the number of those that are void.
    pub(super) fn row(
        &self,
        name: Option<(&str, &str)>,
        open: impl Iterator<Item = Nanos>,
        void: u64,
    ) -> Row {
        let open: Vec<_> = open.collect();
        let figures = self.lengths.report();
        let mean = self.sum.checked_div(u128::from(figures.count)).unwrap_or(0);
        Row {
            vm: name.map(|(vm, _)| vm.to_owned()),
            vcpu: name.map(|(_, vcpu)| vcpu.to_owned()),
            min: if figures.count == 0 { 0 } else { self.min },
            mean: u64::try_from(mean).unwrap_or(u64::MAX),
            figures,
            void,
            unfinished: open.len() as u64,
            unfinished_since_ns: open.iter().min().map(|since| since.0),
        }
    }
}

impl Series {
    /// Without any.
    pub(super) const fn new() -> Self {
        Self {
            samples: Samples::new(),
            waiting: Vec::new(),
            open: Vec::new(),
            void: 0,
        }
    }

    /// When samples began that have not ended.
    pub(super) fn open(&self) -> impl Iterator<Item = Nanos> {
        self.open.iter().copied()
    }

    /// How many are void.
    pub(super) const fn void(&self) -> u64 {
        self.void
    }

    /// The figures.
    pub(super) fn row(&self, name: Option<(&str, &str)>) -> Row {
        self.samples.row(name, self.open(), self.void)
    }

    /// Takes the next that is told, whenever it happened.
    pub(super) fn take(&mut self, part: Part) {
        if part.ends || part.voids || part.begins {
            self.waiting.push(part);
        }
    }

    /// Whatever happened until then has been told. Each sample that has ended by then is handed on too: its
    /// length, and when it began.
    pub(super) fn settle(&mut self, until: Nanos, mut sample: impl FnMut(u64, Nanos)) {
        // A stable sort: of what happened at the same time, what was told first comes first.
        self.waiting.sort_by_key(|part| part.at);
        let settled = self.waiting.partition_point(|part| part.at <= until);
        for part in self.waiting.drain(..settled) {
            if part.ends {
                for began in self.open.drain(..) {
                    let length = part.at.since(began).0;
                    self.samples.record(length, began);
                    sample(length, began);
                }
            }
            if part.voids {
                self.void += self.open.len() as u64;
                self.open.clear();
            }
            if part.begins {
                self.open.push(part.at);
            }
        }
    }
}
