//! What the dispatcher asks of its driver.
//!
//! Effects are carried out in order. None of them can fail: a driver that cannot carry one out ends
//! the vCPU (`Input::Retire`).

use crate::ids::{CoreId, VcpuId};
use crate::input::Timer;
use crate::time::Nanos;

/// What to do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Effect {
    /// The vCPU has the core until further notice. The driver answers with `Entered`.
    Run {
        /// Where.
        core: CoreId,
        /// Who.
        vcpu: VcpuId,
    },
    /// The vCPU no longer has the core and must wait for the next `Run`.
    ///
    /// Only ever sent for a vCPU that has itself just said that it stopped, blocked, yielded or
    /// retired: nobody is taken off a core without having left guest code.
    Park {
        /// Where it was.
        core: CoreId,
        /// Who.
        vcpu: VcpuId,
    },
    /// Ask for the core back: the driver makes the vCPU leave guest code and answers `Stopped`,
    /// unless the vCPU blocks, yields or retires first.
    Kick {
        /// Where.
        core: CoreId,
        /// Who.
        vcpu: VcpuId,
    },
    /// Set the vCPU's preempt-pending word: a preemption is owed, and the guest tells
    /// (`CriticalLeft`) when it holds no lock and is in no critical section any more. It may be so far before it can see the
    /// word: the driver looks once more when it has set it. It clears the word when the vCPU leaves the core.
    Owe {
        /// Where.
        core: CoreId,
        /// Who.
        vcpu: VcpuId,
    },
    /// Report the timer due at the given instant. Replaces an earlier arming of the same timer.
    Arm {
        /// Which.
        timer: Timer,
        /// When.
        at: Nanos,
    },
    /// The timer is no longer wanted. A report that is already on its way does no harm.
    Cancel {
        /// Which.
        timer: Timer,
    },
    /// Tell the guest of a vCPU who lends it its turn, or that nobody does any more: a mutex that is
    /// handed on goes to that one first, if it waits for it.
    Lent {
        /// The vCPU that uses the turn.
        to: VcpuId,
        /// The vCPU whose turn it is, of the same VM.
        donor: Option<VcpuId>,
    },
    /// Deliver an interrupt: at once if the vCPU runs guest code, else when it next enters.
    Inject {
        /// To whom.
        vcpu: VcpuId,
        /// Its vector.
        vector: u8,
    },
}
