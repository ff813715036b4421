//! `--sweep`: each parameter of a finding varied around its documented value, the others as they are.
//!
//! In the simulator: what is asked is where an effect holds and where it vanishes, and virtual time answers
//! that in seconds.

use super::model::{Knob, Reproduction};
use super::outcome::{Outcome, show_ratio};
use super::rounds::{self, Change, Orders};
use crate::args::{BackendChoice, Form, ReproduceArgs};
use crate::execute::Remarks;
use crate::failure::{Blame, Failure, Outcome as Came, Status};
use crate::show;
use serde_json::{Value, json};
use std::fmt::Write;

/// A value that was tried.
#[derive(Debug)]
struct Tried {
    value: &'static str,
    outcome: Outcome,
}

/// Varies all parameters of these findings.
///
/// # Errors
/// If a run did not take place, or the outcome could not be printed.
pub(super) fn sweep(findings: &[&'static Reproduction], arguments: &ReproduceArgs) -> Came {
    let mut documents = Vec::new();
    for finding in findings {
        for knob in finding.knobs {
            let Some(tried) = vary(finding, knob, arguments)? else {
                return Ok(Status::Interrupted);
            };
            match arguments.format {
                Form::Json => documents.push(document(finding, knob, &tried)),
                Form::Text => show::print(&text(finding, knob, &tried)).not_kept()?,
            }
        }
    }
    if arguments.format == Form::Json {
        let all = json!({ "parameters": documents });
        show::print(&format!("{all:#}")).not_kept()?;
    }
    Ok(Status::Done)
}

fn vary(
    finding: &'static Reproduction,
    knob: &'static Knob,
    arguments: &ReproduceArgs,
) -> Result<Option<Vec<Tried>>, Failure> {
    let conditions = arguments.conditions(BackendChoice::Sim);
    let mut tried = Vec::new();
    for value in knob.values {
        let orders = Orders {
            conditions: &conditions,
            repeat: arguments.repeat,
            remarks: Remarks::new(arguments.quiet),
            change: Some(Change {
                place: knob.place,
                documented: knob.documented,
                value,
            }),
            as_on_kvm: false,
        };
        let Some(outcome) = rounds::run(finding, orders)? else {
            return Ok(None);
        };
        tried.push(Tried { value, outcome });
    }
    Ok(Some(tried))
}

/// What a row comes to with a value, and whether its criterion is met.
fn cell(outcome: &Outcome, number: usize) -> (String, Option<bool>) {
    let Some(row) = outcome.rows.get(number) else {
        return ("-".to_owned(), None);
    };
    let unit = row.row.unit;
    let of = row.of_estimate().map(|estimate| estimate.median);
    let figure = match (row.row.against, row.ratio(), of) {
        (Some(_), Some(ratio), _) => show_ratio(ratio),
        (None, _, Some(of)) => unit.show(of),
        _ => "nothing".to_owned(),
    };
    (figure, row.verdict().met)
}

fn text(finding: &Reproduction, knob: &Knob, tried: &[Tried]) -> String {
    let mut text = format!(
        "{}: {} (documented: {})\n",
        finding.name,
        knob.name,
        Knob::show(knob.documented)
    );
    for (number, row) in finding.rows.iter().enumerate() {
        let what = match row.against {
            Some(against) => format!("{} over {against}", row.of),
            None => row.of.to_owned(),
        };
        let _ = writeln!(text, "  {} ({what}; {})", row.name, row.criterion());
        for one in tried {
            let (figure, met) = cell(&one.outcome, number);
            let word = match met {
                None => "",
                Some(true) => "holds",
                Some(false) => "vanishes",
            };
            let here = if one.value == knob.documented {
                "*"
            } else {
                " "
            };
            let value = Knob::show(one.value);
            let line = format!("    {here} {value:>10}  {figure:>12}  {word}");
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }
    text.push('\n');
    text
}

fn document(finding: &Reproduction, knob: &Knob, tried: &[Tried]) -> Value {
    let rows = finding.rows.iter().enumerate().map(|(number, row)| {
        let values = tried.iter().map(|one| {
            let found = &one.outcome.rows[number];
            json!({
                "value": one.value,
                "of": found.of_estimate().map(|estimate| estimate.median),
                "against": found.against_estimate().map(|estimate| estimate.median),
                "ratio": found.ratio().filter(|ratio| ratio.is_finite()),
                "met": found.verdict().met,
            })
        });
        json!({ "name": row.name, "values": values.collect::<Vec<_>>() })
    });
    json!({
        "reproduction": finding.name,
        "parameter": knob.name,
        "documented": knob.documented,
        "rows": rows.collect::<Vec<_>>(),
    })
}
