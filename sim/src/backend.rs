//! The simulator as a [`Backend`].

use crate::cost::{CostModel, InvalidCosts};
use crate::machine::Machine;
use crate::queue::Queue;
use crate::stored::CostsError;
use crate::stream::Stream;
use std::sync::atomic::AtomicBool;
use stealtime_scheduler::dispatcher::{ConfigError, Dispatcher};
use stealtime_scheduler::ids::VcpuId;
use stealtime_scheduler::registry::{self, ScheduledBy};
use stealtime_scheduler::spec::{NamedOptions, PolicySpec};
use stealtime_scheduler::time::Nanos;
use stealtime_workloads::run::{Backend, Observer, Outcome, Plan, Quality};

/// The simulator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SimBackend {
    costs: CostModel,
}

/// Why a run did not take place.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// The dispatcher refuses the set-up.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The cost model cannot be used.
    #[error(transparent)]
    Costs(#[from] InvalidCosts),
    /// There is no cost model to be had.
    #[error(transparent)]
    Stored(#[from] CostsError),
    /// The plan contradicts itself.
    #[error("vCPU {} of the plan belongs to VM {vm}, but the plan has only {vms}", vcpu.0)]
    NoSuchVm {
        /// The vCPU.
        vcpu: VcpuId,
        /// Its VM.
        vm: u16,
        /// How many VMs there are.
        vms: usize,
    },
    /// More than can be numbered.
    #[error("{vcpus} vCPUs are more than the simulator can number")]
    TooMany {
        /// How many.
        vcpus: usize,
    },
}

impl SimBackend {
    /// A simulator of a machine with these costs.
    #[must_use]
    pub const fn new(costs: CostModel) -> Self {
        Self { costs }
    }

    /// A simulator of this machine if its costs were measured, else of [`CostModel::bare_hardware`].
    ///
    /// # Errors
    /// If there is a stored cost model that cannot be used.
    pub fn of_this_machine() -> Result<Self, SimError> {
        Ok(Self::new(CostModel::stored_or_default()?))
    }

    /// The costs.
    #[must_use]
    pub const fn costs(&self) -> &CostModel {
        &self.costs
    }

    /// Runs the plan under a dispatcher that was made for it elsewhere, so with a policy that is not
    /// in the registry (tests, experiments). The plan's own policy is not looked at.
    ///
    /// # Errors
    /// As for [`Backend::run`].
    pub fn run_under(
        &mut self,
        plan: &Plan,
        dispatcher: Dispatcher,
        stop: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<Outcome, SimError> {
        self.costs.check()?;
        check(plan)?;
        let vcpus = plan.vcpus.len();
        let queue = Queue::new(dispatcher.cores(), vcpus).ok_or(SimError::TooMany { vcpus })?;
        let stream = Stream::new(observer);
        let mut machine = Machine::new(plan, &self.costs, dispatcher, stream, queue);
        let stopped = machine.run(stop);
        let mut notes = vec![format!("cost model: {}", self.costs.name)];
        notes.extend(machine.broken);
        Ok(Outcome {
            guests: machine.vcpus.into_iter().map(|vcpu| vcpu.view).collect(),
            failures: machine.failures,
            violations: machine.dispatcher.violations().to_vec(),
            violation_count: machine.dispatcher.violation_count(),
            quality: Quality {
                host_interference_ns: machine.interference.told.get(),
                dispatch_calls: machine.stream.inputs,
                events_emitted: machine.stream.events,
                notes,
                ..Quality::default()
            },
            interrupted: stopped,
        })
    }
}

/// Whether the policy leaves scheduling to the host. There is none in virtual time: [`substitute`] runs.
#[must_use]
pub fn needs_substitute(policy: &PolicySpec) -> bool {
    registry::find(&policy.policy.name).is_ok_and(|info| info.scheduled_by == ScheduledBy::Host)
}

/// The policy that runs in `sim` instead of one that leaves scheduling to the host: `eevdf` with
/// Linux's defaults.
///
/// Linux notices the end of a slice at its next clock tick. So the stays on a core that these costs know of
/// ([`CostModel::host_slice`]) are taken for the period of its ticks; unless they are known ends of slices are noticed
/// exactly.
///
/// Who records a run for replay records the policy that ran: put the substitute in the plan first.
#[must_use]
pub fn substitute(policy: &PolicySpec, costs: &CostModel) -> PolicySpec {
    PolicySpec {
        policy: NamedOptions {
            name: "eevdf".into(),
            options: tick(costs.host_slice)
                .map(|tick| ("tick".into(), tick))
                .into_iter()
                .collect(),
        },
        layers: policy.layers.clone(),
    }
}

/// The option's value in whole microseconds, within what it may be.
fn tick(host_slice: Nanos) -> Option<String> {
    let micros = (host_slice.get() / 1_000).clamp(100, 100_000);
    (host_slice > Nanos::ZERO).then(|| format!("{micros}us"))
}

/// What the machine takes for granted of a plan.
fn check(plan: &Plan) -> Result<(), SimError> {
    let numbered = (0..).map(VcpuId).zip(&plan.vcpus);
    let mut astray = numbered.filter(|(_, entry)| entry.vm.index() >= plan.vms.len());
    astray.next().map_or(Ok(()), |(vcpu, entry)| {
        Err(SimError::NoSuchVm {
            vcpu,
            vm: entry.vm.0,
            vms: plan.vms.len(),
        })
    })
}

impl Backend for SimBackend {
    type Error = SimError;

    fn name(&self) -> &'static str {
        "sim"
    }

    fn run(
        &mut self,
        plan: &Plan,
        stop: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<Outcome, SimError> {
        let mut config = plan.config();
        // What the plan's policy refuses is refused here too, whoever runs in its place.
        let own = Dispatcher::new(&config)?;
        if !needs_substitute(&plan.policy) {
            return self.run_under(plan, own, stop, observer);
        }
        let instead = substitute(&plan.policy, &self.costs);
        let note = format!(
            "there is no host to schedule in virtual time: `{instead}` with Linux's defaults ran \
             instead of `{}`",
            plan.policy
        );
        config.policy = instead;
        let mut outcome = self.run_under(plan, Dispatcher::new(&config)?, stop, observer)?;
        outcome.quality.notes.push(note);
        Ok(outcome)
    }
}
