//! Plans, streams and outcomes as they travel into the machine and back.
//!
//! Both ends are the same program, so the form has no versions: JSON for the plan and the outcome, the
//! 32-byte records of `stealtime_scheduler::record` for the stream.

use serde::{Deserialize, Serialize};
use stealtime_guest::op::Op;
use stealtime_scheduler::dispatcher::{Violation, ViolationReport};
use stealtime_scheduler::ids::VmId;
use stealtime_scheduler::policy::VcpuParams;
use stealtime_scheduler::record::{self, BadRecord, Item, RECORD_BYTES};
use stealtime_scheduler::registry;
use stealtime_scheduler::spec::PolicySpec;
use stealtime_scheduler::time::Nanos;
use stealtime_workloads::run::{
    Entry, GuestView, Outcome, Plan, Quality, VcpuPlan, VmFailure, VmPlan,
};

/// A [`Plan`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PlanOnWire {
    scenario: String,
    policy: PolicySpec,
    cores: Vec<u16>,
    warmup: Nanos,
    duration: Nanos,
    seed: u64,
    vms: Vec<VmPlan>,
    vcpus: Vec<VcpuOnWire>,
    host_locks: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct VcpuOnWire {
    name: String,
    vm: VmId,
    index: u32,
    params: VcpuParams,
    start: Nanos,
    /// The fields of each [`Op`] in their order.
    program: Vec<(u16, u16, u32, u64, u64)>,
}

/// An [`Outcome`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OutcomeOnWire {
    guests: Vec<GuestView>,
    failures: Vec<VmFailure>,
    violations: Vec<ViolationOnWire>,
    violation_count: u64,
    quality: Quality,
    interrupted: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct ViolationOnWire {
    at: Nanos,
    policy: String,
    violation: u16,
    dump: String,
}

/// All rules that can be broken.
const VIOLATIONS: [Violation; 6] = [
    Violation::PickedNotReady,
    Violation::IdleWhileReady,
    Violation::NoSuchCore,
    Violation::EmptySlice,
    Violation::ChargeMismatch,
    Violation::Failed,
];

impl From<&Plan> for PlanOnWire {
    fn from(plan: &Plan) -> Self {
        Self {
            scenario: plan.scenario.clone(),
            policy: plan.policy.clone(),
            cores: plan.cores.clone(),
            warmup: plan.warmup,
            duration: plan.duration,
            seed: plan.seed,
            vms: plan.vms.clone(),
            vcpus: plan.vcpus.iter().map(VcpuOnWire::from).collect(),
            host_locks: plan.host_locks.clone(),
        }
    }
}

impl From<PlanOnWire> for Plan {
    fn from(plan: PlanOnWire) -> Self {
        Self {
            scenario: plan.scenario,
            policy: plan.policy,
            cores: plan.cores,
            warmup: plan.warmup,
            duration: plan.duration,
            seed: plan.seed,
            vms: plan.vms,
            vcpus: plan.vcpus.into_iter().map(VcpuPlan::from).collect(),
            host_locks: plan.host_locks,
        }
    }
}

impl From<&VcpuPlan> for VcpuOnWire {
    fn from(vcpu: &VcpuPlan) -> Self {
        let ops = vcpu.program.iter();
        Self {
            name: vcpu.name.clone(),
            vm: vcpu.vm,
            index: vcpu.index,
            params: vcpu.params,
            start: vcpu.start,
            program: ops
                .map(|op| (op.code, op.small, op.medium, op.a, op.b))
                .collect(),
        }
    }
}

impl From<VcpuOnWire> for VcpuPlan {
    fn from(vcpu: VcpuOnWire) -> Self {
        let ops = vcpu.program.into_iter();
        Self {
            name: vcpu.name,
            vm: vcpu.vm,
            index: vcpu.index,
            params: vcpu.params,
            start: vcpu.start,
            program: ops
                .map(|(code, small, medium, a, b)| Op {
                    code,
                    small,
                    medium,
                    a,
                    b,
                })
                .collect(),
        }
    }
}

impl From<Outcome> for OutcomeOnWire {
    fn from(outcome: Outcome) -> Self {
        let violations = outcome
            .violations
            .into_iter()
            .map(|report| ViolationOnWire {
                at: report.at,
                policy: report.policy.to_owned(),
                violation: report.violation as u16,
                dump: report.dump,
            });
        Self {
            guests: outcome.guests,
            failures: outcome.failures,
            violations: violations.collect(),
            violation_count: outcome.violation_count,
            quality: outcome.quality,
            interrupted: outcome.interrupted,
        }
    }
}

impl OutcomeOnWire {
    /// `None` if it names a policy or a rule that this program does not know.
    pub(crate) fn into_outcome(self) -> Option<Outcome> {
        let violations = self.violations.into_iter().map(|report| {
            Some(ViolationReport {
                at: report.at,
                policy: registry::find(&report.policy).ok()?.name,
                violation: VIOLATIONS
                    .into_iter()
                    .find(|v| *v as u16 == report.violation)?,
                dump: report.dump,
            })
        });
        Some(Outcome {
            guests: self.guests,
            failures: self.failures,
            violations: violations.collect::<Option<_>>()?,
            violation_count: self.violation_count,
            quality: self.quality,
            interrupted: self.interrupted,
        })
    }
}

/// Adds entries to a stream.
pub(crate) fn write_entries(entries: &[Entry], stream: &mut Vec<u8>) {
    for entry in entries {
        let item = match *entry {
            Entry::Input(at, input) => Item::Input(at, input),
            Entry::Effect(effect) => Item::Effect(effect),
            Entry::Event(event) => Item::Event(event),
        };
        stream.extend_from_slice(&record::encode(&item));
    }
}

/// Reads a stream back. A cut record at its end is an error, as is a record that means nothing.
pub(crate) fn read_entries(stream: &[u8]) -> Result<Vec<Entry>, BadRecord> {
    let (records, rest) = stream.as_chunks::<RECORD_BYTES>();
    if !rest.is_empty() {
        return Err(BadRecord::Class(0));
    }
    let items = records.iter().map(record::decode);
    items
        .map(|item| {
            Ok(match item? {
                Item::Input(at, input) => Entry::Input(at, input),
                Item::Effect(effect) => Entry::Effect(effect),
                Item::Event(event) => Entry::Event(event),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use stealtime_scheduler::ids::VcpuId;
    use stealtime_scheduler::input::Input;
    use stealtime_workloads::scenario::{DEFAULT_SCENARIO, Overrides, Scenario};

    #[test]
    fn a_plan_survives_the_journey() {
        let scenario = Scenario::load(DEFAULT_SCENARIO).expect("embedded");
        let plan = scenario.plan(&Overrides::default()).expect("a plan");
        let bytes = serde_json::to_vec(&PlanOnWire::from(&plan)).expect("JSON");
        let back: PlanOnWire = serde_json::from_slice(&bytes).expect("JSON");
        assert_eq!(Plan::from(back), plan);
    }

    #[test]
    fn an_outcome_survives_the_journey_with_every_kind_of_violation() {
        let violations = VIOLATIONS.map(|violation| ViolationReport {
            at: Nanos(7),
            policy: registry::find("rr").expect("there is one").name,
            violation,
            dump: "core 0: idle".to_owned(),
        });
        let outcome = Outcome {
            guests: vec![GuestView {
                request_hist: vec![0, 3],
                ..GuestView::default()
            }],
            failures: vec![VmFailure {
                vm: VmId(1),
                at: Nanos(3),
                message: "gone".to_owned(),
            }],
            violations: violations.to_vec(),
            violation_count: 9,
            interrupted: true,
            ..Outcome::default()
        };
        let wire = OutcomeOnWire::from(outcome.clone());
        let bytes = serde_json::to_vec(&wire).expect("JSON");
        let back: OutcomeOnWire = serde_json::from_slice(&bytes).expect("JSON");
        assert_eq!(back.into_outcome(), Some(outcome));
    }

    #[test]
    fn no_rule_is_missing_from_the_list() {
        for violation in VIOLATIONS {
            // A new rule does not compile here until it is in the list.
            match violation {
                Violation::PickedNotReady
                | Violation::IdleWhileReady
                | Violation::NoSuchCore
                | Violation::EmptySlice
                | Violation::ChargeMismatch
                | Violation::Failed => {}
            }
        }
    }

    #[test]
    fn a_stream_survives_and_a_cut_one_is_noticed() {
        let entries = [Entry::Input(Nanos(5), Input::Admit { vcpu: VcpuId(2) })];
        let mut stream = Vec::new();
        write_entries(&entries, &mut stream);
        assert_eq!(read_entries(&stream).expect("whole"), entries);
        assert!(read_entries(&stream[..31]).is_err());
    }
}
