//! All threads of a run: started together, ended together, none left behind.

use crate::clock::Due;
use crate::cpu::Cpu;
use crate::engine::{Engine, panic_message};
use crate::host::{Pinning, become_realtime, want_exact_timers};
use crate::kick;
use crate::thread::VcpuThread;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, Builder, JoinHandle, Thread};
use std::time::{Duration, Instant};
use stealtime_scheduler::ids::VcpuId;
use stealtime_scheduler::input::{Input, RetireReason};

/// Threads that could not be started. Those that were are ended again.
#[derive(Debug, thiserror::Error)]
pub enum CrewError {
    /// The kernel refuses another thread.
    #[error(
        "cannot start a thread for {name} (limits on threads: `ulimit -u`, the container's pids limit)"
    )]
    Spawn {
        /// Whose.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// The kernel refuses the signal handler.
    #[error("cannot install the handler of the signal that kicks vCPUs")]
    Signal(#[source] io::Error),
}

/// The running threads.
#[derive(Debug)]
pub struct Crew<C> {
    engine: Arc<Engine>,
    vcpus: Vec<JoinHandle<C>>,
    timers: Option<JoinHandle<()>>,
    alive: Arc<AtomicUsize>,
}

/// What is left when the threads have ended.
#[derive(Debug)]
pub struct Dismissed<C> {
    /// The CPUs by number; none for a thread that did not end.
    pub cpus: Vec<Option<C>>,
    /// Whose threads did not end in time.
    pub stuck: Vec<VcpuId>,
}

/// Counts a thread out, whichever way it ends, and tells the one who waits for it.
struct Alive {
    count: Arc<AtomicUsize>,
    waiter: Thread,
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::AcqRel);
        self.waiter.unpark();
    }
}

impl<C: Cpu + 'static> Crew<C> {
    /// Starts a thread for each CPU, in the order of the engine's seats, and one for timers. When this
    /// returns all of them wait, and the first vCPU can be admitted.
    ///
    /// # Errors
    /// If the kernel does not give us the threads.
    pub fn start(engine: &Arc<Engine>, cpus: Vec<(String, C)>) -> Result<Self, CrewError> {
        kick::install().map_err(CrewError::Signal)?;
        let mut crew = Self {
            engine: Arc::clone(engine),
            vcpus: Vec::with_capacity(cpus.len()),
            timers: None,
            alive: Arc::new(AtomicUsize::new(0)),
        };
        match crew.spawn_all(cpus) {
            Ok(()) => Ok(crew),
            Err(error) => {
                crew.dismiss(Duration::from_secs(2));
                Err(error)
            }
        }
    }

    fn spawn_all(&mut self, cpus: Vec<(String, C)>) -> Result<(), CrewError> {
        let (ready, started) = mpsc::channel::<()>();
        let engine = Arc::clone(&self.engine);
        let at_start = ready.clone();
        let timers = spawn("timers", move || run_timers(&engine, at_start))?;
        self.timers = Some(timers);
        for (vcpu, (name, cpu)) in (0..).map(VcpuId).zip(cpus) {
            let engine = Arc::clone(&self.engine);
            let ready = ready.clone();
            self.alive.fetch_add(1, Ordering::AcqRel);
            let alive = Alive {
                count: Arc::clone(&self.alive),
                waiter: thread::current(),
            };
            let body = move || {
                let cpu = run_vcpu(&engine, vcpu, cpu, ready);
                drop(alive);
                cpu
            };
            self.vcpus.push(spawn(&name, body)?);
        }
        drop(ready);
        // Fails when every thread has dropped its end: all of them are in their places.
        let _ = started.recv();
        Ok(())
    }

    /// How many vCPUs have not ended.
    #[must_use]
    pub fn alive(&self) -> usize {
        self.alive.load(Ordering::Acquire)
    }

    /// Ends all threads. Those that do not react in time are named and left to the end of the process.
    pub fn dismiss(self, patience: Duration) -> Dismissed<C> {
        let deadline = Instant::now() + patience;
        self.engine.end_all();
        while self.alive() > 0 && Instant::now() < deadline {
            thread::park_timeout(Duration::from_millis(5));
            // A thread is asked again: what made it deaf may have passed.
            self.engine.end_all();
        }
        let mut dismissed = Dismissed {
            cpus: Vec::new(),
            stuck: Vec::new(),
        };
        let everyone_left = self.alive() == 0;
        for (vcpu, handle) in (0..).map(VcpuId).zip(self.vcpus) {
            let cpu = if everyone_left || handle.is_finished() {
                handle.join().ok()
            } else {
                None
            };
            if cpu.is_none() {
                dismissed.stuck.push(vcpu);
            }
            dismissed.cpus.push(cpu);
        }
        self.engine.timers.stop();
        if let Some(timers) = self.timers
            && timers.join().is_err()
        {
            self.engine.note("the timer thread panicked".to_owned());
        }
        dismissed
    }
}

fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, CrewError> {
    // The kernel keeps 15 bytes; a name with a zero byte is no name.
    let short: String = name.chars().filter(|c| *c != '\0').take(15).collect();
    Builder::new()
        .name(short)
        .spawn(body)
        .map_err(|source| CrewError::Spawn {
            name: name.to_owned(),
            source,
        })
}

fn run_vcpu<C: Cpu>(engine: &Engine, vcpu: VcpuId, mut cpu: C, ready: Sender<()>) -> C {
    let seat = engine.seat(vcpu);
    if !seat.occupy() {
        engine.note(
            "the host's kernel keeps no schedstat: host interference is not measured".to_owned(),
        );
    }
    if engine.placement.pins() == Pinning::Free
        && let Err(error) = engine.placement.place(None, 0)
    {
        engine.note(format!(
            "vCPU threads could not be kept to the run's cores: {error}"
        ));
    }
    drop(ready);
    let ran = catch_unwind(AssertUnwindSafe(|| {
        VcpuThread::new(engine, vcpu, &mut cpu).run();
    }));
    seat.state.gone();
    if let Err(panic) = ran {
        let what = panic_message(panic.as_ref());
        engine.fail(seat.vm, format!("the thread of {vcpu} panicked: {what}"));
        engine.report(&[Input::Retire {
            vcpu,
            why: RetireReason::Fault,
        }]);
    }
    cpu
}

fn run_timers(engine: &Engine, ready: Sender<()>) {
    engine.timers.attach();
    want_exact_timers();
    if let Err(error) = engine.placement.place_apart() {
        engine.note(format!(
            "the timer thread could not be kept off the run's cores: {error}"
        ));
    }
    if let Err(error) = become_realtime() {
        engine.note(format!(
            "no right to real-time priority, timers may be late when cores are busy: {error}"
        ));
    }
    drop(ready);
    let mut due = Vec::new();
    while let Due::Timers = engine.timers.wait(|| engine.clock.now(), &mut due) {
        engine.report_due(&due);
    }
}
