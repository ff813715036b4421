//! What the tests of this crate share: small plans, and events written down by hand.

pub(crate) mod player;

use crate::collector::Collector;
use crate::model::Report;
use stealtime_scheduler::event::{Event, EventKind, PreemptReason, Standing, Waits, WakeSource};
use stealtime_scheduler::ids::{CoreId, HostLockId, VcpuId, VmId};
use stealtime_scheduler::input::{ExitReason, Mark};
use stealtime_scheduler::policy::VcpuParams;
use stealtime_scheduler::time::Nanos;
use stealtime_workloads::run::{
    Calibration, ClockAgreement, GuestView, Outcome, Plan, Quality, VcpuPlan, VmFailure, VmPlan,
};

/// A plan of so many vCPUs, each alone in its VM, on so many cores.
pub(crate) fn plan(policy: &str, vcpus: u16, cores: usize) -> Plan {
    Plan {
        scenario: "example".into(),
        policy: policy.parse().expect("a policy"),
        cores: (0..cores)
            .filter_map(|core| u16::try_from(core).ok())
            .collect(),
        warmup: Nanos::ZERO,
        duration: Nanos::from_secs(1),
        seed: 7,
        vms: (0..vcpus)
            .map(|vm| VmPlan {
                name: format!("vm{vm}"),
                locks: Vec::new(),
            })
            .collect(),
        vcpus: (0..vcpus)
            .map(|vm| VcpuPlan {
                name: "main".into(),
                vm: VmId(vm),
                index: 0,
                params: VcpuParams::plain(VmId(vm)),
                start: Nanos::ZERO,
                program: Vec::new(),
            })
            .collect(),
        host_locks: vec![
            "address-space".into(),
            "pages".into(),
            "device".into(),
            "swap".into(),
        ],
    }
}

/// Events in the order of their writing, taken down by a collector.
pub(crate) struct Tape {
    pub(crate) collector: Collector,
}

impl Tape {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            collector: Collector::new(plan),
        }
    }

    pub(crate) fn at(&mut self, at: u64, vcpu: u32, kind: EventKind) {
        self.collector.event(&Event {
            at: Nanos(at),
            vcpu: VcpuId(vcpu),
            kind,
        });
    }
}

const MS: u64 = 1_000_000;
const C0: CoreId = CoreId(0);

fn standing(kernel_priority: bool) -> EventKind {
    EventKind::Standing(Standing {
        kernel_priority,
        ..Standing::default()
    })
}

/// Under `fss`, one core: vCPU 0 catches a kernel priority at 1,050 ms and keeps the core to the end
/// at 3,000 ms; vCPU 1 waits; vCPU 2 sleeps, wakes at 1,500 ms, and waits too.
pub(crate) fn starved_tape(plan: &Plan) -> Tape {
    let mut tape = Tape::new(plan);
    for vcpu in 0..3 {
        tape.at(0, vcpu, EventKind::Admitted);
    }
    for (turn, vcpu) in [(0, 0), (1, 1), (2, 2)] {
        tape.at(turn * 10 * MS, vcpu, EventKind::Granted(C0));
        tape.at(turn * 10 * MS + 1_000, vcpu, EventKind::Running(C0));
        let why = PreemptReason::SliceEnd;
        tape.at(
            (turn + 1) * 10 * MS - 60_000,
            vcpu,
            EventKind::Kicked(C0, why),
        );
        if vcpu == 2 {
            tape.at((turn + 1) * 10 * MS, vcpu, EventKind::Blocked(Waits::Sleep));
        } else {
            tape.at((turn + 1) * 10 * MS, vcpu, EventKind::Preempted(C0, why));
        }
    }
    tape.at(30 * MS, 1, EventKind::Running(C0));
    tape.at(1_000 * MS, 0, EventKind::Mark(Mark::MeasureStart));
    tape.at(
        1_040 * MS,
        1,
        EventKind::Preempted(C0, PreemptReason::SliceEnd),
    );
    tape.at(1_040 * MS, 0, EventKind::Granted(C0));
    tape.at(1_040 * MS, 0, EventKind::Running(C0));
    tape.at(1_050 * MS, 0, EventKind::Exited(ExitReason::Call));
    tape.at(1_050 * MS, 0, EventKind::HostLockTaken(HostLockId(1)));
    tape.at(1_050 * MS, 0, standing(true));
    tape.at(1_052 * MS, 0, EventKind::HostLockReleased(HostLockId(1)));
    tape.at(1_052 * MS, 0, EventKind::Resumed);
    tape.at(1_500 * MS, 2, EventKind::Woken(WakeSource::Timer));
    tape.at(2_000 * MS, 0, EventKind::HostDelay(Nanos(3 * MS)));
    tape.at(3_000 * MS, 0, EventKind::Mark(Mark::MeasureEnd));
    tape
}

/// What a backend might say beside it.
pub(crate) fn outcome(events: u64) -> Outcome {
    let view = |progress_ns, gap_total_ns| GuestView {
        progress_ns,
        gaps: 3,
        gap_total_ns,
        gap_max_ns: gap_total_ns,
        ..GuestView::default()
    };
    Outcome {
        guests: vec![view(1_950 * MS, 42 * MS), view(40 * MS, 0), view(0, 0)],
        failures: vec![VmFailure {
            vm: VmId(2),
            at: Nanos(2_999 * MS),
            message: "triple fault".into(),
        }],
        quality: Quality {
            dispatch_overhead_ns: 120_000,
            dispatch_calls: 1_000,
            events_emitted: events,
            calibration: Some(Calibration {
                iterations_per_ms: 2_500_000,
                spread_ppm: 3_100,
                tsc_khz: 2_400_000,
            }),
            clock: Some(ClockAgreement {
                worst_offset_ns: 180,
                uncertainty_ns: 45,
            }),
            host_interference_ns: 3 * MS,
            notes: vec!["real-time scheduling is not allowed here".into()],
        },
        ..Outcome::default()
    }
}

/// The report of [`starved_tape`].
pub(crate) fn starved() -> Report {
    let plan = plan("fss", 3, 1);
    let collector = starved_tape(&plan).collector;
    let outcome = outcome(collector.events);
    Report::build(&plan, "kvm", collector, &outcome)
}
