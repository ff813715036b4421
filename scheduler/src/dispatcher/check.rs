//! The rules that a policy must keep, and what is said of one that does not.

use super::{Dispatcher, Output, State};
use crate::event::EventKind;
use crate::ids::{CoreId, VcpuId};
use crate::time::Nanos;
use std::fmt::Write;

/// A rule that a policy broke.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, thiserror::Error)]
#[repr(u16)]
pub enum Violation {
    /// It chose a vCPU that was not waiting: unknown, on a core, asleep or gone.
    #[error("it picked a vCPU that is not ready to run")]
    PickedNotReady = 0,
    /// It left a core idle although a vCPU was ready.
    #[error("it left a core idle while a vCPU was ready")]
    IdleWhileReady = 1,
    /// It named a core that does not exist.
    #[error("it named a core that does not exist")]
    NoSuchCore = 2,
    /// It asked for a slice of no length.
    #[error("it gave a slice of no length")]
    EmptySlice = 3,
    /// The dispatcher's own books: charged time is not run time.
    #[error("the time charged to a vCPU is not the time it ran")]
    ChargeMismatch = 4,
    /// It panicked, or the dispatcher did: nothing that either says can be used any more. Told by who drives them
    /// ([`Dispatcher::failed`]).
    #[error("it failed in the midst of a decision")]
    Failed = 5,
}

/// A violation with the state at that moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ViolationReport {
    /// When.
    pub at: Nanos,
    /// Which policy.
    pub policy: &'static str,
    /// Which rule.
    pub violation: Violation,
    /// Cores, vCPUs and the policy's own state, in words.
    pub dump: String,
}

/// Dumps are long; the first ones tell the story, all are counted.
const KEPT: usize = 8;

impl Dispatcher {
    pub(super) fn violated(&mut self, violation: Violation, vcpu: VcpuId, out: &mut Output) {
        self.violation_count += 1;
        self.emit(out, vcpu, EventKind::Violation(violation as u16));
        if self.violations.len() < KEPT {
            let report = ViolationReport {
                at: self.now,
                policy: self.info.name,
                violation,
                dump: self.dump(),
            };
            self.violations.push(report);
        }
    }

    /// Notes that a call of this ended in a panic, and what that said. It must not be called any more.
    pub fn failed(&mut self, said: &str) {
        self.violation_count += 1;
        self.violations.push(ViolationReport {
            at: self.now,
            policy: self.info.name,
            violation: Violation::Failed,
            dump: said.to_owned(),
        });
    }

    /// The vCPU that is ready for longest, the lower number first among equals: the choice made in
    /// the stead of a policy whose own cannot be used.
    pub(super) fn longest_ready(&self) -> Option<VcpuId> {
        let waiting = self
            .vcpus
            .iter()
            .enumerate()
            .filter(|(_, v)| v.state == State::Ready && v.sleeps.is_none() && !v.moved);
        let (index, _) = waiting.min_by_key(|(index, v)| (v.ready_since, *index))?;
        u32::try_from(index).ok().map(VcpuId)
    }

    /// Cores, vCPUs and the policy's own state, in words.
    #[must_use]
    pub fn dump(&self) -> String {
        let mut text = format!("policy {} at {}\n", self.info.name, self.now);
        for (index, core) in self.cores.iter().enumerate() {
            let who = core
                .vcpu
                .map_or_else(|| "idle".to_owned(), |vcpu| vcpu.to_string());
            let kicked = core
                .kicked
                .map_or_else(String::new, |why| format!(", kicked: {why:?}"));
            let _ = writeln!(
                text,
                "  {}: {who}{kicked}",
                CoreId(u16::try_from(index).unwrap_or(0))
            );
        }
        for (index, vcpu) in self.vcpus.iter().enumerate() {
            let _ = write!(text, "  vcpu {index}: {:?}", vcpu.state);
            if vcpu.state == State::Ready {
                let _ = write!(text, " for {}", self.now.since(vcpu.ready_since));
            }
            let _ = writeln!(text, ", ran {}, charged {}", vcpu.ran, vcpu.charged);
        }
        text.push_str(&self.policy.dump());
        text
    }
}
