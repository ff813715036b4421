//! `host`: the baseline. Linux schedules the vCPU threads; the dispatcher only watches.
//!
//! 1. Every vCPU has a core of its own as far as the dispatcher knows, so nobody is ever asked to
//!    leave one.
//! 2. The driver lets the threads run on all host cores of the run and leaves the rest to the host.
//! 3. Time that a thread waited for the host (schedstat's run delay) is reported as ready time.
//! 4. Nice values are set on the threads. Weights and shares are refused: the host is not told.
//!
//! Source: the scheduler of the machine that this runs on. In `sim`, where there is no such machine,
//! the driver takes `eevdf` with Linux's defaults instead, at ticks as long as the host's slices were measured to be,
//! and says so.

use crate::event::Waits;
use crate::ids::{CoreId, VcpuId};
use crate::policy::{
    Enqueue, Pick, Placed, Policy, Preempt, Refused, Slice, SliceEnd, VcpuParams, WorkConserving,
};
use crate::registry::{PolicyInfo, ScheduledBy};
use crate::time::Nanos;

/// What `host` says of itself.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "host",
    summary: "the baseline: the host's own scheduler, no cores handed out",
    rules: &[
        "Every vCPU has a core of its own as far as the dispatcher knows.",
        "The threads may run on all host cores of the run; the host chooses.",
        "Time that a thread waited for the host is reported as ready time.",
        "Nice values are set on the threads. Weights and shares are refused: the host is not told.",
    ],
    source: "the scheduler of the machine that this runs on; in sim, eevdf with Linux's defaults",
    quirks: &["What the host decides is seen only as sums (schedstat), not decision by decision."],
    options: &[],
    scheduled_by: ScheduledBy::Host,
    consistent: |_options| Ok(()),
    build: |_options, cores| {
        Box::new(Host {
            queued: vec![false; usize::from(cores)],
        })
    },
};

#[derive(Debug)]
struct Host {
    queued: Vec<bool>,
}

/// The core that stands for a vCPU's own thread.
fn own_core(vcpu: VcpuId) -> CoreId {
    CoreId(u16::try_from(vcpu.0).unwrap_or(u16::MAX))
}

impl Policy for Host {
    fn declare(&mut self, _vcpu: VcpuId, params: &VcpuParams) -> Result<(), Refused> {
        let knows = "nice values, which are set on the threads; of all else the host is not told";
        params.refuse_slice("host", knows)?;
        params.refuse_limits("host", knows)?;
        params.refuse_weights("host", knows)?;
        Ok(())
    }

    fn enqueue(&mut self, _now: Nanos, vcpu: VcpuId, _why: Enqueue) -> Placed {
        self.queued[vcpu.index()] = true;
        Placed(own_core(vcpu))
    }

    fn remove(&mut self, _now: Nanos, vcpu: VcpuId) {
        self.queued[vcpu.index()] = false;
    }

    fn pick(&mut self, _now: Nanos, core: CoreId) -> Pick {
        if std::mem::take(&mut self.queued[core.index()]) {
            Pick::Run(VcpuId(u32::from(core.0)), Slice::Open)
        } else {
            Pick::Idle
        }
    }

    fn charge(&mut self, _now: Nanos, _vcpu: VcpuId, _ran: Nanos) {}

    fn preempts(&mut self, _now: Nanos, _core: CoreId, _run: VcpuId, _woken: VcpuId) -> Preempt {
        Preempt::Keep
    }

    fn slice_end(&mut self, _now: Nanos, _core: CoreId, _vcpu: VcpuId) -> SliceEnd {
        SliceEnd::Extend(Slice::Open)
    }

    fn block(&mut self, _now: Nanos, _core: CoreId, _vcpu: VcpuId, _on: Waits) {}

    fn retire(&mut self, _now: Nanos, _core: CoreId, _vcpu: VcpuId) {}

    /// A core stands for its own vCPU and is idle whenever that one waits.
    fn conserving(&self) -> WorkConserving {
        WorkConserving::No
    }
}
