//! The thread of a vCPU: waits for a core, runs the guest on it, acts on its exits, gives it back.
//!
//! What the thread says to the dispatcher while it has a core always ends in one of three ways: it still
//! has it (`Place::Host`), it lost it (`Parked`), or it was given one anew (`Granted`), which
//! starts with `Entered` again. Only [`RunState::enter`](crate::runstate::RunState::enter) leads into
//! the guest, and it fails if anything else is to be done first.

use crate::cpu::{Call, Cpu, Exit, Queued};
use crate::engine::Engine;
use crate::host::thread_cpu_time;
use crate::kick::Receiver;
use crate::runstate::{End, Enter, Order, Place};
use crate::seat::Seat;
use stealtime_scheduler::ids::{CoreId, GuestLockId, HostLockId, VcpuId};
use stealtime_scheduler::input::{BlockOn, ExitReason, Input, KernelPriority, RetireReason};
use stealtime_scheduler::time::Nanos;

/// What the dispatcher believes to be going on on the vCPU's core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Guest,
    Hypervisor,
}

/// A vCPU with the thread that runs it.
#[derive(Debug)]
pub struct VcpuThread<'a, C> {
    engine: &'a Engine,
    seat: &'a Seat,
    vcpu: VcpuId,
    cpu: &'a mut C,
    kicks: Receiver,
    mode: Mode,
    /// Hypervisor work that a kick interrupted, or that is about to begin.
    work: Nanos,
    /// Interrupts were queued, and not all taken when last looked at.
    interrupts: Queued,
    /// The program came to its end.
    finished: bool,
    /// Inputs to report together.
    inputs: Vec<Input>,
}

impl<'a, C: Cpu> VcpuThread<'a, C> {
    /// For the calling thread.
    pub fn new(engine: &'a Engine, vcpu: VcpuId, cpu: &'a mut C) -> Self {
        let kicks = Receiver::register(cpu.kick_handle());
        Self {
            engine,
            seat: engine.seat(vcpu),
            vcpu,
            cpu,
            kicks,
            mode: Mode::Guest,
            work: Nanos::ZERO,
            interrupts: Queued::None,
            finished: false,
            inputs: Vec::with_capacity(8),
        }
    }

    /// Runs the vCPU until it is to end, and retires it.
    pub fn run(mut self) {
        let why = loop {
            self.seat.forget_delay();
            match self.seat.state.wait() {
                Order::Run(core) => self.stay(core),
                Order::End(End::Fault) => break RetireReason::Fault,
                Order::End(End::RunOver) => break RetireReason::RunOver,
            }
            if self.finished {
                break RetireReason::Finished;
            }
        };
        self.leaving();
        let vcpu = self.vcpu;
        self.say(Input::Retire { vcpu, why });
        self.report();
    }

    /// One stay on a core, from the grant to the loss of it.
    fn stay(&mut self, core: CoreId) {
        let vcpu = self.vcpu;
        self.say(Input::Entered { core, vcpu });
        self.mode = Mode::Guest;
        if self.work > Nanos::ZERO {
            self.exited(ExitReason::Call);
        }
        self.report();
        while let (Place::Host(_), wants) = self.seat.state.look() {
            if wants.end().is_some() || self.finished {
                return;
            }
            if wants.kick() {
                self.leaving();
                self.say(Input::Stopped { core, vcpu });
                self.report();
            } else if wants.interrupts() {
                self.pick_up_interrupts();
            } else if self.work > Nanos::ZERO {
                self.work();
            } else {
                self.enter();
            }
        }
    }

    /// Into the guest, and what it came back for.
    fn enter(&mut self) {
        if self.mode == Mode::Hypervisor {
            self.mode = Mode::Guest;
            let vcpu = self.vcpu;
            self.say(Input::Resumed { vcpu });
            self.report();
        }
        self.kicks.rearm();
        if self.seat.state.enter() == Enter::Look {
            return;
        }
        let exit = self.cpu.enter();
        self.seat.state.leave();
        self.act(exit);
    }

    fn act(&mut self, exit: Exit) {
        match exit {
            Exit::Call(call) => {
                self.exited(ExitReason::Call);
                self.call(call);
            }
            Exit::Halt => {
                self.exited(ExitReason::Halt);
                self.block(BlockOn::Idle);
            }
            Exit::Interrupted => {
                self.exited(ExitReason::Kick);
                if let (Place::Host(core), wants) = self.seat.state.look()
                    && wants.kick()
                {
                    self.leaving();
                    let vcpu = self.vcpu;
                    self.say(Input::Stopped { core, vcpu });
                }
            }
            Exit::InterruptWindow => self.exited(ExitReason::InterruptWindow),
            Exit::Fault(message) => {
                self.exited(ExitReason::Unexpected);
                self.fail(message);
            }
        }
        self.report();
    }

    /// The guest has ended its VM.
    fn fail(&mut self, message: String) {
        self.report();
        self.engine.fail(self.seat.vm, message);
    }

    fn guest_lock(&self, lock: u16) -> GuestLockId {
        GuestLockId::new(self.seat.vm, lock)
    }

    fn call(&mut self, call: Call) {
        let vcpu = self.vcpu;
        match call {
            Call::Nothing => {}
            Call::Sleep(length) => self.block(BlockOn::Sleep(self.engine.clock.now() + length)),
            Call::HostWait(length) => self.block(BlockOn::Host(self.engine.clock.now() + length)),
            Call::Periodic { period, vector } => self.say(Input::ArmPeriodic {
                vcpu,
                period,
                vector,
            }),
            Call::CriticalLeft => self.say(Input::CriticalLeft { vcpu }),
            // The core may be lost with each of these.
            Call::GuestWait(lock) => {
                self.leaving();
                let lock = self.guest_lock(lock);
                self.say(Input::GuestWait { vcpu, lock });
            }
            Call::SpunTooLong(lock) => {
                self.leaving();
                let lock = self.guest_lock(lock);
                self.say(Input::SpunTooLong { vcpu, lock });
            }
            Call::GuestWake { index, lock } => {
                let lock = self.guest_lock(lock);
                match self.engine.sibling(vcpu, index) {
                    Some(sibling) => self.say(Input::GuestWake {
                        vcpu: sibling,
                        by: vcpu,
                        lock,
                    }),
                    None => self.fail(format!(
                        "woke a vCPU that its VM does not have (number {index})"
                    )),
                }
            }
            Call::Yield => {
                self.leaving();
                self.say(Input::Yield { vcpu });
            }
            Call::Interrupt { to, vector } => self.say(Input::Interrupt {
                to,
                vector,
                from: Some(vcpu),
            }),
            Call::HostLock {
                lock,
                kernel_priority,
            } => {
                let (lock, priority) = (HostLockId(lock), asked(kernel_priority));
                // It may have to wait.
                self.leaving();
                self.say(Input::HostLock {
                    vcpu,
                    lock,
                    priority,
                });
            }
            Call::HostAcquire {
                lock,
                mode,
                kernel_priority,
            } => {
                let (lock, priority) = (HostLockId(lock), asked(kernel_priority));
                self.leaving();
                self.say(Input::HostAcquire {
                    vcpu,
                    lock,
                    mode,
                    priority,
                });
            }
            Call::HostUnlock(lock) => self.say(Input::HostUnlock {
                vcpu,
                lock: HostLockId(lock),
            }),
            Call::Hypervisor(length) => self.work = length,
            Call::UserReturn => self.say(Input::UserReturn { vcpu }),
            Call::Finished => self.finished = true,
        }
    }

    fn block(&mut self, on: BlockOn) {
        self.leaving();
        let vcpu = self.vcpu;
        self.say(Input::Block { vcpu, on });
    }

    /// The hypervisor's work: CPU time of this thread, until done, kicked or ended.
    fn work(&mut self) {
        let began = thread_cpu_time();
        loop {
            let (_, wants) = self.seat.state.look();
            let done = thread_cpu_time().since(began);
            if done >= self.work || wants.kick() || wants.end().is_some() {
                self.work -= done;
                return;
            }
            // About a microsecond: wants are seen soon, and the clock is not all that is executed.
            for _ in 0..50 {
                std::hint::spin_loop();
            }
        }
    }

    fn pick_up_interrupts(&mut self) {
        self.seat.state.take_interrupts();
        let cpu = &mut *self.cpu;
        self.seat.vectors.take(|vector| cpu.queue_interrupt(vector));
        self.interrupts = Queued::Some;
    }

    /// Guest code stopped; perhaps it took its interrupts before.
    fn exited(&mut self, why: ExitReason) {
        let vcpu = self.vcpu;
        self.mode = Mode::Hypervisor;
        self.say(Input::Exited { vcpu, why });
        if self.interrupts == Queued::Some {
            self.interrupts = self.cpu.interrupts_queued();
            if self.interrupts == Queued::None {
                // In this order: what the host takes between the two makes it late, which is noticed, not early.
                let ago = self.cpu.interrupt_handled_ago();
                let at = self.engine.clock.now() - ago;
                // Whether more wait is seen where none can be raised meanwhile.
                let more = false;
                self.say(Input::InterruptsTaken { vcpu, at, more });
            }
        }
    }

    /// The core may be lost with the next input: what the host took of this stay is told first.
    fn leaving(&mut self) {
        let delay = self.engine.host_delay(self.vcpu);
        self.inputs.extend(delay);
    }

    fn say(&mut self, input: Input) {
        self.inputs.push(input);
    }

    fn report(&mut self) {
        if !self.inputs.is_empty() {
            self.engine.report(&self.inputs);
            self.inputs.clear();
        }
    }
}

const fn asked(kernel_priority: bool) -> KernelPriority {
    if kernel_priority {
        KernelPriority::Asked
    } else {
        KernelPriority::NotAsked
    }
}
