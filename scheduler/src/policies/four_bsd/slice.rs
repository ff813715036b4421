//! The three histories of the time slice.

use super::FourBsd;
use crate::ids::{CoreId, VcpuId};
use crate::policies::freebsd::runq::list_of;
use crate::policies::freebsd::seat::Ask;
use crate::policy::Preempt;
use crate::spec::Options;
use crate::time::Nanos;

/// What ends a slice.
#[derive(Debug)]
pub(super) enum Quantum {
    /// So many statistics ticks of its own.
    Ticks(u32),
    /// At a statistics tick, so long after it got the core.
    Elapsed(Nanos),
    /// Every so often on all cores, next at the second instant.
    RoundRobin(Nanos, Nanos),
}

/// hz / 10 ticks of hz.
const TENTH: Nanos = Nanos::from_millis(100);

impl Quantum {
    /// `auto` is a tenth of a second; in ticks, ⌊stathz / 10⌋ of them: 94.5 ms at 127 Hz.
    pub(super) fn new(options: &Options, statclock: Nanos) -> Self {
        let given = options.time_or_word("quantum");
        let length = given.unwrap_or(TENTH);
        match options.word("quantum-model") {
            "elapsed" => Self::Elapsed(length),
            "roundrobin" => Self::RoundRobin(length, length),
            _ => Self::Ticks(
                u32::try_from(length.get() / statclock.get())
                    .unwrap_or(u32::MAX)
                    .max(1),
            ),
        }
    }

    /// Ticks of a full slice, where they are counted.
    pub(super) const fn ticks(&self) -> u32 {
        match self {
            Self::Ticks(ticks) => *ticks,
            Self::Elapsed(_) | Self::RoundRobin(..) => 1,
        }
    }

    /// When the round robin is next due.
    pub(super) const fn round_robin_due(&self) -> Option<Nanos> {
        match self {
            Self::RoundRobin(_, at) => Some(*at),
            Self::Ticks(_) | Self::Elapsed(_) => None,
        }
    }
}

impl FourBsd {
    /// A statistics tick of the slice.
    pub(super) fn slice_tick(&mut self, now: Nanos, core: CoreId, vcpu: VcpuId) -> Preempt {
        let full = self.quantum.ticks();
        let over = match self.quantum {
            Quantum::Ticks(_) => {
                let thread = self.thread(vcpu);
                thread.slice -= 1;
                let over = thread.slice == 0;
                if over {
                    thread.slice = full;
                }
                over
            }
            Quantum::Elapsed(length) => now.since(self.thread(vcpu).since) >= length,
            Quantum::RoundRobin(..) => false,
        };
        if over {
            self.slice_over(now, core, vcpu)
        } else {
            self.seats.look(core)
        }
    }

    fn slice_over(&mut self, now: Nanos, core: CoreId, vcpu: VcpuId) -> Preempt {
        let last = self.bands.interrupt.last;
        let thread = self.thread(vcpu);
        if thread.priority.interrupt() {
            thread.priority.demote(last);
            return self.seats.ask(now, core, Ask::Preempt);
        }
        // Taken at once, the AST would pick the same one again if nobody waits that is as good.
        if self.seats.open(vcpu) {
            let user = self.threads[vcpu.index()].priority.user();
            let waiting = self
                .queue
                .first()
                .map(|first| list_of(self.priority(first)));
            if waiting.is_none_or(|waiting| waiting > list_of(user)) {
                let thread = self.thread(vcpu);
                thread.priority.restore();
                thread.since = now;
                return Preempt::Keep;
            }
        }
        self.seats.ask(now, core, Ask::Ast)
    }

    /// The round robin's callout, if it is due: the cores that make room at once.
    pub(super) fn round_robin(&mut self, now: Nanos) -> Vec<CoreId> {
        let Quantum::RoundRobin(length, at) = &mut self.quantum else {
            return Vec::new();
        };
        if *at > now {
            return Vec::new();
        }
        *at = Nanos((now.get() / length.get() + 1) * length.get());
        let busy: Vec<_> = self
            .seats
            .all()
            .filter_map(|(core, on)| on.map(|vcpu| (core, vcpu)))
            .collect();
        let mut room = Vec::new();
        for (core, vcpu) in busy {
            if self.slice_over(now, core, vcpu) == Preempt::Kick {
                room.push(core);
            }
        }
        room
    }
}
