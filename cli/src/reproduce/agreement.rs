//! How the same row came out on two backends.
//!
//! Two agree if their medians do: in direction, and within a factor. If they do not, the rounds of each tell
//! whether that is a difference of the two (decision 0015).

use super::model::{Criterion, Row};
use super::outcome::{RowOutcome, estimate};
use stealtime_report::compare::stats::Estimate;

/// A row of one backend set against that of another.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Agreement {
    /// The second backend's ratio over the first's; of a row without a ratio, figure over figure.
    pub(super) difference: f64,
    /// Neither ratio is on the other side of 1, or both are so near to it that they have no direction.
    pub(super) same_direction: bool,
    /// The intervals of the two leave no room for figures that agree. If they do, the rounds of each differ too
    /// much among themselves to tell. None if one has fewer than [`ROUNDS`] rounds with a figure.
    pub(super) told_apart: Option<bool>,
}

/// A ratio that is no further from 1 than this factor has no direction.
const LEVEL: f64 = 1.05;
/// How far backends may differ in a ratio and still be said to agree.
pub(super) const AGREE: f64 = 1.5;
/// Fewer rounds tell no backends apart. The ranges of `n` rounds each of two that are alike have nothing in common
/// in `2 (n!)² / (2n)!` of all cases: always with 1, in a third of them with 2, in a tenth with 3.
const ROUNDS: u64 = 3;

impl Agreement {
    /// Sets two backends' outcomes of the same row against each other; none if one of them has no figure.
    pub(super) fn of(first: &RowOutcome, second: &RowOutcome) -> Option<Self> {
        let scale = Scale::of(first.row);
        let (one, two) = (estimate(&first.results())?, estimate(&second.results())?);
        let enough = one.count.min(two.count) >= ROUNDS;
        Some(Self {
            difference: times(one.median, two.median),
            same_direction: scale.same_direction(one.median, two.median),
            told_apart: enough.then(|| match nearest(&one, &two) {
                Some((one, two)) => !scale.agree(one, two),
                None => false,
            }),
        })
    }

    /// In direction, and within [`AGREE`].
    pub(super) fn agrees(self) -> bool {
        self.same_direction && within(self.difference)
    }

    /// What it comes to.
    pub(super) fn word(self) -> String {
        Self::in_words(self.agrees(), self.told_apart, self.same_direction)
    }

    /// The same of its parts.
    pub(super) fn in_words(agree: bool, told_apart: Option<bool>, same_direction: bool) -> String {
        match (agree, told_apart, same_direction) {
            (true, _, _) => format!("they agree, within {AGREE}"),
            (_, None, _) => "too few rounds to tell them apart".to_owned(),
            (_, Some(false), _) => {
                "not to be told apart: rounds differ as much among themselves".to_owned()
            }
            (_, Some(true), true) => format!("the same direction, not within {AGREE}"),
            (_, Some(true), false) => "they disagree".to_owned(),
        }
    }
}

/// When two results of a row agree.
#[derive(Clone, Copy, Debug)]
enum Scale {
    /// They are ratios, which have no direction within this factor of 1.
    Ratios(f64),
    /// They are figures, which have none at all.
    Figures,
}

impl Scale {
    /// That of a row. If its criterion demands that there be no difference, ratios within the criterion's factor
    /// have no direction.
    fn of(row: &Row) -> Self {
        if row.against.is_none() {
            return Self::Figures;
        }
        let factors = row.criteria.iter().filter_map(|criterion| match criterion {
            Criterion::WithinFactor(factor) => Some(*factor),
            _ => None,
        });
        Self::Ratios(factors.fold(LEVEL, f64::max))
    }

    fn same_direction(self, one: f64, two: f64) -> bool {
        let Self::Ratios(level) = self else {
            return true;
        };
        let directionless = |ratio: f64| (1.0 / level..=level).contains(&ratio);
        one.max(two) <= 1.0 || one.min(two) >= 1.0 || (directionless(one) && directionless(two))
    }

    fn agree(self, one: f64, two: f64) -> bool {
        self.same_direction(one, two) && within(times(one, two))
    }
}

/// The ends by which two intervals come nearest to each other; none if they have something in common.
fn nearest(one: &Estimate, two: &Estimate) -> Option<(f64, f64)> {
    if one.high < two.low {
        Some((one.high, two.low))
    } else if two.high < one.low {
        Some((one.low, two.high))
    } else {
        None
    }
}

/// How many times the first the second is; infinite if only the first is 0.
fn times(one: f64, two: f64) -> f64 {
    // Both may be 0, or both infinite.
    if one == two { 1.0 } else { two / one }
}

fn within(difference: f64) -> bool {
    (1.0 / AGREE..=AGREE).contains(&difference)
}

#[cfg(test)]
mod tests {
    use super::super::model::{Published, Unit};
    use super::*;

    const ROW: Row = Row {
        name: "x",
        unit: Unit::Number,
        of: "fault",
        against: Some("fix"),
        published: Published::said(""),
        figure: |_| None,
        criteria: &[],
    };
    static RATIO: Row = ROW;
    static FIGURE: Row = Row {
        against: None,
        ..ROW
    };
    static LEVEL_ROW: Row = Row {
        criteria: &[Criterion::WithinFactor(1.25)],
        ..ROW
    };

    /// A row with these results.
    fn outcome(row: &'static Row, results: &[f64]) -> RowOutcome {
        let figure = |result: &f64| match result.is_infinite() {
            true => (Some(1.0), Some(0.0)),
            false => (Some(*result), Some(1.0)),
        };
        let (of, against) = results.iter().map(figure).unzip();
        RowOutcome { row, of, against }
    }

    fn of(row: &'static Row, one: &[f64], two: &[f64]) -> Agreement {
        Agreement::of(&outcome(row, one), &outcome(row, two)).expect("figures")
    }

    #[test]
    fn backends_agree_in_direction_and_within_a_factor() {
        let agree = |one, two| of(&RATIO, &[one], &[two]).agrees();
        assert!(agree(3.0, 4.0) && !agree(3.0, 5.0));
        assert!(!agree(1.2, 0.9), "another direction");
        assert!(agree(1.02, 0.98), "neither has one");
        assert!(
            agree(1.0, 1.4) && agree(1.0, 0.7) && agree(1.4, 1.0),
            "1 has none"
        );
        assert!(
            of(&LEVEL_ROW, &[1.2], &[0.9]).agrees(),
            "no difference was asked for"
        );
        assert!(of(&FIGURE, &[1.2], &[0.9]).agrees(), "figures have none");
        assert!(agree(f64::INFINITY, f64::INFINITY) && !agree(f64::INFINITY, 9.0));
        assert!(agree(0.0, 0.0) && !agree(0.0, 0.5));
    }

    #[test]
    fn backends_whose_rounds_spread_far_are_not_told_apart() {
        let told = |one: &[f64], two: &[f64]| of(&RATIO, one, two).told_apart.expect("enough");
        assert!(told(&[2.0, 2.0, 2.1], &[4.0, 4.1, 4.2]));
        assert!(!told(&[2.0, 2.2, 6.0], &[1.1, 1.2, 2.1]), "they overlap");
        assert!(
            !told(&[2.0, 2.1, 2.8], &[4.1, 5.0, 6.0]),
            "2.8 and 4.1 would agree"
        );
        assert!(
            told(&[0.8, 0.8, 0.9], &[1.2, 1.3, 1.3]),
            "another direction"
        );
        assert!(
            !told(&[0.5, 0.6, 1.02], &[1.04, 1.5, 1.6]),
            "neither has one there"
        );
        let infinite = [f64::INFINITY; 3];
        assert!(!told(&infinite, &infinite));
        assert!(told(&infinite, &[2.0, 3.0, 4.0]));
        assert!(!told(&infinite, &[2.0, 3.0, f64::INFINITY]));
    }

    #[test]
    fn too_few_rounds_tell_nothing_apart() {
        for (one, two) in [
            (&[2.0][..], &[40.0][..]),
            (&[2.0, 2.0], &[40.0, 40.0]),
            (&[2.0, 2.0, 2.0], &[40.0, 40.0]),
        ] {
            let agreement = of(&RATIO, one, two);
            assert_eq!((agreement.agrees(), agreement.told_apart), (false, None));
            assert_eq!(agreement.word(), "too few rounds to tell them apart");
        }
        let mut short = outcome(&RATIO, &[40.0; 3]);
        short.of[1] = None;
        let told = Agreement::of(&outcome(&RATIO, &[2.0; 3]), &short).expect("figures");
        assert_eq!(told.told_apart, None, "a round had no figure");
        assert_eq!(of(&RATIO, &[2.0; 3], &[40.0; 3]).told_apart, Some(true));
    }

    #[test]
    fn ranges_of_backends_that_are_alike_lie_apart_as_often_as_is_said() {
        // Every way in which the rounds of one stand among those of both is as likely as any other.
        let apart = |rounds: u32| {
            let ways = (0_u32..1 << (2 * rounds)).filter(|way| way.count_ones() == rounds);
            let lowest = (1_u32 << rounds) - 1;
            let apart = ways
                .clone()
                .filter(|way| [lowest, lowest << rounds].contains(way));
            apart.count() as f64 / ways.count() as f64
        };
        let expected = [1.0, 1.0 / 3.0, 0.1];
        assert_eq!([1, 2, 3].map(apart), expected);
    }
}
