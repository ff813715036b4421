//! Guest locks: takes the steps of their machines, and does what each asks for.

use super::call::call;
use super::work::Worker;
use core::sync::atomic::Ordering;
use stealtime_guest::call::{Port, Refusal};
use stealtime_guest::lock::{Context, Lock, Memory, Node, Operation, Step, Want};
use stealtime_guest::page::{Page, add};

/// What a step is expected to take, in nanoseconds: less by far than the threshold of a gap, so that its
/// exact length does not matter.
const LOOK_NS: u64 = 100;

/// The locks of the VM as one vCPU uses them.
pub(super) struct Locks {
    page: &'static Page,
    memory: Memory<'static>,
    me: u32,
    hand_off: bool,
    spin_window_ns: u64,
}

/// An operation's spinning.
#[derive(Default)]
struct Spun {
    /// In all, in nanoseconds of the vCPU's own running time.
    ns: u64,
    /// As much of it as the host was told of.
    told_ns: u64,
    /// The last step was a look, too.
    goes_on: bool,
}

impl Locks {
    pub(super) fn new(page: &'static Page) -> Self {
        let (locks, nodes) = (&page.locks, &page.nodes);
        let first =
            core::ptr::with_exposed_provenance::<Lock>(locks.load(Ordering::Relaxed) as usize);
        let count = page.lock_count.load(Ordering::Relaxed) as usize;
        // SAFETY: the host says where it has put so many locks, aligned, for as long as the guest
        // exists; all their fields are atomics.
        let locks = unsafe { core::slice::from_raw_parts(first, count) };
        let first =
            core::ptr::with_exposed_provenance::<Node>(nodes.load(Ordering::Relaxed) as usize);
        let count = page.vcpus.load(Ordering::Relaxed) as usize;
        // SAFETY: the same holds for the nodes.
        let nodes = unsafe { core::slice::from_raw_parts(first, count) };
        Self {
            page,
            memory: Memory { locks, nodes },
            me: page.index.load(Ordering::Relaxed),
            hand_off: page.hand_off.load(Ordering::Relaxed) != 0,
            spin_window_ns: page.spin_window_ns.load(Ordering::Relaxed),
        }
    }

    fn context(&self) -> Context<'static> {
        let mut context = Context::new(self.memory, self.me);
        context.hand_off = self.hand_off;
        context
    }

    /// Carries out an operation to its end.
    pub(super) fn operate(
        &self,
        want: Want,
        number: u16,
        worker: &mut Worker,
    ) -> Result<(), Refusal> {
        let mut context = self.context();
        let mut operation = Operation::begin(&context, want, number)?;
        let mut spun = Spun::default();
        loop {
            context.spun = spun.ns;
            let step = operation.step(&mut context);
            match step {
                Step::Done | Step::Sleep(_) | Step::Spin(_) => {
                    // Not before a wake-up: somebody would wait for it until this vCPU runs again.
                    self.tell_if_awaited(&mut context, worker);
                }
                Step::Again | Step::Work(_) | Step::Wake(..) => {}
            }
            let looks = matches!(step, Step::Spin(_));
            match step {
                Step::Done => break,
                Step::Again => {
                    worker.tick(LOOK_NS);
                }
                Step::Work(length_ns) => worker.run(length_ns),
                Step::Spin(_) => self.spin(&context, &mut spun, worker),
                Step::Sleep(number) => self.call(Port::Wait, u64::from(number), 0, worker),
                Step::Wake(vcpu, number) => {
                    self.call(Port::Wake, u64::from(vcpu), u64::from(number), worker);
                }
            }
            spun.goes_on = looks;
        }
        add(&self.page.lock_acquisitions, context.taken);
        Ok(())
    }

    fn call(&self, port: Port, a: u64, b: u64, worker: &mut Worker) {
        call(self.page, port, a, b);
        worker.restart();
    }

    /// One turn of spinning: what passes until the next look.
    fn spin(&self, context: &Context<'_>, spun: &mut Spun, worker: &mut Worker) {
        core::hint::spin_loop();
        let stretch = worker.tick(LOOK_NS);
        if !spun.goes_on {
            // What came before was no spinning.
            return;
        }
        spun.ns += stretch.ran;
        add(&self.page.lock_spin_ns, stretch.ran);
        let window = self.spin_window_ns;
        if window > 0
            && spun.ns - spun.told_ns >= window
            && let Some(lock) = context.state().waits_for
        {
            spun.told_ns = spun.ns;
            self.call(Port::SpunTooLong, u64::from(lock), 0, worker);
        }
    }

    pub(super) fn enter_critical(&self) -> Result<(), Refusal> {
        self.context().enter_critical().ok_or(Refusal::TooDeep)
    }

    pub(super) fn leave_critical(&self, worker: &mut Worker) -> Result<(), Refusal> {
        let mut context = self.context();
        context.leave_critical().ok_or(Refusal::NotCritical)?;
        self.tell_if_awaited(&mut context, worker);
        Ok(())
    }

    /// Tells the host that a preemption does no harm any more, if it waits for that.
    fn tell_if_awaited(&self, context: &mut Context<'_>, worker: &mut Worker) {
        let safe_again = core::mem::take(&mut context.safe_again);
        // SeqCst: see `Context::publish`.
        if safe_again && self.page.preempt_pending.load(Ordering::SeqCst) != 0 {
            self.call(Port::CriticalLeft, 0, 0, worker);
        }
    }
}
