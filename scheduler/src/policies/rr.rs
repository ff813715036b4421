//! `rr`: round robin, the yardstick of fairness without weights.
//!
//! 1. One queue for all cores, first come, first served.
//! 2. A vCPU runs for one quantum, then goes to the back of the queue.
//! 3. If nobody waits when the quantum ends, it goes on for another.
//! 4. A vCPU that wakes goes to the back and preempts nobody.
//! 5. Weights, shares and nice values are refused: everybody is equal.
//!
//! Source: textbook.

use crate::event::Waits;
use crate::ids::{CoreId, VcpuId};
use crate::policy::{Enqueue, Pick, Placed, Policy, Preempt, Refused, Slice, SliceEnd, VcpuParams};
use crate::registry::{PolicyInfo, ScheduledBy};
use crate::spec::{OptionInfo, OptionKind};
use crate::time::Nanos;
use std::collections::VecDeque;

/// What `rr` says of itself.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "rr",
    summary: "round robin: one queue, one quantum, no weights",
    rules: &[
        "One queue for all cores, first come, first served.",
        "A vCPU runs for one quantum, then goes to the back of the queue.",
        "If nobody waits when the quantum ends, it goes on for another.",
        "A vCPU that wakes goes to the back and preempts nobody.",
        "Weights, shares and nice values are refused: everybody is equal.",
    ],
    source: "textbook",
    quirks: &["A vCPU that wakes often waits a whole round each time."],
    options: &[OptionInfo {
        name: "quantum",
        kind: OptionKind::Time {
            min: Nanos::from_micros(100),
            max: Nanos::from_secs(10),
        },
        default: "10ms",
        help: "time on a core before the next one's turn",
    }],
    scheduled_by: ScheduledBy::Policy,
    consistent: |_options| Ok(()),
    build: |options, _cores| Box::new(RoundRobin::new(options.time("quantum"))),
};

#[derive(Debug)]
struct RoundRobin {
    quantum: Nanos,
    queue: VecDeque<VcpuId>,
    /// Where each vCPU was last; a new one is considered for core 0.
    home: Vec<CoreId>,
}

impl RoundRobin {
    fn new(quantum: Nanos) -> Self {
        Self {
            quantum,
            queue: VecDeque::new(),
            home: Vec::new(),
        }
    }
}

impl Policy for RoundRobin {
    fn declare(&mut self, _vcpu: VcpuId, params: &VcpuParams) -> Result<(), Refused> {
        let knows = "none: all vCPUs are equal";
        params.refuse_all("rr", knows)?;
        self.home.push(CoreId(0));
        Ok(())
    }

    fn enqueue(&mut self, _now: Nanos, vcpu: VcpuId, _why: Enqueue) -> Placed {
        self.queue.push_back(vcpu);
        Placed(self.home[vcpu.index()])
    }

    fn remove(&mut self, _now: Nanos, vcpu: VcpuId) {
        self.queue.retain(|queued| *queued != vcpu);
    }

    fn take(&mut self, now: Nanos, core: CoreId, vcpu: VcpuId) -> Slice {
        self.remove(now, vcpu);
        self.home[vcpu.index()] = core;
        Slice::For(self.quantum)
    }

    fn pick(&mut self, _now: Nanos, core: CoreId) -> Pick {
        match self.queue.pop_front() {
            Some(vcpu) => {
                self.home[vcpu.index()] = core;
                Pick::Run(vcpu, Slice::For(self.quantum))
            }
            None => Pick::Idle,
        }
    }

    fn charge(&mut self, _now: Nanos, _vcpu: VcpuId, _ran: Nanos) {}

    fn preempts(&mut self, _now: Nanos, _core: CoreId, _run: VcpuId, _woken: VcpuId) -> Preempt {
        Preempt::Keep
    }

    fn slice_end(&mut self, _now: Nanos, _core: CoreId, _vcpu: VcpuId) -> SliceEnd {
        if self.queue.is_empty() {
            SliceEnd::Extend(Slice::For(self.quantum))
        } else {
            SliceEnd::Kick
        }
    }

    fn block(&mut self, _now: Nanos, _core: CoreId, _vcpu: VcpuId, _on: Waits) {}

    fn retire(&mut self, _now: Nanos, _core: CoreId, _vcpu: VcpuId) {}
}
