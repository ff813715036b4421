//! Outcomes for machines; `docs/commands.md` is the reference.

use super::Reproduced;
use super::agreement::Agreement;
use super::machine::Machine;
use super::model::Reproduction;
use super::outcome::{CaseOutcome, Outcome, RowOutcome};
use serde_json::{Value, json};
use stealtime_report::compare::stats::Estimate;

/// The version of this form.
const FORMAT_VERSION: u32 = 2;

pub(super) fn document(all: &[Reproduced], machine: &Machine) -> String {
    let outcomes = || {
        let pairs = all.iter().map(|one| (one, &one.outcomes));
        pairs.flat_map(|(one, outcomes)| outcomes.iter().map(move |outcome| (one, outcome)))
    };
    let rows = outcomes().flat_map(|(one, outcome)| {
        let rows = outcome.rows.iter();
        rows.map(|found| row(one.finding.name, outcome.backend, found))
    });
    let cases = outcomes().flat_map(|(one, outcome)| {
        let bin = one.finding.histogram.as_ref().map(|shown| shown.bin_ns);
        let cases = outcome.cases.iter();
        cases.map(move |case| {
            let mut value = self::case(one.finding.name, outcome.backend, case, bin);
            value["explained"] = explained(one.finding, case);
            value
        })
    });
    let document = json!({
        "format_version": FORMAT_VERSION,
        "machine": machine.json(),
        "reproduced": all.iter().flat_map(|one| &one.outcomes).all(Outcome::met),
        "rows": rows.collect::<Vec<_>>(),
        "agreement": all.iter().flat_map(agreement).collect::<Vec<_>>(),
        "costs": all.iter().filter_map(costs).collect::<Vec<_>>(),
        "cases": cases.collect::<Vec<_>>(),
    });
    format!("{document:#}")
}

/// What the simulator took things to cost when it ran the finding.
fn costs(one: &Reproduced) -> Option<Value> {
    let costs = one.costs.as_ref()?;
    Some(json!({
        "reproduction": one.finding.name,
        "measured_for_it": costs.measured,
        "model": costs.model,
    }))
}

fn row(finding: &str, backend: &str, found: &RowOutcome) -> Value {
    let (row, verdict) = (found.row, found.verdict());
    json!({
        "reproduction": finding,
        "name": row.name,
        "backend": backend,
        "unit": row.unit.name(),
        "of": row.of,
        "against": row.against,
        "published": {
            "of": row.published.of,
            "against": row.published.against,
            "said": row.published.said,
        },
        "measured": {
            "of": estimate(found.of_estimate()),
            "against": estimate(found.against_estimate()),
        },
        "ratio_published": row.published.ratio(),
        // JSON has no infinity: null then, with figures beside it that tell.
        "ratio_measured": found.ratio().filter(|ratio| ratio.is_finite()),
        "ratio_interval": estimate(found.ratio_estimate()),
        "criterion": row.criterion(),
        "rounds": found.rounds(),
        "rounds_met": verdict.rounds_met,
        "met": verdict.met,
    })
}

fn estimate(estimate: Option<Estimate>) -> Value {
    estimate.map_or(Value::Null, |e| {
        json!({
            "median": e.median,
            "low": e.low,
            "high": e.high,
            "count": e.count,
            "confidence": e.confidence,
        })
    })
}

/// How the second backend's rows differ from the first's.
fn agreement(one: &Reproduced) -> Vec<Value> {
    let Some((first, second)) = one.pair() else {
        return Vec::new();
    };
    let rows = first.rows.iter().zip(&second.rows);
    let set = rows.map(|(a, b)| {
        let agreement = Agreement::of(a, b);
        json!({
            "reproduction": one.finding.name,
            "name": a.row.name,
            "of": a.row.of,
            "against": a.row.against,
            "backends": [first.backend, second.backend],
            "difference": agreement.map(|a| a.difference).filter(|d| d.is_finite()),
            "same_direction": agreement.map(|a| a.same_direction),
            "agree": agreement.map(Agreement::agrees),
            "told_apart": agreement.and_then(|a| a.told_apart),
        })
    });
    set.collect()
}

/// What explains a case's rows; null if nothing does.
fn explained(finding: &Reproduction, case: &CaseOutcome) -> Value {
    let Some(explained) = &finding.explained else {
        return Value::Null;
    };
    let measures = explained
        .measures
        .iter()
        .enumerate()
        .map(|(number, measure)| {
            json!({
                "name": measure.name,
                "unit": measure.unit.name(),
                "median": case.measure(number),
            })
        });
    json!({
        "measures": measures.collect::<Vec<_>>(),
        "queues": case.queues.as_ref().map(|queues| {
            json!({ "step_ns": queues.step.get(), "cores": queues.cores })
        }),
    })
}

fn case(finding: &str, backend: &str, case: &CaseOutcome, bin_ns: Option<u64>) -> Value {
    let plan = &case.plan;
    let histogram = bin_ns.zip(case.histogram.as_ref()).map(|(width, lengths)| {
        let bins = lengths.bins(width).into_iter();
        json!({
            "bin_ns": width,
            "bins": bins.map(|(place, count)| json!([place, count])).collect::<Vec<_>>(),
        })
    });
    json!({
        "reproduction": finding,
        "backend": backend,
        "name": case.case.name,
        "scenario": plan.scenario,
        "policy": plan.policy.to_string(),
        "cores": plan.cores,
        "duration_ns": plan.duration.get(),
        "warmup_ns": plan.warmup.get(),
        "seed": plan.seed,
        "diagnosis": case.diagnosis,
        "notes": case.notes,
        "taken": case.taken(),
        "histogram": histogram,
    })
}
