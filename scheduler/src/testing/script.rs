//! What scripted vCPUs do.

use crate::ids::{HostLockId, VcpuId, VmId};
use crate::input::{HostMode, KernelPriority};
use crate::policy::VcpuParams;
use crate::time::Nanos;

/// One thing that a scripted vCPU does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Uses its core for so long.
    Run(Nanos),
    /// Sleeps for so long.
    Sleep(Nanos),
    /// Waits in the hypervisor for so long.
    HostWait(Nanos),
    /// Halts until an interrupt.
    Halt,
    /// Gives up its core.
    Yield,
    /// Returns to user mode of the host.
    UserReturn,
    /// Takes a host lock.
    Lock(HostLockId, KernelPriority),
    /// Takes a host lock that is a mutex or a reader-writer lock.
    Acquire(HostLockId, HostMode, KernelPriority),
    /// Releases a host lock.
    Unlock(HostLockId),
    /// The guest marks critical sections of this depth; on leaving the outermost it tells.
    Critical(u16),
    /// The guest exits: what follows is the hypervisor's work, up to `Resume`.
    Exit,
    /// Guest code runs again.
    Resume,
    /// Takes a guest lock: an even number sleeps, an odd one spins; both are handed on.
    GuestLock(u16),
    /// Releases it.
    GuestUnlock(u16),
    /// Raises an interrupt at another vCPU.
    Interrupt(VcpuId),
    /// Leaves for good.
    Retire,
}

/// What a vCPU does, and where it goes on after the last step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Script {
    pub(super) steps: Vec<Step>,
    /// The step that follows the last one.
    pub(super) again: usize,
}

/// Longer than any test.
pub(crate) const FOREVER: Step = Step::Run(Nanos::from_secs(1_000_000));

/// Runs for ever.
pub(crate) fn spin() -> Script {
    repeat(&[FOREVER])
}

/// Answers interrupts, with 100 us of work each.
pub(crate) fn answers() -> Script {
    repeat(&[Step::Halt, Step::Run(us(100))])
}

/// The steps over and over.
pub(crate) fn repeat(steps: &[Step]) -> Script {
    Script {
        steps: steps.to_vec(),
        again: 0,
    }
}

/// The steps once, then the others over and over.
pub(crate) fn first_then(first: &[Step], then: &[Step]) -> Script {
    Script {
        steps: [first, then].concat(),
        again: first.len(),
    }
}

pub(crate) fn ms(n: u64) -> Nanos {
    Nanos::from_millis(n)
}

pub(crate) fn us(n: u64) -> Nanos {
    Nanos::from_micros(n)
}

pub(crate) fn secs(n: u64) -> Nanos {
    Nanos::from_secs(n)
}

/// A vCPU alone in its VM, with nothing asked for.
pub(crate) fn plain(vm: u16) -> VcpuParams {
    VcpuParams::plain(VmId(vm))
}

/// A vCPU alone in its VM, with a weight.
pub(crate) fn weighted(vm: u16, weight: u32) -> VcpuParams {
    VcpuParams {
        weight: Some(weight),
        ..plain(vm)
    }
}

/// A vCPU alone in its VM, with a nice value.
pub(crate) fn nice(vm: u16, nice: i8) -> VcpuParams {
    VcpuParams {
        nice: Some(nice),
        ..plain(vm)
    }
}

/// A vCPU alone in its VM, which has these shares.
pub(crate) fn shares(vm: u16, shares: u32) -> VcpuParams {
    VcpuParams {
        shares: Some(shares),
        ..plain(vm)
    }
}

/// So many scripts that run for ever.
pub(crate) fn spinners(vcpus: usize) -> Vec<Script> {
    vec![spin(); vcpus]
}

/// VMs, each with as many vCPUs as it has scripts.
pub(crate) fn vms(scripts: &[&[Script]]) -> Vec<(VcpuParams, Script)> {
    let mut vcpus = Vec::new();
    for (vm, scripts) in (0..).zip(scripts) {
        let siblings = u32::try_from(scripts.len()).expect("few");
        let params = VcpuParams {
            siblings,
            ..plain(vm)
        };
        vcpus.extend(scripts.iter().map(|script| (params, script.clone())));
    }
    vcpus
}
