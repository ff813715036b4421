//! Tests of the locks' machines in all kinds of orders, step by step and without threads.
//!
//! A vCPU takes a step when it has a core and is allowed to: a spinner only when it must look (what it
//! spins for was touched, the vCPU that it watches has no core, or its time is over, which may be at any
//! moment), a sleeper only when it was woken. So
//! a machine that forgets to touch or to wake stops here, as it would in the simulator.

use super::sleepers::{self, For};
use super::{Context, Kind, Lock, Memory, Node, Operation, PASSED_OVER, Spin, State, Step, Want};
use crate::rng::Rng;
use core::sync::atomic::Ordering;

/// What a vCPU may do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    /// Its next step.
    Step,
    /// A step when it must look.
    Look(Spin),
    /// A step when it is woken.
    Sleep,
    /// Nothing: its operation is over.
    Idle,
}

struct Vcpu {
    operation: Option<Operation>,
    next: Next,
    must_look: bool,
    woken: bool,
    spun: u64,
}

/// A VM whose vCPUs take steps one at a time.
struct Vm {
    locks: Vec<Lock>,
    nodes: Vec<Node>,
    vcpus: Vec<Vcpu>,
    hand_off: bool,
    wakes: u32,
}

impl Vm {
    fn new(kinds: &[Kind], vcpus: usize) -> Self {
        let lock = |kind: &Kind| {
            let lock = Lock::default();
            lock.kind.store(*kind as u32, Ordering::Relaxed);
            lock.size.store(2, Ordering::Relaxed);
            lock
        };
        let idle = |_| Vcpu {
            operation: None,
            next: Next::Idle,
            must_look: false,
            woken: false,
            spun: 0,
        };
        let vm = Self {
            locks: kinds.iter().map(lock).collect(),
            nodes: (0..vcpus).map(|_| Node::default()).collect(),
            vcpus: (0..vcpus).map(idle).collect(),
            hand_off: false,
            wakes: 0,
        };
        for node in &vm.nodes {
            node.running.store(1, Ordering::Relaxed);
        }
        vm
    }

    fn memory(&self) -> Memory<'_> {
        Memory {
            locks: &self.locks,
            nodes: &self.nodes,
        }
    }

    fn runs(&self, vcpu: u32) -> bool {
        self.nodes[vcpu as usize].running.load(Ordering::Relaxed) != 0
    }

    fn set_core(&self, vcpu: u32, has: bool) {
        let running = &self.nodes[vcpu as usize].running;
        running.store(u32::from(has), Ordering::Relaxed);
    }

    fn begin(&mut self, me: u32, want: Want, number: u16) {
        let context = Context::new(self.memory(), me);
        let operation = Operation::begin(&context, want, number).expect("a proper use");
        let vcpu = &mut self.vcpus[me as usize];
        assert_eq!(vcpu.next, Next::Idle);
        vcpu.operation = Some(operation);
        vcpu.next = Next::Step;
        vcpu.spun = 0;
    }

    fn may_step(&self, me: u32) -> bool {
        let vcpu = &self.vcpus[me as usize];
        self.runs(me)
            && match vcpu.next {
                Next::Step => true,
                Next::Look(spin) => {
                    vcpu.must_look
                        || spin.until.is_some()
                        || spin.while_runs.is_some_and(|watched| !self.runs(watched))
                }
                Next::Sleep => vcpu.woken,
                Next::Idle => false,
            }
    }

    /// The vCPU takes its next step.
    fn step(&mut self, me: u32) -> Step {
        let nodes = &self.nodes;
        let runs = |vcpu: u32| nodes[vcpu as usize].running.load(Ordering::Relaxed) != 0;
        let vcpu = &mut self.vcpus[me as usize];
        match std::mem::replace(&mut vcpu.next, Next::Step) {
            Next::Sleep => vcpu.woken = false,
            // Nothing else happened: its time is over.
            Next::Look(spin) if !vcpu.must_look && spin.while_runs.is_none_or(runs) => {
                vcpu.spun = spin.until.unwrap_or(vcpu.spun);
            }
            _ => {}
        }
        vcpu.must_look = false;
        let spun = vcpu.spun;
        let mut operation = vcpu.operation.expect("an operation");
        let mut context = Context::new(self.memory(), me);
        context.hand_off = self.hand_off;
        context.spun = spun;
        let step = operation.step(&mut context);
        let touched = context.touched;
        self.vcpus[me as usize].operation = Some(operation);
        match step {
            Step::Done => self.vcpus[me as usize].next = Next::Idle,
            Step::Again | Step::Work(_) => {}
            Step::Spin(spin) => self.vcpus[me as usize].next = Next::Look(spin),
            Step::Sleep(_) => self.vcpus[me as usize].next = Next::Sleep,
            Step::Wake(other, _) => {
                self.wakes += 1;
                self.vcpus[other as usize].woken = true;
            }
        }
        if touched.is_some() {
            for (other, vcpu) in (0..).zip(&mut self.vcpus) {
                vcpu.must_look |= other != me;
            }
        }
        step
    }

    /// The vCPU takes steps until it can take none.
    fn go_on(&mut self, me: u32) -> Next {
        while self.may_step(me) {
            let _ = self.step(me);
        }
        self.vcpus[me as usize].next
    }

    fn operate(&mut self, me: u32, want: Want, number: u16) -> Next {
        self.begin(me, want, number);
        self.go_on(me)
    }
}

/// A moment of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Moment {
    Begins,
    Over,
}

/// Takes steps in a random order, with cores that come and go, until all programs have been executed so
/// often. `check` is called before the first step of each operation and after its last.
fn shuffle(
    vm: &mut Vm,
    seed: u64,
    rounds: usize,
    program: impl Fn(u32) -> Vec<(Want, u16)>,
    mut check: impl FnMut(&Vm, u32, Want, Moment),
) {
    let mut rng = Rng::new(seed, 0);
    let count = u32::try_from(vm.vcpus.len()).expect("few");
    let programs: Vec<_> = (0..count).map(|me| program(me).repeat(rounds)).collect();
    let mut at = vec![0; programs.len()];
    loop {
        let mut random = |below: u32| u32::try_from(rng.between(0, u64::from(below) - 1)).unwrap();
        if random(8) == 0 {
            let (vcpu, has) = (random(count), random(2) == 0);
            vm.set_core(vcpu, has);
        }
        for me in 0..count {
            let place = at[me as usize];
            if vm.vcpus[me as usize].next == Next::Idle
                && let Some((want, number)) = programs[me as usize].get(place)
            {
                vm.begin(me, *want, *number);
                check(vm, me, *want, Moment::Begins);
            }
        }
        let able = |vm: &Vm| (0..count).filter(|me| vm.may_step(*me)).collect::<Vec<_>>();
        let mut can = able(vm);
        if can.is_empty() {
            (0..count).for_each(|vcpu| vm.set_core(vcpu, true));
            can = able(vm);
        }
        let over = || {
            at.iter()
                .zip(&programs)
                .all(|(at, program)| *at == program.len())
        };
        if can.is_empty() {
            assert!(over(), "seed {seed}: nobody can go on: {at:?}");
            return;
        }
        let me = can[random(u32::try_from(can.len()).expect("few")) as usize];
        if vm.step(me) == Step::Done {
            let (want, _) = programs[me as usize][at[me as usize]];
            at[me as usize] += 1;
            check(vm, me, want, Moment::Over);
        }
    }
}

const LOCKS: [Kind; 8] = [
    Kind::TestAndSet,
    Kind::Ticket,
    Kind::Mcs,
    Kind::Mutex,
    Kind::MutexHandOff,
    Kind::PreemptableTicket,
    Kind::Pv,
    Kind::ReadWrite,
];

#[test]
fn in_any_order_a_lock_has_one_holder_and_everybody_gets_it_in_the_end() {
    for kind in LOCKS {
        for seed in 0..300 {
            let mut vm = Vm::new(&[kind], 4);
            vm.hand_off = seed % 2 == 1;
            let mut holder = None;
            let program = |_| vec![(Want::Take, 0), (Want::Release, 0)];
            shuffle(&mut vm, seed, 20, program, |vm, me, want, moment| {
                let memory = vm.memory();
                match (want, moment) {
                    (Want::Take, Moment::Over) => {
                        assert_eq!(holder.replace(me), None, "{kind:?}, seed {seed}");
                        assert_eq!(memory.owner(0), Some(me), "{kind:?}, seed {seed}");
                        assert_eq!(memory.seen(me).held, 1, "{kind:?}, seed {seed}");
                    }
                    (Want::Release, Moment::Begins) => {
                        assert_eq!(holder.take(), Some(me), "{kind:?}, seed {seed}");
                    }
                    _ => {}
                }
            });
            for me in 0..4 {
                assert_eq!(vm.memory().seen(me), State::default(), "{kind:?}, {seed}");
            }
        }
    }
}

#[test]
fn in_any_order_what_goes_into_a_channel_comes_out_of_it() {
    for guard in [Kind::Mutex, Kind::MutexHandOff] {
        for seed in 0..300 {
            let mut vm = Vm::new(&[Kind::Channel, guard], 5);
            // Two that send three messages a round, three that receive two.
            let program = |me| match me {
                0 | 1 => vec![(Want::Send, 0); 3],
                _ => vec![(Want::Receive, 0); 2],
            };
            let mut inside = 0i32;
            shuffle(&mut vm, seed, 10, program, |_, _, want, moment| {
                if moment == Moment::Over {
                    inside += if want == Want::Send { 1 } else { -1 };
                }
            });
            assert_eq!(inside, 0);
            assert_eq!(vm.locks[0].count.load(Ordering::Relaxed), 0);
        }
    }
}

#[test]
fn locks_held_in_each_other_come_apart_again() {
    for inner in LOCKS {
        for seed in 0..100 {
            let mut vm = Vm::new(&[Kind::Mcs, inner, Kind::Mutex], 3);
            let program = |_| {
                let take = [0, 1, 2].map(|lock| (Want::Take, lock));
                let release = [1, 0, 2].map(|lock| (Want::Release, lock));
                [take, release].concat()
            };
            shuffle(&mut vm, seed, 10, program, |_, _, _, _| {});
        }
    }
}

/// The order in which the rest get a lock that vCPU 0 holds, if they come in order of their numbers.
fn order(vm: &mut Vm) -> Vec<u32> {
    let count = u32::try_from(vm.vcpus.len()).expect("few");
    assert_eq!(vm.operate(0, Want::Take, 0), Next::Idle);
    for me in 1..count {
        assert_ne!(vm.operate(me, Want::Take, 0), Next::Idle);
    }
    let (mut holder, mut order) = (0, Vec::new());
    while order.len() + 1 < vm.vcpus.len() {
        assert_eq!(vm.operate(holder, Want::Release, 0), Next::Idle);
        // The last comer looks first.
        let next = (1..count)
            .rev()
            .find(|me| !order.contains(me) && *me != holder && vm.go_on(*me) == Next::Idle);
        holder = next.expect("somebody gets it");
        order.push(holder);
    }
    order
}

#[test]
fn a_ticket_lock_an_mcs_lock_and_a_hand_off_mutex_go_to_who_came_first() {
    for kind in [Kind::Ticket, Kind::Mcs, Kind::MutexHandOff] {
        assert_eq!(order(&mut Vm::new(&[kind], 4)), [1, 2, 3], "{kind:?}");
    }
    assert_eq!(order(&mut Vm::new(&[Kind::TestAndSet], 4)), [3, 2, 1]);
}

#[test]
fn a_waiter_to_whom_a_lock_was_handed_is_its_owner_before_it_knows() {
    for kind in [Kind::Ticket, Kind::Mcs, Kind::MutexHandOff] {
        let mut vm = Vm::new(&[kind], 3);
        assert_eq!(vm.operate(0, Want::Take, 0), Next::Idle);
        for me in [1, 2] {
            let _ = vm.operate(me, Want::Take, 0);
            assert_eq!(vm.memory().seen(me).waits_for, Some(0), "{kind:?}");
        }
        assert_eq!(vm.memory().owner(0), Some(0), "{kind:?}");
        let _ = vm.operate(0, Want::Release, 0);
        let memory = vm.memory();
        assert_eq!(memory.owner(0), Some(1), "{kind:?}");
        assert_eq!((memory.seen(1).held, memory.seen(1).waits_for), (1, None));
        assert_eq!((memory.state(1).held, memory.seen(2).held), (0, 0));
        assert_eq!(vm.go_on(1), Next::Idle);
        assert_eq!(vm.memory().state(1).held, 1, "{kind:?}");
    }
}

#[test]
fn a_mutex_is_spun_for_while_its_owner_runs_and_slept_for_when_it_does_not() {
    let mut vm = Vm::new(&[Kind::Mutex], 3);
    let _ = vm.operate(0, Want::Take, 0);
    let watches = |vcpu| {
        Next::Look(Spin {
            until: None,
            while_runs: Some(vcpu),
        })
    };
    assert_eq!(vm.operate(1, Want::Take, 0), watches(0), "the owner runs");
    assert_eq!(vm.operate(2, Want::Take, 0), watches(1), "behind vCPU 1");
    vm.set_core(1, false);
    assert_eq!(vm.go_on(2), Next::Sleep, "the one before it is gone");
    vm.set_core(1, true);
    vm.set_core(0, false);
    assert_eq!(vm.go_on(1), Next::Sleep, "the owner is gone");
    vm.set_core(0, true);
    assert_eq!(vm.operate(0, Want::Release, 0), Next::Idle);
    assert_eq!(
        (vm.wakes, vm.vcpus[2].woken),
        (1, true),
        "the first sleeper"
    );
    // An owner that runs again is not spun for by one that sleeps already: it must be woken.
    assert!(!vm.may_step(1));
}

#[test]
fn stealers_win_at_most_until_the_first_sleeper_woke_once_in_vain() {
    let mut vm = Vm::new(&[Kind::Mutex], 3);
    let _ = vm.operate(0, Want::Take, 0);
    vm.set_core(0, false);
    assert_eq!(vm.operate(1, Want::Take, 0), Next::Sleep);
    vm.set_core(0, true);
    let _ = vm.operate(0, Want::Release, 0);
    assert_eq!(vm.operate(2, Want::Take, 0), Next::Idle, "stolen");
    assert!(
        matches!(vm.go_on(1), Next::Look(_)),
        "it asks for a hand-over"
    );
    let _ = vm.operate(2, Want::Release, 0);
    assert_eq!(vm.memory().owner(0), Some(1));
    assert_ne!(vm.operate(2, Want::Take, 0), Next::Idle, "no second time");
    assert_eq!(vm.go_on(1), Next::Idle);
}

#[test]
fn a_mutex_that_is_handed_on_goes_to_who_lends_its_turn_before_who_came_first() {
    for (kind, hand_off) in [(Kind::MutexHandOff, false), (Kind::Mutex, true)] {
        let mut vm = Vm::new(&[kind], 4);
        vm.hand_off = hand_off;
        let _ = vm.operate(0, Want::Take, 0);
        for me in 1..4 {
            assert_eq!(vm.operate(me, Want::Take, 0), Next::Sleep, "nobody spins");
        }
        vm.nodes[0].donor.store(2 + 1, Ordering::Relaxed);
        let _ = vm.operate(0, Want::Release, 0);
        assert_eq!(vm.memory().owner(0), Some(2));
        assert_eq!(vm.go_on(2), Next::Idle);
        // Its own donor waits for nothing: the first.
        vm.nodes[2].donor.store(1, Ordering::Relaxed);
        let _ = vm.operate(2, Want::Release, 0);
        assert_eq!(vm.memory().owner(0), Some(1));
    }
}

#[test]
fn the_first_sleeper_is_passed_over_so_often_and_then_gets_the_mutex() {
    let mut vm = Vm::new(&[Kind::MutexHandOff], 4);
    let _ = vm.operate(0, Want::Take, 0);
    for me in 1..4 {
        assert_eq!(vm.operate(me, Want::Take, 0), Next::Sleep);
    }
    // vCPUs 0 and 3 lend each other their turns, so that it goes to and fro between them.
    vm.nodes[0].donor.store(3 + 1, Ordering::Relaxed);
    vm.nodes[3].donor.store(1, Ordering::Relaxed);
    let mut holder = 0;
    for _ in 0..PASSED_OVER {
        let next = 3 - holder;
        let _ = vm.operate(holder, Want::Release, 0);
        assert_eq!(vm.memory().owner(0), Some(next));
        assert_eq!(vm.go_on(next), Next::Idle);
        assert_eq!(vm.operate(holder, Want::Take, 0), Next::Sleep);
        holder = next;
    }
    let _ = vm.operate(holder, Want::Release, 0);
    assert_eq!(vm.memory().owner(0), Some(1));
    assert_eq!(vm.go_on(1), Next::Idle);
    // vCPU 2 is the first now: nobody has passed it over yet.
    let lends = 3 - holder;
    vm.nodes[1].donor.store(lends + 1, Ordering::Relaxed);
    let _ = vm.operate(1, Want::Release, 0);
    assert_eq!(vm.memory().owner(0), Some(lends));
}

#[test]
fn in_any_order_no_first_sleeper_is_passed_over_more_often() {
    let first = |vm: &Vm| sleepers::first(&Context::new(vm.memory(), 0), For::Lock(0));
    let mut most = 0;
    for seed in 0..300 {
        let mut vm = Vm::new(&[Kind::MutexHandOff], 5);
        let (mut waits, mut passed) = (None, [0; 5]);
        let program = |_| vec![(Want::Take, 0), (Want::Release, 0)];
        shuffle(&mut vm, seed, 40, program, |vm, me, want, moment| {
            match (want, moment) {
                (Want::Release, Moment::Begins) => {
                    // The last in line lends its turn: the least fair that a host can be.
                    let last = (0..5)
                        .rev()
                        .find(|vcpu| vm.vcpus[*vcpu].next == Next::Sleep);
                    let mark = last.map_or(0, |last| u32::try_from(last).expect("few") + 1);
                    vm.nodes[me as usize].donor.store(mark, Ordering::Relaxed);
                    // Who is still about to sleep may find the mutex free or taken by a comer.
                    waits = first(vm).filter(|first| vm.vcpus[*first as usize].next == Next::Sleep);
                }
                (Want::Take, Moment::Over) => {
                    passed[me as usize] = 0;
                    if let Some(waits) = waits.filter(|waits| *waits != me) {
                        passed[waits as usize] += 1;
                        most = most.max(passed[waits as usize]);
                        assert!(passed[waits as usize] <= PASSED_OVER, "seed {seed}");
                    }
                }
                _ => {}
            }
        });
    }
    assert_eq!(most, PASSED_OVER, "the bound is reached");
}

#[test]
fn a_mutex_without_sleepers_is_taken_and_released_without_waking_anybody() {
    for kind in [Kind::Mutex, Kind::MutexHandOff] {
        let mut vm = Vm::new(&[kind], 2);
        for _ in 0..3 {
            assert_eq!(vm.operate(0, Want::Take, 0), Next::Idle);
            assert_eq!(vm.operate(0, Want::Release, 0), Next::Idle);
        }
        assert_eq!(vm.wakes, 0);
    }
}

#[test]
fn who_waits_for_the_other_end_of_a_channel_sleeps_without_its_mutex() {
    let mut vm = Vm::new(&[Kind::Channel, Kind::Mutex], 2);
    assert_eq!(vm.operate(0, Want::Receive, 0), Next::Sleep);
    assert_eq!(
        (vm.memory().seen(0).waits_for, vm.memory().seen(0).held),
        (Some(0), 0)
    );
    assert_eq!((vm.memory().owner(0), vm.memory().owner(1)), (None, None));
    // The first message wakes the receiver; two fit, the third has to wait.
    assert_eq!(vm.operate(1, Want::Send, 0), Next::Idle);
    assert_eq!(vm.wakes, 1);
    assert_eq!(vm.operate(1, Want::Send, 0), Next::Idle);
    assert_eq!(vm.operate(1, Want::Send, 0), Next::Sleep);
    assert_eq!(vm.go_on(0), Next::Idle);
    assert_eq!((vm.wakes, vm.go_on(1)), (2, Next::Idle));
}

/// The vCPU takes steps until it can take none without its time being over.
fn go_on_in_time(vm: &mut Vm, me: u32) -> Next {
    while vm.may_step(me)
        && match vm.vcpus[me as usize].next {
            Next::Look(spin) => {
                vm.vcpus[me as usize].must_look
                    || spin.while_runs.is_some_and(|watched| !vm.runs(watched))
            }
            _ => true,
        }
    {
        let _ = vm.step(me);
    }
    vm.vcpus[me as usize].next
}

#[test]
fn patience_with_a_preempted_waiter_ends_after_a_unit_for_each_one_before() {
    let mut vm = Vm::new(&[Kind::PreemptableTicket], 4);
    vm.locks[0].size.store(1_000, Ordering::Relaxed);
    let _ = vm.operate(0, Want::Take, 0);
    let until = |next| match next {
        Next::Look(spin) => spin.until,
        other => panic!("{other:?}"),
    };
    for me in 1..4 {
        vm.begin(me, Want::Take, 0);
        let patience = until(go_on_in_time(&mut vm, me));
        assert_eq!(patience, Some(1_000 * u64::from(me)));
    }
    // vCPU 1, whose turn comes, has no core. Of the others, 2 has one before it from now on.
    vm.set_core(1, false);
    vm.vcpus[2].spun = 500;
    let _ = vm.operate(0, Want::Release, 0);
    assert_eq!(until(go_on_in_time(&mut vm, 2)), Some(1_500));
    assert_eq!(until(go_on_in_time(&mut vm, 3)), Some(2_000));
    assert_eq!(vm.go_on(2), Next::Idle, "it takes the lock out of its turn");
    assert_eq!(vm.vcpus[2].spun, 1_500);
    // vCPU 1 is back, waits for the owner only, and is not passed over a second time.
    vm.set_core(1, true);
    assert_eq!(until(vm.go_on(1)), None);
    let _ = vm.operate(2, Want::Release, 0);
    assert_eq!(vm.go_on(1), Next::Idle);
}

#[test]
fn a_native_ticket_lock_waits_for_the_preempted_one() {
    let mut vm = Vm::new(&[Kind::Ticket], 3);
    for me in 0..3 {
        let _ = vm.operate(me, Want::Take, 0);
    }
    vm.set_core(1, false);
    let _ = vm.operate(0, Want::Release, 0);
    assert!(matches!(vm.go_on(2), Next::Look(_)));
    vm.set_core(1, true);
    assert_eq!(vm.go_on(1), Next::Idle);
}

#[test]
fn a_paravirtual_lock_is_stolen_only_while_nobody_spins_as_the_first_of_its_queue() {
    let mut vm = Vm::new(&[Kind::Pv], 4);
    vm.locks[0].size.store(1_000, Ordering::Relaxed);
    let _ = vm.operate(0, Want::Take, 0);
    vm.begin(1, Want::Take, 0);
    assert!(
        matches!(go_on_in_time(&mut vm, 1), Next::Look(_)),
        "it spins"
    );
    let _ = vm.operate(0, Want::Release, 0);
    vm.begin(2, Want::Take, 0);
    assert_ne!(go_on_in_time(&mut vm, 2), Next::Idle, "no stealing");
    assert_eq!(vm.memory().owner(0), Some(1), "it is the first one's");
    assert_eq!(go_on_in_time(&mut vm, 1), Next::Idle);
    // The first halts: until it is kicked, a comer may steal.
    assert_eq!(vm.go_on(2), Next::Sleep);
    assert_eq!(vm.operate(1, Want::Release, 0), Next::Idle);
    assert_eq!(vm.operate(3, Want::Take, 0), Next::Idle, "stolen");
}

#[test]
fn a_halted_first_of_the_queue_is_kicked_once_at_the_release() {
    let mut vm = Vm::new(&[Kind::Pv], 3);
    vm.locks[0].size.store(1_000, Ordering::Relaxed);
    let _ = vm.operate(0, Want::Take, 0);
    assert_eq!(
        vm.operate(1, Want::Take, 0),
        Next::Sleep,
        "it spun long enough"
    );
    vm.begin(2, Want::Take, 0);
    assert_eq!(
        go_on_in_time(&mut vm, 2),
        Next::Sleep,
        "behind one that halted"
    );
    assert_eq!(vm.wakes, 0);
    let _ = vm.operate(0, Want::Release, 0);
    assert_eq!((vm.wakes, vm.vcpus[1].woken), (1, true));
    // It takes the lock and makes the next one the first: no kick before it releases.
    assert_eq!(vm.go_on(1), Next::Idle);
    assert_eq!((vm.wakes, vm.vcpus[2].woken), (1, false));
    let _ = vm.operate(1, Want::Release, 0);
    assert_eq!((vm.wakes, vm.go_on(2)), (2, Next::Idle));
    let _ = vm.operate(2, Want::Release, 0);
    assert_eq!(vm.wakes, 2);
}

#[test]
fn a_waiter_behind_one_without_a_core_halts_at_once() {
    let mut vm = Vm::new(&[Kind::Pv], 3);
    vm.locks[0].size.store(1_000, Ordering::Relaxed);
    let _ = vm.operate(0, Want::Take, 0);
    for me in [1, 2] {
        vm.begin(me, Want::Take, 0);
        assert!(matches!(go_on_in_time(&mut vm, me), Next::Look(_)));
    }
    vm.set_core(1, false);
    assert_eq!(go_on_in_time(&mut vm, 2), Next::Sleep);
    assert!(vm.vcpus[2].spun < 1_000);
}

#[test]
fn readers_share_a_lock_and_a_waiting_writer_keeps_new_ones_off() {
    let mut vm = Vm::new(&[Kind::ReadWrite], 5);
    for me in [0, 1] {
        assert_eq!(vm.operate(me, Want::Read, 0), Next::Idle);
        assert_eq!(vm.memory().seen(me).held, 1);
    }
    assert_eq!(vm.memory().owner(0), None, "readers are not known");
    assert_ne!(vm.operate(2, Want::Take, 0), Next::Idle);
    assert_ne!(
        vm.operate(3, Want::Read, 0),
        Next::Idle,
        "behind the writer"
    );
    let _ = vm.operate(0, Want::Release, 0);
    assert_ne!(vm.go_on(2), Next::Idle, "one reader is left");
    let _ = vm.operate(1, Want::Release, 0);
    assert_eq!(vm.go_on(2), Next::Idle);
    assert_eq!(vm.memory().owner(0), Some(2));
    assert_ne!(vm.go_on(3), Next::Idle);
    let _ = vm.operate(2, Want::Release, 0);
    assert_eq!(vm.go_on(3), Next::Idle);
    assert_eq!(vm.operate(4, Want::Read, 0), Next::Idle);
}

#[test]
fn in_any_order_readers_and_writers_exclude_each_other() {
    for seed in 0..300 {
        let mut vm = Vm::new(&[Kind::ReadWrite], 5);
        let take = |me| if me < 3 { Want::Read } else { Want::Take };
        let program = |me| vec![(take(me), 0), (Want::Release, 0)];
        let mut inside = 0;
        shuffle(&mut vm, seed, 20, program, |_, me, want, moment| {
            let weight = if me < 3 { 1 } else { 100 };
            match (want, moment) {
                (Want::Read | Want::Take, Moment::Over) => {
                    assert!(inside == 0 || (me < 3 && inside < 100), "seed {seed}");
                    inside += weight;
                }
                (Want::Release, Moment::Begins) => inside -= weight,
                _ => {}
            }
        });
    }
}

#[test]
fn in_any_order_a_barrier_lets_all_pass_together_round_after_round() {
    for seed in 0..300 {
        let mut vm = Vm::new(&[Kind::Barrier], 4);
        vm.locks[0].size.store(4, Ordering::Relaxed);
        let (mut come, mut gone) = (0, 0);
        shuffle(
            &mut vm,
            seed,
            20,
            |_| vec![(Want::Meet, 0)],
            |_, _, _, moment| match moment {
                Moment::Begins => come += 1,
                Moment::Over => {
                    gone += 1;
                    assert!((gone + 3) / 4 * 4 <= come, "seed {seed}: {gone} of {come}");
                }
            },
        );
        assert_eq!((come, gone), (80, 80));
    }
}

#[test]
fn a_message_is_copied_with_the_mutex_held_and_a_wait_copies_nothing() {
    let mut vm = Vm::new(&[Kind::Channel, Kind::Mutex], 2);
    vm.locks[0].copy_ns.store(300, Ordering::Relaxed);
    vm.begin(0, Want::Receive, 0);
    while vm.may_step(0) {
        assert_ne!(vm.step(0), Step::Work(300));
    }
    vm.begin(1, Want::Send, 0);
    while vm.step(1) != Step::Work(300) {}
    assert_eq!(
        (vm.memory().owner(1), vm.memory().seen(1).held),
        (Some(1), 1)
    );
    assert_eq!(vm.go_on(1), Next::Idle);
}
