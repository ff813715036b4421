//! What came of a reproduction on one backend, and whether its criteria are met.
//!
//! Nothing here knows a result. A round is a run of each case in turn; a ratio is that of two figures
//! of the same round. The medians over all rounds are judged, and in how many single rounds the
//! criteria hold is told beside it.

use super::distribution::Distribution;
use super::model::{Case, Criterion, Row, Unit};
use super::traffic::QueuesOverTime;
use stealtime_report::compare::stats::Estimate;
use stealtime_scheduler::time::Nanos;
use stealtime_workloads::run::Plan;

/// All that came of a reproduction on one backend.
#[derive(Debug)]
pub(super) struct Outcome {
    /// The backend's name.
    pub(super) backend: &'static str,
    /// The cases, in order.
    pub(super) cases: Vec<CaseOutcome>,
    /// The rows, in order.
    pub(super) rows: Vec<RowOutcome>,
}

/// What is kept of a case's first run, and the figures of all that explain it.
#[derive(Debug)]
pub(super) struct CaseOutcome {
    /// Which.
    pub(super) case: &'static Case,
    /// What was run.
    pub(super) plan: Plan,
    /// What the report says of who waited for whom.
    pub(super) diagnosis: String,
    /// What the backend has to say of itself, such as the cost model.
    pub(super) notes: Vec<String>,
    /// The distribution that is shown whole.
    pub(super) histogram: Option<Distribution>,
    /// The figures that explain, in order, by round.
    pub(super) measures: Vec<Vec<Option<f64>>>,
    /// The length of each core's queue over time.
    pub(super) queues: Option<QueuesOverTime>,
}

/// The figures of a row, by round.
#[derive(Debug)]
pub(super) struct RowOutcome {
    /// Which.
    pub(super) row: &'static Row,
    /// Of the row's first case.
    pub(super) of: Vec<Option<f64>>,
    /// Of the case it is set against.
    pub(super) against: Vec<Option<f64>>,
}

impl CaseOutcome {
    /// The median of a figure that explains.
    pub(super) fn measure(&self, number: usize) -> Option<f64> {
        let rounds = self.measures.get(number)?.iter();
        median(&rounds.copied().flatten().collect::<Vec<_>>())
    }
}

/// Whether what was demanded was measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Verdict {
    /// The medians fulfil all criteria; none if there are no criteria.
    pub(super) met: Option<bool>,
    /// In so many rounds the round's own figures do.
    pub(super) rounds_met: usize,
}

/// The ratio of two figures; infinite if only the second is 0, none if both are.
pub(super) fn ratio(of: f64, against: f64) -> Option<f64> {
    if against == 0.0 {
        return (of > 0.0).then_some(f64::INFINITY);
    }
    Some(of / against)
}

/// The median, which may be infinite.
fn median(figures: &[f64]) -> Option<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = sorted[(sorted.len() - 1) / 2];
    Some(if lower == upper {
        lower
    } else {
        f64::midpoint(lower, upper)
    })
}

/// The figures that criteria are about.
#[derive(Clone, Copy, Debug)]
struct Figures {
    of: Option<f64>,
    against: Option<f64>,
    ratio: Option<f64>,
}

impl Criterion {
    fn holds(self, figures: Figures) -> bool {
        let (figure, bound, at_least) = match self {
            Self::RatioAtLeast(bound) => (figures.ratio, bound, true),
            Self::RatioAtMost(bound) => (figures.ratio, bound, false),
            Self::WithinFactor(factor) => {
                let ratio = figures.ratio;
                return ratio.is_some_and(|r| r <= factor && r >= 1.0 / factor);
            }
            Self::OfAtLeast(bound) => (figures.of, bound, true),
            Self::OfAtMost(bound) => (figures.of, bound, false),
            Self::AgainstAtLeast(bound) => (figures.against, bound, true),
            Self::AgainstAtMost(bound) => (figures.against, bound, false),
        };
        figure.is_some_and(|figure| {
            if at_least {
                figure >= bound
            } else {
                figure <= bound
            }
        })
    }

    /// In words, for a row.
    fn text(self, row: &Row) -> String {
        let against = row.against.unwrap_or("-");
        match self {
            Self::RatioAtLeast(bound) => format!("ratio at least {bound}"),
            Self::RatioAtMost(bound) => format!("ratio at most {bound}"),
            Self::WithinFactor(factor) => format!("neither more than {factor} times the other"),
            Self::OfAtLeast(bound) => format!("{}: at least {}", row.of, row.unit.show(bound)),
            Self::OfAtMost(bound) => format!("{}: at most {}", row.of, row.unit.show(bound)),
            Self::AgainstAtLeast(bound) => format!("{against}: at least {}", row.unit.show(bound)),
            Self::AgainstAtMost(bound) => format!("{against}: at most {}", row.unit.show(bound)),
        }
    }
}

impl Row {
    /// The factor within which a ratio has no direction: that of the criterion, if it demands that
    /// there be no difference.
    fn level(&self) -> f64 {
        let factors = self
            .criteria
            .iter()
            .filter_map(|criterion| match criterion {
                Criterion::WithinFactor(factor) => Some(*factor),
                _ => None,
            });
        factors.fold(LEVEL, f64::max)
    }

    /// All that is demanded, in words.
    pub(super) fn criterion(&self) -> String {
        if self.criteria.is_empty() {
            return "none: it only informs".to_owned();
        }
        let texts = self.criteria.iter().map(|criterion| criterion.text(self));
        texts.collect::<Vec<_>>().join("; ")
    }
}

impl Unit {
    /// A figure with its unit.
    pub(super) fn show(self, figure: f64) -> String {
        match self {
            Self::Time => whole(figure).to_string(),
            Self::Part => format!("{:.1} %", figure * 100.0),
            Self::PerSecond => format!("{figure:.1}/s"),
            Self::PerMinute => format!("{figure:.1}/min"),
            Self::Number => format!("{figure:.2}"),
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float becomes an integer by saturation, and times are not negative"
)]
fn whole(figure: f64) -> Nanos {
    Nanos(figure.round() as u64)
}

/// A ratio as it is printed.
pub(super) fn show_ratio(ratio: f64) -> String {
    match ratio {
        r if r.is_infinite() => "infinite".to_owned(),
        r if r >= 100.0 => format!("{r:.0}"),
        r if r >= 10.0 => format!("{r:.1}"),
        r => format!("{r:.2}"),
    }
}

impl RowOutcome {
    /// The median of the first case's figures, with its interval.
    pub(super) fn of_estimate(&self) -> Option<Estimate> {
        Estimate::of(&self.of.iter().copied().flatten().collect::<Vec<_>>())
    }

    /// The same of the second case.
    pub(super) fn against_estimate(&self) -> Option<Estimate> {
        Estimate::of(&self.against.iter().copied().flatten().collect::<Vec<_>>())
    }

    /// The ratio of each round that has one.
    fn ratios(&self) -> Vec<f64> {
        let pairs = self.of.iter().zip(&self.against);
        pairs
            .filter_map(|(of, against)| ratio((*of)?, (*against)?))
            .collect()
    }

    /// The median of the rounds' ratios.
    pub(super) fn ratio(&self) -> Option<f64> {
        median(&self.ratios())
    }

    /// The same with its interval, infinite ones left out.
    pub(super) fn ratio_estimate(&self) -> Option<Estimate> {
        Estimate::of(&self.ratios())
    }

    /// Whether each of its cases had a figure in some round.
    fn complete(&self) -> bool {
        let both = self.row.against.is_none() || self.against_estimate().is_some();
        self.of_estimate().is_some() && both
    }

    /// How many rounds there were.
    pub(super) fn rounds(&self) -> usize {
        self.of.len()
    }

    fn holds(&self, figures: Figures) -> bool {
        let mut criteria = self.row.criteria.iter();
        criteria.all(|criterion| criterion.holds(figures))
    }

    /// Judges the medians, and each round.
    pub(super) fn verdict(&self) -> Verdict {
        let medians = Figures {
            of: self.of_estimate().map(|estimate| estimate.median),
            against: self.against_estimate().map(|estimate| estimate.median),
            ratio: self.ratio(),
        };
        let rounds = self.of.iter().zip(&self.against).map(|(of, against)| {
            let ratio = of
                .zip(*against)
                .and_then(|(of, against)| ratio(of, against));
            Figures {
                of: *of,
                against: *against,
                ratio,
            }
        });
        Verdict {
            met: (!self.row.criteria.is_empty()).then(|| self.holds(medians)),
            rounds_met: rounds.filter(|figures| self.holds(*figures)).count(),
        }
    }
}

impl Outcome {
    /// Whether every row has figures on both its sides.
    pub(super) fn complete(&self) -> bool {
        self.rows.iter().all(RowOutcome::complete)
    }

    /// Whether no criterion fails.
    pub(super) fn met(&self) -> bool {
        self.rows.iter().all(|row| row.verdict().met != Some(false))
    }
}

/// How the same row came out on two backends.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Agreement {
    /// The second backend's ratio over the first's; of a row without a ratio, figure over figure.
    pub(super) difference: f64,
    /// Both ratios are above 1, or both below, or both so near to it that they have no direction.
    pub(super) same_direction: bool,
    /// The intervals of the two leave no room for figures that agree. If they do, the rounds of each differ too much
    /// among themselves to tell.
    pub(super) told_apart: bool,
}

/// A ratio that is no further from 1 than this factor has no direction.
const LEVEL: f64 = 1.05;
/// How far backends may differ in a ratio and still be said to agree.
pub(super) const AGREE: f64 = 1.5;

impl Agreement {
    /// Sets two backends' outcomes of the same row against each other.
    pub(super) fn of(first: &RowOutcome, second: &RowOutcome) -> Option<Self> {
        let compared = first.row.against.is_some();
        let figure = |row: &RowOutcome| match compared {
            true => row.ratio(),
            false => row.of_estimate().map(|estimate| estimate.median),
        };
        let (one, two) = (figure(first)?, figure(second)?);
        let near = |ratio: f64| (1.0 / first.row.level()..=first.row.level()).contains(&ratio);
        let same = |one: f64, two: f64| (one > 1.0) == (two > 1.0) || (near(one) && near(two));
        let interval = |row: &RowOutcome| {
            let estimate = match compared {
                true => row.ratio_estimate(),
                false => row.of_estimate(),
            };
            estimate.map(|e| (e.low, e.high))
        };
        let room = interval(first).zip(interval(second)).is_some_and(|(a, b)| {
            // The nearest that the two may be to each other.
            let (one, two) = if a.1 < b.0 {
                (a.1, b.0)
            } else if b.1 < a.0 {
                (a.0, b.1)
            } else {
                (1.0, 1.0)
            };
            Self::within(two / one) && (!compared || same(one, two))
        });
        Some(Self {
            difference: if one == two { 1.0 } else { ratio(two, one)? },
            same_direction: !compared || same(one, two),
            told_apart: !room,
        })
    }

    fn within(difference: f64) -> bool {
        (1.0 / AGREE..=AGREE).contains(&difference)
    }

    /// In direction, and within [`AGREE`].
    pub(super) fn agrees(self) -> bool {
        self.same_direction && Self::within(self.difference)
    }

    /// What it comes to.
    pub(super) fn word(self) -> String {
        Self::in_words(self.agrees(), self.told_apart, self.same_direction)
    }

    /// The same of its parts.
    pub(super) fn in_words(agree: bool, told_apart: bool, same_direction: bool) -> String {
        match (agree, told_apart, same_direction) {
            (true, _, _) => format!("they agree, within {AGREE}"),
            (_, false, _) => {
                "not to be told apart: rounds differ as much among themselves".to_owned()
            }
            (_, _, true) => format!("the same direction, not within {AGREE}"),
            (_, _, false) => "they disagree".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::Published;
    use super::*;

    static ROW: Row = Row {
        name: "x",
        unit: Unit::Number,
        of: "fault",
        against: Some("fix"),
        published: Published::said(""),
        figure: |_| None,
        criteria: &[Criterion::RatioAtLeast(2.0), Criterion::AgainstAtMost(10.0)],
    };

    fn outcome(of: &[f64], against: &[f64]) -> RowOutcome {
        RowOutcome {
            row: &ROW,
            of: of.iter().copied().map(Some).collect(),
            against: against.iter().copied().map(Some).collect(),
        }
    }

    #[test]
    fn the_median_of_the_rounds_ratios_is_judged_and_the_rounds_are_counted() {
        let most = outcome(&[6.0, 9.0, 4.0], &[3.0, 3.0, 4.0]).verdict();
        assert_eq!((most.met, most.rounds_met), (Some(true), 2));
        let few = outcome(&[6.0, 5.0, 4.0], &[3.0, 3.0, 4.0]).verdict();
        assert_eq!((few.met, few.rounds_met), (Some(false), 1));
    }

    #[test]
    fn every_criterion_must_hold() {
        let verdict = outcome(&[60.0], &[12.0]).verdict();
        assert_eq!((verdict.met, verdict.rounds_met), (Some(false), 0));
    }

    #[test]
    fn what_was_not_measured_is_not_met() {
        let nothing = RowOutcome {
            row: &ROW,
            of: vec![None],
            against: vec![Some(1.0)],
        };
        assert_eq!(nothing.verdict().met, Some(false));
        assert!(!nothing.complete() && outcome(&[1.0], &[1.0]).complete());
        assert_eq!(outcome(&[], &[]).verdict().met, Some(false));
    }

    #[test]
    fn something_against_nothing_is_infinitely_more() {
        let row = outcome(&[5.0], &[0.0]);
        assert_eq!(row.ratio(), Some(f64::INFINITY));
        assert_eq!(row.verdict().met, Some(true));
        assert_eq!(outcome(&[0.0], &[0.0]).ratio(), None);
    }

    #[test]
    fn backends_agree_in_direction_and_within_a_factor() {
        let of = |a: f64, b: f64| {
            Agreement::of(&outcome(&[a], &[1.0]), &outcome(&[b], &[1.0])).expect("figures")
        };
        assert!(of(3.0, 4.0).agrees());
        assert!(!of(3.0, 5.0).agrees());
        assert!(!of(1.2, 0.9).agrees(), "another direction");
        assert!(of(1.02, 0.98).agrees(), "neither has one");
    }

    #[test]
    fn backends_whose_rounds_spread_far_are_not_told_apart() {
        let of = |a: &[f64], b: &[f64]| {
            let with = |figures: &[f64]| outcome(figures, &vec![1.0; figures.len()]);
            Agreement::of(&with(a), &with(b)).expect("figures")
        };
        let apart = of(&[2.0, 2.1], &[4.0, 4.2]);
        assert!(apart.told_apart && !apart.agrees());
        let overlapping = of(&[2.0, 6.0], &[1.5, 2.1]);
        assert!(!overlapping.agrees() && !overlapping.told_apart);
        let nearly = of(&[2.0, 2.8], &[4.1, 6.0]);
        assert!(!nearly.told_apart, "2.8 and 4.1 would agree");
        let across = of(&[0.8, 0.9], &[1.2, 1.3]);
        assert!(across.told_apart && !across.same_direction);
        let touching = of(&[0.5, 1.04], &[1.02, 1.6]);
        assert!(!touching.told_apart, "neither has a direction there");
        assert!(
            of(&[2.0], &[4.0]).told_apart,
            "a single round has no spread"
        );
    }
}
