//! `null`: one vCPU a core, for ever.
//!
//! 1. A vCPU is assigned the first core that has none and keeps it until it retires.
//! 2. It runs there whenever it is runnable. Nobody else does.
//! 3. A vCPU for which there is no core waits until one becomes free; it does not run before.
//! 4. No slices, no preemption, no weights.
//!
//! Source: Xen's null scheduler (docs/misc/xen-command-line, `sched=null`).

use crate::event::Waits;
use crate::ids::{CoreId, VcpuId};
use crate::policy::{
    Enqueue, Pick, Placed, Policy, Preempt, Refused, Slice, SliceEnd, VcpuParams, WorkConserving,
};
use crate::registry::{PolicyInfo, ScheduledBy};
use crate::time::Nanos;
use std::collections::VecDeque;

/// What `null` says of itself.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "null",
    summary: "one vCPU a core, for ever: no slices, no preemption",
    rules: &[
        "A vCPU is assigned the first core that has none and keeps it until it retires.",
        "It runs there whenever it is runnable. Nobody else does.",
        "A vCPU for which there is no core waits until one becomes free.",
        "No slices, no preemption, no weights.",
    ],
    source: "Xen's null scheduler",
    quirks: &["With more vCPUs than cores the rest never run; a core of a sleeper stays idle."],
    options: &[],
    scheduled_by: ScheduledBy::Policy,
    consistent: |_options| Ok(()),
    build: |_options, cores| {
        Box::new(Null {
            owner: vec![None; usize::from(cores)],
            vcpus: Vec::new(),
            homeless: VecDeque::new(),
        })
    },
};

/// How long a vCPU stays on a core that is another's, if it is put there all the same.
const VISIT: Nanos = Nanos::from_millis(10);

#[derive(Debug, Default)]
struct Assigned {
    core: Option<CoreId>,
    queued: bool,
}

#[derive(Debug)]
struct Null {
    owner: Vec<Option<VcpuId>>,
    vcpus: Vec<Assigned>,
    /// Runnable vCPUs without a core, in order of arrival.
    homeless: VecDeque<VcpuId>,
}

impl Null {
    /// Gives a free core to the vCPU.
    fn assign(&mut self, vcpu: VcpuId) -> Option<CoreId> {
        let free = self.owner.iter().position(Option::is_none)?;
        self.owner[free] = Some(vcpu);
        let core = CoreId(u16::try_from(free).ok()?);
        self.vcpus[vcpu.index()].core = Some(core);
        Some(core)
    }

    /// Takes the core of a vCPU that is gone and gives it to who waits for one.
    fn release(&mut self, vcpu: VcpuId) {
        self.homeless.retain(|waiting| *waiting != vcpu);
        self.vcpus[vcpu.index()].queued = false;
        if let Some(core) = self.vcpus[vcpu.index()].core.take() {
            self.owner[core.index()] = None;
            if let Some(next) = self.homeless.pop_front() {
                self.assign(next);
            }
        }
    }
}

impl Policy for Null {
    fn declare(&mut self, _vcpu: VcpuId, params: &VcpuParams) -> Result<(), Refused> {
        let knows = "none: every vCPU has a core to itself";
        params.refuse_all("null", knows)?;
        self.vcpus.push(Assigned::default());
        Ok(())
    }

    fn enqueue(&mut self, _now: Nanos, vcpu: VcpuId, _why: Enqueue) -> Placed {
        self.vcpus[vcpu.index()].queued = true;
        match self.vcpus[vcpu.index()].core.or_else(|| self.assign(vcpu)) {
            Some(core) => Placed(core),
            None => {
                self.homeless.push_back(vcpu);
                Placed(CoreId(0))
            }
        }
    }

    fn remove(&mut self, _now: Nanos, vcpu: VcpuId) {
        self.release(vcpu);
    }

    /// On a core that is another's it is a guest for a while.
    fn take(&mut self, _now: Nanos, core: CoreId, vcpu: VcpuId) -> Slice {
        self.homeless.retain(|waiting| *waiting != vcpu);
        self.vcpus[vcpu.index()].queued = false;
        if self.owner[core.index()] == Some(vcpu) {
            Slice::Open
        } else {
            Slice::For(VISIT)
        }
    }

    fn pick(&mut self, _now: Nanos, core: CoreId) -> Pick {
        match self.owner[core.index()] {
            Some(vcpu) if std::mem::take(&mut self.vcpus[vcpu.index()].queued) => {
                Pick::Run(vcpu, Slice::Open)
            }
            _ => Pick::Idle,
        }
    }

    fn charge(&mut self, _now: Nanos, _vcpu: VcpuId, _ran: Nanos) {}

    fn preempts(&mut self, _now: Nanos, _core: CoreId, _run: VcpuId, _woken: VcpuId) -> Preempt {
        Preempt::Keep
    }

    fn slice_end(&mut self, _now: Nanos, core: CoreId, vcpu: VcpuId) -> SliceEnd {
        if self.owner[core.index()] == Some(vcpu) {
            SliceEnd::Extend(Slice::Open)
        } else {
            SliceEnd::Kick
        }
    }

    fn block(&mut self, _now: Nanos, _core: CoreId, _vcpu: VcpuId, _on: Waits) {}

    fn retire(&mut self, _now: Nanos, _core: CoreId, vcpu: VcpuId) {
        self.release(vcpu);
    }

    fn retire_waiting(&mut self, _now: Nanos, vcpu: VcpuId) {
        self.release(vcpu);
    }

    fn conserving(&self) -> WorkConserving {
        WorkConserving::No
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Step, World, ms, plain, repeat, secs, spin};

    #[test]
    fn a_vcpu_keeps_its_core_and_nobody_else_gets_it() {
        let sleeper = repeat(&[Step::Run(ms(1)), Step::Sleep(ms(9))]);
        let vcpus = vec![(plain(0), sleeper), (plain(1), spin()), (plain(2), spin())];
        let mut world = World::new("null", 2, vcpus);
        world.run_until(secs(1));
        assert!((world.share(0) - 0.1).abs() < 0.01, "{}", world.share(0));
        assert_eq!(world.ran(1), secs(1));
        assert_eq!(world.ran(2), Nanos::ZERO);
    }

    #[test]
    fn a_core_whose_vcpu_retires_goes_to_the_first_that_waits() {
        let short = repeat(&[Step::Run(ms(100)), Step::Retire]);
        let vcpus = vec![(plain(0), short), (plain(1), spin()), (plain(2), spin())];
        let mut world = World::new("null", 1, vcpus);
        world.run_until(secs(1));
        assert_eq!(world.ran(1), ms(900));
        assert_eq!(world.ran(2), Nanos::ZERO);
    }
}
