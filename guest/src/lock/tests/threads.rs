//! Tests of the locks with real threads on real memory.

use super::LOCKS;
use super::memory::Own;
use crate::lock::{Context, Kind, Memory, Operation, State, Step, Want};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The host's part: who sleeps, and wake-ups that came early.
#[derive(Default)]
struct Bed {
    woken: Mutex<bool>,
    called: Condvar,
}

impl Bed {
    /// Sleeps until woken. A minute without a wake-up is one that was lost.
    fn sleep(&self) {
        let woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        let minute = Duration::from_secs(60);
        let (mut woken, timeout) = self
            .called
            .wait_timeout_while(woken, minute, |woken| !*woken)
            .unwrap_or_else(PoisonError::into_inner);
        assert!(!timeout.timed_out(), "a wake-up was lost");
        *woken = false;
    }

    fn wake(&self) {
        *self.woken.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.called.notify_one();
    }
}

struct Vm {
    own: Own,
    beds: Vec<Bed>,
}

impl Vm {
    fn new(kinds: &[Kind], vcpus: usize) -> Self {
        Self {
            own: Own::new(kinds, vcpus),
            beds: (0..vcpus).map(|_| Bed::default()).collect(),
        }
    }

    fn memory(&self) -> Memory<'_> {
        self.own.memory()
    }

    fn operate(&self, me: u32, want: Want, number: u16) {
        let mut context = Context::new(self.memory(), me);
        let mut operation = Operation::begin(&context, want, number).expect("a proper use");
        loop {
            match operation.step(&mut context) {
                Step::Done => return,
                Step::Again | Step::Work(_) => {}
                Step::Spin(_) => {
                    std::thread::yield_now();
                    // Sizes here are 2: patience ends at once, so that all paths are taken.
                    context.spun += 1;
                }
                Step::Sleep(_) => self.beds[me as usize].sleep(),
                Step::Wake(vcpu, _) => self.beds[vcpu as usize].wake(),
            }
        }
    }

    /// Takes cores away and gives them back until `done`, so that spinners leave their queues.
    fn disturb(&self, done: &AtomicBool) {
        let mut turn = 0;
        while !done.load(Ordering::Relaxed) {
            let running = &self.own.nodes[turn % self.own.nodes.len()].running;
            running.store(0, Ordering::Relaxed);
            std::thread::yield_now();
            running.store(1, Ordering::Relaxed);
            turn += 1;
        }
    }
}

#[test]
fn only_one_thread_at_a_time_has_a_lock_and_none_waits_for_ever() {
    const ROUNDS: u32 = 1_000;
    for kind in LOCKS {
        let vm = Vm::new(&[kind], 3);
        let (inside, done) = (AtomicBool::new(false), AtomicBool::new(false));
        let (left, total) = (AtomicU32::new(3), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for me in 0..3 {
                let (vm, inside, done, left, total) = (&vm, &inside, &done, &left, &total);
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        vm.operate(me, Want::Take, 0);
                        assert!(!inside.swap(true, Ordering::Relaxed), "{kind:?}");
                        assert_eq!(vm.memory().owner(0), Some(me), "{kind:?}");
                        assert_eq!(vm.memory().state(me).held, 1, "{kind:?}");
                        // Not atomic: only the lock makes this exact.
                        let before = total.load(Ordering::Relaxed);
                        total.store(before + 1, Ordering::Relaxed);
                        assert!(inside.swap(false, Ordering::Relaxed), "{kind:?}");
                        vm.operate(me, Want::Release, 0);
                    }
                    if left.fetch_sub(1, Ordering::Relaxed) == 1 {
                        done.store(true, Ordering::Relaxed);
                    }
                });
            }
            scope.spawn(|| vm.disturb(&done));
        });
        assert_eq!(total.into_inner(), u64::from(3 * ROUNDS), "{kind:?}");
        for me in 0..3 {
            assert_eq!(vm.memory().seen(me), State::default(), "{kind:?}");
        }
    }
}

#[test]
fn every_message_sent_is_received_once_through_a_channel_for_two() {
    const EACH: u32 = 1_000;
    for guard in [Kind::Mutex, Kind::MutexHandOff] {
        let vm = Vm::new(&[Kind::Channel, guard], 4);
        let (left, done) = (AtomicU32::new(4), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for me in 0..4 {
                let (vm, left, done) = (&vm, &left, &done);
                scope.spawn(move || {
                    let want = if me < 2 { Want::Send } else { Want::Receive };
                    for _ in 0..EACH {
                        vm.operate(me, want, 0);
                    }
                    if left.fetch_sub(1, Ordering::Relaxed) == 1 {
                        done.store(true, Ordering::Relaxed);
                    }
                });
            }
            scope.spawn(|| vm.disturb(&done));
        });
        assert_eq!(
            vm.own.locks[0].count.load(Ordering::Relaxed),
            0,
            "{guard:?}"
        );
    }
}

#[test]
fn readers_share_and_never_meet_a_writer() {
    const ROUNDS: u32 = 1_000;
    let vm = Vm::new(&[Kind::ReadWrite], 4);
    // Readers count by one, a writer by a hundred.
    let inside = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for me in 0..4 {
            let (vm, inside) = (&vm, &inside);
            scope.spawn(move || {
                let (want, weight) = if me < 2 {
                    (Want::Read, 1)
                } else {
                    (Want::Take, 100)
                };
                for _ in 0..ROUNDS {
                    vm.operate(me, want, 0);
                    let before = inside.fetch_add(weight, Ordering::Relaxed);
                    assert!(before == 0 || (weight == 1 && before < 100), "{before}");
                    inside.fetch_sub(weight, Ordering::Relaxed);
                    vm.operate(me, Want::Release, 0);
                }
            });
        }
    });
    assert_eq!(vm.memory().owner(0), None);
}

#[test]
fn nobody_passes_a_barrier_before_all_have_come() {
    const ROUNDS: u32 = 500;
    let vm = Vm::new(&[Kind::Barrier], 3);
    vm.own.locks[0].size.store(3, Ordering::Relaxed);
    let come = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for me in 0..3 {
            let (vm, come) = (&vm, &come);
            scope.spawn(move || {
                for round in 1..=ROUNDS {
                    come.fetch_add(1, Ordering::Relaxed);
                    vm.operate(me, Want::Meet, 0);
                    let all = come.load(Ordering::Relaxed);
                    assert!((3 * round..=3 * round + 2).contains(&all), "{all}");
                }
            });
        }
    });
}
