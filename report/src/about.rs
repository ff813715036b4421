//! Which vCPU and which core an input of the dispatcher is about.

use stealtime_scheduler::ids::{CoreId, VcpuId};
use stealtime_scheduler::input::{Input, Timer};

/// The vCPU and the core that an input names. Of two vCPUs it is the one to which something happens.
pub(crate) const fn about(input: &Input) -> (Option<VcpuId>, Option<CoreId>) {
    match *input {
        Input::Entered { core, vcpu } | Input::Stopped { core, vcpu } => (Some(vcpu), Some(core)),
        Input::Admit { vcpu }
        | Input::Retire { vcpu, .. }
        | Input::Exited { vcpu, .. }
        | Input::Resumed { vcpu }
        | Input::UserReturn { vcpu }
        | Input::CriticalLeft { vcpu }
        | Input::Yield { vcpu }
        | Input::Block { vcpu, .. }
        | Input::Interrupt { to: vcpu, .. }
        | Input::InterruptsTaken { vcpu, .. }
        | Input::ArmPeriodic { vcpu, .. }
        | Input::HostLock { vcpu, .. }
        | Input::HostAcquire { vcpu, .. }
        | Input::HostUnlock { vcpu, .. }
        | Input::Locks { vcpu, .. }
        | Input::GuestWait { vcpu, .. }
        | Input::GuestWake { vcpu, .. }
        | Input::SpunTooLong { vcpu, .. }
        | Input::HostDelay { vcpu, .. } => (Some(vcpu), None),
        Input::GuestOwner { owner, .. } => (owner, None),
        Input::TimerDue { timer } => of_timer(timer),
        Input::Mark(_) => (None, None),
    }
}

/// The same of a timer.
pub(crate) const fn of_timer(timer: Timer) -> (Option<VcpuId>, Option<CoreId>) {
    match timer {
        Timer::Slice(core) | Timer::Grace(core) => (None, Some(core)),
        Timer::Wake(vcpu) | Timer::Periodic(vcpu) => (Some(vcpu), None),
        Timer::Tick | Timer::Period | Timer::Policy => (None, None),
    }
}
