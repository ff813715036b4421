//! What it costs to run guests under our own scheduling: guest throughput against the host's own.
//!
//! Spinning vCPUs on one core of the host, interleaved and repeated, medians: one alone under `host`
//! (the measure), `rr` and `eevdf`; two that share the core with slices of 10 ms. Run with
//! `cargo bench -p stealtime-vmm --bench handover [-- ROUNDS [SECONDS]]`.

use std::sync::atomic::AtomicBool;
use stealtime_guest::op::{Length, Step};
use stealtime_scheduler::ids::VmId;
use stealtime_scheduler::policy::VcpuParams;
use stealtime_scheduler::time::Nanos;
use stealtime_vmm::backend::KvmBackend;
use stealtime_workloads::run::{Backend, Entry, Observer, Plan, VcpuPlan, VmPlan};

/// Policy, vCPUs, and what is promised of it against one alone under `host`.
const CASES: [(&str, usize, Option<f64>); 7] = [
    ("host", 1, None),
    ("rr", 1, Some(0.98)),
    ("eevdf", 1, Some(0.98)),
    ("host", 2, None),
    ("rr:quantum=10ms", 2, Some(0.95)),
    ("eevdf:slice=10ms", 2, Some(0.95)),
    ("rr:quantum=1ms", 2, None),
];

#[derive(Default)]
struct Count(u64);

impl Observer for Count {
    fn entries(&mut self, entries: &[Entry]) {
        let stops = entries.iter().filter(|entry| {
            matches!(
                entry,
                Entry::Input(_, stealtime_scheduler::input::Input::Stopped { .. })
            )
        });
        self.0 += stops.count() as u64;
    }
}

fn plan(policy: &str, vcpus: usize, seconds: u64) -> Plan {
    let spin = [
        Step::Repeat(0),
        Step::Run(Length::Fixed(1_000_000)),
        Step::EndRepeat,
    ];
    let vcpu = |index| VcpuPlan {
        name: format!("spinner{index}"),
        vm: VmId(0),
        index,
        params: VcpuParams {
            siblings: u32::try_from(vcpus).unwrap_or(u32::MAX),
            ..VcpuParams::plain(VmId(0))
        },
        start: Nanos::ZERO,
        program: spin.iter().map(|step| step.encode()).collect(),
    };
    Plan {
        scenario: "spin".into(),
        policy: policy.parse().expect("a policy string"),
        cores: vec![0],
        warmup: Nanos::from_millis(100),
        duration: Nanos::from_secs(seconds),
        seed: 1,
        vms: vec![VmPlan {
            name: "vm".into(),
            locks: Vec::new(),
        }],
        vcpus: (0..).take(vcpus).map(vcpu).collect(),
        host_locks: Vec::new(),
    }
}

fn main() {
    let mut numbers = std::env::args().filter_map(|argument| argument.parse().ok());
    let rounds = numbers.next().unwrap_or(5);
    let seconds = numbers.next().unwrap_or(3);
    let mut work = vec![Vec::new(); CASES.len()];
    let mut notes = vec![String::new(); CASES.len()];
    for _ in 0..rounds {
        for (place, (policy, vcpus, _)) in CASES.iter().enumerate() {
            let mut stops = Count::default();
            let plan = plan(policy, *vcpus, seconds);
            let ran = KvmBackend.run(&plan, &AtomicBool::new(false), &mut stops);
            let outcome = match ran {
                Ok(outcome) => outcome,
                Err(error) => return println!("SKIPPED: {error}"),
            };
            let done: u64 = outcome.guests.iter().map(|guest| guest.progress_ns).sum();
            work[place].push(done as f64 / 1e9 / seconds as f64);
            let quality = &outcome.quality;
            notes[place] = format!(
                "{} switches, {} calls of the dispatcher at {} ns, host interference {}",
                stops.0,
                quality.dispatch_calls,
                quality.dispatch_overhead_ns / quality.dispatch_calls.max(1),
                Nanos(quality.host_interference_ns),
            );
        }
    }
    let median = |values: &mut Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let medians: Vec<_> = work.iter_mut().map(median).collect();
    for (place, (policy, vcpus, promise)) in CASES.iter().enumerate() {
        let ratio = medians[place] / medians[0];
        let promise = promise.map_or_else(String::new, |least| {
            let verdict = if ratio >= least { "kept" } else { "NOT KEPT" };
            format!(" (at least {least}: {verdict})")
        });
        println!(
            "{vcpus} under {policy:<17} {:.4} of the time worked, {ratio:.4} of one under host{promise}; last round: {}",
            medians[place], notes[place]
        );
    }
}
