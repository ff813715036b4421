//! A vCPU of KVM as a [`Cpu`].

use super::{Calibration, MachineError, SharedPage};
use crate::cpu::{Cpu, Exit, Queued, Watch};
use crate::kick::KickHandle;
use std::sync::Arc;
use stealtime_scheduler::ids::VcpuId;
use stealtime_scheduler::input::GuestLocks;
use stealtime_scheduler::time::Nanos;
use stealtime_workloads::run::GuestView;

/// A vCPU of KVM with its guest.
#[derive(Debug)]
pub struct GuestCpu {}

impl GuestCpu {
    /// Its number over all VMs.
    #[must_use]
    pub fn id(&self) -> VcpuId {
        VcpuId(0)
    }

    /// Runs the guest up to where it is ready to start its program, and learns how its clock relates
    /// to the host's. On the vCPU's own thread.
    ///
    /// # Errors
    /// If the guest does not get there.
    pub fn boot(&mut self) -> Result<(), MachineError> {
        Err(MachineError::Unfinished)
    }

    /// Measures how fast the guest's work loop is. After [`Self::boot`], before the first entry; one
    /// vCPU of a run does so while the others wait.
    ///
    /// # Errors
    /// If the guest fails.
    pub fn calibrate(&mut self) -> Result<Calibration, MachineError> {
        Err(MachineError::Unfinished)
    }

    /// Sets what a calibration found. Before the first entry.
    pub fn set_calibration(&mut self, _calibration: &Calibration) {}

    /// Sets the start of the run, in nanoseconds of CLOCK_MONOTONIC: the guest's clock reads the time
    /// since then. After [`Self::boot`], before the first entry.
    pub fn set_clock_epoch(&mut self, _monotonic_ns: u64) {}

    /// How exactly the guest's clock is known, in nanoseconds: half the tightest bracket.
    #[must_use]
    pub fn clock_uncertainty_ns(&self) -> u64 {
        0
    }

    /// Its shared page, for other threads too.
    #[must_use]
    pub fn page(&self) -> SharedPage {
        unimplemented!()
    }
}

impl Cpu for GuestCpu {
    fn enter(&mut self) -> Exit {
        Exit::Fault(MachineError::Unfinished.to_string())
    }

    fn queue_interrupt(&mut self, _vector: u8) {}

    fn interrupts_queued(&self) -> Queued {
        Queued::None
    }

    fn locks(&self) -> GuestLocks {
        GuestLocks::default()
    }

    fn view(&self) -> GuestView {
        GuestView::default()
    }

    fn clock_offset_ns(&self, _now: Nanos) -> Option<i64> {
        None
    }

    fn kick_handle(&self) -> KickHandle {
        unimplemented!()
    }

    fn watch(&self) -> Arc<dyn Watch> {
        Arc::new(self.page())
    }

    fn set_preempt_pending(&mut self, _pending: bool) {}
}
