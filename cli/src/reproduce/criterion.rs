//! What must be measured for a finding to count as reproduced, and whether it was.
//!
//! Nothing here knows a result: a verdict is computed from the figures of the runs, and with several
//! runs the one that speaks most against it decides.

use serde_json::{Value, json};
use stealtime_scheduler::time::Nanos;

/// Whether a criterion holds.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// It holds in every run.
    Met,
    /// It fails in at least one.
    NotMet,
}

/// On which side of the bound the measured figure must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    /// At least the bound.
    AtLeast,
    /// At most the bound.
    AtMost,
}

/// One line of a reproduction: what was published, what was measured, what was demanded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Row {
    /// Which way it ran, and what is measured.
    pub(super) name: String,
    /// The published statement, in our words.
    pub(super) published: &'static str,
    /// The figure of each run.
    pub(super) measured: Vec<Nanos>,
    /// On which side of the bound.
    pub(super) side: Side,
    /// The bound.
    pub(super) bound: Nanos,
    /// Where the bound comes from.
    pub(super) criterion: String,
}

impl Row {
    /// The figure that speaks most against the criterion. None if nothing was measured.
    #[must_use]
    pub(super) fn deciding(&self) -> Option<Nanos> {
        match self.side {
            Side::AtLeast => self.measured.iter().copied().min(),
            Side::AtMost => self.measured.iter().copied().max(),
        }
    }

    /// Whether the criterion holds in every run; what was not measured does not hold.
    pub(super) fn verdict(&self) -> Verdict {
        let holds = self.deciding().is_some_and(|figure| match self.side {
            Side::AtLeast => figure >= self.bound,
            Side::AtMost => figure <= self.bound,
        });
        if holds { Verdict::Met } else { Verdict::NotMet }
    }

    /// The row for machines.
    #[must_use]
    pub(super) fn json(&self) -> Value {
        json!({
            "name": self.name,
            "published": self.published,
            "measured": {
                "deciding_ns": self.deciding().map(Nanos::get),
                "runs_ns": self.measured.iter().map(|figure| figure.get()).collect::<Vec<_>>(),
            },
            "criterion": {
                "text": self.criterion,
                "side": match self.side { Side::AtLeast => "at-least", Side::AtMost => "at-most" },
                "bound_ns": self.bound.get(),
            },
            "met": self.verdict() == Verdict::Met,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(side: Side, measured: &[u64]) -> Row {
        Row {
            name: "x".into(),
            published: "",
            measured: measured.iter().copied().map(Nanos).collect(),
            side,
            bound: Nanos(100),
            criterion: String::new(),
        }
    }

    #[test]
    fn the_run_that_speaks_most_against_it_decides() {
        assert_eq!(row(Side::AtLeast, &[150, 99]).verdict(), Verdict::NotMet);
        assert_eq!(row(Side::AtLeast, &[150, 100]).verdict(), Verdict::Met);
        assert_eq!(row(Side::AtMost, &[50, 101]).verdict(), Verdict::NotMet);
        assert_eq!(row(Side::AtMost, &[50, 100]).verdict(), Verdict::Met);
    }

    #[test]
    fn what_was_not_measured_is_not_met() {
        assert_eq!(row(Side::AtMost, &[]).verdict(), Verdict::NotMet);
    }
}
