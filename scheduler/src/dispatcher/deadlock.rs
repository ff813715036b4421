//! Circles of waits: vCPUs none of which can ever go on.
//!
//! A circle in which everybody sleeps is certain: who sleeps does not change its word. If somebody in
//! it spins, the words of several guests were read one after the other, and a circle may be pieced
//! together from moments that never were one; so it counts only if it is found again later,
//! unchanged.

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
        if circle.is_empty() || circle.iter().all(|at| self.vcpus[at.index()].deadlocked) {
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

    fn lasts(&mut self, circle: &[VcpuId]) -> bool {
        match &self.suspects {
            Some((since, suspects)) if suspects == circle => {
                self.now.since(*since) >= CERTAIN_AFTER
            }
            _ => {
                self.suspects = Some((self.now, circle.to_vec()));
                false
            }
        }
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
