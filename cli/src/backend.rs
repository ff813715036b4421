//! Which backend a run takes, and running a plan on it.

use crate::args::{BackendChoice, Conditions, LabArgs};
use crate::execute::Remarks;
use crate::failure::{Failure, Status};
use crate::lab::Choice;
use anyhow::{Error, anyhow};
use std::sync::atomic::AtomicBool;
use stealtime_sim::SimBackend;
use stealtime_vmm::backend::KvmBackend;
use stealtime_vmm::probe;
use stealtime_workloads::run::{Backend, Observer, Outcome, Plan};

/// A backend, decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Real guests.
    Kvm,
    /// Virtual time.
    Sim,
    /// Real guests on the KVM of an emulated machine.
    Lab(Choice),
}

/// Decides, and tells why the simulator stands in where it does.
///
/// # Errors
/// If KVM is demanded and cannot be used, or options do not fit the backend.
pub fn decide(conditions: &Conditions, wanted: usize) -> Result<Kind, Failure> {
    let choice = conditions.backend;
    if choice == BackendChoice::Lab {
        return Ok(Kind::Lab(Choice::new(&conditions.lab, wanted)));
    }
    if conditions.lab != LabArgs::default() {
        return Err(Failure::new(
            Status::BadInput,
            anyhow!("`--exact` and `--lab-cores` belong to `--backend lab`"),
        ));
    }
    if choice == BackendChoice::Sim {
        return Ok(Kind::Sim);
    }
    let problems = probe::check().problems;
    if problems.is_empty() {
        return Ok(Kind::Kvm);
    }
    let why = problems.join("; ");
    if choice == BackendChoice::Kvm {
        return Err(Failure::new(
            Status::Machine,
            anyhow!("KVM cannot be used: {why} (`--backend sim` needs no KVM)"),
        ));
    }
    eprintln!("note: KVM cannot be used: {why}; this run is simulated (backend `sim`)");
    Ok(Kind::Sim)
}

impl Kind {
    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Sim => "sim",
            Self::Lab(_) => "lab",
        }
    }

    /// Runs a plan.
    ///
    /// # Errors
    /// If the run did not take place.
    pub fn run(
        self,
        plan: &Plan,
        remarks: Remarks,
        stop: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<Outcome, Failure> {
        let outcome = match self {
            Self::Lab(choice) => return choice.run(plan, remarks, stop, observer),
            Self::Kvm => KvmBackend.run(plan, stop, observer).map_err(Error::new),
            Self::Sim => SimBackend::of_this_machine()
                .map_err(Error::new)
                .and_then(|mut sim| sim.run(plan, stop, observer).map_err(Error::new)),
        };
        outcome.map_err(|error| {
            Failure::new(
                Status::Machine,
                error.context(anyhow!("the run did not take place")),
            )
        })
    }
}
