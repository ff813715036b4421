//! What a reproduction is made of: what was published, the ways to run it, what to measure, and what
//! must be measured for it to count as reproduced.
//!
//! Published figures stand beside the measured ones to be compared with. Nothing computes with them,
//! and no result is written down here: figures come from runs alone.

use super::distribution::Distribution;
use super::measured::Run;

/// A published finding and how it is reproduced. One file in `findings/`, one line in
/// `findings/mod.rs`.
#[derive(Debug)]
pub(super) struct Reproduction {
    /// By which it is asked for.
    pub(super) name: &'static str,
    /// What it is, in a few words.
    pub(super) title: &'static str,
    /// Where and when it was seen.
    pub(super) place: &'static str,
    /// What happened.
    pub(super) history: &'static str,
    /// Why it happened.
    pub(super) mechanism: &'static str,
    /// How it is modelled.
    pub(super) model: &'static str,
    /// What the model leaves out.
    pub(super) left_out: &'static str,
    /// The ways to run it. In a round each runs once, in turn.
    pub(super) cases: &'static [Case],
    /// The figures, with what is demanded of them.
    pub(super) rows: &'static [Row],
    /// A distribution worth seeing whole, of each case's first run.
    pub(super) histogram: Option<Histogram>,
    /// What is measured of every case beside its rows, to show where the time went.
    pub(super) explained: Option<Explained>,
    /// What `--sweep` varies.
    pub(super) knobs: &'static [Knob],
}

/// One way to run a reproduction.
#[derive(Debug)]
pub(super) struct Case {
    /// By which rows refer to it.
    pub(super) name: &'static str,
    /// An embedded scenario, with parameters as on the command line.
    pub(super) scenario: &'static str,
    /// What runs on KVM instead, where exits cost so much more: the same with less to do.
    pub(super) on_kvm: Option<&'static str>,
    /// The policy with its options.
    pub(super) policy: &'static str,
    /// How long it takes, in halves of the scenario's duration.
    pub(super) halves: u64,
}

impl Case {
    /// A case that takes as long as its scenario says.
    pub(super) const fn new(
        name: &'static str,
        scenario: &'static str,
        policy: &'static str,
    ) -> Self {
        Self {
            name,
            scenario,
            on_kvm: None,
            policy,
            halves: 2,
        }
    }
}

/// A figure of one case, set against that of another.
#[derive(Debug)]
pub(super) struct Row {
    /// What is measured.
    pub(super) name: &'static str,
    /// How the figure is shown.
    pub(super) unit: Unit,
    /// The case whose figure it is; the ratio's numerator.
    pub(super) of: &'static str,
    /// The case that it is set against, if any.
    pub(super) against: Option<&'static str>,
    /// What was published of both, in the unit's base.
    pub(super) published: Published,
    /// The figure of a run; none if the run has none.
    pub(super) figure: fn(&Run<'_>) -> Option<f64>,
    /// All must hold. Without any the row only informs.
    pub(super) criteria: &'static [Criterion],
}

/// Published figures, for comparison only.
#[derive(Clone, Copy, Debug)]
pub(super) struct Published {
    /// Of the row's first case.
    pub(super) of: Option<f64>,
    /// Of the case it is set against.
    pub(super) against: Option<f64>,
    /// What was said beside figures, or instead of them.
    pub(super) said: &'static str,
}

impl Published {
    /// Words alone.
    pub(super) const fn said(said: &'static str) -> Self {
        Self {
            of: None,
            against: None,
            said,
        }
    }

    /// A figure each.
    pub(super) const fn figures(of: f64, against: f64) -> Self {
        Self {
            of: Some(of),
            against: Some(against),
            said: "",
        }
    }

    /// The first over the second.
    pub(super) fn ratio(&self) -> Option<f64> {
        Some(self.of? / self.against?)
    }
}

/// What a figure is of, and so how it is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unit {
    /// Nanoseconds.
    Time,
    /// A part, 0 to 1, shown as per cent.
    Part,
    /// So many a second.
    PerSecond,
    /// So many a minute.
    PerMinute,
    /// A plain number.
    Number,
}

impl Unit {
    /// The name in the JSON form.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Time => "ns",
            Self::Part => "part",
            Self::PerSecond => "per-second",
            Self::PerMinute => "per-minute",
            Self::Number => "number",
        }
    }
}

/// A bound on a row's figures. `Of` and `Against` are bounds on the figure of that case, in the unit's
/// base.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Criterion {
    /// The ratio is at least this.
    RatioAtLeast(f64),
    /// The ratio is at most this.
    RatioAtMost(f64),
    /// Of the two figures neither is more than so many times the other.
    WithinFactor(f64),
    /// The first case's figure is at least this.
    OfAtLeast(f64),
    /// The first case's figure is at most this.
    OfAtMost(f64),
    /// The second case's figure is at least this.
    AgainstAtLeast(f64),
    /// The second case's figure is at most this.
    AgainstAtMost(f64),
}

/// Figures of every case that explain how the rows come about.
#[derive(Debug)]
pub(super) struct Explained {
    /// The figures.
    pub(super) measures: &'static [Measure],
    /// What they told where `docs/reproductions.md` was measured, without figures. Nothing ties it to the run
    /// at hand: it is shown under that heading, and not where a row has no figure.
    pub(super) reading: &'static str,
    /// Whether the length of each core's queue over time is shown.
    pub(super) queues: bool,
}

/// A figure of every case.
#[derive(Debug)]
pub(super) struct Measure {
    /// What it is.
    pub(super) name: &'static str,
    /// How it is shown.
    pub(super) unit: Unit,
    /// The figure of a run; none if the run has none.
    pub(super) figure: fn(&Run<'_>) -> Option<f64>,
}

/// A distribution that is shown whole.
#[derive(Debug)]
pub(super) struct Histogram {
    /// Of what.
    pub(super) title: &'static str,
    /// Width of a bin, in nanoseconds; bins lie around whole multiples of it.
    pub(super) bin_ns: u64,
    /// The distribution in a run.
    pub(super) of: fn(&Run<'_>) -> Distribution,
}

/// A parameter of a reproduction that `--sweep` varies.
#[derive(Debug)]
pub(super) struct Knob {
    /// What it is.
    pub(super) name: &'static str,
    /// Where its value stands.
    pub(super) place: Place,
    /// The value that was chosen.
    pub(super) documented: &'static str,
    /// The values around it that are tried, in order, the documented one among them.
    pub(super) values: &'static [&'static str],
}

impl Knob {
    /// A value as it is shown.
    pub(super) fn show(value: &str) -> &str {
        match value.trim().trim_end_matches(',') {
            "" => "nothing",
            value => value,
        }
    }
}

/// Where a parameter's value stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// In the scenario's text, where this stands with the value in place of `{}`.
    Scenario(&'static str),
    /// An option of the policy of every case.
    Policy(&'static str),
}
