//! A policy around another that checks what the dispatcher promises and what the policy answers.
//!
//! Every vCPU is in one of three places: away, queued, on a core. Each call must fit the place that
//! the vCPU is in, name the core that it is on, and come after it was charged up to now. Times never
//! go backwards. What does not fit ends the test.

use crate::event::{Standing, Waits, WakeSource};
use crate::ids::{CoreId, HostLockId, VcpuId};
use crate::input::GuestLocks;
use crate::policy::{
    Clocks, Division, Enqueue, Inherited, KernelRequest, Mode, Pick, Placed, Policy, Preempt,
    Refused, Resched, Slice, SliceEnd, VcpuParams, WorkConserving,
};
use crate::time::Nanos;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// One choice in so many is left to chance.
const ONE_IN: usize = 4;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Away,
    Queued,
    /// On a core, and charged up to then once it has arrived.
    On(CoreId, Option<Nanos>),
    Gone,
}

/// The policy in the middle, and what is known of its vCPUs.
#[derive(Debug)]
pub(crate) struct Witness {
    inner: Box<dyn Policy>,
    places: Vec<Place>,
    now: Nanos,
    /// Run time charged to each vCPU.
    charged: Arc<Mutex<Vec<Nanos>>>,
    chooses: Chooses,
    /// Who was to run next, each time that it was asked.
    choices: Choices,
}

/// Everybody who was chosen, and where nobody was.
pub(crate) type Choices = Arc<Mutex<Vec<Option<VcpuId>>>>;

/// Who chooses who runs next.
#[derive(Debug)]
enum Chooses {
    /// The policy.
    Policy,
    /// Now and then the vCPU is drawn and taken from among those queued.
    Chance(fastrand::Rng),
    /// These in turn are taken.
    Script(VecDeque<Option<VcpuId>>),
}

impl Witness {
    /// The witness, and where it writes down what was charged.
    pub(crate) fn new(inner: Box<dyn Policy>) -> (Self, Arc<Mutex<Vec<Nanos>>>) {
        let charged = Arc::new(Mutex::new(Vec::new()));
        let witness = Self {
            inner,
            places: Vec::new(),
            now: Nanos::ZERO,
            charged: Arc::clone(&charged),
            chooses: Chooses::Policy,
            choices: Choices::default(),
        };
        (witness, charged)
    }

    /// One choice in [`ONE_IN`] is not the policy's: a vCPU is drawn and taken.
    pub(crate) fn draws(self, seed: u64) -> Self {
        Self {
            chooses: Chooses::Chance(fastrand::Rng::with_seed(seed)),
            ..self
        }
    }

    /// Who runs next is taken from what another witness has written down.
    pub(crate) fn follows(self, choices: &Choices) -> Self {
        let choices = choices.lock().expect("one thread").clone();
        Self {
            chooses: Chooses::Script(choices.into()),
            ..self
        }
    }

    /// Where it writes down who was to run next.
    pub(crate) fn choices(&self) -> Choices {
        Arc::clone(&self.choices)
    }

    /// Who is to be taken, if the policy is not to be asked.
    fn chosen(&mut self) -> Option<VcpuId> {
        match &mut self.chooses {
            Chooses::Policy => None,
            Chooses::Script(choices) => choices.pop_front().flatten(),
            Chooses::Chance(draws) => {
                let queued =
                    |(vcpu, place): (VcpuId, &Place)| (*place == Place::Queued).then_some(vcpu);
                let vcpus = (0..).map(VcpuId).zip(&self.places);
                let queued: Vec<_> = vcpus.filter_map(queued).collect();
                let drawn = draws.usize(0..ONE_IN * queued.len().max(1));
                queued.get(drawn).copied()
            }
        }
    }

    fn at(&mut self, now: Nanos) {
        assert!(now >= self.now, "time goes back from {} to {now}", self.now);
        self.now = now;
    }

    fn is(&self, vcpu: VcpuId, place: Place) {
        assert_eq!(self.places[vcpu.index()], place, "{vcpu}");
    }

    /// It is on the core and charged up to now.
    fn is_on(&mut self, now: Nanos, core: CoreId, vcpu: VcpuId) {
        self.at(now);
        match self.places[vcpu.index()] {
            Place::On(on, charged) if on == core => {
                assert!(
                    charged.is_none_or(|to| to == now),
                    "{vcpu} not charged to {now}"
                );
            }
            other => panic!("{vcpu} is not on {core} but {other:?}"),
        }
    }

    fn all_charged(&mut self, now: Nanos) {
        self.at(now);
        for place in &self.places {
            if let Place::On(_, Some(to)) = place {
                assert_eq!(*to, now, "somebody was not charged");
            }
        }
    }

    fn put(&mut self, vcpu: VcpuId, place: Place) {
        self.places[vcpu.index()] = place;
    }
}

impl Policy for Witness {
    fn clocks(&self) -> Clocks {
        self.inner.clocks()
    }

    fn declare(&mut self, vcpu: VcpuId, params: &VcpuParams) -> Result<(), Refused> {
        assert_eq!(vcpu.index(), self.places.len());
        self.places.push(Place::Away);
        self.charged.lock().expect("one thread").push(Nanos::ZERO);
        self.inner.declare(vcpu, params)
    }

    fn woken_by(&mut self, now: Nanos, vcpu: VcpuId, source: WakeSource) {
        self.at(now);
        self.is(vcpu, Place::Away);
        self.inner.woken_by(now, vcpu, source);
    }

    fn enqueue(&mut self, now: Nanos, vcpu: VcpuId, why: Enqueue) -> Placed {
        match why {
            Enqueue::New | Enqueue::Wake => {
                self.at(now);
                self.is(vcpu, Place::Away);
            }
            Enqueue::Preempted(core, _) | Enqueue::Yield(core) => self.is_on(now, core, vcpu),
        }
        self.put(vcpu, Place::Queued);
        self.inner.enqueue(now, vcpu, why)
    }

    fn remove(&mut self, now: Nanos, vcpu: VcpuId) {
        self.at(now);
        self.is(vcpu, Place::Queued);
        self.put(vcpu, Place::Away);
        self.inner.remove(now, vcpu);
    }

    fn take(&mut self, now: Nanos, core: CoreId, vcpu: VcpuId) -> Slice {
        self.at(now);
        self.is(vcpu, Place::Queued);
        self.put(vcpu, Place::On(core, None));
        let slice = self.inner.take(now, core, vcpu);
        assert_ne!(slice, Slice::For(Nanos::ZERO));
        slice
    }

    fn pick(&mut self, now: Nanos, core: CoreId) -> Pick {
        self.at(now);
        let on_core = |place: &Place| matches!(place, Place::On(on, _) if *on == core);
        assert!(!self.places.iter().any(on_core), "{core} is not idle");
        if let Some(vcpu) = self.chosen() {
            return Pick::Run(vcpu, self.take(now, core, vcpu));
        }
        let pick = self.inner.pick(now, core);
        let chosen = match pick {
            Pick::Run(vcpu, _) => Some(vcpu),
            Pick::Idle => None,
        };
        self.choices.lock().expect("one thread").push(chosen);
        match pick {
            Pick::Run(vcpu, slice) => {
                self.is(vcpu, Place::Queued);
                assert_ne!(slice, Slice::For(Nanos::ZERO));
                self.put(vcpu, Place::On(core, None));
            }
            Pick::Idle => {
                let queued = self.places.contains(&Place::Queued);
                let conserving = self.inner.conserving() == WorkConserving::Yes;
                assert!(!(queued && conserving), "{core} idle while somebody waits");
            }
        }
        pick
    }

    fn entered(&mut self, now: Nanos, core: CoreId, vcpu: VcpuId) {
        self.at(now);
        self.is(vcpu, Place::On(core, None));
        self.put(vcpu, Place::On(core, Some(now)));
        self.inner.entered(now, core, vcpu);
    }

    fn charge(&mut self, now: Nanos, vcpu: VcpuId, ran: Nanos) {
        self.at(now);
        let Place::On(core, Some(to)) = self.places[vcpu.index()] else {
            panic!("{vcpu} is charged but not on a core");
        };
        assert_eq!(now - to, ran);
        self.put(vcpu, Place::On(core, Some(now)));
        self.charged.lock().expect("one thread")[vcpu.index()] += ran;
        self.inner.charge(now, vcpu, ran);
    }

    fn preempts(&mut self, now: Nanos, core: CoreId, running: VcpuId, woken: VcpuId) -> Preempt {
        self.is_on(now, core, running);
        self.is(woken, Place::Queued);
        self.inner.preempts(now, core, running, woken)
    }

    fn slice_end(&mut self, now: Nanos, core: CoreId, vcpu: VcpuId) -> SliceEnd {
        self.is_on(now, core, vcpu);
        let end = self.inner.slice_end(now, core, vcpu);
        assert_ne!(end, SliceEnd::Extend(Slice::For(Nanos::ZERO)));
        end
    }

    fn block(&mut self, now: Nanos, core: CoreId, vcpu: VcpuId, on: Waits) {
        self.is_on(now, core, vcpu);
        self.put(vcpu, Place::Away);
        self.inner.block(now, core, vcpu, on);
    }

    fn retire(&mut self, now: Nanos, core: CoreId, vcpu: VcpuId) {
        self.is_on(now, core, vcpu);
        self.put(vcpu, Place::Gone);
        self.inner.retire(now, core, vcpu);
    }

    fn retire_waiting(&mut self, now: Nanos, vcpu: VcpuId) {
        self.at(now);
        self.is(vcpu, Place::Away);
        self.put(vcpu, Place::Gone);
        self.inner.retire_waiting(now, vcpu);
    }

    fn tick(&mut self, now: Nanos, core: CoreId, vcpu: VcpuId) -> Preempt {
        self.is_on(now, core, vcpu);
        self.inner.tick(now, core, vcpu)
    }

    fn wants_timer(&self) -> Option<Nanos> {
        self.inner.wants_timer()
    }

    fn timer(&mut self, now: Nanos) -> Resched {
        self.all_charged(now);
        self.inner.timer(now)
    }

    fn locks(&mut self, now: Nanos, vcpu: VcpuId, locks: GuestLocks) {
        self.at(now);
        self.inner.locks(now, vcpu, locks);
    }

    fn mode(&mut self, now: Nanos, vcpu: VcpuId, mode: Mode) {
        self.at(now);
        self.inner.mode(now, vcpu, mode);
    }

    fn periodic(&mut self, now: Nanos) -> Resched {
        self.all_charged(now);
        self.inner.periodic(now)
    }

    fn user_return(&mut self, now: Nanos, core: CoreId, vcpu: VcpuId) -> Preempt {
        self.is_on(now, core, vcpu);
        self.inner.user_return(now, core, vcpu)
    }

    fn kernel_priority(&mut self, now: Nanos, vcpu: VcpuId, request: KernelRequest) {
        self.at(now);
        assert_ne!(self.places[vcpu.index()], Place::Gone, "{vcpu}");
        self.inner.kernel_priority(now, vcpu, request);
    }

    fn lock_wait(&mut self, now: Nanos, vcpu: VcpuId, lock: HostLockId) -> Inherited {
        self.at(now);
        self.is(vcpu, Place::Away);
        self.inner.lock_wait(now, vcpu, lock)
    }

    fn lock_taken(&mut self, now: Nanos, vcpu: VcpuId, lock: HostLockId) {
        self.at(now);
        assert_ne!(self.places[vcpu.index()], Place::Gone, "{vcpu}");
        self.inner.lock_taken(now, vcpu, lock);
    }

    fn lock_released(&mut self, now: Nanos, vcpu: VcpuId, lock: HostLockId) -> Inherited {
        self.at(now);
        self.inner.lock_released(now, vcpu, lock)
    }

    fn lock_rank(&self, vcpu: VcpuId) -> u8 {
        self.inner.lock_rank(vcpu)
    }

    fn standing(&self, vcpu: VcpuId) -> Standing {
        self.inner.standing(vcpu)
    }

    fn divides(&self) -> Division {
        self.inner.divides()
    }

    fn conserving(&self) -> WorkConserving {
        self.inner.conserving()
    }

    fn dump(&self) -> String {
        self.inner.dump()
    }
}
