//! Checking what a scenario expects against what a run showed.
//!
//! The verdict of a run is that of its expectations together: it fails if one of them does. The
//! figure that decided is that of the first failing one, else the one with the least room to its
//! bound, so that what is near to failing is what is seen.

use crate::model::{Report, VcpuReport};
use serde::{Deserialize, Serialize};
use stealtime_scheduler::spec::PolicySpec;
use stealtime_workloads::scenario::expect::{Expectation, Figure, Must};

/// What came of a scenario under a policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Everything expected held.
    Pass,
    /// Everything expected held, and it was a known fault that was expected.
    Fault,
    /// The policy refused the scenario, as it should or may.
    Refused,
    /// Something expected did not hold.
    Fail,
    /// Nothing is expected of this policy here, or it cannot be shown on this backend.
    NotApplicable,
}

impl Verdict {
    /// In a word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fault => "fault",
            Self::Refused => "refused",
            Self::Fail => "FAIL",
            Self::NotApplicable => "n/a",
        }
    }
}

/// An expectation that was looked at.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Checked {
    /// What must hold, in words.
    pub claim: String,
    /// It held.
    pub held: bool,
    /// It is a known fault that was expected.
    pub fault: bool,
    /// The figure's name, if it is about one.
    pub figure: Option<String>,
    /// Whose figure it is.
    pub vcpu: Option<String>,
    /// What was measured: a part (0 to 1), nanoseconds, or a plain number.
    pub measured: Option<f64>,
    /// The least value allowed.
    pub at_least: Option<f64>,
    /// The greatest value allowed.
    pub at_most: Option<f64>,
    /// What was found, in words.
    pub found: String,
    /// The room to the nearer bound as a part of it; below 0 if it is broken.
    pub room: f64,
}

/// What came of the run of a scenario under a policy, or of its refusal.
#[derive(Clone, PartialEq, Debug)]
pub enum Showed<'a> {
    /// It ran.
    Report(&'a Report),
    /// The policy refused it with these words.
    Refused(&'a str),
}

/// Looks at everything that is expected of a policy.
#[must_use]
pub fn check(
    expectations: &[Expectation],
    policy: &PolicySpec,
    showed: &Showed<'_>,
) -> (Verdict, Vec<Checked>) {
    let concerned = expectations.iter().filter(|one| one.concerns(policy));
    let checked: Vec<_> = concerned
        .filter_map(|one| look(one, policy, showed))
        .collect();
    let mut all = checked.clone();
    if let Showed::Report(report) = showed {
        all.extend(unbroken(report));
    }
    let verdict = match showed {
        _ if all.iter().any(|one| !one.held) => Verdict::Fail,
        Showed::Refused(_) => Verdict::Refused,
        Showed::Report(_) if checked.is_empty() => Verdict::NotApplicable,
        Showed::Report(_) if checked.iter().any(|one| one.fault) => Verdict::Fault,
        Showed::Report(_) => Verdict::Pass,
    };
    (verdict, all)
}

/// The one that decided: the first that does not hold, else the one with the least room, else any.
#[must_use]
pub fn decisive(checked: &[Checked]) -> Option<&Checked> {
    let failing = checked.iter().find(|one| !one.held);
    let nearest = {
        let measured = checked.iter().filter(|one| one.measured.is_some());
        measured.min_by(|a, b| a.room.total_cmp(&b.room))
    };
    failing.or(nearest).or_else(|| checked.first())
}

/// What must hold of every run: no rule broken, no event lost.
fn unbroken(report: &Report) -> Option<Checked> {
    let (broken, lost) = (report.violations.count, report.run.lost_events);
    (broken + lost > 0).then(|| {
        let claim = "the policy breaks no rule and no event is lost".to_owned();
        Checked::words(
            claim,
            false,
            format!("rules broken: {broken}, events lost: {lost}"),
        )
    })
}

fn look(expected: &Expectation, policy: &PolicySpec, showed: &Showed<'_>) -> Option<Checked> {
    let claim = expected.claim.clone();
    let mut checked = match (&expected.must, showed) {
        (Must::Refuse(words), Showed::Refused(said)) => {
            let found = format!("refused: {said}");
            Checked::words(claim, said.contains(words.as_str()), found)
        }
        (Must::Refuse(_), Showed::Report(_)) => {
            Checked::words(claim, false, "it ran and was not refused".to_owned())
        }
        // A policy may refuse what it does not know, unless it is named as one that does.
        (_, Showed::Refused(said)) if expected.names(policy) => {
            Checked::words(claim, false, format!("refused: {said}"))
        }
        (_, Showed::Refused(_)) => return None,
        (Must::Say(words), Showed::Report(report)) => {
            let said = &report.diagnosis.text;
            let found = format!("the report says: {said}");
            Checked::words(claim, said.contains(words.as_str()), found)
        }
        (
            Must::Lie {
                figure,
                of,
                at_least,
                at_most,
            },
            Showed::Report(report),
        ) => {
            let all = values(report, *figure, |vcpu| {
                let mut of = of.iter();
                of.any(|whom| whom.includes(&vcpu.vm, &vcpu.vcpu))
            });
            let bounds = (*at_least, *at_most);
            let worst = all
                .into_iter()
                .min_by(|(_, a), (_, b)| room(*a, bounds).total_cmp(&room(*b, bounds)));
            match worst {
                Some((vcpu, value)) => Checked::figure(claim, *figure, vcpu, value, bounds),
                None => Checked::words(claim, false, format!("there is no {}", figure.word())),
            }
        }
    };
    checked.fault = expected.fault;
    Some(checked)
}

impl Checked {
    fn words(claim: String, held: bool, found: String) -> Self {
        Self {
            claim,
            held,
            fault: false,
            figure: None,
            vcpu: None,
            measured: None,
            at_least: None,
            at_most: None,
            found,
            room: if held { 1.0 } else { -1.0 },
        }
    }

    fn figure(
        claim: String,
        figure: Figure,
        vcpu: Option<String>,
        value: f64,
        (at_least, at_most): (Option<f64>, Option<f64>),
    ) -> Self {
        let room = room(value, (at_least, at_most));
        let bound = match (at_least, at_most) {
            (Some(low), Some(high)) => {
                format!("{} to {}", figure.shown(low), figure.shown(high))
            }
            (Some(low), None) => format!("at least {}", figure.shown(low)),
            (None, Some(high)) => format!("at most {}", figure.shown(high)),
            (None, None) => "anything".to_owned(),
        };
        let whose = vcpu.as_ref().map(|name| format!(" of {name}"));
        let found = format!(
            "{}{} is {}, expected {bound}",
            figure.word(),
            whose.unwrap_or_default(),
            figure.shown(value)
        );
        Self {
            held: room >= 0.0,
            figure: Some(figure.word().to_owned()),
            vcpu,
            measured: Some(value),
            at_least,
            at_most,
            room,
            ..Self::words(claim, true, found)
        }
    }
}

/// The room to the nearer bound, as a part of it (of 1 if the bound is 0).
fn room(value: f64, (at_least, at_most): (Option<f64>, Option<f64>)) -> f64 {
    let part = |room: f64, bound: f64| if bound > 0.0 { room / bound } else { room };
    let below = at_least.map_or(f64::INFINITY, |low| part(value - low, low));
    let above = at_most.map_or(f64::INFINITY, |high| part(high - value, high));
    // What is unbounded has room enough; a number can be compared and written where infinity cannot.
    below.min(above).clamp(-1e12, 1e12)
}

/// The figure of each vCPU that is meant and has it, or of the run.
fn values(
    report: &Report,
    figure: Figure,
    meant: impl Fn(&VcpuReport) -> bool,
) -> Vec<(Option<String>, f64)> {
    match figure {
        Figure::Jain => return vec![(None, report.run.jain)],
        Figure::Used => return vec![(None, report.run.used)],
        Figure::Interference => return vec![(None, report.interference())],
        _ => {}
    }
    let meant = report.vcpus.iter().filter(|vcpu| meant(vcpu));
    meant
        .filter_map(|vcpu| {
            Some((
                Some(vcpu.name()),
                of_vcpu(vcpu, figure, report.vcpus.len())?,
            ))
        })
        .collect()
}

/// A figure of a vCPU; none if there is nothing to measure, as the wake-ups of one that never slept.
fn of_vcpu(vcpu: &VcpuReport, figure: Figure, vcpus: usize) -> Option<f64> {
    let (wakeup, request) = (&vcpu.wakeup_ns, &vcpu.guest.request_ns);
    let some = |count: u64, value: u64| (count > 0).then_some(value as f64);
    match figure {
        Figure::Share => Some(vcpu.share),
        Figure::Received => vcpu.received(vcpus),
        Figure::Run => Some(vcpu.run_ns as f64),
        Figure::Ready => Some(vcpu.ready_ns as f64),
        Figure::Blocked => Some(vcpu.blocked_ns as f64),
        Figure::Progress => Some(vcpu.guest.progress_ns as f64),
        Figure::WakeupMedian => some(wakeup.count, wakeup.p50),
        Figure::WakeupP99 => some(wakeup.count, wakeup.p99),
        Figure::WakeupMax => some(wakeup.count, wakeup.max),
        Figure::Starvation => Some(vcpu.longest_starvation_ns as f64),
        Figure::RequestP99 => some(request.count, request.p99),
        Figure::RequestMax => some(request.count, request.max),
        Figure::Requests => Some(request.count as f64),
        Figure::PreemptedInLock => Some(vcpu.preemptions_in_lock as f64),
        Figure::Jain | Figure::Used | Figure::Interference => None,
    }
}

#[cfg(test)]
#[path = "expect_tests.rs"]
mod tests;
