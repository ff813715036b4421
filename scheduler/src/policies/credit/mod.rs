//! `credit`: Xen's credit scheduler (credit1).
//!
//! 1. Credits are time: 10 a millisecond. Every accounting period (30 ms) the credits of all cores are
//!    divided among the VMs by their shares, and within a VM evenly among its active vCPUs.
//! 2. Running burns credits. Accounting sets the priority: UNDER while credits are left, OVER below
//!    zero. Queues are in order of priority, first come first served within one.
//! 3. A vCPU that wakes while UNDER is BOOSTed above all until the next tick (10 ms) at which it is
//!    found running, or the next accounting.
//! 4. A vCPU runs for a time slice (30 ms), then goes behind its equals. A waking one preempts a
//!    running one of lower priority, but not before that one ran for `ratelimit`.
//! 5. A core whose best is OVER, or that is idle, steals a vCPU of strictly higher priority elsewhere.
//! 6. A vCPU that saved more than 300 credits stops earning, and keeps half.
//! 7. A capped VM's vCPUs are parked when they are too far below zero, until accounting lifts them.
//!
//! Readings: a vCPU is active from the first credit that it burns (in the source, from the first tick
//! that finds it running, so that one that is never found is never judged); an idle core steals at
//! once (the source waits 1 ms between attempts); a new vCPU is placed on the core with the fewest
//! vCPUs, and the periodic search for a better core is left to stealing; queues are sorted at the
//! accounting, not at the tick after it.
//!
//! Source: Xen `xen/common/sched/credit.c` (2026), `docs/misc/xen-command-line`.

mod account;
mod earning;
#[cfg(test)]
mod tests;
mod units;

use crate::event::{Standing, Waits};
use crate::ids::{CoreId, VcpuId};
use crate::policy::{
    Clocks, Division, Enqueue, Pick, Placed, Policy, Preempt, Refused, Resched, Slice, SliceEnd,
    VcpuParams, WorkConserving,
};
use crate::registry::{PolicyInfo, ScheduledBy};
use crate::spec::{Inconsistent, OptionInfo, OptionKind};
use crate::time::Nanos;
use account::PER_SLICE;
use units::{Credit, Domain, MIN_TIMER, Priority, Unit};

/// What `credit` says of itself.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "credit",
    summary: "Xen credit: credits by VM share, boost on wake-up, caps",
    rules: &[
        "Every 30 ms credits (10 a millisecond of core) are divided among VMs by shares.",
        "Running burns credits; accounting makes a vCPU UNDER (credits left) or OVER.",
        "A vCPU that wakes while UNDER is BOOSTed until a tick finds it running.",
        "A vCPU runs for 30 ms; a waking one of higher priority preempts after `ratelimit`.",
        "A core whose best is OVER, or that is idle, steals one of strictly higher priority.",
        "A vCPU that saved more than 300 credits stops earning, and keeps half.",
        "A capped VM's vCPUs are parked while they are too far below zero.",
    ],
    source: "Xen xen/common/sched/credit.c (2026)",
    quirks: &[
        "Boost is for sleepers: a vCPU that uses its share without sleeping never gets it.",
        "If the running one has run less than 100 us, the rate limit is first looked at again after \
         100 us, whatever remains of it.",
        "With charge=tick whoever runs at the tick pays for it all: a guest that yields just before \
         the tick runs for nothing (fixed in Xen by charging time).",
    ],
    options: &[
        OptionInfo {
            name: "ratelimit",
            kind: OptionKind::Time {
                min: Nanos::ZERO,
                max: Nanos::from_millis(500),
            },
            default: "1ms",
            help: "time that a vCPU runs before a waking one may preempt it; 0 = none",
        },
        OptionInfo {
            name: "tslice",
            kind: OptionKind::Time {
                min: Nanos::from_millis(1),
                max: Nanos::from_secs(1),
            },
            default: "30ms",
            help: "time slice and accounting period; a tick is a third of it",
        },
        OptionInfo {
            name: "charge",
            kind: OptionKind::Word(&["time", "tick"]),
            default: "time",
            help: "burn credits by time run, or (historic) a third of a slice at each tick",
        },
    ],
    scheduled_by: ScheduledBy::Policy,
    consistent: |options| {
        let (limit, slice) = (options.time("ratelimit"), options.time("tslice"));
        let usable = limit == Nanos::ZERO || limit >= Nanos::from_micros(100);
        if usable && limit <= slice {
            return Ok(());
        }
        Err(Inconsistent {
            option: "ratelimit",
            expected: format!("0, or at least 100 us and at most the time slice, {slice}"),
        })
    },
    build: |options, cores| Box::new(Credit::new(options, cores)),
};

impl Policy for Credit {
    fn clocks(&self) -> Clocks {
        Clocks {
            tick: Some(Nanos(self.tslice.0 / 3)),
            period: Some(self.tslice),
        }
    }

    fn divides(&self) -> Division {
        Division::Vms
    }

    fn declare(&mut self, _vcpu: VcpuId, params: &VcpuParams) -> Result<(), Refused> {
        let knows = "shares and a cap per VM";
        params.refuse_nice("credit", knows)?;
        params.refuse_slice("credit", knows)?;
        params.refuse_reservation("credit", knows)?;
        let domain = params.vm.index();
        let shares = i64::from(params.group_shares("credit")?);
        while self.domains.len() <= domain {
            self.domains.push(Domain {
                weight: 1,
                cap: None,
                active: Vec::new(),
            });
        }
        self.domains[domain].weight = shares;
        self.domains[domain].cap = params.cap.map(i64::from);
        self.units.push(Unit {
            domain,
            credits: 0,
            unburnt: Nanos::ZERO,
            priority: Priority::Under,
            active: false,
            parked: false,
            waiting_parked: false,
            yielded: false,
            picked: Nanos::ZERO,
            on: None,
            home: None,
        });
        Ok(())
    }

    fn enqueue(&mut self, _now: Nanos, vcpu: VcpuId, why: Enqueue) -> Placed {
        match why {
            Enqueue::Preempted(core, _) | Enqueue::Yield(core) => self.left(core, vcpu),
            Enqueue::New | Enqueue::Wake => {}
        }
        let home = self.units[vcpu.index()].home;
        let home = home.unwrap_or_else(|| self.least_loaded());
        let unit = self.unit(vcpu);
        unit.yielded = matches!(why, Enqueue::Yield(_));
        if unit.parked {
            unit.waiting_parked = true;
            unit.home = Some(home);
            return Placed(home);
        }
        if why == Enqueue::Wake && unit.priority == Priority::Under {
            unit.priority = Priority::Boost;
        }
        self.insert(home, vcpu);
        Placed(home)
    }

    fn remove(&mut self, _now: Nanos, vcpu: VcpuId) {
        self.unqueue(vcpu);
    }

    fn take(&mut self, now: Nanos, core: CoreId, vcpu: VcpuId) -> Slice {
        self.unqueue(vcpu);
        self.cores[core.index()].running = Some(vcpu);
        let unit = self.unit(vcpu);
        unit.on = Some(core);
        unit.home = Some(core);
        unit.picked = now;
        unit.yielded = false;
        Slice::For(self.tslice)
    }

    fn pick(&mut self, now: Nanos, core: CoreId) -> Pick {
        if self.queued == 0 {
            return Pick::Idle;
        }
        let local = self.head(core.index());
        let best = local.map(|vcpu| self.priority(vcpu));
        let stolen = if best <= Some(Priority::Over) {
            self.steal(core, best)
        } else {
            None
        };
        let Some(vcpu) = stolen.or(local) else {
            return Pick::Idle;
        };
        Pick::Run(vcpu, self.take(now, core, vcpu))
    }

    /// credits −= 10 · milliseconds run, the remainder carried in time.
    fn charge(&mut self, _now: Nanos, vcpu: VcpuId, ran: Nanos) {
        if self.by_tick {
            return;
        }
        let credit = Nanos(self.tslice.0 / PER_SLICE.unsigned_abs());
        let unit = self.unit(vcpu);
        let time = unit.unburnt + ran;
        unit.credits -= i64::try_from(time.0 / credit.0).unwrap_or(i64::MAX);
        unit.unburnt = Nanos(time.0 % credit.0);
        if time >= credit {
            self.activate(vcpu);
        }
    }

    fn preempts(&mut self, now: Nanos, core: CoreId, running: VcpuId, woken: VcpuId) -> Preempt {
        if self.priority(woken) <= self.priority(running) {
            return Preempt::Keep;
        }
        let ran = now.since(self.units[running.index()].picked);
        if ran >= self.ratelimit {
            return Preempt::Kick;
        }
        let wait = if ran < MIN_TIMER {
            MIN_TIMER
        } else {
            self.ratelimit - ran
        };
        self.recheck(core, Some(now + wait));
        Preempt::Keep
    }

    fn wants_timer(&self) -> Option<Nanos> {
        self.rechecks.first().map(|(at, _)| *at)
    }

    fn timer(&mut self, now: Nanos) -> Resched {
        let mut cores = Vec::new();
        while let Some((at, core)) = self.rechecks.first().copied().filter(|(at, _)| *at <= now) {
            self.rechecks.remove(&(at, core));
            self.cores[core.index()].recheck = None;
            let Some(running) = self.cores[core.index()].running else {
                continue;
            };
            let ran = now.since(self.units[running.index()].picked);
            if ran < self.ratelimit {
                self.recheck(core, Some(now + (self.ratelimit - ran)));
            } else if self.head_goes_first(core, running) {
                cores.push(core);
            }
        }
        Resched(cores)
    }

    fn slice_end(&mut self, _now: Nanos, core: CoreId, vcpu: VcpuId) -> SliceEnd {
        if self.head_goes_first(core, vcpu) || self.would_steal(core, vcpu) {
            SliceEnd::Kick
        } else {
            SliceEnd::Extend(Slice::For(self.tslice))
        }
    }

    fn tick(&mut self, _now: Nanos, _core: CoreId, vcpu: VcpuId) -> Preempt {
        let by_tick = self.by_tick;
        let unit = self.unit(vcpu);
        if unit.priority == Priority::Boost {
            unit.priority = Priority::Under;
        }
        if by_tick {
            unit.credits -= PER_SLICE / 3;
        }
        self.activate(vcpu);
        Preempt::Keep
    }

    fn periodic(&mut self, now: Nanos) -> Resched {
        let (mut resched, unparked) = self.account();
        // An unparked unit competes like one that wakes, but without boost.
        for (home, vcpu) in unparked {
            if let Some(running) = self.cores[home.index()].running
                && self.preempts(now, home, running, vcpu) == Preempt::Kick
            {
                resched.push(home);
            }
        }
        Resched(resched)
    }

    fn block(&mut self, _now: Nanos, core: CoreId, vcpu: VcpuId, _on: Waits) {
        self.left(core, vcpu);
    }

    fn retire(&mut self, _now: Nanos, core: CoreId, vcpu: VcpuId) {
        self.left(core, vcpu);
        self.deactivate(vcpu);
    }

    fn retire_waiting(&mut self, _now: Nanos, vcpu: VcpuId) {
        self.deactivate(vcpu);
    }

    fn rank(&self, vcpu: VcpuId) -> Option<String> {
        let unit = &self.units[vcpu.index()];
        let parked = if unit.parked { ", parked" } else { "" };
        let priority = format!("{:?}", unit.priority).to_uppercase();
        Some(format!("{priority}, {} credits{parked}", unit.credits))
    }

    fn standing(&self, vcpu: VcpuId) -> Standing {
        Standing {
            boosted: self.priority(vcpu) == Priority::Boost,
            ..Standing::default()
        }
    }

    /// A parked vCPU waits although cores may be idle.
    fn conserving(&self) -> WorkConserving {
        if self.domains.iter().any(|domain| domain.cap.is_some()) {
            WorkConserving::No
        } else {
            WorkConserving::Yes
        }
    }
}
