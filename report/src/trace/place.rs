//! On which core things happen: an event names a core only where it begins or ends a stay on one.

use super::{Item, What};
use crate::about::{about, of_timer};
use stealtime_scheduler::effect::Effect;
use stealtime_scheduler::event::{Event, EventKind};
use stealtime_scheduler::ids::{CoreId, VcpuId};
use stealtime_scheduler::input::Input;
use stealtime_scheduler::time::Nanos;

/// The core of every vCPU that has one.
#[derive(Debug, Default)]
pub(super) struct Places {
    cores: Vec<Option<CoreId>>,
}

impl Places {
    fn of(&self, vcpu: VcpuId) -> Option<CoreId> {
        self.cores.get(vcpu.index()).copied().flatten()
    }

    fn put(&mut self, vcpu: VcpuId, core: Option<CoreId>) {
        if self.cores.len() <= vcpu.index() {
            self.cores.resize(vcpu.index() + 1, None);
        }
        self.cores[vcpu.index()] = core;
    }

    /// An event with its core: the one that it names, else the one its vCPU is on, or leaves by it.
    pub(super) fn event(&mut self, event: Event) -> Item {
        let vcpu = event.vcpu;
        let core = match event.kind {
            EventKind::Placed(core)
            | EventKind::Granted(core)
            | EventKind::Running(core)
            | EventKind::Kicked(core, _)
            | EventKind::Owed(core, ..)
            | EventKind::Preempted(core, _)
            | EventKind::Yielded(core)
            | EventKind::Migrated { to: core, .. } => Some(core),
            EventKind::Mark(_) => None,
            _ => self.of(vcpu),
        };
        match event.kind {
            EventKind::Granted(core) | EventKind::Running(core) => self.put(vcpu, Some(core)),
            EventKind::Preempted(..)
            | EventKind::Yielded(_)
            | EventKind::Blocked(_)
            | EventKind::Retired(_) => self.put(vcpu, None),
            _ => {}
        }
        Item {
            at: event.at,
            core,
            vcpu: (!matches!(event.kind, EventKind::Mark(_))).then_some(vcpu),
            what: What::Event(event),
        }
    }

    pub(super) fn input(&self, at: Nanos, input: Input) -> Item {
        let (vcpu, core) = self.known(about(&input));
        Item {
            at,
            core,
            vcpu,
            what: What::Input(input),
        }
    }

    pub(super) fn effect(&self, at: Nanos, effect: Effect) -> Item {
        let (vcpu, core) = match effect {
            Effect::Run { core, vcpu }
            | Effect::Park { core, vcpu }
            | Effect::Kick { core, vcpu }
            | Effect::Owe { core, vcpu } => (Some(vcpu), Some(core)),
            Effect::Lent { to: vcpu, .. } => (Some(vcpu), self.of(vcpu)),
            Effect::Arm { timer, .. } | Effect::Cancel { timer } => self.known(of_timer(timer)),
            Effect::Inject { vcpu, .. } => (Some(vcpu), self.of(vcpu)),
        };
        Item {
            at,
            core,
            vcpu,
            what: What::Effect(effect),
        }
    }

    /// With the core that the vCPU is on, if none is named.
    fn known(
        &self,
        (vcpu, core): (Option<VcpuId>, Option<CoreId>),
    ) -> (Option<VcpuId>, Option<CoreId>) {
        (vcpu, core.or_else(|| self.of(vcpu?)))
    }
}
