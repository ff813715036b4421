//! Who is queued on which core: what the events of a run say of it, followed one by one.
//!
//! The dispatcher tells where it queues a vCPU only if that is news ([`EventKind::Placed`]). This is
//! the other side of that rule. A vCPU that is queued while it uses the turn of another one counts
//! as being on its core, and on no queue.
//!
//! # Invariants
//! The length of a queue is the number of vCPUs that are queued there. What a policy moves between
//! its queues by itself is known only when the vCPU is granted a core.

use super::{Event, EventKind};
use crate::ids::{CoreId, VcpuId};

#[derive(Clone, Copy, Default, Debug)]
struct Place {
    /// Where it is queued when it is ready; none if that is to be told first.
    home: Option<CoreId>,
    queued: bool,
}

/// The run queues of all cores, as far as events tell.
#[derive(Clone, Debug)]
pub struct Queues {
    vcpus: Vec<Place>,
    lengths: Vec<usize>,
}

impl Queues {
    /// The queues of so many cores before anybody of so many vCPUs was admitted.
    #[must_use]
    pub fn new(vcpus: usize, cores: usize) -> Self {
        Self {
            vcpus: vec![Place::default(); vcpus],
            lengths: vec![0; cores],
        }
    }

    /// The core on whose queue the vCPU is; none if it is on no queue.
    #[must_use]
    pub fn of(&self, vcpu: VcpuId) -> Option<CoreId> {
        let place = self.vcpus.get(vcpu.index())?;
        place.home.filter(|_| place.queued)
    }

    /// How many vCPUs are on each core's queue, in order of cores. Who is on the core itself does not
    /// count.
    #[must_use]
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// Takes note of the next event. A vCPU or core that the run does not have is passed over.
    pub fn event(&mut self, event: &Event) {
        match event.kind {
            EventKind::Placed(core) => self.put(event.vcpu, true, Some(core)),
            EventKind::Granted(core) => self.put(event.vcpu, false, Some(core)),
            EventKind::Borrows { donor, .. } => self.put(donor, false, None),
            EventKind::SetAside { .. } => self.put(event.vcpu, false, None),
            EventKind::Woken(_) | EventKind::Preempted(..) | EventKind::Yielded(_) => {
                self.put(event.vcpu, true, self.home(event.vcpu));
            }
            EventKind::Blocked(_) | EventKind::Retired(_) => {
                self.put(event.vcpu, false, self.home(event.vcpu));
            }
            _ => {}
        }
    }

    fn home(&self, vcpu: VcpuId) -> Option<CoreId> {
        self.vcpus.get(vcpu.index())?.home
    }

    fn put(&mut self, vcpu: VcpuId, queued: bool, home: Option<CoreId>) {
        let before = self.of(vcpu);
        if let Some(place) = self.vcpus.get_mut(vcpu.index()) {
            *place = Place { home, queued };
        }
        let after = self.of(vcpu);
        if let Some(length) = before.and_then(|core| self.lengths.get_mut(core.index())) {
            *length -= 1;
        }
        if let Some(length) = after.and_then(|core| self.lengths.get_mut(core.index())) {
            *length += 1;
        }
    }
}
