//! What things are called in what users read, and how users name vCPUs.
//!
//! Cores bear the numbers that they have on the host, as `--cores` gives them. Under a policy that
//! leaves scheduling to the host nobody knows who is on which core: there cores have no number.

use stealtime_scheduler::ids::{CoreId, GuestLockId, HostLockId, VcpuId};
use stealtime_scheduler::registry::{self, ScheduledBy};
use stealtime_workloads::run::Plan;

/// The names of a run's vCPUs, cores and locks.
#[derive(Clone, Debug)]
pub struct Names {
    vcpus: Vec<(String, String)>,
    full: Vec<String>,
    host_locks: Vec<String>,
    guest_locks: Vec<(String, Vec<String>)>,
    cores: Vec<u16>,
    scheduled_by: ScheduledBy,
}

/// A name that is no vCPU's.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "no vCPU is called `{asked}`: expected VM/VCPU, either of which may end in `*`, such as {some}"
)]
pub struct NoSuchVcpu {
    /// What was asked for.
    pub asked: String,
    /// Some that there are.
    pub some: String,
}

/// A core that the run did not have.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the run had no core {asked}: it had {had}")]
pub struct NoSuchCore {
    /// What was asked for.
    pub asked: u16,
    /// Those that it had.
    pub had: String,
}

/// How many names an error gives as examples.
const EXAMPLES: usize = 4;

impl Names {
    /// The names in a plan.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        let vcpus: Vec<_> = plan
            .vcpus
            .iter()
            .map(|vcpu| {
                let vm = plan.vms.get(vcpu.vm.index());
                (
                    vm.map_or_else(String::new, |vm| vm.name.clone()),
                    vcpu.name.clone(),
                )
            })
            .collect();
        let locks = |vm: &stealtime_workloads::run::VmPlan| {
            let names = vm.locks.iter().map(|(name, _)| name.clone()).collect();
            (vm.name.clone(), names)
        };
        Self {
            full: vcpus
                .iter()
                .map(|(vm, vcpu)| format!("{vm}/{vcpu}"))
                .collect(),
            vcpus,
            host_locks: plan.host_locks.clone(),
            guest_locks: plan.vms.iter().map(locks).collect(),
            cores: plan.cores.clone(),
            scheduled_by: registry::check(&plan.policy)
                .map_or(ScheduledBy::Policy, |(info, _)| info.scheduled_by),
        }
    }

    /// How many vCPUs there are.
    #[must_use]
    pub const fn vcpus(&self) -> usize {
        self.full.len()
    }

    /// `VM/VCPU`.
    #[must_use]
    pub fn vcpu(&self, vcpu: VcpuId) -> &str {
        self.full
            .get(vcpu.index())
            .map_or("(unknown)", String::as_str)
    }

    /// The vCPU's VM and its name in it.
    #[must_use]
    pub fn parts(&self, vcpu: VcpuId) -> (&str, &str) {
        self.vcpus
            .get(vcpu.index())
            .map_or(("(unknown)", "(unknown)"), |(vm, vcpu)| (vm, vcpu))
    }

    /// A lock in the hypervisor.
    #[must_use]
    pub fn host_lock(&self, lock: HostLockId) -> &str {
        self.host_locks
            .get(lock.index())
            .map_or("(unknown)", String::as_str)
    }

    /// All locks in the hypervisor.
    #[must_use]
    pub fn host_locks(&self) -> &[String] {
        &self.host_locks
    }

    /// A lock in a guest, as `VM:LOCK`.
    #[must_use]
    pub fn guest_lock(&self, lock: GuestLockId) -> String {
        let vm = self.guest_locks.get(lock.vm().index());
        let name = vm.and_then(|(_, locks)| locks.get(usize::from(lock.lock())));
        match (vm, name) {
            (Some((vm, _)), Some(name)) => format!("{vm}:{name}"),
            (Some((vm, _)), None) => format!("{vm}:{}", lock.lock()),
            (None, _) => lock.to_string(),
        }
    }

    /// The number of a core on the host, if the policy decides who is on it.
    #[must_use]
    pub fn core(&self, core: CoreId) -> Option<u16> {
        match self.scheduled_by {
            ScheduledBy::Policy => self.cores.get(core.index()).copied(),
            ScheduledBy::Host => None,
        }
    }

    /// `core 3`, or `a core` where the host decides which.
    #[must_use]
    pub fn core_in_words(&self, core: CoreId) -> String {
        self.core(core)
            .map_or_else(|| "a core".to_owned(), |core| format!("core {core}"))
    }

    /// How many cores the policy hands out.
    #[must_use]
    pub const fn cores(&self) -> usize {
        self.cores.len()
    }

    /// Who decides which vCPU runs.
    #[must_use]
    pub const fn scheduled_by(&self) -> ScheduledBy {
        self.scheduled_by
    }

    /// The vCPUs that a pattern means, `VM/VCPU` with either part ending in `*` if several are meant;
    /// all if there is no pattern. One flag for each vCPU.
    ///
    /// # Errors
    /// If it means nobody.
    pub fn select(&self, pattern: Option<&str>) -> Result<Vec<bool>, NoSuchVcpu> {
        let Some(pattern) = pattern else {
            return Ok(vec![true; self.vcpus()]);
        };
        let (vm, vcpu) = pattern.split_once('/').unwrap_or((pattern, "*"));
        let fits = |pattern: &str, name: &str| match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == pattern,
        };
        let meant: Vec<bool> = self
            .vcpus
            .iter()
            .map(|(in_vm, name)| fits(vm, in_vm) && fits(vcpu, name))
            .collect();
        if meant.contains(&true) {
            return Ok(meant);
        }
        let some: Vec<_> = self
            .full
            .iter()
            .take(EXAMPLES)
            .map(String::as_str)
            .collect();
        Err(NoSuchVcpu {
            asked: pattern.to_owned(),
            some: some.join(", "),
        })
    }

    /// The core that has this number on the host.
    ///
    /// # Errors
    /// If the run had no such core, or the host decided who is on it.
    pub fn find_core(&self, number: u16) -> Result<CoreId, NoSuchCore> {
        let place = match self.scheduled_by {
            ScheduledBy::Policy => self.cores.iter().position(|core| *core == number),
            ScheduledBy::Host => None,
        };
        let had = match (self.scheduled_by, self.cores.as_slice()) {
            (ScheduledBy::Host, _) => "none of its own, the host placed every vCPU".to_owned(),
            (_, cores) => {
                let all: Vec<_> = cores.iter().map(u16::to_string).collect();
                all.join(", ")
            }
        };
        place
            .and_then(|place| u16::try_from(place).ok())
            .map(CoreId)
            .ok_or(NoSuchCore { asked: number, had })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::plan;

    #[test]
    fn vcpus_are_meant_by_name_by_the_beginning_of_it_or_by_vm() {
        let names = Names::new(&plan("fss", 12, 1));
        let meant = |pattern: &str| {
            let meant = names.select(Some(pattern)).expect("somebody");
            meant.iter().filter(|meant| **meant).count()
        };
        assert_eq!(meant("vm1/main"), 1);
        assert_eq!(meant("vm1*/main"), 3);
        assert_eq!(meant("*/ma*"), 12);
        assert_eq!(meant("vm3"), 1);
        assert_eq!(names.select(None).expect("all").len(), 12);
    }

    #[test]
    fn a_name_that_means_nobody_is_answered_with_some_that_do() {
        let names = Names::new(&plan("fss", 12, 1));
        let error = names
            .select(Some("vm1/nobody"))
            .expect_err("nobody")
            .to_string();
        assert!(
            error.contains("vm1/nobody") && error.contains("vm0/main"),
            "{error}"
        );
    }

    #[test]
    fn cores_bear_the_hosts_numbers_unless_the_host_schedules() {
        let mut plan = plan("fss", 1, 2);
        plan.cores = vec![3, 5];
        let names = Names::new(&plan);
        assert_eq!(names.core(CoreId(1)), Some(5));
        assert_eq!(names.find_core(5), Ok(CoreId(1)));
        let error = names.find_core(1).expect_err("none").to_string();
        assert!(error.contains("3, 5"), "{error}");
        plan.policy = "host".parse().expect("a policy");
        let names = Names::new(&plan);
        assert_eq!(names.core(CoreId(0)), None);
        assert!(names.find_core(3).is_err());
    }
}
