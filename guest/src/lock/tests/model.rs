//! A VM whose vCPUs take the steps of their locks' machines one at a time, in an order that the test chooses.
//!
//! A vCPU takes a step when it has a core and is allowed to: a spinner only when it must look (what it
//! spins for was touched, the vCPU that it watches has no core, or its time is over, which may be at any
//! moment), a sleeper only when it was woken. So a machine that forgets to touch or to wake stops here, as it
//! would in the simulator.

use super::memory::Own;
use crate::lock::{Context, Kind, Memory, Operation, Spin, Step, Want};
use crate::rng::Rng;
use core::sync::atomic::Ordering;

/// What a vCPU may do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// Its next step.
    Step,
    /// A step when it must look.
    Look(Spin),
    /// A step when it is woken.
    Sleep,
    /// Nothing: its operation is over.
    Idle,
}

pub(super) struct Vcpu {
    pub(super) operation: Option<Operation>,
    pub(super) next: Next,
    pub(super) must_look: bool,
    pub(super) woken: bool,
    pub(super) spun: u64,
}

/// A VM whose vCPUs take steps one at a time.
pub(super) struct Vm {
    pub(super) own: Own,
    pub(super) vcpus: Vec<Vcpu>,
    pub(super) hand_off: bool,
    pub(super) wakes: u32,
}

impl Vm {
    pub(super) fn new(kinds: &[Kind], vcpus: usize) -> Self {
        let idle = |_| Vcpu {
            operation: None,
            next: Next::Idle,
            must_look: false,
            woken: false,
            spun: 0,
        };
        Self {
            own: Own::new(kinds, vcpus),
            vcpus: (0..vcpus).map(idle).collect(),
            hand_off: false,
            wakes: 0,
        }
    }

    pub(super) fn memory(&self) -> Memory<'_> {
        self.own.memory()
    }

    fn runs(&self, vcpu: u32) -> bool {
        self.own.nodes[vcpu as usize]
            .running
            .load(Ordering::Relaxed)
            != 0
    }

    pub(super) fn set_core(&self, vcpu: u32, has: bool) {
        let running = &self.own.nodes[vcpu as usize].running;
        running.store(u32::from(has), Ordering::Relaxed);
    }

    pub(super) fn begin(&mut self, me: u32, want: Want, number: u16) {
        let context = Context::new(self.memory(), me);
        let operation = Operation::begin(&context, want, number).expect("a proper use");
        let vcpu = &mut self.vcpus[me as usize];
        assert_eq!(vcpu.next, Next::Idle);
        vcpu.operation = Some(operation);
        vcpu.next = Next::Step;
        vcpu.spun = 0;
    }

    pub(super) fn may_step(&self, me: u32) -> bool {
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
    pub(super) fn step(&mut self, me: u32) -> Step {
        let nodes = &self.own.nodes;
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
    pub(super) fn go_on(&mut self, me: u32) -> Next {
        while self.may_step(me) {
            let _ = self.step(me);
        }
        self.vcpus[me as usize].next
    }

    pub(super) fn operate(&mut self, me: u32, want: Want, number: u16) -> Next {
        self.begin(me, want, number);
        self.go_on(me)
    }

    /// The vCPU takes steps until it can take none without its time being over.
    pub(super) fn go_on_in_time(&mut self, me: u32) -> Next {
        while self.may_step(me)
            && match self.vcpus[me as usize].next {
                Next::Look(spin) => {
                    self.vcpus[me as usize].must_look
                        || spin.while_runs.is_some_and(|watched| !self.runs(watched))
                }
                _ => true,
            }
        {
            let _ = self.step(me);
        }
        self.vcpus[me as usize].next
    }
}

/// A moment of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Moment {
    Begins,
    Over,
}

/// Takes steps in a random order, with cores that come and go, until all programs have been executed so
/// often. `check` is called before the first step of each operation and after its last.
pub(super) fn shuffle(
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
