//! The KVM backend: a plan run by real guests on real cores.

use crate::conduct::Course;
use crate::cpu::{Cpu, Watch};
use crate::crew::{Crew, CrewError, Dismissed};
use crate::engine::Engine;
use crate::host::{Affinity, Pinning, Placement, PlacementError, RunClock, monotonic_ns};
use crate::machine::{GuestCpu, Machine, MachineError};
use kvm_ioctls::Kvm;
use rustix::process::{Pid, setpriority_process};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use stealtime_scheduler::dispatcher::{ConfigError, Dispatcher};
use stealtime_scheduler::ids::{VcpuId, VmId};
use stealtime_scheduler::registry::ScheduledBy;
use stealtime_workloads::run::{
    Backend, Calibration, ClockAgreement, Observer, Outcome, Plan, Quality,
};

/// How long a vCPU's thread may take to end.
const PATIENCE: Duration = Duration::from_secs(2);

/// Why a run on KVM did not take place.
#[derive(Debug, thiserror::Error)]
pub enum KvmError {
    /// The device is missing.
    #[error(
        "there is no /dev/kvm: load the module kvm_intel or kvm_amd, or enable virtualization in the firmware or for this virtual machine"
    )]
    NoDevice,
    /// The device may not be used.
    #[error("/dev/kvm may not be opened by this user: join the group that owns it (often `kvm`)")]
    NoPermission,
    /// The device does not answer as it should.
    #[error("/dev/kvm cannot be used")]
    Unusable(#[source] io::Error),
    /// The policy or its parameters.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The cores.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// A machine could not be made.
    #[error("VM {vm} could not be made")]
    Machine {
        /// Its name.
        vm: String,
        /// Why, and what to do.
        source: MachineError,
    },
    /// A guest did not get to its program.
    #[error("{vcpu} did not start")]
    Boot {
        /// Its name.
        vcpu: String,
        /// Why.
        source: MachineError,
    },
    /// The threads.
    #[error(transparent)]
    Crew(#[from] CrewError),
    /// A nice value, under a policy that leaves scheduling to the host.
    #[error(
        "the thread of {vcpu} cannot be given nice value {nice}: below 0 it takes CAP_SYS_NICE or `ulimit -e`"
    )]
    Nice {
        /// Whose.
        vcpu: String,
        /// The value.
        nice: i8,
        /// What the kernel says.
        source: io::Error,
    },
}

/// Runs plans on KVM.
#[derive(Clone, Copy, Default, Debug)]
pub struct KvmBackend;

impl Backend for KvmBackend {
    type Error = KvmError;

    fn name(&self) -> &'static str {
        "kvm"
    }

    fn run(
        &mut self,
        plan: &Plan,
        stop: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<Outcome, KvmError> {
        let dispatcher = Dispatcher::new(&plan.config())?;
        let pinning = match dispatcher.policy_info().scheduled_by {
            ScheduledBy::Policy => Pinning::Granted,
            ScheduledBy::Host => Pinning::Free,
        };
        let placement = Placement::new(&plan.cores, pinning)?;
        // This thread moves about; whoever called gets it back where it was.
        let _affinity = Affinity::remember();
        let mut cpus = make(plan)?;
        let calibration = boot(plan, &placement, &mut cpus)?;

        let zero = monotonic_ns();
        for cpu in &mut cpus {
            cpu.set_clock_epoch(zero);
            cpu.set_hints(dispatcher.guest_hints());
        }
        let seats = plan.vcpus.iter().zip(&cpus);
        let seats: Vec<(VmId, Arc<dyn Watch>)> =
            seats.map(|(vcpu, cpu)| (vcpu.vm, cpu.watch())).collect();
        let clock = RunClock::starting_at(zero);
        let engine = Arc::new(Engine::new(dispatcher, clock, placement, seats));
        if let Err(error) = engine.placement.place_apart() {
            engine.note(format!("the main thread shares the run's cores: {error}"));
        }
        let named = (0..).map(VcpuId).zip(cpus);
        let named = named.map(|(vcpu, cpu)| (plan.vcpu_name(vcpu), cpu));
        let crew = Crew::start(&engine, named.collect())?;
        if pinning == Pinning::Free
            && let Err(error) = set_nice(plan, &engine)
        {
            crew.dismiss(PATIENCE);
            return Err(error);
        }
        let mut course = Course::new(&engine, plan, observer);
        let measured = course.conduct(stop, || crew.alive());
        let dismissed = crew.dismiss(PATIENCE);
        course.finish();

        let verdict = engine.verdict();
        let mut notes = verdict.notes;
        notes.extend(dismissed.stuck.iter().map(|vcpu| {
            let name = plan.vcpu_name(*vcpu);
            format!("{name} did not leave its guest within {PATIENCE:?} at the end of the run")
        }));
        Ok(Outcome {
            guests: measured.guests,
            failures: verdict.failures,
            violations: verdict.violations,
            violation_count: verdict.violation_count,
            quality: Quality {
                dispatch_overhead_ns: verdict.figures.overhead.get(),
                dispatch_calls: verdict.figures.calls,
                events_emitted: verdict.figures.events,
                calibration: Some(calibration),
                clock: agreement(clock, &dismissed),
                host_interference_ns: measured.host_interference.get(),
                notes,
            },
            interrupted: measured.interrupted,
        })
    }
}

/// All vCPUs of all VMs, by number.
fn make(plan: &Plan) -> Result<Vec<GuestCpu>, KvmError> {
    let kvm = Kvm::new().map_err(|error| match io::Error::from(error) {
        error if error.kind() == io::ErrorKind::NotFound => KvmError::NoDevice,
        error if error.kind() == io::ErrorKind::PermissionDenied => KvmError::NoPermission,
        error => KvmError::Unusable(error),
    })?;
    let mut cpus = Vec::with_capacity(plan.vcpus.len());
    for (vm, named) in (0..).map(VmId).zip(&plan.vms) {
        let machine = Machine::new(&kvm, plan, vm).map_err(|source| KvmError::Machine {
            vm: named.name.clone(),
            source,
        })?;
        cpus.extend(machine.into_cpus());
    }
    cpus.sort_unstable_by_key(GuestCpu::id);
    Ok(cpus)
}

/// Brings every guest to the start of its program. The first calibrates for all, on a core of the run.
fn boot(
    plan: &Plan,
    placement: &Placement,
    cpus: &mut [GuestCpu],
) -> Result<Calibration, KvmError> {
    // A calibration elsewhere is as good unless cores differ, and then its spread does not tell.
    let _ = placement.place(None, 0);
    let mut calibration = None;
    for cpu in &mut *cpus {
        let vcpu = cpu.id();
        let failed = |source| KvmError::Boot {
            vcpu: plan.vcpu_name(vcpu),
            source,
        };
        cpu.boot().map_err(failed)?;
        let known = match calibration {
            Some(known) => known,
            None => *calibration.insert(cpu.calibrate().map_err(failed)?),
        };
        cpu.set_calibration(&known);
    }
    calibration.ok_or(KvmError::Config(ConfigError::None("vCPU")))
}

/// Where the host schedules, it is told the nice values. Threads are new, so those without one are at
/// the nice value of this process.
fn set_nice(plan: &Plan, engine: &Engine) -> Result<(), KvmError> {
    for (id, vcpu) in (0..).map(VcpuId).zip(&plan.vcpus) {
        let thread = engine.seat(id).thread().and_then(Pid::from_raw);
        let (Some(nice), Some(thread)) = (vcpu.params.nice, thread) else {
            continue;
        };
        // On Linux a nice value belongs to a thread, and a thread's number is taken for a process's.
        setpriority_process(Some(thread), nice.into()).map_err(|error| KvmError::Nice {
            vcpu: plan.vcpu_name(id),
            nice,
            source: error.into(),
        })?;
    }
    Ok(())
}

/// How far the guests' clocks ended from the host's.
fn agreement(clock: RunClock, dismissed: &Dismissed<GuestCpu>) -> Option<ClockAgreement> {
    let cpus = dismissed.cpus.iter().flatten();
    let agreements = cpus.filter_map(|cpu| {
        let offset = cpu.clock_offset_ns(clock.now())?;
        Some((offset.unsigned_abs(), cpu.clock_uncertainty_ns()))
    });
    let (worst_offset_ns, uncertainty_ns) =
        agreements.reduce(|a, b| (a.0.max(b.0), a.1.max(b.1)))?;
    Some(ClockAgreement {
        worst_offset_ns,
        uncertainty_ns,
    })
}
