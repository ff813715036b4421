//! What a stream says, added up: the states of every vCPU over time.

use crate::plans::Done;
use stealtime_scheduler::event::{Event, EventKind, Waits};
use stealtime_scheduler::ids::{CoreId, VcpuId};
use stealtime_scheduler::time::Nanos;
use stealtime_workloads::run::Entry;

/// A state of a vCPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Away,
    Ready,
    Run,
    Hypervisor,
    Blocked,
}

/// A vCPU was in a state from one moment to another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) vcpu: VcpuId,
    pub(crate) state: State,
    /// The core, for `Run` and `Hypervisor`.
    pub(crate) core: Option<CoreId>,
    pub(crate) from: Nanos,
    pub(crate) to: Nanos,
}

/// All events of a run, in order.
pub(crate) fn events(done: &Done) -> impl Iterator<Item = Event> {
    done.entries.iter().filter_map(|entry| match entry {
        Entry::Event(event) => Some(*event),
        Entry::Input(..) | Entry::Effect(_) => None,
    })
}

/// When events of a kind happened, and to whom.
pub(crate) fn when(done: &Done, wanted: impl Fn(&EventKind) -> bool) -> Vec<(Nanos, VcpuId)> {
    let of_kind = events(done).filter(|event| wanted(&event.kind));
    of_kind.map(|event| (event.at, event.vcpu)).collect()
}

/// Every span of every vCPU that is not empty. A state that an event does not allow is a panic.
pub(crate) fn spans(done: &Done) -> Vec<Span> {
    let count = done.outcome.guests.len();
    let mut now: Vec<(State, Option<CoreId>, Nanos)> =
        vec![(State::Away, None, Nanos::ZERO); count];
    let mut spans = Vec::new();
    for event in events(done) {
        let (state, core, since) = now[event.vcpu.index()];
        let Some((next, next_core)) = follows(state, core, &event) else {
            continue;
        };
        if event.at > since {
            let (vcpu, from, to) = (event.vcpu, since, event.at);
            spans.push(Span {
                vcpu,
                state,
                core,
                from,
                to,
            });
        }
        now[event.vcpu.index()] = (next, next_core, event.at);
    }
    spans
}

fn follows(state: State, core: Option<CoreId>, event: &Event) -> Option<(State, Option<CoreId>)> {
    use State::{Away, Blocked, Hypervisor, Ready, Run};
    let expect = |allowed: &[State]| assert!(allowed.contains(&state), "{state:?}: {event:?}");
    match event.kind {
        EventKind::Admitted => {
            expect(&[Away]);
            Some((Ready, None))
        }
        EventKind::Retired(_) => Some((Away, None)),
        EventKind::Woken(_) => {
            expect(&[Blocked]);
            Some((Ready, None))
        }
        EventKind::Running(on) => {
            expect(&[Ready]);
            Some((Run, Some(on)))
        }
        EventKind::Exited(_) => {
            expect(&[Run]);
            Some((Hypervisor, core))
        }
        EventKind::Resumed => {
            expect(&[Hypervisor]);
            Some((Run, core))
        }
        EventKind::Preempted(..) => {
            // From `Run` if it was wanted before it got as far as the guest.
            expect(&[Hypervisor, Run]);
            Some((Ready, None))
        }
        EventKind::Yielded(_) => {
            expect(&[Hypervisor]);
            Some((Ready, None))
        }
        EventKind::Blocked(Waits::HostLock(..)) => {
            // From `Ready` if it was woken to try a mutex again and found it taken.
            expect(&[Hypervisor, Ready]);
            Some((Blocked, None))
        }
        EventKind::Blocked(_) => {
            expect(&[Hypervisor]);
            Some((Blocked, None))
        }
        _ => None,
    }
}

/// Time in a state.
pub(crate) fn total(spans: &[Span], vcpu: u32, state: State) -> u64 {
    let of_it = spans
        .iter()
        .filter(|span| span.vcpu == VcpuId(vcpu) && span.state == state);
    of_it.map(|span| span.to.since(span.from).0).sum()
}

/// The rules that hold in every run: a core has one vCPU at a time, states follow each other as they
/// may, the time of each vCPU adds up to the run's, the policy broke no rule, and what was emitted
/// has arrived.
pub(crate) fn check(done: &Done, end: Nanos) -> Vec<Span> {
    let spans = spans(done);
    let mut of_core: Vec<_> = spans.iter().filter(|span| span.core.is_some()).collect();
    of_core.sort_by_key(|span| (span.core, span.from));
    for pair in of_core.windows(2) {
        let apart = pair[0].core != pair[1].core || pair[0].to <= pair[1].from;
        assert!(apart, "two on a core: {pair:?}");
    }
    for vcpu in 0..done.outcome.guests.len() {
        let of_it = spans.iter().filter(|span| span.vcpu.index() == vcpu);
        let sum: Nanos = of_it.map(|span| span.to.since(span.from)).sum();
        assert!(sum <= end, "vcpu {vcpu}: {sum} of {end}");
    }
    assert_eq!(
        done.outcome.violation_count, 0,
        "{:?}",
        done.outcome.violations
    );
    assert_eq!(
        done.outcome.quality.events_emitted,
        events(done).count() as u64
    );
    let inputs = done
        .entries
        .iter()
        .filter(|e| matches!(e, Entry::Input(..)));
    assert_eq!(done.outcome.quality.dispatch_calls, inputs.count() as u64);
    assert!(in_order(done));
    spans
}

/// Inputs never go back in time.
fn in_order(done: &Done) -> bool {
    let times = done.entries.iter().filter_map(|entry| match entry {
        Entry::Input(at, _) => Some(*at),
        Entry::Effect(_) | Entry::Event(_) => None,
    });
    times.is_sorted()
}
