//! What is expected, against a report whose figures are known.

use super::{Showed, Verdict, check, decisive};
use crate::testing::starved;
use stealtime_scheduler::spec::PolicySpec;
use stealtime_workloads::scenario::expect::{Expectation, Figure, Must, Whom};

fn policy(text: &str) -> PolicySpec {
    text.parse().expect("a policy")
}

fn expect(figure: Figure, of: &str, at_least: Option<f64>, at_most: Option<f64>) -> Expectation {
    Expectation {
        claim: "it holds".into(),
        policies: Vec::new(),
        except: Vec::new(),
        fault: false,
        must: Must::Lie {
            figure,
            of: (!of.is_empty()).then(|| Whom { pattern: of.into() }),
            at_least,
            at_most,
        },
    }
}

fn verdict(one: Expectation) -> Verdict {
    let report = starved();
    check(&[one], &policy("fss"), &Showed::Report(&report)).0
}

#[test]
fn a_figure_within_its_bounds_passes_and_one_outside_fails() {
    let report = starved();
    let longest = report.vcpus[1].longest_starvation_ns as f64;
    let starvation = |low, high| expect(Figure::Starvation, "vm1/main", low, high);
    assert_eq!(
        verdict(starvation(Some(longest), Some(longest))),
        Verdict::Pass
    );
    assert_eq!(
        verdict(starvation(None, Some(longest - 1.0))),
        Verdict::Fail
    );
    assert_eq!(
        verdict(starvation(Some(longest + 1.0), None)),
        Verdict::Fail
    );
}

#[test]
fn a_pattern_is_about_all_it_matches_and_the_worst_decides() {
    let report = starved();
    let worst = report.vcpus.iter().map(|vcpu| vcpu.longest_starvation_ns);
    let worst = worst.max().expect("vCPUs") as f64;
    let one = expect(Figure::Starvation, "vm*/*", None, Some(worst - 1.0));
    let (verdict, checks) = check(&[one], &policy("fss"), &Showed::Report(&report));
    assert_eq!(verdict, Verdict::Fail);
    let deciding = decisive(&checks).expect("one");
    assert_eq!(deciding.measured, Some(worst));
    assert!(
        deciding.found.contains("expected at most"),
        "{}",
        deciding.found
    );
}

#[test]
fn a_figure_that_nobody_has_fails_instead_of_passing_unseen() {
    let none = expect(Figure::Jain, "", Some(0.0), None);
    assert_eq!(verdict(none), Verdict::Pass, "the run has one");
    let nobody = expect(Figure::Share, "nobody/*", Some(0.0), None);
    assert_eq!(verdict(nobody), Verdict::Fail);
}

#[test]
fn a_refusal_is_in_order_unless_the_policy_was_named_and_then_it_must_say_the_right_thing() {
    let general = expect(Figure::Jain, "", Some(0.0), None);
    let mut named = general.clone();
    named.policies = vec![policy("fss")];
    let refused = Showed::Refused("fss knows shares and nice values");
    let of = |one: &Expectation| check(std::slice::from_ref(one), &policy("fss"), &refused).0;
    assert_eq!(of(&general), Verdict::Refused);
    assert_eq!(of(&named), Verdict::Fail);
    let must = |words: &str| Expectation {
        must: Must::Refuse(words.into()),
        ..general.clone()
    };
    assert_eq!(of(&must("shares and nice")), Verdict::Refused);
    assert_eq!(of(&must("budgets")), Verdict::Fail);
    assert_eq!(verdict(must("")), Verdict::Fail, "it ran");
}

#[test]
fn a_known_fault_is_to_be_seen_and_is_not_called_a_pass() {
    let mut fault = expect(Figure::Starvation, "vm1/main", Some(1.0), None);
    fault.fault = true;
    assert_eq!(verdict(fault.clone()), Verdict::Fault);
    fault.must = expect(Figure::Starvation, "vm1/main", None, Some(1.0)).must;
    assert_eq!(verdict(fault), Verdict::Fail);
}

#[test]
fn a_broken_rule_or_a_lost_event_fails_whatever_was_expected() {
    let fine = expect(Figure::Jain, "", Some(0.0), None);
    let mut report = starved();
    report.run.lost_events = 1;
    let (verdict, _) = check(&[fine], &policy("fss"), &Showed::Report(&report));
    assert_eq!(verdict, Verdict::Fail);
}

#[test]
fn an_option_that_is_not_written_may_have_any_value_and_a_default_counts_as_written() {
    let mut one = expect(Figure::Jain, "", Some(0.0), None);
    one.policies = vec![policy("credit:charge=time")];
    assert!(one.concerns(&policy("credit")), "time is the default");
    assert!(one.concerns(&policy("credit:ratelimit=0")));
    assert!(!one.concerns(&policy("credit:charge=tick")));
    assert!(!one.concerns(&policy("credit2")));
    one.except = vec![policy("credit:ratelimit=0")];
    assert!(!one.concerns(&policy("credit:ratelimit=0")));
}
