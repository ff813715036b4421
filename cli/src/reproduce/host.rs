//! What the host took from a run's threads, put where it was taken.
//!
//! The host tells how long a vCPU's thread waited for it when that thread leaves its core: after the
//! end of what was measured, often. How much of it came before the thread's arrival on the core is
//! known, from the grant to the arrival; that part is put there, and only the rest where it was told. A time that
//! ended before keeps what it may have had of that rest.
//! A timer of which the dispatcher was told late was kept waiting by the host too.
//!
//! The simulator's delays and late timers are modelled on the host's. They are told and left out by the same
//! rule, so that a figure means the same on every backend.

use std::collections::BTreeMap;
use stealtime_scheduler::effect::Effect;
use stealtime_scheduler::event::{Event, EventKind};
use stealtime_scheduler::ids::VcpuId;
use stealtime_scheduler::input::{Input, Timer};
use stealtime_scheduler::time::Nanos;
use stealtime_workloads::run::Entry;

/// Time that the host took, as far as it was taken before an instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Taken {
    /// It was over then.
    pub(super) at: Nanos,
    /// How much it was.
    pub(super) time: Nanos,
}

/// Timers of sleeping vCPUs, and how late they were told of.
#[derive(Default, Debug)]
pub(super) struct LateTimers {
    armed: BTreeMap<VcpuId, Nanos>,
    late: Vec<(VcpuId, Taken)>,
}

impl LateTimers {
    /// Takes note of the next entry of the stream.
    pub(super) fn entry(&mut self, entry: &Entry) {
        match *entry {
            Entry::Effect(Effect::Arm {
                timer: Timer::Wake(vcpu),
                at,
            }) => {
                self.armed.insert(vcpu, at);
            }
            Entry::Effect(Effect::Cancel {
                timer: Timer::Wake(vcpu),
            }) => {
                self.armed.remove(&vcpu);
            }
            Entry::Input(
                at,
                Input::TimerDue {
                    timer: Timer::Wake(vcpu),
                },
            ) => {
                // A report before its time is of an earlier arming: it was on its way.
                let armed = self.armed.get(&vcpu).copied();
                if let Some(due) = armed.filter(|due| *due <= at) {
                    self.armed.remove(&vcpu);
                    let time = at.since(due);
                    self.late.push((vcpu, Taken { at, time }));
                }
            }
            _ => {}
        }
    }

    /// Those of a vCPU, in order.
    pub(super) fn of(&self, vcpu: VcpuId) -> Vec<Taken> {
        let of_it = self.late.iter().filter(|(whose, _)| *whose == vcpu);
        of_it.map(|(_, taken)| *taken).collect()
    }
}

/// What the host took from vCPUs' threads by its own account, in order.
pub(super) fn taken(events: &[Event]) -> Vec<Taken> {
    let mut granted: BTreeMap<VcpuId, Nanos> = BTreeMap::new();
    // The way to the core of each stay: when it was over, and how long it took.
    let mut ways: BTreeMap<VcpuId, Taken> = BTreeMap::new();
    let mut all = Vec::new();
    for event in events {
        let (at, vcpu) = (event.at, event.vcpu);
        match event.kind {
            EventKind::Granted(_) => {
                granted.insert(vcpu, at);
            }
            EventKind::Running(_) => {
                if let Some(since) = granted.remove(&vcpu) {
                    let time = at.since(since);
                    ways.insert(vcpu, Taken { at, time });
                }
            }
            EventKind::HostDelay(delay) => {
                let mut rest = delay;
                if let Some(way) = ways.remove(&vcpu) {
                    let time = way.time.min(delay);
                    all.push(Taken { at: way.at, time });
                    rest = delay.since(time);
                }
                all.push(Taken { at, time: rest });
            }
            _ => {}
        }
    }
    all.sort_by_key(|taken| taken.at);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use stealtime_scheduler::ids::CoreId;

    const fn ms(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    #[test]
    fn a_delay_on_the_way_to_a_core_is_put_there_though_it_is_told_later() {
        let core = CoreId(0);
        let event = |at, kind| Event {
            at,
            vcpu: VcpuId(3),
            kind,
        };
        let told = taken(&[
            event(ms(10), EventKind::Granted(core)),
            event(ms(14), EventKind::Running(core)),
            event(ms(30), EventKind::HostDelay(ms(5))),
            // The way of that stay has been told of.
            event(ms(31), EventKind::HostDelay(ms(2))),
        ]);
        let expected = [(14, 4), (30, 1), (31, 2)].map(|(at, time)| Taken {
            at: ms(at),
            time: ms(time),
        });
        assert_eq!(told, expected);
    }

    #[test]
    fn a_timer_is_late_by_what_lies_between_its_time_and_its_being_told() {
        let timer = Timer::Wake(VcpuId(1));
        let mut timers = LateTimers::default();
        timers.entry(&Entry::Effect(Effect::Arm { timer, at: ms(5) }));
        timers.entry(&Entry::Input(ms(9), Input::TimerDue { timer }));
        let (at, time) = (ms(9), ms(4));
        assert_eq!(timers.of(VcpuId(1)), [Taken { at, time }]);
        assert_eq!(timers.of(VcpuId(0)), []);
    }

    #[test]
    fn a_timer_that_was_cancelled_or_armed_anew_is_not_late_by_an_earlier_report() {
        let timer = Timer::Wake(VcpuId(1));
        let mut timers = LateTimers::default();
        timers.entry(&Entry::Effect(Effect::Arm { timer, at: ms(5) }));
        timers.entry(&Entry::Effect(Effect::Cancel { timer }));
        timers.entry(&Entry::Input(ms(6), Input::TimerDue { timer }));
        assert_eq!(timers.of(VcpuId(1)), []);
        timers.entry(&Entry::Effect(Effect::Arm { timer, at: ms(10) }));
        timers.entry(&Entry::Input(ms(7), Input::TimerDue { timer }));
        timers.entry(&Entry::Input(ms(12), Input::TimerDue { timer }));
        let (at, time) = (ms(12), ms(2));
        assert_eq!(timers.of(VcpuId(1)), [Taken { at, time }]);
    }
}
