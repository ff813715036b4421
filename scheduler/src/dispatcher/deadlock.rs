//! Circles of waits: vCPUs none of which can ever go on.
//!
//! A circle in which everybody sleeps is certain: who sleeps gives nothing up, and its word was read when it
//! went to sleep. If somebody in it spins, the words of several guests were read one after the other, and a
//! circle may be pieced together from moments that never were one; so it counts only if it is found again
//! later, and nothing was heard of it meanwhile that it would not leave possible. Only changes are heard of: waits
//! that ended and began anew between two readings look like one that lasts.

use super::{Dispatcher, Output};
use crate::event::EventKind;
use crate::ids::VcpuId;
use crate::time::Nanos;

/// A circle with spinners must last for so long.
const CERTAIN_AFTER: Nanos = Nanos::from_millis(20);

impl Dispatcher {
    /// Tells of the circle that the vCPU waits in, once, if there is one.
    pub(super) fn look_for_deadlock(&mut self, vcpu: VcpuId, out: &mut Output) {
        let circle = self.circle(vcpu);
        if circle.is_empty() {
            self.not_in_a_circle(vcpu);
            return;
        }
        if circle.iter().all(|at| self.vcpus[at.index()].deadlocked) {
            return;
        }
        let asleep = |at: &VcpuId| self.vcpus[at.index()].waits().is_some();
        if !circle.iter().all(asleep) && !self.lasts(&circle) {
            return;
        }
        for at in circle {
            if let Some(owner) = self.waits_for(at) {
                self.vcpu(at).deadlocked = true;
                self.emit(out, at, EventKind::Deadlock { owner });
            }
        }
    }

    /// Whether the circle was found long ago, and every time since. Circles have no members in common, for
    /// everybody waits for one at most.
    fn lasts(&mut self, circle: &[VcpuId]) -> bool {
        let suspected = self
            .suspects
            .iter()
            .find(|(_, suspects)| suspects == circle);
        if let Some((since, _)) = suspected {
            return self.now.since(*since) >= CERTAIN_AFTER;
        }
        for at in circle {
            self.not_in_a_circle(*at);
        }
        self.suspects.push((self.now, circle.to_vec()));
        false
    }

    /// What is known now of a vCPU is not what would be if it were in the circle that it is suspected of.
    pub(super) fn not_in_a_circle(&mut self, vcpu: VcpuId) {
        self.suspects
            .retain(|(_, suspects)| !suspects.contains(&vcpu));
    }

    /// The members of the circle that the vCPU is part of, the lowest number first; none if it is in
    /// none.
    fn circle(&self, vcpu: VcpuId) -> Vec<VcpuId> {
        let mut members = vec![vcpu];
        let mut at = vcpu;
        while let Some(owner) = self.waits_for(at) {
            if owner == vcpu {
                members.sort_unstable();
                return members;
            }
            if members.contains(&owner) {
                break;
            }
            members.push(owner);
            at = owner;
        }
        Vec::new()
    }
}
