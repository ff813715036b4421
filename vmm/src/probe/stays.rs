//! The stays of one vCPU on its core, read off a run's stream.

use stealtime_scheduler::effect::Effect;
use stealtime_scheduler::ids::VcpuId;
use stealtime_scheduler::input::{ExitReason, Input};
use stealtime_scheduler::time::Nanos;
use stealtime_workloads::run::Entry;

/// Whose stays they are: the first of the run. What others do in theirs does not count.
const MEASURED: VcpuId = VcpuId(0);

/// All calls from this number on are alike.
pub(super) const LATER: usize = 4;

/// What an interval in guest code ended with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Before {
    /// The call of this number within a stay on the core; [`LATER`] stands for all from then on.
    Call(usize),
    /// A halt.
    Halt,
}

/// The stays of a run's first vCPU on its core: how long its guest ran each time, and what came between.
#[derive(Debug)]
pub(super) struct Stays {
    /// What it ended with, how many timers fell into it, its length in nanoseconds: until the thread has told of the
    /// interrupts that were taken and of the vCPU's block, if it does, which is when a policy decides.
    intervals: Vec<(Before, u32, u64)>,
    /// The number of the call within the stay, how long until the thread entered again.
    handling: Vec<(usize, u64)>,
    /// How long after the grant the thread was there.
    pub(super) wake_ups: Vec<u64>,
    /// How long after that its guest handled an interrupt that waited for it. Those that something fell into are not
    /// left out: half of them are far from it.
    pub(super) handlers: Vec<u64>,
}

impl Stays {
    pub(super) const fn new() -> Self {
        Self {
            intervals: Vec::new(),
            handling: Vec::new(),
            wake_ups: Vec::new(),
            handlers: Vec::new(),
        }
    }

    /// Adds what another run has.
    pub(super) fn add(&mut self, entries: Vec<Entry>) {
        let mut now = Nanos::ZERO;
        let (mut granted, mut exited) = (None, None);
        // Since when the guest runs, and the timers since then; none if something else came between.
        let mut running: Option<(Nanos, u32)> = None;
        let mut calls = 0_usize;
        // Since when the guest ran whose exit is being told.
        let mut telling: Option<Nanos> = None;
        // When the thread arrived, until it enters the guest once more.
        let mut arrived: Option<Nanos> = None;
        for entry in entries {
            let input = match entry {
                Entry::Input(at, input) => {
                    now = at;
                    input
                }
                Entry::Effect(Effect::Run { vcpu: MEASURED, .. }) => {
                    granted = Some(now);
                    continue;
                }
                Entry::Effect(_) | Entry::Event(_) => continue,
            };
            if of_another(input) {
                continue;
            }
            match input {
                Input::InterruptsTaken { .. } | Input::HostDelay { .. } | Input::Block { .. } => {
                    if let (Some(since), Some((_, _, length))) =
                        (telling, self.intervals.last_mut())
                    {
                        *length = now.since(since).get();
                    }
                    if matches!(input, Input::Block { .. }) {
                        telling = None;
                    }
                }
                _ => telling = None,
            }
            match input {
                Input::Entered { .. } => {
                    let since: Option<Nanos> = granted.take();
                    self.wake_ups
                        .extend(since.map(|since| now.since(since).get()));
                    (running, calls) = (Some((now, 0)), 0);
                    arrived = Some(now);
                }
                Input::Resumed { .. } => {
                    let since: Option<Nanos> = exited.take();
                    self.handling.extend(
                        since.map(|since| (calls.saturating_sub(1), now.since(since).get())),
                    );
                    running = Some((now, 0));
                    arrived = None;
                }
                Input::TimerDue { .. } => {
                    running = running.map(|(since, timers)| (since, timers + 1));
                }
                Input::Exited { why, .. } => {
                    exited = (why == ExitReason::Call).then_some(now);
                    let ended = match why {
                        ExitReason::Call => Some(Before::Call(calls)),
                        ExitReason::Halt => Some(Before::Halt),
                        _ => None,
                    };
                    calls = (calls + usize::from(why == ExitReason::Call)).min(LATER);
                    if let (Some(before), Some((since, timers))) = (ended, running.take()) {
                        let length = now.since(since).get();
                        self.intervals.push((before, timers, length));
                        telling = Some(since);
                    }
                }
                // Said by the vCPU's own thread with its exit.
                Input::InterruptsTaken { at, .. } => {
                    let since = arrived.take();
                    self.handlers
                        .extend(since.map(|since| at.since(since).get()));
                }
                Input::Interrupt { .. } => {}
                // The main thread had something to do, or the call asks for something.
                _ => (running, exited) = (None, None),
            }
        }
    }

    /// How long the call of this number was handled.
    pub(super) fn handled(&self, call: usize) -> Vec<u64> {
        let wanted = self.handling.iter().filter(|(number, _)| *number == call);
        wanted.map(|(_, length)| *length).collect()
    }

    /// Intervals into which nothing fell.
    pub(super) fn quiet(&self, before: Before) -> Vec<u64> {
        self.with(before, 0)
    }

    /// Intervals into which one timer fell.
    pub(super) fn with_timer(&self, before: Before) -> Vec<u64> {
        self.with(before, 1)
    }

    fn with(&self, before: Before, timers: u32) -> Vec<u64> {
        let wanted = self.intervals.iter();
        wanted
            .filter(|(ended, fell, _)| *ended == before && *fell == timers)
            .map(|(_, _, length)| *length)
            .collect()
    }
}

/// Whether this is said by another vCPU's thread of its stay.
fn of_another(input: Input) -> bool {
    match input {
        Input::Entered { vcpu, .. }
        | Input::Exited { vcpu, .. }
        | Input::Resumed { vcpu }
        | Input::InterruptsTaken { vcpu, .. }
        | Input::HostDelay { vcpu, .. }
        | Input::Block { vcpu, .. } => vcpu != MEASURED,
        _ => false,
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use stealtime_scheduler::ids::CoreId;
    use stealtime_scheduler::input::{BlockOn, Timer};

    const CORE: CoreId = CoreId(0);
    const A: VcpuId = MEASURED;

    fn input(at: u64, input: Input) -> Entry {
        Entry::Input(Nanos(at), input)
    }

    fn exited(at: u64, why: ExitReason) -> Entry {
        input(at, Input::Exited { vcpu: A, why })
    }

    fn due(at: u64) -> Entry {
        let timer = Timer::Wake(A);
        input(at, Input::TimerDue { timer })
    }

    fn resumed(at: u64) -> Entry {
        input(at, Input::Resumed { vcpu: A })
    }

    #[test]
    fn intervals_go_by_what_ended_them_and_what_fell_into_them() {
        let mut stays = Stays::new();
        stays.add(vec![
            due(90),
            Entry::Effect(Effect::Run {
                core: CORE,
                vcpu: A,
            }),
            input(
                100,
                Input::Entered {
                    core: CORE,
                    vcpu: A,
                },
            ),
            exited(110, ExitReason::Call),
            resumed(112),
            due(115),
            exited(125, ExitReason::Call),
            resumed(127),
            input(
                130,
                Input::HostDelay {
                    vcpu: A,
                    delay: Nanos(1),
                },
            ),
            exited(140, ExitReason::Call),
            resumed(142),
            exited(147, ExitReason::Halt),
        ]);
        assert_eq!(stays.wake_ups, [10]);
        assert_eq!(stays.handled(0), [2]);
        assert_eq!(stays.handling.len(), 3);
        assert_eq!(stays.quiet(Before::Call(0)), [10]);
        assert_eq!(stays.quiet(Before::Call(1)), [0; 0], "a timer fell into it");
        assert_eq!(stays.with_timer(Before::Call(1)), [13]);
        assert_eq!(stays.quiet(Before::Call(2)), [0; 0], "disturbed");
        assert_eq!(stays.quiet(Before::Halt), [5]);
    }

    #[test]
    fn intervals_end_with_what_the_exit_asked_for() {
        let delay = Input::HostDelay {
            vcpu: A,
            delay: Nanos(1),
        };
        let block = Input::Block {
            vcpu: A,
            on: BlockOn::Idle,
        };
        let taken = Input::InterruptsTaken {
            vcpu: A,
            at: Nanos(104),
            more: false,
        };
        let mut stays = Stays::new();
        stays.add(vec![
            resumed(100),
            exited(110, ExitReason::Call),
            input(111, taken),
            resumed(115),
            input(117, delay),
            resumed(120),
            exited(130, ExitReason::Halt),
            input(132, delay),
            input(133, block),
            input(150, block),
        ]);
        assert_eq!(
            stays.quiet(Before::Call(0)),
            [11],
            "a delay told later has no part"
        );
        assert_eq!(stays.quiet(Before::Halt), [13]);
    }

    #[test]
    fn what_another_vcpu_does_in_its_own_stay_does_not_count() {
        const B: VcpuId = VcpuId(1);
        let run = |vcpu| Entry::Effect(Effect::Run { core: CORE, vcpu });
        let entered = |at, vcpu| input(at, Input::Entered { core: CORE, vcpu });
        let halted = Input::Exited {
            vcpu: B,
            why: ExitReason::Halt,
        };
        let on = BlockOn::Idle;
        let mut stays = Stays::new();
        stays.add(vec![
            run(A),
            entered(100, A),
            exited(110, ExitReason::Call),
            input(111, Input::Block { vcpu: A, on }),
            run(B),
            entered(120, B),
            input(130, halted),
            input(131, Input::Block { vcpu: B, on }),
            run(A),
            entered(150, A),
            exited(163, ExitReason::Call),
            resumed(164),
        ]);
        assert_eq!(stays.wake_ups, [100, 19]);
        assert_eq!(stays.quiet(Before::Call(0)), [11, 13]);
        assert_eq!(stays.quiet(Before::Halt), [0; 0]);
        assert_eq!(stays.handled(0), [1]);
    }

    #[test]
    fn handlers_count_from_the_arrival_of_the_thread() {
        let entered = Input::Entered {
            core: CORE,
            vcpu: A,
        };
        let taken = |at| Input::InterruptsTaken {
            vcpu: A,
            at: Nanos(at),
            more: false,
        };
        let mut stays = Stays::new();
        stays.add(vec![
            input(100, entered),
            exited(110, ExitReason::Call),
            input(110, taken(107)),
            resumed(112),
            exited(120, ExitReason::Call),
            input(120, taken(118)),
        ]);
        assert_eq!(stays.handlers, [7]);
    }
}
