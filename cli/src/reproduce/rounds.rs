//! Running the cases of a reproduction in turn.

use super::measured::{Run, Trace};
use super::model::{Case, Place, Reproduction};
use super::outcome::{CaseOutcome, Outcome, RowOutcome};
use crate::args::{BackendChoice, Conditions};
use crate::cores;
use crate::execute::{self, Remarks};
use crate::failure::{Blame, Failure};
use crate::interrupt;
use crate::planning::Setting;
use anyhow::anyhow;
use stealtime_scheduler::spec::PolicySpec;
use stealtime_scheduler::time::Nanos;
use stealtime_workloads::scenario::{DEFAULT_SEED, Scenario, embedded_text};

/// A parameter with another value than the documented one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    /// Where its value stands.
    pub(super) place: Place,
    /// The documented value.
    pub(super) documented: &'static str,
    /// The value instead.
    pub(super) value: &'static str,
}

/// Under which conditions a reproduction runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Orders<'a> {
    /// What was asked for at the command line, with the backend decided.
    pub(super) conditions: &'a Conditions,
    /// How many rounds.
    pub(super) repeat: u32,
    /// Whether to tell what goes on.
    pub(super) remarks: Remarks,
    /// A parameter that is varied.
    pub(super) change: Option<Change>,
    /// Whether it is set up as on KVM here whatever the backend: with less to do, and on no more cores than there
    /// are.
    pub(super) as_on_kvm: bool,
}

/// How outcomes of the simulator are called where it was set up as KVM was.
pub(super) const SIM_AS_KVM: &str = "sim as kvm";

/// Whether some case is set up otherwise on KVM here than it is in the simulator.
///
/// # Errors
/// If a case cannot be set up.
pub(super) fn differs_on_kvm(
    reproduction: &'static Reproduction,
    conditions: &Conditions,
) -> Result<bool, Failure> {
    let orders = |as_on_kvm| Orders {
        conditions,
        repeat: 1,
        remarks: Remarks::new(true),
        change: None,
        as_on_kvm,
    };
    for case in reproduction.cases {
        let plan = |as_on_kvm| {
            let (setting, policy, _) = prepare(case, orders(as_on_kvm))?;
            let plan = setting.plan(Some(&policy))?;
            Ok::<_, Failure>((plan.scenario, plan.cores.len()))
        };
        if plan(false)? != plan(true)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Runs all rounds. None if the user ended it early.
///
/// # Errors
/// If a run did not take place.
pub(super) fn run(
    reproduction: &'static Reproduction,
    orders: Orders<'_>,
) -> Result<Option<Outcome>, Failure> {
    let mut outcome = Outcome {
        backend: "",
        cases: Vec::new(),
        rows: Vec::new(),
    };
    outcome
        .rows
        .extend(reproduction.rows.iter().map(|row| RowOutcome {
            row,
            of: Vec::new(),
            against: Vec::new(),
        }));
    let mut settings = Vec::new();
    for case in reproduction.cases {
        settings.push(prepare(case, orders)?);
    }
    for round in 1..=orders.repeat {
        for row in &mut outcome.rows {
            row.of.push(None);
            row.against.push(None);
        }
        for (case, (setting, policy, seed)) in reproduction.cases.iter().zip(&settings) {
            let mut plan = setting.plan(Some(policy))?;
            // Every round has lengths of its own, the same for all cases.
            plan.seed = seed + u64::from(round - 1);
            let name = reproduction.name;
            let label = format!("{name}: {} {round}/{}", case.name, orders.repeat);
            let mut trace = Trace::default();
            let ran = execute::observed(setting, &plan, &label, orders.remarks, &mut trace)?;
            if interrupt::pressed() {
                return Ok(None);
            }
            outcome.backend = match (orders.as_on_kvm, setting.backend.name()) {
                (true, "sim") => SIM_AS_KVM,
                (_, name) => name,
            };
            let run = Run::new(&plan, &ran.report, &trace);
            outcome.take(reproduction, case, &run);
        }
    }
    Ok(Some(outcome))
}

impl Outcome {
    /// Takes the figures of a run of the newest round.
    fn take(&mut self, reproduction: &'static Reproduction, case: &'static Case, run: &Run<'_>) {
        for outcome in &mut self.rows {
            let row = outcome.row;
            if row.of == case.name {
                outcome.of.pop();
                outcome.of.push((row.figure)(run));
            }
            if row.against == Some(case.name) {
                outcome.against.pop();
                outcome.against.push((row.figure)(run));
            }
        }
        let explained = reproduction.explained.as_ref();
        let measures = explained.map_or(&[][..], |explained| explained.measures);
        let figures = measures.iter().map(|measure| (measure.figure)(run));
        let mut cases = self.cases.iter_mut();
        if let Some(known) = cases.find(|known| known.case.name == case.name) {
            for (rounds, figure) in known.measures.iter_mut().zip(figures) {
                rounds.push(figure);
            }
        } else {
            let histogram = reproduction.histogram.as_ref();
            let queues = explained.filter(|explained| explained.queues);
            let measures = figures.map(|figure| vec![figure]).collect();
            self.cases.push(CaseOutcome {
                case,
                plan: run.plan.clone(),
                diagnosis: run.report.diagnosis.text.clone(),
                notes: run.report.quality.notes.clone(),
                histogram: histogram.map(|shown| (shown.of)(run)),
                measures,
                queues: queues.map(|_| run.traffic().over_time()),
            });
        }
    }
}

/// The setting, the policy and the first round's seed of a case.
fn prepare(case: &'static Case, orders: Orders<'_>) -> Result<(Setting, PolicySpec, u64), Failure> {
    let backend = orders.conditions.backend;
    let on_kvm = orders.as_on_kvm || matches!(backend, BackendChoice::Kvm | BackendChoice::Auto);
    let asked = case.on_kvm.filter(|_| on_kvm).unwrap_or(case.scenario);
    let name = asked.split(':').next().unwrap_or(asked);
    let mut text = embedded_text(name)
        .ok_or_else(|| anyhow!("there is no scenario `{name}`"))
        .bad_input()?
        .to_owned();
    let mut policy: PolicySpec = case.policy.parse().bad_input()?;
    match orders.change.map(|change| (change.place, change)) {
        Some((Place::Scenario(template), change)) => {
            let old = template.replace("{}", change.documented);
            text = text.replace(&old, &template.replace("{}", change.value));
        }
        Some((Place::Policy(option), change)) => {
            let options = &mut policy.policy.options;
            options.retain(|(known, _)| known != option);
            options.push((option.to_owned(), change.value.to_owned()));
        }
        None => {}
    }
    let scenario = Scenario::parse_as(asked, &text).bad_input()?;
    let mut conditions = orders.conditions.clone();
    let simulated = conditions.backend == BackendChoice::Sim;
    if conditions.cores.is_none() && (orders.as_on_kvm || !simulated) {
        // What asks for more cores than there are runs on those that there are.
        let there = cores::allowed().machine()?;
        conditions.cores = (there.0.len() < usize::from(scenario.cores)).then_some(there);
    }
    let base = conditions.duration.unwrap_or(scenario.duration);
    conditions.duration = Some(Nanos(base.get() * case.halves / 2));
    let seed = conditions.seed.unwrap_or(DEFAULT_SEED);
    Ok((Setting::of(scenario, &conditions)?, policy, seed))
}
