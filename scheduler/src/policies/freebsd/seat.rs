//! Who sits on which core, and when a request to make room is acted on.
//!
//! 1. A *preemption* is acted on at once, also in the hypervisor. In a critical section it is owed and
//!    acted on when the section is left; with the fault of 2004 (`deferred=on`) it is remembered as an
//!    AST, and looked at on return to user mode.
//! 2. An *AST* is acted on at once in the guest and after the work of the hypervisor. In a
//!    critical section it has the fate of a preemption.
//! 3. Whatever ends the stay on the core ends what is remembered. A clock interrupt outside a critical
//!    section does, too: its own thread is switched to at once, and after it the best one runs.

use crate::event::{Until, WakeSource};
use crate::ids::{CoreId, VcpuId};
use crate::input::GuestLocks;
use crate::policy::{Mode, Preempt};
use crate::spec::Options;
use crate::time::Nanos;

/// How a vCPU is asked to make room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::policies) enum Ask {
    /// On the way to user mode: it takes its own priority and goes to the tail.
    Ast,
    /// In the kernel: it keeps its priority, its slice and its turn.
    Preempt,
}

/// How guest time counts; see the folder's documentation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::policies) enum GuestTime {
    Kernel,
    User,
    KernelStrict,
}

#[derive(Clone, Default, Debug)]
struct Seat {
    vcpu: Option<VcpuId>,
    /// It was asked for, and will leave for this.
    kicked: Option<Ask>,
    /// It will be asked for at a later moment, for this.
    owed: Option<Ask>,
    /// That moment is the next clock interrupt, if nothing comes before.
    remembered: bool,
}

/// What is known of a vCPU on a core.
#[derive(Clone, Copy, Default, Debug)]
struct Inside {
    critical: bool,
    hypervisor: bool,
    on: Option<CoreId>,
}

/// All cores.
#[derive(Debug)]
pub(in crate::policies) struct Seats {
    seats: Vec<Seat>,
    inside: Vec<Inside>,
    deferred: bool,
    guest: GuestTime,
    hardclock: Nanos,
    /// When the next clock interrupt matters.
    clock: Option<Nanos>,
}

impl Seats {
    pub(in crate::policies) fn new(options: &Options, cores: u16) -> Self {
        Self {
            seats: vec![Seat::default(); usize::from(cores)],
            inside: Vec::new(),
            deferred: options.on("deferred"),
            guest: match options.word("guest") {
                "user" => GuestTime::User,
                "kernel-strict" => GuestTime::KernelStrict,
                _ => GuestTime::Kernel,
            },
            hardclock: options.time("hardclock"),
            clock: None,
        }
    }

    pub(in crate::policies) fn declare(&mut self) {
        self.inside.push(Inside::default());
    }

    /// Whether entering the guest is a return to user mode.
    pub(in crate::policies) fn guest_is_user(&self) -> bool {
        self.guest == GuestTime::User
    }

    pub(in crate::policies) fn on(&self, core: CoreId) -> Option<VcpuId> {
        self.seats[core.index()].vcpu
    }

    /// The core that a vCPU is on.
    pub(in crate::policies) fn core_of(&self, vcpu: VcpuId) -> Option<CoreId> {
        self.inside[vcpu.index()].on
    }

    /// The core that the one who woke a vCPU is on: not known of a device or timer.
    pub(in crate::policies) fn core_of_waker(&self, source: WakeSource) -> Option<CoreId> {
        match source {
            WakeSource::Timer => None,
            WakeSource::Interrupt(from) => from.and_then(|from| self.core_of(from)),
            WakeSource::HostLock(from) | WakeSource::GuestLock(from) => self.core_of(from),
        }
    }

    /// All cores with who is on them.
    pub(in crate::policies) fn all(&self) -> impl Iterator<Item = (CoreId, Option<VcpuId>)> + '_ {
        let cores = (0..=u16::MAX).map(CoreId);
        cores.zip(self.seats.iter().map(|seat| seat.vcpu))
    }

    pub(in crate::policies) fn sit(&mut self, core: CoreId, vcpu: VcpuId) {
        self.seats[core.index()].vcpu = Some(vcpu);
        self.inside[vcpu.index()].on = Some(core);
    }

    /// The vCPU leaves the core; if it was asked to, how.
    pub(in crate::policies) fn leave(&mut self, core: CoreId) -> Ask {
        let seat = std::mem::take(&mut self.seats[core.index()]);
        if let Some(vcpu) = seat.vcpu {
            self.inside[vcpu.index()].on = None;
        }
        if seat.remembered && !self.seats.iter().any(|seat| seat.remembered) {
            self.clock = None;
        }
        seat.kicked.or(seat.owed).unwrap_or(Ask::Ast)
    }

    pub(in crate::policies) fn locks(&mut self, vcpu: VcpuId, locks: GuestLocks) {
        self.inside[vcpu.index()].critical = locks.critical > 0;
    }

    pub(in crate::policies) fn mode(&mut self, vcpu: VcpuId, mode: Mode) {
        self.inside[vcpu.index()].hypervisor = mode == Mode::Hypervisor;
    }

    /// The moment until which a request has to wait.
    fn moment(&self, vcpu: VcpuId, ask: Ask) -> Option<Until> {
        let inside = self.inside[vcpu.index()];
        let to_user_mode = match self.guest {
            GuestTime::User => Until::GuestEntry,
            GuestTime::Kernel | GuestTime::KernelStrict => Until::UserReturn,
        };
        match (inside.critical, ask) {
            (true, _) if self.deferred => Some(to_user_mode),
            (true, _) => Some(Until::CriticalExit),
            (false, Ask::Preempt) => None,
            (false, Ask::Ast) => match self.guest {
                GuestTime::KernelStrict => Some(Until::UserReturn),
                _ => inside.hypervisor.then_some(Until::GuestEntry),
            },
        }
    }

    /// Asks whoever is on the core to make room.
    pub(in crate::policies) fn ask(&mut self, now: Nanos, core: CoreId, ask: Ask) -> Preempt {
        let Some(vcpu) = self.on(core) else {
            return Preempt::Keep;
        };
        let moment = self.moment(vcpu, ask);
        let critical = self.inside[vcpu.index()].critical;
        let seat = &mut self.seats[core.index()];
        let Some(until) = moment else {
            seat.kicked.get_or_insert(ask);
            return Preempt::Kick;
        };
        seat.owed.get_or_insert(ask);
        if critical && self.deferred {
            seat.remembered = true;
            self.clock = self.clock.or(Some(self.tick_after(now)));
        }
        Preempt::Defer(until)
    }

    /// A tick forces an exit: what is owed to a moment that has passed unseen is acted on.
    pub(in crate::policies) fn look(&mut self, core: CoreId) -> Preempt {
        let seat = &self.seats[core.index()];
        let (Some(vcpu), Some(ask), false) = (seat.vcpu, seat.owed, seat.remembered) else {
            return Preempt::Keep;
        };
        if self.moment(vcpu, ask).is_some() {
            return Preempt::Keep;
        }
        self.seats[core.index()].kicked.get_or_insert(ask);
        Preempt::Kick
    }

    /// Whether an AST would be acted on at once.
    pub(in crate::policies) fn open(&self, vcpu: VcpuId) -> bool {
        self.moment(vcpu, Ask::Ast).is_none()
    }

    /// A return to user mode looks at whatever is remembered, unless it waits for a critical exit.
    pub(in crate::policies) fn user_return(&mut self, core: CoreId) -> Preempt {
        let seat = &mut self.seats[core.index()];
        let critical = seat.vcpu.is_some_and(|v| self.inside[v.index()].critical);
        match seat.owed {
            Some(ask) if !critical || self.deferred => {
                seat.kicked.get_or_insert(ask);
                Preempt::Kick
            }
            _ => Preempt::Keep,
        }
    }

    fn tick_after(&self, now: Nanos) -> Nanos {
        let period = self.hardclock.get();
        Nanos((now.get() / period + 1) * period)
    }

    /// When the clock interrupt is to be told.
    pub(in crate::policies) const fn clock_due(&self) -> Option<Nanos> {
        self.clock
    }

    /// The clock interrupt, if it is due: the cores whose remembered preemption it lets through.
    pub(in crate::policies) fn clock(&mut self, now: Nanos) -> Vec<CoreId> {
        if self.clock.is_none_or(|at| at > now) {
            return Vec::new();
        }
        let inside = &self.inside;
        let mut through = Vec::new();
        for (core, seat) in (0..=u16::MAX).map(CoreId).zip(&mut self.seats) {
            let open = seat.vcpu.is_some_and(|v| !inside[v.index()].critical);
            if seat.remembered && open {
                seat.remembered = false;
                seat.kicked.get_or_insert(Ask::Preempt);
                through.push(core);
            }
        }
        let more = self.seats.iter().any(|seat| seat.remembered);
        self.clock = more.then(|| self.tick_after(now));
        through
    }
}
