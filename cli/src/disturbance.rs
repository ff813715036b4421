//! Threads of the host that disturb a run on purpose: `[[host-thread]]` of a scenario.
//!
//! Each is a real-time thread on one of the run's cores that works for a while in each period. No
//! vCPU thread runs there meanwhile, whatever the policy says.

use crate::backend::Kind;
use crate::failure::{Failure, Status};
use anyhow::Context;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use stealtime_vmm::host::{Pinning, Placement, become_realtime};
use stealtime_workloads::scenario::HostThread;

/// How long a thread sleeps at most before it looks whether it is over.
const LOOK: Duration = Duration::from_millis(20);

/// Running threads; they end when this is dropped.
#[derive(Debug)]
pub struct Disturbance {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Disturbance {
    /// Starts all of them, if the run takes place on this very host. `cores` are those of the run.
    ///
    /// # Errors
    /// If there is no right to real-time priority, or a core cannot be used.
    pub fn start(wanted: &[HostThread], backend: Kind, cores: &[u16]) -> Result<Self, Failure> {
        let mut disturbance = Self {
            over: Arc::default(),
            threads: Vec::new(),
        };
        if backend != Kind::Kvm && !wanted.is_empty() {
            let name = backend.name();
            eprintln!("note: on {name} the scenario's threads of the host are left out");
            return Ok(disturbance);
        }
        for one in wanted {
            let core = cores.get(usize::from(one.core)).copied().unwrap_or(0);
            let (one, over) = (one.clone(), Arc::clone(&disturbance.over));
            let (say, hear) = mpsc::channel();
            disturbance.threads.push(thread::spawn(move || {
                let ready = prepare(core);
                let good = ready.is_ok();
                // Who started this thread waits for the answer.
                let _ = say.send(ready);
                if good {
                    disturb(&one, &over);
                }
            }));
            let ready = hear.recv().unwrap_or_else(|_| Ok(()));
            ready.map_err(|error| Failure::new(Status::Machine, error))?;
        }
        Ok(disturbance)
    }
}

fn prepare(core: u16) -> anyhow::Result<()> {
    Placement::new(&[core], Pinning::Granted)?.place(None, 0)?;
    become_realtime().context(
        "the scenario needs a real-time thread on the host: root, CAP_SYS_NICE or `ulimit -r`",
    )
}

/// Works and sleeps in turn. Times are kept from the start, so that late ones do not add up.
fn disturb(one: &HostThread, over: &AtomicBool) {
    let began = Instant::now() + Duration::from_nanos(one.start.get());
    let (busy, period) = (
        Duration::from_nanos(one.busy.get()),
        Duration::from_nanos(one.period.get()),
    );
    let mut next = began;
    while sleep_until(next, over) {
        let until = next + busy;
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        next += period;
    }
}

/// False if it is over.
fn sleep_until(when: Instant, over: &AtomicBool) -> bool {
    while !over.load(Ordering::Relaxed) {
        let left = when.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        thread::sleep(left.min(LOOK));
    }
    false
}

impl Drop for Disturbance {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that panicked has ended as well.
            let _ = thread.join();
        }
    }
}
