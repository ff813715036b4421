//! What an event costs the collector, with few vCPUs and with many.
//!
//! `cargo bench -p stealtime-report` prints nanoseconds an event; it must not grow with the number of
//! vCPUs by more than its logarithm and what the caches of the machine add.

use std::time::Instant;
use stealtime_report::{Collector, Report};
use stealtime_scheduler::event::{Event, EventKind, PreemptReason, Waits, WakeSource};
use stealtime_scheduler::ids::{CoreId, VcpuId, VmId};
use stealtime_scheduler::input::{ExitReason, Mark};
use stealtime_scheduler::policy::VcpuParams;
use stealtime_scheduler::time::Nanos;
use stealtime_workloads::run::{Outcome, Plan, VcpuPlan, VmPlan};

/// Events of each measurement.
const EVENTS: u64 = 10_000_000;

fn plan(vcpus: u32, cores: u16) -> Plan {
    let vm = |n: u32| VmId(u16::try_from(n).expect("few"));
    Plan {
        scenario: "bench".into(),
        policy: "eevdf".parse().expect("a policy"),
        cores: (0..cores).collect(),
        warmup: Nanos::ZERO,
        duration: Nanos::from_secs(1),
        seed: 1,
        vms: (0..vcpus)
            .map(|n| VmPlan {
                name: format!("vm{n}"),
                locks: Vec::new(),
            })
            .collect(),
        vcpus: (0..vcpus)
            .map(|n| VcpuPlan {
                name: "main".into(),
                vm: vm(n),
                index: 0,
                params: VcpuParams {
                    weight: Some(1 + n % 8),
                    ..VcpuParams::plain(vm(n))
                },
                start: Nanos::ZERO,
                program: Vec::new(),
            })
            .collect(),
        host_locks: Vec::new(),
    }
}

/// Turns on all cores in order: half of them end in a preemption, half in a sleep.
fn turns(collector: &mut Collector, vcpus: u32, cores: u16) {
    let mut at = 0;
    let mut send = |at: u64, vcpu: u32, kind: EventKind| {
        let (at, vcpu) = (Nanos(at), VcpuId(vcpu));
        collector.event(&Event { at, vcpu, kind });
    };
    for vcpu in 0..vcpus {
        send(0, vcpu, EventKind::Admitted);
    }
    let turns = EVENTS / 6;
    for turn in 0..turns {
        at += 100_000;
        let vcpu = u32::try_from(turn % u64::from(vcpus)).expect("small");
        let core = CoreId(u16::try_from(turn % u64::from(cores)).expect("small"));
        send(at, vcpu, EventKind::Granted(core));
        send(at + 2_000, vcpu, EventKind::Running(core));
        send(at + 50_000, vcpu, EventKind::Exited(ExitReason::Call));
        send(at + 52_000, vcpu, EventKind::Resumed);
        if turn % 2 == 0 {
            let why = PreemptReason::SliceEnd;
            send(at + 98_000, vcpu, EventKind::Kicked(core, why));
            send(at + 99_000, vcpu, EventKind::Preempted(core, why));
        } else {
            send(at + 98_000, vcpu, EventKind::Blocked(Waits::Sleep));
            send(at + 99_000, vcpu, EventKind::Woken(WakeSource::Timer));
        }
    }
    send(at + 100_000, 0, EventKind::Mark(Mark::MeasureEnd));
}

fn main() {
    for (vcpus, cores) in [(4, 1), (32, 2), (1_000, 64)] {
        let plan = plan(vcpus, cores);
        let mut collector = Collector::new(&plan);
        let start = Instant::now();
        turns(&mut collector, vcpus, cores);
        let each = start.elapsed().as_nanos() as f64 / EVENTS as f64;
        let start = Instant::now();
        let report = Report::build(&plan, "bench", collector, &Outcome::default());
        let build = start.elapsed();
        println!(
            "{vcpus} vCPUs on {cores} cores: {each:.0} ns an event, report in {build:.1?} (Jain's index {:.3})",
            report.run.jain
        );
    }
}
