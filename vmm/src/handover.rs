//! Tests of threads, engine and timers together, with a CPU that needs no KVM.
//!
//! What they assert is what holds on any machine, however busy: orders and invariants, no latencies.

mod ends;
mod owed;

use crate::conduct::{Course, Measured};
use crate::cpu::{Call, Exit, Watch};
use crate::crew::{Crew, Dismissed};
use crate::engine::{Engine, Verdict};
use crate::host::{Pinning, Placement, RunClock, monotonic_ns};
use crate::mock::{MockCpu, Occupancy, Turn, call};
use rustix::thread::{CpuSet, sched_getaffinity};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use stealtime_scheduler::dispatcher::{Dispatcher, Output, Violation};
use stealtime_scheduler::effect::Effect;
use stealtime_scheduler::event::{EventKind, Waits};
use stealtime_scheduler::ids::{CoreId, VcpuId, VmId};
use stealtime_scheduler::input::{Input, Mark, RetireReason};
use stealtime_scheduler::policies;
use stealtime_scheduler::policy::{
    Enqueue, Pick, Placed, Policy, Preempt, Refused, SliceEnd, VcpuParams,
};
use stealtime_scheduler::time::Nanos;
use stealtime_workloads::run::{Entry, Observer, Plan, VcpuPlan, VmPlan};

#[derive(Default)]
struct Recorder {
    entries: Vec<Entry>,
}

impl Observer for Recorder {
    fn entries(&mut self, entries: &[Entry]) {
        self.entries.extend_from_slice(entries);
    }
}

/// The first two cores that we may use.
fn cores() -> Vec<u16> {
    let allowed = sched_getaffinity(None).unwrap();
    let ours = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
    ours.take(2).map(|core| core.try_into().unwrap()).collect()
}

/// A plan with one vCPU to an entry of `vms`, which names its VM.
fn plan(policy: &str, vms: &[u16], duration: Nanos) -> Plan {
    let count = vms.iter().max().unwrap() + 1;
    let vcpu = |(index, vm): (usize, &u16)| VcpuPlan {
        name: format!("vcpu{index}"),
        vm: VmId(*vm),
        index: 0,
        params: VcpuParams::plain(VmId(*vm)),
        start: Nanos::ZERO,
        program: Vec::new(),
    };
    Plan {
        scenario: "mock".to_owned(),
        policy: policy.parse().unwrap(),
        cores: cores(),
        warmup: Nanos::ZERO,
        duration,
        seed: 1,
        vms: (0..count)
            .map(|vm| VmPlan {
                name: format!("vm{vm}"),
                locks: Vec::new(),
            })
            .collect(),
        vcpus: vms.iter().enumerate().map(vcpu).collect(),
        host_locks: vec!["lock".to_owned()],
    }
}

struct Ran {
    plan: Plan,
    entries: Vec<Entry>,
    measured: Measured,
    verdict: Verdict,
    dismissed: Dismissed<MockCpu>,
    clashes: u64,
}

type Program = Box<dyn FnMut() -> Turn + Send>;

fn run(plan: Plan, programs: Vec<Program>, stop: &AtomicBool) -> Ran {
    let dispatcher = Dispatcher::new(&plan.config()).unwrap();
    run_under(dispatcher, plan, programs, stop)
}

fn run_under(dispatcher: Dispatcher, plan: Plan, programs: Vec<Program>, stop: &AtomicBool) -> Ran {
    let occupancy: Arc<Occupancy> = Arc::default();
    let cpus: Vec<_> = programs
        .into_iter()
        .map(|program| MockCpu::new(&occupancy, program))
        .collect();
    let seats = plan.vcpus.iter().zip(&cpus);
    let seats = seats.map(|(vcpu, cpu)| (vcpu.vm, Arc::clone(&cpu.page) as Arc<dyn Watch>));
    let pinning = match plan.policy.policy.name.as_str() {
        "host" => Pinning::Free,
        _ => Pinning::Granted,
    };
    let engine = Arc::new(Engine::new(
        dispatcher,
        RunClock::starting_at(monotonic_ns()),
        Placement::new(&plan.cores, pinning).unwrap(),
        seats.collect(),
    ));
    let named = cpus.into_iter().enumerate();
    let named = named.map(|(index, cpu)| (format!("mock {index}"), cpu));
    let crew = Crew::start(&engine, named.collect()).unwrap();
    let mut recorder = Recorder::default();
    let mut course = Course::new(&engine, &plan, &mut recorder);
    let measured = course.conduct(stop, || crew.alive());
    let dismissed = crew.dismiss(Duration::from_secs(2));
    course.finish();
    Ran {
        verdict: engine.verdict(),
        entries: recorder.entries,
        plan,
        measured,
        dismissed,
        clashes: occupancy.clashes.load(Ordering::Relaxed),
    }
}

impl Ran {
    fn inputs(&self) -> impl Iterator<Item = Input> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Input(_, input) => Some(*input),
            _ => None,
        })
    }

    fn count(&self, which: impl Fn(Input) -> bool) -> usize {
        self.inputs().filter(|input| which(*input)).count()
    }

    fn entered(&self, who: u32) -> usize {
        self.count(|input| matches!(input, Input::Entered { vcpu: VcpuId(v), .. } if v == who))
    }

    fn retired(&self, who: u32) -> Option<RetireReason> {
        self.inputs().find_map(|input| match input {
            Input::Retire {
                vcpu: VcpuId(v),
                why,
            } if v == who => Some(why),
            _ => None,
        })
    }

    /// What must hold of every run.
    fn check(&self) {
        assert!(
            self.dismissed.stuck.is_empty(),
            "{:?}",
            self.dismissed.stuck
        );
        if self.plan.policy.policy.name != "host" {
            assert_eq!(self.clashes, 0, "two on one core");
        }
        assert!(
            self.verdict.violations.is_empty(),
            "{:?}",
            self.verdict.violations
        );
        self.replay();
        self.kicks_are_answered();
        for vcpu in 0..u32::try_from(self.plan.vcpus.len()).unwrap() {
            assert!(self.retired(vcpu).is_some(), "vCPU {vcpu} did not retire");
        }
        let events = self.entries.iter().filter(|e| matches!(e, Entry::Event(_)));
        assert_eq!(
            events.count() as u64,
            self.verdict.figures.events,
            "lost events"
        );
    }

    /// A fresh dispatcher that is told the same says the same, so nothing was lost or reordered.
    fn replay(&self) {
        let mut dispatcher = Dispatcher::new(&self.plan.config()).unwrap();
        let mut out = Output::default();
        let mut last = Nanos::ZERO;
        let mut entries = self.entries.iter().copied();
        let mut replayed = Vec::new();
        for entry in entries.by_ref() {
            if let Entry::Input(now, input) = entry {
                assert!(now >= last, "time went backwards");
                last = now;
                out.clear();
                dispatcher.handle(now, input, &mut out);
                replayed.push(entry);
                replayed.extend(out.effects.iter().copied().map(Entry::Effect));
                replayed.extend(out.events.iter().copied().map(Entry::Event));
            }
        }
        assert_eq!(replayed, self.entries);
    }

    /// After a kick the vCPU leaves its core before anything else is done with it.
    fn kicks_are_answered(&self) {
        let mut open = std::collections::HashMap::new();
        for entry in &self.entries {
            match *entry {
                Entry::Effect(Effect::Kick { vcpu, core }) => {
                    assert_eq!(open.insert(vcpu, core), None, "kicked twice in one stay");
                }
                Entry::Event(event) => match event.kind {
                    EventKind::Preempted(..)
                    | EventKind::Blocked(_)
                    | EventKind::Yielded(_)
                    | EventKind::Retired(_) => {
                        open.remove(&event.vcpu);
                    }
                    _ => {}
                },
                _ => {}
            }
        }
        assert_eq!(open.len(), 0, "kicks without an answer: {open:?}");
    }
}

fn spinner() -> Program {
    Box::new(|| Turn::Spin)
}

/// The same turns over and over.
fn cycle(turns: Vec<Turn>) -> Program {
    let mut next = 0;
    Box::new(move || {
        next += 1;
        turns[(next - 1) % turns.len()].clone()
    })
}

static NEVER: AtomicBool = AtomicBool::new(false);

#[test]
fn spinning_vcpus_take_turns_and_nobody_is_lost() {
    let plan = plan("rr:quantum=1ms", &[0, 0, 1, 1, 2], Nanos::from_millis(400));
    let ran = run(plan, (0..5).map(|_| spinner()).collect(), &NEVER);
    ran.check();
    for vcpu in 0..5 {
        assert!(
            ran.entered(vcpu) >= 3,
            "vCPU {vcpu} entered {}",
            ran.entered(vcpu)
        );
        assert_eq!(ran.retired(vcpu), Some(RetireReason::RunOver));
    }
    assert!(ran.count(|input| matches!(input, Input::Stopped { .. })) > 20);
    assert!(!ran.measured.interrupted);
}

#[test]
fn whatever_they_do_the_stream_replays_and_no_two_are_on_one_core() {
    let us = Nanos::from_micros;
    let to = |to| Call::Interrupt {
        to: VcpuId(to),
        vector: 0x40,
    };
    let lock = Call::HostLock {
        lock: 0,
        kernel_priority: false,
    };
    let programs = vec![
        spinner(),
        cycle(vec![Turn::Then(us(50), Exit::Call(Call::Sleep(us(700))))]),
        cycle(vec![Turn::Then(us(20), Exit::Halt), call(Call::UserReturn)]),
        cycle(vec![
            Turn::Then(us(300), Exit::Call(to(2))),
            call(Call::Yield),
            call(to(0)),
        ]),
        cycle(vec![
            call(lock),
            Turn::Then(us(100), Exit::Call(Call::Hypervisor(us(200)))),
            call(Call::HostUnlock(0)),
        ]),
        cycle(vec![
            call(lock),
            Turn::Then(us(100), Exit::Call(Call::HostWait(us(150)))),
            call(Call::HostUnlock(0)),
            call(Call::Nothing),
        ]),
        cycle(vec![
            call(Call::Periodic {
                period: us(900),
                vector: 0x41,
            }),
            Turn::Then(us(10), Exit::Halt),
            Turn::Then(us(10), Exit::InterruptWindow),
        ]),
    ];
    let plan = plan(
        "rr:quantum=1ms",
        &[0, 0, 1, 1, 2, 2, 3],
        Nanos::from_millis(500),
    );
    let ran = run(plan, programs, &NEVER);
    ran.check();
    for vcpu in 0..7 {
        assert!(
            ran.entered(vcpu) >= 3,
            "vCPU {vcpu} entered {}",
            ran.entered(vcpu)
        );
    }
    let cpu = |vcpu: usize| ran.dismissed.cpus[vcpu].as_ref().unwrap();
    for vcpu in [0, 2, 6] {
        assert!(
            cpu(vcpu).page.interrupts.load(Ordering::Relaxed) > 0,
            "vCPU {vcpu}"
        );
    }
    assert!(ran.verdict.failures.is_empty());
}

#[test]
fn an_interrupt_is_told_at_the_next_exit_with_the_time_at_which_it_was_handled() {
    let millis = Nanos::from_millis;
    let mut periodic = Some(call(Call::Periodic {
        period: millis(5),
        vector: 0x40,
    }));
    // Alone on its core, it exits for nothing but the next interrupt.
    let program: Program = Box::new(move || periodic.take().unwrap_or(Turn::Spin));
    let plan = plan("rr:quantum=10s", &[0], millis(300));
    let ran = run(plan, vec![program], &NEVER);
    ran.check();
    // When those were raised that are not told of yet.
    let mut raised: Vec<Nanos> = Vec::new();
    let mut before_the_next = 0;
    for entry in &ran.entries {
        match *entry {
            Entry::Event(event) => {
                if let EventKind::InterruptRaised { .. } = event.kind {
                    raised.push(event.at);
                }
            }
            Entry::Input(now, Input::InterruptsTaken { at, more, .. }) => {
                let (first, last) = (raised[0], *raised.last().unwrap());
                assert!(at < now && first <= at, "{first} {at} {now}");
                assert!(more || last <= at, "{last} {at}");
                before_the_next += u32::from(more && at < last);
                raised = Vec::from_iter(more.then_some(last));
            }
            _ => {}
        }
    }
    assert!(before_the_next > 3, "{before_the_next}");
}

#[test]
fn work_in_the_hypervisor_that_a_kick_interrupts_is_done_in_full() {
    let work = Nanos::from_millis(12);
    let programs = vec![
        cycle(vec![call(Call::Hypervisor(work)), call(Call::Finished)]),
        spinner(),
        spinner(),
        spinner(),
    ];
    let mut plan = plan("rr:quantum=1ms", &[0, 1, 1, 1], Nanos::from_millis(400));
    plan.cores.truncate(1);
    let ran = run(plan, programs, &NEVER);
    ran.check();
    assert_eq!(ran.retired(0), Some(RetireReason::Finished));
    assert!(ran.entered(0) > 4, "it was interrupted: {}", ran.entered(0));
    // Time on its core in the hypervisor, from the stream: at least the work asked for.
    let (mut since, mut total) = (None, Nanos::ZERO);
    for entry in &ran.entries {
        let Entry::Event(event) = entry else { continue };
        if event.vcpu == VcpuId(0) {
            if let Some(since) = since.take() {
                total += event.at.since(since);
            }
            if matches!(event.kind, EventKind::Exited(_)) {
                since = Some(event.at);
            }
        }
    }
    assert!(total >= work, "{total}");
}

#[test]
fn under_the_hosts_own_scheduling_all_run_and_nobody_is_kicked() {
    let ran = run(
        plan("host", &[0, 1, 2, 3], Nanos::from_millis(150)),
        (0..4).map(|_| spinner()).collect(),
        &NEVER,
    );
    ran.check();
    assert_eq!(ran.count(|input| matches!(input, Input::Stopped { .. })), 0);
    for vcpu in 0..4 {
        assert_eq!(ran.entered(vcpu), 1);
    }
    let delays = ran.count(|input| matches!(input, Input::HostDelay { .. }));
    assert!(delays > 0, "four on two cores wait");
}

#[test]
fn what_threads_waited_during_the_warm_up_is_told_before_the_measurement() {
    let mut plan = plan("host", &[0, 1, 2, 3], Nanos::from_millis(60));
    // Shorter than the interval at which delays are told by themselves.
    plan.warmup = Nanos::from_millis(60);
    let ran = run(plan, (0..4).map(|_| spinner()).collect(), &NEVER);
    ran.check();
    let start = Input::Mark(Mark::MeasureStart);
    let before = ran.inputs().take_while(|input| *input != start);
    let delays = before.filter(|input| matches!(input, Input::HostDelay { .. }));
    assert!(delays.count() > 0, "four on two cores wait");
}
