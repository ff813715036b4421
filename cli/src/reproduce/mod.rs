//! `stealtime reproduce`: what was seen on real systems, with the fault and without.
//!
//! A finding is one file in `findings/`: its history, the scenarios and policies to run, what to
//! measure, and criteria. The cases run in turn, as often as asked, on one backend or on two side by
//! side; verdicts are computed from the measured figures.

mod agreement;
mod distribution;
mod findings;
mod host;
mod inversion;
mod json;
mod machine;
mod measured;
mod measures;
mod model;
mod outcome;
#[cfg(test)]
mod page;
mod print;
mod print_cases;
mod rounds;
mod stopwatch;
mod sweep;
mod traffic;

use crate::args::{BackendChoice, Form, ReproduceArgs, ReproduceBackend};
use crate::doctor;
use crate::execute::Remarks;
use crate::failure::Blame;
use crate::failure::{Failure, Outcome as Came, Status};
use crate::show;
use anyhow::anyhow;
use clap::builder::{PossibleValue, PossibleValuesParser};
use machine::Machine;
use model::Reproduction;
use outcome::Outcome;
use rounds::Orders;
use stealtime_sim::cost::CostModel;
use stealtime_vmm::probe;

/// How many rounds the simulator runs for each that KVM runs when the two are compared: its rounds cost little, and the
/// more there are, the less of a difference is up to its own chance.
const SIMULATED_ROUNDS: u32 = 5;

/// The word for every finding.
pub const ALL: &str = "all";

/// The names that may be asked for.
#[must_use]
pub fn names() -> PossibleValuesParser {
    let known = |name: &'static str| {
        let aliases = findings::ALIASES.iter().filter(move |(_, of)| *of == name);
        PossibleValue::new(name).aliases(aliases.map(|(alias, _)| *alias))
    };
    let names = findings::ALL.iter().map(|finding| finding.name);
    PossibleValuesParser::new(names.chain([ALL]).map(known))
}

/// A finding with what came of it on each backend.
#[derive(Debug)]
struct Reproduced {
    finding: &'static Reproduction,
    /// If on several, KVM is the last. If that is set up otherwise than the simulator, what the simulator makes of
    /// KVM's set-up comes before it.
    outcomes: Vec<Outcome>,
    /// What the simulator took things to cost, if it took part.
    costs: Option<Costs>,
}

/// What the simulator takes things to cost.
#[derive(Debug)]
struct Costs {
    model: CostModel,
    /// Measured before this finding, and for it.
    measured: bool,
}

impl Reproduced {
    /// The two that must agree, if there are two.
    fn pair(&self) -> Option<(&Outcome, &Outcome)> {
        match &self.outcomes[..] {
            [.., first, second] => Some((first, second)),
            _ => None,
        }
    }
}

/// Runs findings and judges them.
///
/// # Errors
/// If a run did not take place, or the outcome could not be printed.
pub fn reproduce(arguments: &ReproduceArgs) -> Came {
    let name = findings::proper(&arguments.name);
    let asked = |finding: &&&Reproduction| [ALL, finding.name].contains(&name);
    let findings: Vec<_> = findings::ALL.iter().filter(asked).copied().collect();
    if arguments.sweep {
        return sweep::sweep(&findings, arguments);
    }
    let machine = Machine::of_now();
    let backends = backends(arguments.backend)?;
    if arguments.calibrate && !backends.contains(&BackendChoice::Sim) {
        return Err(Failure::new(
            Status::BadInput,
            anyhow!(
                "--calibrate measures costs for the simulator: expected --backend all or sim with it"
            ),
        ));
    }
    let mut all = Vec::new();
    for finding in findings {
        let mut outcomes = Vec::new();
        let costs = costs(arguments, &backends, finding.name)?;
        let mut set_ups: Vec<_> = backends.iter().map(|backend| (*backend, false)).collect();
        if backends.len() > 1
            && rounds::differs_on_kvm(finding, &arguments.conditions(BackendChoice::Sim))?
        {
            set_ups.insert(1, (BackendChoice::Sim, true));
        }
        // KVM is the last, and compared with what comes before it.
        let compared = set_ups.len().checked_sub(2);
        for (number, (backend, as_on_kvm)) in set_ups.into_iter().enumerate() {
            let rounds = match compared == Some(number) {
                true => SIMULATED_ROUNDS,
                false => 1,
            };
            let conditions = arguments.conditions(backend);
            let orders = Orders {
                conditions: &conditions,
                repeat: arguments.repeat * rounds,
                remarks: Remarks::new(arguments.quiet),
                change: None,
                as_on_kvm,
            };
            let Some(outcome) = rounds::run(finding, orders)? else {
                eprintln!("ended early: too little was measured for a verdict");
                return Ok(Status::Interrupted);
            };
            outcomes.push(outcome);
        }
        let reproduced = Reproduced {
            finding,
            outcomes,
            costs,
        };
        if arguments.format == Form::Text {
            show::print(&print::finding(&reproduced)).not_kept()?;
        }
        all.push(reproduced);
    }
    match arguments.format {
        Form::Json => show::print(&json::document(&all, &machine)).not_kept()?,
        Form::Text if all.len() > 1 => show::print(&print::summary(&all)).not_kept()?,
        Form::Text => {}
    }
    let outcomes = all.iter().flat_map(|reproduced| &reproduced.outcomes);
    Ok(if outcomes.into_iter().all(Outcome::met) {
        Status::Done
    } else {
        Status::CheckFailed
    })
}

/// The costs with which a finding is simulated, if it is: measured now if that was asked for and can be done, else those
/// stored. Nothing that was measured before is lost for a moment in which costs cannot be.
fn costs(
    arguments: &ReproduceArgs,
    backends: &[BackendChoice],
    finding: &str,
) -> Result<Option<Costs>, Failure> {
    if !backends.contains(&BackendChoice::Sim) {
        return Ok(None);
    }
    if arguments.calibrate {
        Remarks::new(arguments.quiet).tell(&format!("{finding}: measuring costs"));
        match doctor::calibrate() {
            Ok(model) => {
                return Ok(Some(Costs {
                    model,
                    measured: true,
                }));
            }
            Err(failure) => eprintln!(
                "note: {finding}: costs cannot be measured now ({}); those stored before count",
                failure.error.root_cause()
            ),
        }
    }
    let model = CostModel::stored_or_default().machine()?;
    Ok(Some(Costs {
        model,
        measured: false,
    }))
}

/// The backends to run on, in order.
fn backends(asked: ReproduceBackend) -> Result<Vec<BackendChoice>, Failure> {
    let problems = || probe::check().problems.join("; ");
    Ok(match asked {
        ReproduceBackend::Kvm => vec![BackendChoice::Kvm],
        ReproduceBackend::Sim => vec![BackendChoice::Sim],
        ReproduceBackend::Lab => vec![BackendChoice::Lab],
        ReproduceBackend::Auto => match problems() {
            none if none.is_empty() => vec![BackendChoice::Kvm],
            why => {
                eprintln!("note: KVM cannot be used: {why}; runs are simulated (backend `sim`)");
                vec![BackendChoice::Sim]
            }
        },
        ReproduceBackend::All => match problems() {
            none if none.is_empty() => vec![BackendChoice::Sim, BackendChoice::Kvm],
            why => {
                return Err(Failure::new(
                    Status::Machine,
                    anyhow!("KVM cannot be used: {why} (`--backend sim` needs no KVM)"),
                ));
            }
        },
    })
}
