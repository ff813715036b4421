//! Which runs a suite consists of, and carrying them out.
//!
//! In virtual time runs do not disturb each other, so there are as many at once as there are cores.
//! On real hardware there is one at a time.

use super::Cell;
use crate::backend::Kind;
use crate::cores;
use crate::disturbance::Disturbance;
use crate::execute::Remarks;
use crate::failure::{Blame, Failure};
use crate::interrupt;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, stderr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use stealtime_report::expect::{Showed, Verdict, check};
use stealtime_report::{Collector, Report};
use stealtime_scheduler::spec::PolicySpec;
use stealtime_workloads::run::Plan;
use stealtime_workloads::scenario::expect::Expectation;
use stealtime_workloads::scenario::{DEFAULT_SEED, Overrides, Problem, Scenario};

/// A scenario under a policy.
#[derive(Debug)]
pub(super) struct Job<'a> {
    scenario: &'a Scenario,
    policy: PolicySpec,
    variant: bool,
}

/// Every scenario under every policy, and, if wanted, under the variants that it names.
pub(super) fn list<'a>(
    scenarios: &'a [Scenario],
    policies: &[PolicySpec],
    with_variants: bool,
) -> Vec<Job<'a>> {
    let mut jobs = Vec::new();
    for scenario in scenarios {
        let mut job = |policy: &PolicySpec, variant| {
            jobs.push(Job {
                scenario,
                policy: policy.clone(),
                variant,
            });
        };
        for policy in policies {
            job(policy, false);
        }
        let mut seen = policies.to_vec();
        let named = scenario.expectations.iter().flat_map(|one| &one.policies);
        for policy in named.filter(|_| with_variants) {
            let variant = !policy.policy.options.is_empty() || !policy.layers.is_empty();
            if variant && !seen.contains(policy) && !is_default(policy, policies) {
                job(policy, true);
                seen.push(policy.clone());
            }
        }
    }
    jobs
}

/// Whether one of the policies is the same but for options that have their default.
fn is_default(policy: &PolicySpec, policies: &[PolicySpec]) -> bool {
    let only_this = Expectation {
        claim: String::new(),
        policies: vec![policy.clone()],
        except: Vec::new(),
        fault: false,
        must: stealtime_workloads::scenario::expect::Must::Say(String::new()),
    };
    policies.iter().any(|one| only_this.concerns(one))
}

/// Carries all of them out. What Ctrl-C leaves out is missing in the answer.
pub(super) fn run(
    jobs: &[Job<'_>],
    backend: Kind,
    repeat: u32,
    remarks: Remarks,
) -> Result<Vec<Cell>, Failure> {
    let bar = bar(jobs.len() as u64, remarks);
    let workers = match backend {
        Kind::Sim => thread::available_parallelism().map_or(1, usize::from),
        Kind::Kvm | Kind::Lab(_) => 1,
    };
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let work = || {
        while let Some((place, job)) = take(&next, jobs) {
            let cell = job.run(backend, repeat, remarks);
            bar.set_message(format!("{} {}", job.scenario.name, job.policy));
            bar.inc(1);
            let failed = cell.is_err();
            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
            done.push((place, cell));
            if failed {
                next.store(jobs.len(), Ordering::Relaxed);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..workers {
            scope.spawn(work);
        }
        work();
    });
    bar.finish_and_clear();
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(place, _)| *place);
    let cells = done.into_iter().map(|(_, cell)| cell);
    let cells = cells.collect::<Result<Vec<_>, _>>()?;
    Ok(cells.into_iter().flatten().collect())
}

fn take<'a, 'b>(next: &AtomicUsize, jobs: &'a [Job<'b>]) -> Option<(usize, &'a Job<'b>)> {
    if interrupt::pressed() {
        return None;
    }
    let place = next.fetch_add(1, Ordering::Relaxed);
    Some((place, jobs.get(place)?))
}

fn bar(length: u64, remarks: Remarks) -> ProgressBar {
    if remarks.quiet() || !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr_with_hz(10));
    let style = ProgressStyle::with_template("[{bar:40}] {pos}/{len} {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.with_style(style.progress_chars("=> "))
}

impl Job<'_> {
    /// The verdict; none if Ctrl-C came in between.
    fn run(&self, backend: Kind, repeat: u32, remarks: Remarks) -> Result<Option<Cell>, Failure> {
        let mut cell = Cell {
            scenario: self.scenario.name.clone(),
            policy: self.policy.to_string(),
            variant: self.variant,
            verdict: Verdict::NotApplicable,
            reason: None,
            checks: Vec::new(),
        };
        let expected = &self.scenario.expectations;
        if !expected.iter().any(|one| one.concerns(&self.policy)) {
            cell.reason = Some("nothing is expected of this policy here".to_owned());
            return Ok(Some(cell));
        }
        let mut verdicts = Vec::new();
        for round in 0..repeat {
            let plan = match self.plan(backend, round)? {
                Planned::Plan(plan) => plan,
                Planned::Refused(words) => {
                    let showed = Showed::Refused(&words);
                    (cell.verdict, cell.checks) = check(expected, &self.policy, &showed);
                    cell.reason = Some(words);
                    return Ok(Some(cell));
                }
                Planned::Elsewhere(words) => {
                    cell.reason = Some(words);
                    return Ok(Some(cell));
                }
            };
            let host_threads = &self.scenario.host_threads;
            let _disturbed = Disturbance::start(host_threads, backend, &plan.cores)?;
            let mut collector = Collector::new(&plan);
            let outcome = backend.run(&plan, remarks, interrupt::flag(), &mut collector)?;
            let report = Report::build(&plan, backend.name(), collector, &outcome);
            if interrupt::pressed() {
                return Ok(None);
            }
            let (verdict, checks) = check(expected, &self.policy, &Showed::Report(&report));
            verdicts.push(verdict);
            cell.checks.extend(checks);
        }
        let failed = verdicts.contains(&Verdict::Fail);
        let first = verdicts.first().copied().unwrap_or(Verdict::NotApplicable);
        cell.verdict = if failed { Verdict::Fail } else { first };
        Ok(Some(cell))
    }

    fn plan(&self, backend: Kind, round: u32) -> Result<Planned, Failure> {
        let scenario = self.scenario;
        if let Some(only) = scenario
            .only_on
            .as_deref()
            .filter(|only| *only != backend.name())
        {
            let words = format!(
                "{only} only: what it shows is not there on {}",
                backend.name()
            );
            return Ok(Planned::Elsewhere(words));
        }
        let wanted = usize::from(scenario.cores);
        let cores = match backend {
            Kind::Sim => cores::simulated(None, wanted),
            Kind::Lab(choice) => (0..choice.cores).take(wanted).collect(),
            Kind::Kvm => match cores::choose(None, wanted, &cores::allowed().machine()?) {
                Ok(cores) => cores,
                Err(error) => return Ok(Planned::Elsewhere(error.to_string())),
            },
        };
        let overrides = Overrides {
            policy: Some(self.policy.clone()),
            cores: Some(cores),
            seed: Some(DEFAULT_SEED + u64::from(round)),
            ..Overrides::default()
        };
        match scenario.plan(&overrides) {
            Ok(plan) => Ok(Planned::Plan(plan)),
            Err(error) => match *error.problem {
                Problem::Policy(_) | Problem::Refused { .. } => {
                    Ok(Planned::Refused(error.problem.to_string()))
                }
                _ => Err(error).bad_input(),
            },
        }
    }
}

/// What there is to run.
enum Planned {
    Plan(Plan),
    /// The policy does not know something; its words.
    Refused(String),
    /// Not on this backend or machine, and why.
    Elsewhere(String),
}
