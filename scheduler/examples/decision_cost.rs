//! What a decision costs: nanoseconds for a slice end, hand-over and pick, by the number of vCPUs that
//! are ready on one core.
//!
//! `cargo run --release -p stealtime-scheduler --example decision_cost [POLICY]…`

use stealtime_scheduler::dispatcher::{Config, Dispatcher, Output};
use stealtime_scheduler::ids::{CoreId, VmId};
use stealtime_scheduler::input::{Input, Timer};
use stealtime_scheduler::policy::VcpuParams;
use stealtime_scheduler::registry;
use stealtime_scheduler::time::Nanos;

/// How many vCPUs are ready.
const READY: [u16; 4] = [10, 100, 1_000, 10_000];
/// How many decisions are timed together, and how often: the median counts, so that a busy machine
/// does not matter much.
const BATCH: u32 = 50;
const BATCHES: u32 = 4_000;

/// Nanoseconds of one kick, stop, pick and entry, each vCPU having run for 2 ms.
fn cost(policy: &str, ready: u16) -> Result<f64, Box<dyn std::error::Error>> {
    let config = Config {
        policy: policy.parse()?,
        cores: 1,
        host_locks: 0,
        vcpus: (0..ready).map(|vm| VcpuParams::plain(VmId(vm))).collect(),
    };
    let mut dispatcher = Dispatcher::new(&config)?;
    let mut out = Output::default();
    let core = CoreId(0);
    let mut now = Nanos::ZERO;
    for vcpu in (0..u32::from(ready)).map(stealtime_scheduler::ids::VcpuId) {
        dispatcher.handle(now, Input::Admit { vcpu }, &mut out);
    }
    let mut batches = Vec::new();
    for _ in 0..BATCHES {
        let Some(vcpu) = dispatcher.on_core(core) else {
            break;
        };
        let start = std::time::Instant::now();
        for _ in 0..BATCH {
            let vcpu = dispatcher.on_core(core).unwrap_or(vcpu);
            out.clear();
            dispatcher.handle(now, Input::Entered { core, vcpu }, &mut out);
            now += Nanos::from_millis(2);
            let due = |timer| Input::TimerDue { timer };
            dispatcher.handle(now, due(Timer::Slice(core)), &mut out);
            dispatcher.handle(now, due(Timer::Tick), &mut out);
            dispatcher.handle(now, Input::Stopped { core, vcpu }, &mut out);
        }
        batches.push(start.elapsed());
    }
    batches.sort_unstable();
    let median = batches.get(batches.len() / 2).copied().unwrap_or_default();
    Ok(median.as_nanos() as f64 / f64::from(BATCH))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let asked: Vec<_> = std::env::args().skip(1).collect();
    let all = registry::POLICIES.iter().map(|info| info.name.to_owned());
    let policies = if asked.is_empty() {
        all.collect()
    } else {
        asked
    };
    println!("nanoseconds a decision, by the number of vCPUs that are ready");
    print!("{:20}", "policy");
    READY.iter().for_each(|ready| print!("{ready:>10}"));
    println!();
    for policy in policies {
        print!("{policy:20}");
        for ready in READY {
            print!("{:>10.0}", cost(&policy, ready)?);
        }
        println!();
    }
    Ok(())
}
