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
    /// By round, the part of its cores that the host said it took, from 0 to 1.
    pub(super) taken: Vec<f64>,
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
    /// The median of what the host took of its cores.
    pub(super) fn taken(&self) -> f64 {
        median(&self.taken).unwrap_or_default()
    }

    /// The median of a figure that explains.
    pub(super) fn measure(&self, number: usize) -> Option<f64> {
        median(&there(self.measures.get(number)?))
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

/// The same with its interval. An infinite figure is the greatest of all.
pub(super) fn estimate(figures: &[f64]) -> Option<Estimate> {
    // The estimate is of finite figures only: the greatest number stands for infinity.
    let finite: Vec<_> = figures.iter().map(|figure| figure.min(f64::MAX)).collect();
    let estimate = Estimate::of(&finite)?;
    let back = |figure: f64| match figure {
        f64::MAX => f64::INFINITY,
        figure => figure,
    };
    Some(Estimate {
        median: median(figures)?,
        low: back(estimate.low),
        high: back(estimate.high),
        ..estimate
    })
}

/// The figures that criteria are about.
#[derive(Clone, Copy, Debug)]
struct Figures {
    of: Option<f64>,
    against: Option<f64>,
    ratio: Option<f64>,
}

impl Figures {
    /// Of a single round.
    fn of_round(of: Option<f64>, against: Option<f64>) -> Self {
        let both = of.zip(against);
        let ratio = both.and_then(|(of, against)| ratio(of, against));
        Self { of, against, ratio }
    }
}

impl Criterion {
    fn holds(self, figures: Figures) -> bool {
        let Figures { of, against, ratio } = figures;
        let at_least = |figure: Option<f64>, bound| figure.is_some_and(|figure| figure >= bound);
        let at_most = |figure: Option<f64>, bound| figure.is_some_and(|figure| figure <= bound);
        match self {
            Self::RatioAtLeast(bound) => at_least(ratio, bound),
            Self::RatioAtMost(bound) => at_most(ratio, bound),
            // Of nothing and nothing there is no ratio, and neither is more.
            Self::WithinFactor(_) if of.is_some() && of == against => true,
            Self::WithinFactor(factor) => at_least(ratio, 1.0 / factor) && at_most(ratio, factor),
            Self::OfAtLeast(bound) => at_least(of, bound),
            Self::OfAtMost(bound) => at_most(of, bound),
            Self::AgainstAtLeast(bound) => at_least(against, bound),
            Self::AgainstAtMost(bound) => at_most(against, bound),
        }
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

/// Those that there are.
fn there(figures: &[Option<f64>]) -> Vec<f64> {
    figures.iter().copied().flatten().collect()
}

impl RowOutcome {
    /// The median of the first case's figures, with its interval.
    pub(super) fn of_estimate(&self) -> Option<Estimate> {
        estimate(&there(&self.of))
    }

    /// The same of the second case.
    pub(super) fn against_estimate(&self) -> Option<Estimate> {
        estimate(&there(&self.against))
    }

    /// The figures of each round.
    fn by_round(&self) -> impl Iterator<Item = Figures> {
        let rounds = self.of.iter().zip(&self.against);
        rounds.map(|(of, against)| Figures::of_round(*of, *against))
    }

    /// The ratio of each round that has one.
    fn ratios(&self) -> Vec<f64> {
        self.by_round().filter_map(|round| round.ratio).collect()
    }

    /// The median of the rounds' ratios.
    pub(super) fn ratio(&self) -> Option<f64> {
        median(&self.ratios())
    }

    /// The same with its interval.
    pub(super) fn ratio_estimate(&self) -> Option<Estimate> {
        estimate(&self.ratios())
    }

    /// What the row comes to, by round: its ratio, or its figure if it is set against nothing. Rounds without
    /// one are left out.
    pub(super) fn results(&self) -> Vec<f64> {
        match self.row.against {
            Some(_) => self.ratios(),
            None => there(&self.of),
        }
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
        Verdict {
            met: (!self.row.criteria.is_empty()).then(|| self.holds(medians)),
            rounds_met: self.by_round().filter(|round| self.holds(*round)).count(),
        }
    }
}

/// A host that takes more than this part of a run's cores may be the reason for what the run shows.
const MUCH: f64 = 0.1;

impl Outcome {
    /// What the host took of the cores in most rounds of a case whose figures fail a criterion, if it was so much that
    /// the failure says nothing. In the simulator that is part of the model, and says what it says.
    pub(super) fn disturbed(&self) -> Option<f64> {
        if self.backend.starts_with("sim") {
            return None;
        }
        let failed = self.rows.iter();
        let failed = failed.filter(|row| row.verdict().met == Some(false));
        let names = failed.flat_map(|found| [Some(found.row.of), found.row.against]);
        let cases = names.flatten().filter_map(|name| {
            let mut cases = self.cases.iter();
            cases.find(|case| case.case.name == name)
        });
        let taken = cases.map(CaseOutcome::taken);
        taken.reduce(f64::max).filter(|taken| *taken > MUCH)
    }

    /// Whether every row has figures on both its sides.
    pub(super) fn complete(&self) -> bool {
        self.rows.iter().all(RowOutcome::complete)
    }

    /// Whether no criterion fails.
    pub(super) fn met(&self) -> bool {
        self.rows.iter().all(|row| row.verdict().met != Some(false))
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

    /// A case with what the host took of it by round.
    fn case(case: &'static Case, taken: &[f64]) -> CaseOutcome {
        let scenario = stealtime_workloads::scenario::Scenario::load("spin-pair");
        let plan = scenario.and_then(|scenario| scenario.plan(&Default::default()));
        CaseOutcome {
            case,
            plan: plan.expect("embedded"),
            diagnosis: String::new(),
            notes: Vec::new(),
            taken: taken.to_vec(),
            histogram: None,
            measures: Vec::new(),
            queues: None,
        }
    }

    #[test]
    fn a_failure_says_nothing_where_the_host_took_much_of_most_rounds_of_its_cases() {
        static CASES: [Case; 3] = [
            Case::new("fault", "spin-pair", "rr"),
            Case::new("fix", "spin-pair", "rr"),
            Case::new("other", "spin-pair", "rr"),
        ];
        let disturbed = |backend, of: f64, taken: [&[f64]; 3]| {
            let cases = CASES.iter().zip(taken);
            let outcome = Outcome {
                backend,
                cases: cases.map(|(known, taken)| case(known, taken)).collect(),
                rows: vec![outcome(&[of; 3], &[3.0; 3])],
            };
            outcome.disturbed()
        };
        let (calm, once, busy) = ([0.02; 3], [0.02, 0.7, 0.09], [0.02, 0.34, 0.2]);
        assert_eq!(disturbed("kvm", 3.0, [&calm, &busy, &calm]), Some(0.2));
        assert_eq!(disturbed("kvm", 3.0, [&busy, &calm, &calm]), Some(0.2));
        assert_eq!(disturbed("kvm", 3.0, [&once, &once, &once]), None);
        assert_eq!(
            disturbed("kvm", 3.0, [&calm, &calm, &busy]),
            None,
            "not of that row"
        );
        assert_eq!(
            disturbed("kvm", 9.0, [&busy, &busy, &busy]),
            None,
            "nothing fails"
        );
        assert_eq!(disturbed("sim as kvm", 3.0, [&busy, &busy, &busy]), None);
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
    fn of_two_that_are_alike_neither_is_more_than_the_other() {
        let holds = |of, against| {
            let within = Criterion::WithinFactor(1.25);
            within.holds(Figures::of_round(of, against))
        };
        assert!(holds(Some(0.0), Some(0.0)) && holds(Some(1.0), Some(1.25)));
        assert!(!holds(Some(0.0), Some(1.0)) && !holds(Some(1.0), Some(0.0)));
        assert!(!holds(Some(1.3), Some(1.0)) && !holds(None, None));
    }

    #[test]
    fn a_ratio_that_is_infinite_in_some_rounds_is_so_in_its_interval_too() {
        let row = outcome(&[3.0, 5.0, 4.0], &[1.0, 0.0, 2.0]);
        let estimate = row.ratio_estimate().expect("three ratios");
        assert_eq!((row.ratio(), estimate.median), (Some(3.0), 3.0));
        assert_eq!((estimate.low, estimate.high), (2.0, f64::INFINITY));
        assert_eq!(estimate.count, 3);
        let all = outcome(&[3.0, 5.0], &[0.0, 0.0]).ratio_estimate();
        let all = all.expect("two ratios");
        assert_eq!((all.median, all.low), (f64::INFINITY, f64::INFINITY));
    }
}
