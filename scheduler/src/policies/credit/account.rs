//! Xen credit's accounting: who gets how many credits, every 30 ms.
//!
//! Formulas are those of the source, every division rounded up. Credits are whole numbers, 10 to a
//! millisecond of one core.

/// Credits of a core in one accounting period of 30 ms; also the most that a unit may save.
pub(super) const PER_SLICE: i64 = 300;

/// A domain as the accounting sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Claim {
    pub(super) weight: i64,
    /// Per cent of one core, for all its units together.
    pub(super) cap: Option<i64>,
    /// Units that earn.
    pub(super) active: i64,
}

/// What a domain gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Grant {
    /// Credits for each active unit.
    pub(super) each: i64,
    /// Credits below zero at which a unit of a capped domain is parked.
    pub(super) park_below: Option<i64>,
    /// It got all it can use while one before it in the list could have used more: it goes to the
    /// head of the list, so that next time the others profit from what it leaves.
    pub(super) to_head: bool,
}

fn div_up(a: i64, b: i64) -> i64 {
    (a + b - 1).div_euclid(b)
}

/// Divides the credits of one period among the claims, in list order. `balance` is the sum of all
/// credits after the last accounting.
pub(super) fn divide(claims: &[Claim], cores: i64, balance: i64) -> Vec<Grant> {
    let debt = (-balance).max(0);
    let mut total = PER_SLICE * cores + debt;
    let weight: i64 = claims.iter().map(|claim| claim.weight * claim.active).sum();
    let mut left = weight;
    let mut somebody_could_use_more = false;
    let mut grants = Vec::with_capacity(claims.len());
    for claim in claims {
        let own = claim.weight * claim.active;
        left -= own;
        let mut peak = PER_SLICE * claim.active + div_up(debt * own, weight);
        let mut park_below = None;
        if let Some(cap) = claim.cap {
            let capped = div_up(cap * PER_SLICE, 100);
            peak = peak.min(capped);
            park_below = Some(-div_up(capped, claim.active));
        }
        let mut fair = div_up(total * own, weight);
        let mut to_head = false;
        if fair < peak {
            somebody_could_use_more = true;
        } else {
            if left != 0 {
                total += div_up((fair - peak) * weight, left);
            }
            to_head = somebody_could_use_more;
            fair = peak;
        }
        grants.push(Grant {
            each: div_up(fair, claim.active),
            park_below,
            to_head,
        });
    }
    grants
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(weight: i64, active: i64, cap: Option<i64>) -> Claim {
        Claim {
            weight,
            cap,
            active,
        }
    }

    fn each(claims: &[Claim], cores: i64) -> Vec<i64> {
        divide(claims, cores, 0)
            .iter()
            .map(|grant| grant.each)
            .collect()
    }

    #[test]
    fn credits_are_divided_by_weight() {
        let claims = [claim(256, 2, None), claim(512, 2, None)];
        assert_eq!(each(&claims, 2), [100, 200]);
    }

    #[test]
    fn what_one_cannot_use_goes_to_those_after_it() {
        let claims = [claim(768, 1, None), claim(128, 2, None)];
        assert_eq!(each(&claims, 2), [300, 150]);
    }

    #[test]
    fn a_cap_limits_and_its_surplus_is_handed_on() {
        let claims = [claim(256, 1, Some(25)), claim(256, 1, None)];
        assert_eq!(each(&claims, 1), [75, 225]);
    }

    #[test]
    fn a_capped_domain_at_the_end_moves_to_the_head_because_others_could_use_its_surplus() {
        let claims = [
            claim(256, 4, None),
            claim(512, 4, None),
            claim(256, 2, Some(50)),
        ];
        let grants = divide(&claims, 4, 0);
        assert_eq!(
            grants.iter().map(|g| g.each).collect::<Vec<_>>(),
            [86, 172, 75]
        );
        assert_eq!(
            grants.iter().map(|g| g.to_head).collect::<Vec<_>>(),
            [false, false, true]
        );
    }

    #[test]
    fn a_debt_of_all_is_made_good() {
        let without = each(&[claim(256, 2, None)], 1);
        let with: Vec<_> = divide(&[claim(256, 2, None)], 1, -100)
            .iter()
            .map(|g| g.each)
            .collect();
        assert_eq!((without, with), (vec![150], vec![200]));
    }
}
