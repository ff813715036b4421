//! Policies side by side.

use super::{Comparison, Unit};
use crate::model::Report;
use crate::testing::starved;

/// A run like the starved one, under another policy and without the worst of its waiting.
fn cured(longest: u64) -> Report {
    let mut report = starved();
    report.policy = "fss:variant=after".into();
    for vcpu in &mut report.vcpus {
        vcpu.longest_starvation_ns = longest;
    }
    report.diagnosis.starved = false;
    report.diagnosis.text = "No vCPU starved.".into();
    report
}

fn comparison(repeats: usize) -> Comparison {
    let with = (0..repeats as u64).map(|n| cured(300_000_000 + n * 1_000_000));
    Comparison::of(&[vec![starved(); repeats], with.collect()]).expect("some runs")
}

#[test]
fn rows_are_metrics_of_each_vcpu_and_columns_are_policies() {
    let comparison = comparison(3);
    let policies: Vec<_> = comparison
        .policies
        .iter()
        .map(|c| c.policy.as_str())
        .collect();
    assert_eq!(policies, ["fss", "fss:variant=after"]);
    assert_eq!(
        (
            comparison.policies[0].starved,
            comparison.policies[1].starved
        ),
        (3, 0)
    );
    let rows: Vec<_> = comparison
        .rows
        .iter()
        .filter(|row| row.metric == "longest_starvation_ns")
        .collect();
    assert_eq!(rows.len(), 3);
    assert_eq!(rows[1].vcpu.as_deref(), Some("vm1/main"));
    assert_eq!(rows[1].unit, Unit::Nanoseconds);
    let [Some(fault), Some(cure)] = rows[1].estimates[..] else {
        panic!("two estimates");
    };
    assert_eq!((fault.median, cure.median), (1.96e9, 301e6));
    assert_eq!((cure.low, cure.high), (300e6, 302e6));
    assert!(fault.apart(&cure));
}

#[test]
fn the_text_says_what_few_repeats_cannot_tell() {
    let single = comparison(1).to_text();
    assert!(single.contains("A single run of each policy"), "{single}");
    assert!(!single.contains('['), "{single}");
    let few = comparison(3).to_text();
    assert!(few.contains("with 75.0 %\n  confidence only"), "{few}");
    assert!(few.contains("*301 ms [300 ms, 302 ms]"), "{few}");
    let many = comparison(6).to_text();
    assert!(many.contains("with at least 95 %"), "{many}");
    for line in many.lines() {
        assert!(line.chars().count() <= 120, "{line}");
        assert_eq!(line, line.trim_end());
    }
}

#[test]
fn a_small_comparison_reads_as_agreed() {
    let found = comparison(6).to_text();
    assert!(
        found == include_str!("golden.txt"),
        "the text has changed:\n{found}"
    );
}

#[test]
fn no_runs_are_no_comparison_and_a_policy_without_runs_is_left_out() {
    assert_eq!(Comparison::of(&[]), None);
    assert_eq!(Comparison::of(&[vec![]]), None);
    let one = Comparison::of(&[vec![], vec![starved()]]).expect("one run");
    assert_eq!(one.policies.len(), 1);
    assert!(one.rows.iter().all(|row| row.estimates.len() == 1));
}

#[test]
fn the_json_form_can_be_read_back() {
    let comparison = comparison(2);
    let read: Comparison = serde_json::from_str(&comparison.to_json()).expect("JSON");
    assert_eq!(read, comparison);
}
