//! What things cost in the course of a run, read off the streams of six kinds of short ones.
//!
//! [`super::guests`] and [`super::threads`] measure one mechanism at a time. In a run more happens beside
//! each: the dispatcher is told, run delays are read, the timer thread may share the core. These figures
//! have all of that in them, and their intervals are those of the simulator's cost model. All but one are by the
//! host's clock; when a handler begins only the guest can tell.

use super::costs::{MeasureError, cost};
use super::plan::plan;
use super::sample::Cost;
use super::stays::{Before, LATER, Stays};
use crate::backend::KvmBackend;
use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use stealtime_guest::op::{Length, Step};
use stealtime_scheduler::effect::Effect;
use stealtime_scheduler::ids::VcpuId;
use stealtime_scheduler::input::{Input, Timer};
use stealtime_scheduler::time::Nanos;
use stealtime_workloads::run::{Backend, Entry, Observer, Plan};

/// How often each of the runs takes place, in turn with the others. Some costs are differences between two of them,
/// which would else have in them what changed on the machine between the two.
const ROUNDS: usize = 4;
/// How long each of the runs takes.
const LENGTH: Nanos = Nanos::from_millis(100);
/// Ops of the guest's own that are measured together, and steps of operations on a lock.
const OPS: usize = 200;
/// How exactly the guest's clock must be known where it tells a cost, in nanoseconds: where exits are dear enough to
/// need it, KVM tells the guest's counter to a few microseconds.
const CLOCK_NS: u64 = 10_000;
/// The vector of all interrupts.
const VECTOR: u8 = 0x40;

/// Costs in the course of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CourseCosts {
    /// From the instant for which a timer was armed until the dispatcher is told.
    pub timer: Cost,
    /// From then until the vCPU that has to make room for one that wakes has given its core back.
    pub kick: Cost,
    /// From the grant of a core whose vCPU blocks until the next one's thread is on it.
    ///
    /// A thread that was preempted may be overtaken by the next one before it sleeps, and does the rest of its part
    /// when that one is kicked. One that blocks does all of it at once, so this is the whole hand-over.
    pub hand_over: Cost,
    /// The same where the vCPU made room for the next one, whose thread takes its place at once.
    pub take_over: Cost,
    /// From the grant of a core that idles until the vCPU's thread is on it.
    pub wake_up: Cost,
    /// From a thread's arrival on its core until the guest's first call arrives.
    pub first_call: Cost,
    /// The same after an interrupt was taken on the way in.
    pub interrupted_call: Cost,
    /// From the thread's arrival until the guest began to handle that interrupt, by the guest's clock. None if that is
    /// not known well enough.
    pub until_handler: Option<Cost>,
    /// From an entry until the next call arrives, with nothing between.
    pub call: Cost,
    /// From an entry until the next halt arrives, with nothing between.
    pub halt: Cost,
    /// From the arrival of a call, which wakes another vCPU with an interrupt, until the thread enters again.
    pub handling: Cost,
    /// What comes on top of an exit when the vCPU may lose its core with the call.
    pub leaving: Cost,
    /// What the guest needs for one op of its program that takes no time of its own.
    pub op: Cost,
    /// What it needs for one step of an operation on a lock in its memory that nobody else wants.
    pub lock_step: Cost,
    /// What a timer that changes nothing takes from the guest on the core.
    pub timer_work: Cost,
    /// What it takes when a timer is armed that is earlier than all others.
    pub timer_wake: Cost,
}

/// Measures in six kinds of runs on this core. Takes about two and a half seconds.
pub(super) fn measure(core: u16) -> Result<CourseCosts, MeasureError> {
    let mut preemptions = Preemptions::default();
    let [mut calls, mut wakes, mut halts, mut arms, mut works] = [const { Stays::new() }; 5];
    for _ in 0..ROUNDS {
        preemptions.add(run(&wakers(core))?.entries);
        calls.add(run(&caller(core))?.entries);
        wakes.add(run(&waker(core))?.entries);
        let halted = run(&halter(core))?;
        halts.add(halted.entries);
        if halted.clock_ns > CLOCK_NS {
            halts.handlers.clear();
        }
        arms.add(run(&armer(core))?.entries);
        works.add(run(&worker(core))?.entries);
    }
    let first_call = cost(calls.quiet(Before::Call(0)), "first calls in a run")?;
    let arms = arms.quiet(Before::Call(0)).into_iter();
    let timer_wake = arms.map(|sample| sample.saturating_sub(first_call.median_ns));

    let call = cost(calls.quiet(Before::Call(1)), "calls in a run")?;
    let each_op = |number| {
        let ops = calls.quiet(Before::Call(number)).into_iter();
        ops.map(|sample| sample.saturating_sub(call.median_ns) / OPS as u64)
    };
    let sleeps = calls.quiet(Before::Call(LATER)).into_iter();
    let leaving = sleeps.map(|sample| sample.saturating_sub(call.median_ns));
    let work = cost(works.quiet(Before::Call(LATER)), "work in a run")?;
    let with_timer = works.with_timer(Before::Call(LATER)).into_iter();
    let timer_work = with_timer.map(|sample| sample.saturating_sub(work.median_ns));
    Ok(CourseCosts {
        timer: cost(preemptions.lateness, "timers in a run")?,
        kick: cost(preemptions.kicks, "kicks in a run")?,
        hand_over: cost(preemptions.hand_overs, "hand-overs in a run")?,
        take_over: cost(preemptions.take_overs, "take-overs in a run")?,
        wake_up: cost(calls.wake_ups.clone(), "wake-ups in a run")?,
        first_call,
        interrupted_call: cost(halts.quiet(Before::Call(0)), "interrupts in a run")?,
        until_handler: Cost::of(halts.handlers.clone()),
        halt: cost(halts.quiet(Before::Halt), "halts in a run")?,
        handling: cost(wakes.handled(0), "calls handled in a run")?,
        leaving: cost(leaving.collect(), "calls that give up the core")?,
        op: cost(each_op(2).collect(), "ops in a run")?,
        lock_step: cost(each_op(3).collect(), "steps with a lock in a run")?,
        timer_wake: cost(timer_wake.collect(), "timers that are armed")?,
        timer_work: cost(timer_work.collect(), "timers that change nothing")?,
        call,
    })
}

/// A guest that computes without end, and some that sleep and get the core when they wake, each in its own time: with
/// more than one, what a thread needs is in no cache when it comes on the core, as in runs.
fn wakers(core: u16) -> Plan {
    let spin = [
        Step::Repeat(0),
        Step::Run(Length::Fixed(1_000_000)),
        Step::EndRepeat,
    ];
    let wake = [3_100_000, 3_700_000, 4_300_000, 5_300_000].map(|sleep| {
        [
            Step::Repeat(0),
            Step::Sleep(Length::Fixed(sleep)),
            Step::Run(Length::Fixed(20_000)),
            Step::EndRepeat,
        ]
    });
    let mut programs = vec![&spin[..]];
    programs.extend(wake.iter().map(|program| &program[..]));
    plan(("eevdf", &[]), &[core], LENGTH, &programs)
}

/// A guest that sleeps and then calls: at once, at once again, after many ops, after many steps with a lock, and to
/// sleep again. Under this policy nothing else happens to it.
fn caller(core: u16) -> Plan {
    let mut steps = vec![
        Step::Repeat(0),
        Step::Sleep(Length::Fixed(500_000)),
        Step::Exit,
        Step::Exit,
    ];
    for _ in 0..OPS / 2 {
        steps.extend([Step::RequestBegin, Step::RequestEnd]);
    }
    steps.push(Step::Exit);
    for _ in 0..OPS / 2 {
        steps.extend([Step::Lock(0), Step::Unlock(0)]);
    }
    steps.extend([Step::Exit, Step::EndRepeat]);
    plan(("null", &[]), &[core], LENGTH, &[&steps])
}

/// A guest that sleeps and then calls with an interrupt for another one, which waits for it: that one is woken, and gets
/// the core when the first sleeps again. Under this policy nobody is preempted for whoever wakes, and slices are long.
fn waker(core: u16) -> Plan {
    let steps = [
        Step::Repeat(0),
        Step::Sleep(Length::Fixed(500_000)),
        Step::Interrupt {
            vcpu: 1,
            vector: VECTOR,
        },
        Step::EndRepeat,
    ];
    let other = [Step::Repeat(0), Step::WaitInterrupt, Step::EndRepeat];
    let policy = ("rr", &[("quantum", "100ms")][..]);
    plan(policy, &[core], LENGTH, &[&steps, &other])
}

/// A guest that sleeps and calls at once. Under this policy a timer, the end of its slice, is armed when it comes
/// on its core, and there is no other.
fn armer(core: u16) -> Plan {
    let steps = [
        Step::Repeat(0),
        Step::Sleep(Length::Fixed(500_000)),
        Step::Exit,
        Step::EndRepeat,
    ];
    plan(("eevdf", &[]), &[core], LENGTH, &[&steps])
}

/// A guest that works between calls and never leaves its core. The slices of the policy are timers that
/// change nothing; one falls into every third stretch of work or so.
fn worker(core: u16) -> Plan {
    let steps = [
        Step::Repeat(0),
        Step::Run(Length::Fixed(100_000)),
        Step::Exit,
        Step::EndRepeat,
    ];
    let policy = ("eevdf", &[("slice", "300us")][..]);
    plan(policy, &[core], LENGTH, &[&steps])
}

/// A guest that waits for its timer's interrupt, calls, and waits again.
fn halter(core: u16) -> Plan {
    let steps = [
        Step::Periodic {
            period: 1_000_000,
            vector: VECTOR,
        },
        Step::Repeat(0),
        Step::WaitInterrupt,
        Step::Exit,
        Step::EndRepeat,
    ];
    plan(("null", &[]), &[core], LENGTH, &[&steps])
}

/// What a run leaves.
#[derive(Default)]
struct Tape {
    entries: Vec<Entry>,
    /// How exactly the guest's clock is known, in nanoseconds.
    clock_ns: u64,
}

impl Observer for Tape {
    fn entries(&mut self, entries: &[Entry]) {
        self.entries.extend_from_slice(entries);
    }
}

fn run(plan: &Plan) -> Result<Tape, MeasureError> {
    let mut tape = Tape::default();
    let seen = KvmBackend.run(plan, &AtomicBool::new(false), &mut tape)?;
    let clock = seen.quality.clock;
    tape.clock_ns = clock.map_or(u64::MAX, |clock| clock.uncertainty_ns);
    Ok(tape)
}

/// Stays that were ended for a vCPU that woke, and hand-overs of one that blocked.
#[derive(Default, Debug)]
struct Preemptions {
    lateness: Vec<u64>,
    kicks: Vec<u64>,
    hand_overs: Vec<u64>,
    take_overs: Vec<u64>,
    armed: HashMap<Timer, Nanos>,
    /// The last input and when it came.
    last: Option<Input>,
    now: Nanos,
    /// The vCPU that was kicked and has not given its core back, and since when.
    kicked: Option<(VcpuId, Nanos)>,
    /// Who was granted the core of another one, by which input, and when.
    granted: Option<(VcpuId, Option<Input>, Nanos)>,
}

impl Preemptions {
    /// Adds what another run has.
    fn add(&mut self, entries: Vec<Entry>) {
        let mut seen = Self::default();
        for entry in entries {
            seen.take(entry);
        }
        self.lateness.append(&mut seen.lateness);
        self.kicks.append(&mut seen.kicks);
        self.hand_overs.append(&mut seen.hand_overs);
        self.take_overs.append(&mut seen.take_overs);
    }

    fn take(&mut self, entry: Entry) {
        match entry {
            Entry::Input(now, input) => {
                self.now = now;
                self.last = Some(input);
                self.input(input);
            }
            Entry::Effect(Effect::Arm { timer, at }) => {
                self.armed.insert(timer, at);
            }
            Entry::Effect(Effect::Kick { vcpu, .. }) if self.wakes() => {
                self.kicked = Some((vcpu, self.now));
            }
            Entry::Effect(Effect::Run { vcpu, .. }) => {
                self.granted = Some((vcpu, self.last, self.now));
            }
            Entry::Effect(_) | Entry::Event(_) => {}
        }
    }

    /// Whether the last input woke a vCPU by its timer.
    fn wakes(&self) -> bool {
        matches!(
            self.last,
            Some(Input::TimerDue {
                timer: Timer::Wake(_)
            })
        )
    }

    fn input(&mut self, input: Input) {
        match input {
            Input::TimerDue { timer } => {
                let armed = self.armed.remove(&timer);
                self.lateness
                    .extend(armed.map(|at| self.now.since(at).get()));
            }
            Input::Stopped { vcpu, .. } => {
                if let Some((_, since)) = self.kicked.take_if(|(kicked, _)| *kicked == vcpu) {
                    self.kicks.push(self.now.since(since).get());
                }
            }
            // It gave its core up by itself.
            Input::Block { vcpu, .. } => {
                self.kicked.take_if(|(kicked, _)| *kicked == vcpu);
            }
            Input::Entered { vcpu, .. } => match self.granted.take_if(|(to, ..)| *to == vcpu) {
                Some((_, Some(Input::Block { .. }), since)) => {
                    self.hand_overs.push(self.now.since(since).get());
                }
                Some((_, Some(Input::Stopped { .. }), since)) => {
                    self.take_overs.push(self.now.since(since).get());
                }
                _ => {}
            },
            _ => {}
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use stealtime_scheduler::ids::CoreId;
    use stealtime_scheduler::input::BlockOn;

    const CORE: CoreId = CoreId(0);
    const A: VcpuId = VcpuId(0);
    const B: VcpuId = VcpuId(1);
    const WAKE: Timer = Timer::Wake(B);

    fn input(at: u64, input: Input) -> Entry {
        Entry::Input(Nanos(at), input)
    }

    fn due(at: u64) -> Entry {
        input(at, Input::TimerDue { timer: WAKE })
    }

    fn entered(at: u64, vcpu: VcpuId) -> Entry {
        input(at, Input::Entered { core: CORE, vcpu })
    }

    #[test]
    fn kicks_count_if_a_wake_up_asked_for_them_and_hand_overs_by_how_the_one_before_left() {
        let kick = Entry::Effect(Effect::Kick {
            core: CORE,
            vcpu: A,
        });
        let stopped = |at| {
            input(
                at,
                Input::Stopped {
                    core: CORE,
                    vcpu: A,
                },
            )
        };
        let run = |vcpu| Entry::Effect(Effect::Run { core: CORE, vcpu });
        let block = Input::Block {
            vcpu: B,
            on: BlockOn::Idle,
        };
        let mut seen = Preemptions::default();
        seen.add(vec![
            Entry::Effect(Effect::Arm {
                timer: WAKE,
                at: Nanos(100),
            }),
            due(103),
            kick,
            stopped(110),
            run(B),
            entered(117, B),
            input(150, block),
            run(A),
            entered(162, A),
            input(200, Input::Admit { vcpu: B }),
            kick,
            stopped(210),
            run(B),
            entered(230, B),
        ]);
        assert_eq!(
            (seen.lateness, seen.kicks, seen.hand_overs),
            (vec![3], vec![7], vec![12])
        );
        assert_eq!(seen.take_overs, [7, 20]);
    }
}
