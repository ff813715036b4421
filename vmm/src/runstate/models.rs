//! The hand-over under `loom`: every interleaving of a vCPU's thread with those who grant, kick,
//! interrupt and end it, and every reordering that the memory model allows.

use super::*;
use loom::sync::atomic::AtomicBool;
use loom::sync::{Arc, Mutex};
use loom::thread;

const C: CoreId = CoreId(1);

/// A vCPU as the model sees it: the word, the byte that ends an entry, and what the dispatcher
/// would know under the engine's lock.
#[derive(Default)]
struct Vcpu {
    state: RunState,
    byte: AtomicBool,
    vector: AtomicBool,
    engine: Mutex<Engine>,
}

#[derive(Default)]
struct Engine {
    on_core: bool,
    kicked: bool,
    retired: bool,
}

impl Vcpu {
    fn nudge(&self, nudge: Nudge) {
        match nudge {
            Nudge::None => {}
            Nudge::Unpark => self.state.wake(),
            Nudge::Signal => self.byte.store(true, Ordering::Relaxed),
        }
    }

    fn grant(&self) {
        let mut engine = self.engine.lock().unwrap();
        if engine.retired {
            return;
        }
        engine.on_core = true;
        let nudge = self.state.grant(C);
        drop(engine);
        self.nudge(nudge);
    }

    fn kick(&self) {
        let mut engine = self.engine.lock().unwrap();
        if !engine.on_core || engine.kicked {
            return;
        }
        engine.kicked = true;
        let nudge = self.state.kick();
        drop(engine);
        self.nudge(nudge);
    }

    /// The thread stops, blocks or retires: whatever the dispatcher knew of a kick is forgotten.
    fn stop(&self) -> bool {
        let mut engine = self.engine.lock().unwrap();
        engine.on_core = false;
        self.state.park();
        std::mem::take(&mut engine.kicked)
    }

    fn retire(&self) {
        let mut engine = self.engine.lock().unwrap();
        engine.retired = true;
        self.state.gone();
    }

    /// Guest code: ends only by the byte, as a signal would have it.
    fn guest(&self) {
        while !self.byte.load(Ordering::Relaxed) {
            thread::yield_now();
        }
    }

    /// One attempt to run guest code.
    fn try_enter(&self) {
        self.byte.store(false, Ordering::Relaxed);
        if self.state.enter() == Enter::Go {
            self.guest();
            self.state.leave();
        }
    }
}

fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

fn spawn(vcpu: &Arc<Vcpu>, run: fn(&Vcpu)) -> thread::JoinHandle<()> {
    let mine = Arc::clone(vcpu);
    let handle = thread::spawn(move || run(&mine));
    vcpu.state.attach(handle.thread().clone());
    handle
}

#[test]
fn a_kick_at_any_moment_ends_the_stay_on_the_core() {
    check(4, || {
        let vcpu = Arc::new(Vcpu::default());
        let thread = spawn(&vcpu, |vcpu| {
            assert_eq!(vcpu.state.wait(), Order::Run(C));
            while !vcpu.state.look().1.kick() {
                vcpu.try_enter();
            }
            assert!(vcpu.stop(), "the kick was on the books");
        });
        vcpu.grant();
        vcpu.kick();
        thread.join().unwrap();
        assert_eq!(vcpu.state.look().0, Place::Parked);
    });
}

#[test]
fn a_kick_that_meets_a_voluntary_block_leaves_nothing_behind() {
    check(3, || {
        let vcpu = Arc::new(Vcpu::default());
        let thread = spawn(&vcpu, |vcpu| {
            assert_eq!(vcpu.state.wait(), Order::Run(C));
            // Leaves the guest of its own accord, and blocks.
            if vcpu.state.enter() == Enter::Go {
                vcpu.state.leave();
            }
            let _ = vcpu.stop();
            vcpu.grant();
            assert_eq!(vcpu.state.wait(), Order::Run(C));
            let (place, wants) = vcpu.state.look();
            let kicked = vcpu.engine.lock().unwrap().kicked;
            assert!(matches!(place, Place::Host(_)));
            assert!(!wants.kick() || kicked, "a kick nobody remembers");
        });
        vcpu.grant();
        vcpu.kick();
        thread.join().unwrap();
    });
}

#[test]
fn whoever_grants_and_ends_a_waiting_thread_in_any_order_it_ends() {
    check(3, || {
        let vcpu = Arc::new(Vcpu::default());
        let thread = spawn(&vcpu, |vcpu| {
            while let Order::Run(_) = vcpu.state.wait() {
                while vcpu.state.look().1.end().is_none() {
                    vcpu.try_enter();
                }
            }
            vcpu.retire();
        });
        let other = Arc::clone(&vcpu);
        let ender = thread::spawn(move || other.nudge(other.state.end(End::RunOver)));
        vcpu.grant();
        ender.join().unwrap();
        thread.join().unwrap();
        assert_eq!(vcpu.state.look().0, Place::Gone);
    });
}

#[test]
fn an_interrupt_at_any_moment_is_picked_up() {
    check(4, || {
        let vcpu = Arc::new(Vcpu::default());
        let thread = spawn(&vcpu, |vcpu| {
            assert_eq!(vcpu.state.wait(), Order::Run(C));
            while !vcpu.state.look().1.interrupts() {
                vcpu.try_enter();
            }
            vcpu.state.take_interrupts();
            assert!(
                vcpu.vector.load(Ordering::Relaxed),
                "told before it was put down"
            );
        });
        vcpu.grant();
        vcpu.vector.store(true, Ordering::Relaxed);
        vcpu.nudge(vcpu.state.interrupt());
        thread.join().unwrap();
    });
}
