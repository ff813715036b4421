//! The host's side of a vCPU's shared page.

use crate::cpu::Watch;
use stealtime_scheduler::input::GuestLocks;
use stealtime_workloads::run::GuestView;

/// A vCPU's shared page. Any thread may read it at any time, also while the guest runs.
#[derive(Clone, Debug)]
pub struct SharedPage {}

impl Watch for SharedPage {
    fn locks(&self) -> GuestLocks {
        GuestLocks::default()
    }

    fn view(&self) -> GuestView {
        GuestView::default()
    }

    fn restart_maxima(&self) {}

    fn set_preempt_pending(&self, _pending: bool) {}
}
