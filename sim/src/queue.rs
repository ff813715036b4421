//! The event queue: what is due next in virtual time.
//!
//! Everything that can be due has a fixed slot (a timer, a vCPU's next step, a signal on its way), and
//! a slot is due at one instant at a time. So the queue is a binary heap with the place of every slot
//! beside it: arming anew and cancelling move one entry, nothing stale is left behind, and nothing is
//! allocated after set-up.
//!
//! # Order
//! By time, then by sequence: of two slots due at the same instant the one armed first comes first.
//! Arming anew counts as arming.

use stealtime_scheduler::ids::{CoreId, VcpuId};
use stealtime_scheduler::input::Timer;
use stealtime_scheduler::time::Nanos;

/// What can be due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Slot {
    /// The next moment that reports refer to.
    Mark,
    /// The timer thread wakes for a timer that was taken out.
    TimerThread,
    /// A timer that the dispatcher armed.
    Timer(Timer),
    /// The next step of a vCPU: admitted, on its core, done with a stretch of guest or host work.
    Step(VcpuId),
    /// A signal to a vCPU's thread arrives.
    Signal(VcpuId),
    /// The host takes a core away.
    Theft(CoreId),
    /// What the host took is told of those that stay on their cores.
    TellThefts,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Due {
    at: Nanos,
    sequence: u64,
    slot: u32,
}

/// No place in the heap.
const NOWHERE: u32 = u32::MAX;
/// Slots that there is one of: the mark, the policy's three clocks, the timer thread, the word on thefts.
const SINGLE: u32 = 6;
/// Slots of each core.
const PER_CORE: u32 = 3;
/// Slots of each vCPU.
const PER_VCPU: u32 = 4;

/// The queue. See the module.
///
/// # Invariants
/// `heap` is ordered as a binary heap by time and sequence; `places[slot]` is the slot's position in
/// it, or `NOWHERE`.
#[derive(Debug)]
pub(crate) struct Queue {
    heap: Vec<Due>,
    places: Vec<u32>,
    /// Slots of all cores.
    of_cores: u32,
    sequence: u64,
}

impl Queue {
    /// An empty queue for so many cores and vCPUs. `None` if there are more than can be numbered.
    pub(crate) fn new(cores: usize, vcpus: usize) -> Option<Self> {
        let of_cores = u32::try_from(cores).ok()?.checked_mul(PER_CORE)?;
        let vcpus = u32::try_from(vcpus).ok()?;
        let slots = vcpus
            .checked_mul(PER_VCPU)?
            .checked_add(SINGLE.checked_add(of_cores)?)?;
        Some(Self {
            heap: Vec::with_capacity(slots as usize),
            places: vec![NOWHERE; slots as usize],
            of_cores,
            sequence: 0,
        })
    }

    fn number(&self, slot: Slot) -> u32 {
        let of_core = |core: CoreId, which| SINGLE + u32::from(core.0) * PER_CORE + which;
        let of_vcpu = |vcpu: VcpuId, which| SINGLE + self.of_cores + vcpu.0 * PER_VCPU + which;
        match slot {
            Slot::Mark => 0,
            Slot::Timer(Timer::Tick) => 1,
            Slot::Timer(Timer::Period) => 2,
            Slot::Timer(Timer::Policy) => 3,
            Slot::TimerThread => 4,
            Slot::TellThefts => 5,
            Slot::Timer(Timer::Slice(core)) => of_core(core, 0),
            Slot::Timer(Timer::Grace(core)) => of_core(core, 1),
            Slot::Theft(core) => of_core(core, 2),
            Slot::Step(vcpu) => of_vcpu(vcpu, 0),
            Slot::Signal(vcpu) => of_vcpu(vcpu, 1),
            Slot::Timer(Timer::Wake(vcpu)) => of_vcpu(vcpu, 2),
            Slot::Timer(Timer::Periodic(vcpu)) => of_vcpu(vcpu, 3),
        }
    }

    fn slot(&self, number: u32) -> Slot {
        let Some(number) = number.checked_sub(SINGLE) else {
            return match number {
                0 => Slot::Mark,
                1 => Slot::Timer(Timer::Tick),
                2 => Slot::Timer(Timer::Period),
                3 => Slot::Timer(Timer::Policy),
                4 => Slot::TimerThread,
                _ => Slot::TellThefts,
            };
        };
        let Some(number) = number.checked_sub(self.of_cores) else {
            let core = CoreId(u16::try_from(number / PER_CORE).unwrap_or(u16::MAX));
            return match number % PER_CORE {
                0 => Slot::Timer(Timer::Slice(core)),
                1 => Slot::Timer(Timer::Grace(core)),
                _ => Slot::Theft(core),
            };
        };
        let vcpu = VcpuId(number / PER_VCPU);
        match number % PER_VCPU {
            0 => Slot::Step(vcpu),
            1 => Slot::Signal(vcpu),
            2 => Slot::Timer(Timer::Wake(vcpu)),
            _ => Slot::Timer(Timer::Periodic(vcpu)),
        }
    }

    /// The slot is due at `at`, and no longer at an instant set before.
    pub(crate) fn set(&mut self, slot: Slot, at: Nanos) {
        let slot = self.number(slot);
        let sequence = self.sequence;
        self.sequence += 1;
        let due = Due { at, sequence, slot };
        let place = self.places[slot as usize];
        if place == NOWHERE {
            self.heap.push(due);
            self.rise(self.heap.len() - 1);
        } else {
            let place = place as usize;
            self.heap[place] = due;
            let place = self.rise(place);
            self.sink(place);
        }
    }

    /// When the slot is due, if it is.
    pub(crate) fn due(&self, slot: Slot) -> Option<Nanos> {
        let place = self.places[self.number(slot) as usize];
        (place != NOWHERE).then(|| self.heap[place as usize].at)
    }

    /// The slot is not due any more.
    pub(crate) fn cancel(&mut self, slot: Slot) {
        let place = self.places[self.number(slot) as usize];
        if place != NOWHERE {
            self.take(place as usize);
        }
    }

    /// Whether the slot is due at some time.
    pub(crate) fn is_set(&self, slot: Slot) -> bool {
        self.places[self.number(slot) as usize] != NOWHERE
    }

    /// The slot, if it is due, is due so much later.
    pub(crate) fn delay(&mut self, slot: Slot, by: Nanos) {
        let place = self.places[self.number(slot) as usize];
        if place != NOWHERE {
            let at = self.heap[place as usize].at;
            self.set(slot, at + by);
        }
    }

    /// When the next slot is due.
    pub(crate) fn next_at(&self) -> Option<Nanos> {
        self.heap.first().map(|due| due.at)
    }

    /// The slot that is due next, which it then no longer is.
    pub(crate) fn pop(&mut self) -> Option<(Nanos, Slot)> {
        let due = *self.heap.first()?;
        self.take(0);
        Some((due.at, self.slot(due.slot)))
    }

    fn take(&mut self, place: usize) {
        let taken = self.heap.swap_remove(place);
        self.places[taken.slot as usize] = NOWHERE;
        if place < self.heap.len() {
            let place = self.rise(place);
            self.sink(place);
        }
    }

    fn note(&mut self, place: usize) {
        let slot = self.heap[place].slot;
        self.places[slot as usize] = u32::try_from(place).unwrap_or(NOWHERE);
    }

    fn rise(&mut self, mut place: usize) -> usize {
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.heap[parent] <= self.heap[place] {
                break;
            }
            self.heap.swap(parent, place);
            self.note(place);
            place = parent;
        }
        self.note(place);
        place
    }

    fn sink(&mut self, mut place: usize) {
        loop {
            let left = 2 * place + 1;
            let Some(mut least) = self.heap.get(left).map(|_| left) else {
                break;
            };
            if self
                .heap
                .get(left + 1)
                .is_some_and(|r| *r < self.heap[left])
            {
                least = left + 1;
            }
            if self.heap[place] <= self.heap[least] {
                break;
            }
            self.heap.swap(place, least);
            self.note(place);
            place = least;
        }
        self.note(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn step(n: u32) -> Slot {
        Slot::Step(VcpuId(n))
    }

    #[test]
    fn slots_due_at_the_same_time_come_in_the_order_of_arming() {
        let mut queue = Queue::new(2, 3).expect("small");
        let slots = [
            step(2),
            Slot::Timer(Timer::Tick),
            Slot::Signal(VcpuId(0)),
            Slot::Mark,
            Slot::Timer(Timer::Slice(CoreId(1))),
            Slot::Theft(CoreId(1)),
            Slot::Theft(CoreId(0)),
            Slot::Timer(Timer::Grace(CoreId(0))),
            Slot::Timer(Timer::Grace(CoreId(1))),
            Slot::Timer(Timer::Periodic(VcpuId(1))),
        ];
        for slot in slots {
            queue.set(slot, Nanos(7));
        }
        queue.set(step(2), Nanos(7));
        let popped: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        let expected: Vec<_> = slots[1..].iter().chain(&slots[..1]).collect();
        assert_eq!(popped.iter().map(|(_, s)| s).collect::<Vec<_>>(), expected);
    }

    proptest! {
        #[test]
        fn the_queue_agrees_with_a_sorted_list(
            ops in proptest::collection::vec((0u32..8, 0u64..50, 0u8..4), 1..200)
        ) {
            let mut queue = Queue::new(1, 8).expect("small");
            let mut model: Vec<(u64, usize, u32)> = Vec::new();
            for (sequence, (vcpu, at, op)) in ops.into_iter().enumerate() {
                match op {
                    0 | 1 => {
                        queue.set(step(vcpu), Nanos(at));
                        model.retain(|entry| entry.2 != vcpu);
                        model.push((at, sequence, vcpu));
                    }
                    2 => {
                        queue.cancel(step(vcpu));
                        model.retain(|entry| entry.2 != vcpu);
                    }
                    _ => {
                        model.sort_unstable();
                        let first = (!model.is_empty()).then(|| model.remove(0));
                        let expected = first.map(|(at, _, vcpu)| (Nanos(at), step(vcpu)));
                        prop_assert_eq!(queue.pop(), expected);
                    }
                }
                prop_assert_eq!(queue.next_at().map(|at| at.0), model.iter().map(|e| e.0).min());
                let set = model.iter().any(|entry| entry.2 == vcpu);
                prop_assert_eq!(queue.is_set(step(vcpu)), set);
            }
        }
    }
}
