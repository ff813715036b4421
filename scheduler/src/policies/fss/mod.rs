//! `fss`: the fair share scheduler of illumos, in its three historical variants.
//!
//! 1. A VM is a project with shares, a vCPU a thread of it. All are in one zone.
//! 2. Every tick, the thread on a core costs its project usage (by nice value) and itself a tick of
//!    its quantum. Usage decays each second and is set against shares: see `price.rs`.
//! 3. When the quantum is used up the thread is priced anew and goes to the back of its queue. It
//!    also makes room at a tick if somebody better waits.
//! 4. Each second all queued threads are priced; one whose priority changes goes to the back of its
//!    new queue with a fresh quantum. Threads on a core are left alone. The list that is walked first
//!    rotates over 16.
//! 5. A thread that wakes goes to the back of its queue with a fresh quantum; if it was dispatched in
//!    this same tick, to the front with what it had left. It preempts a thread of lower priority.
//! 6. A thread preempted by a better one keeps its place at the front and the rest of its quantum.
//! 7. `before` and `classic`: a thread that is preempted, blocks or wakes while it has a request for
//!    kernel priority catches a flag: priority 60, above everybody, no quantum, no re-pricing. Giving
//!    the request back does not clear the flag; a return to user mode does, or to block without one.
//! 8. `before` and `after`: in a project with several runnable threads, one that uses up its quantum
//!    takes the greatest value of all (in `classic` it always pays what it used).
//!
//! Queues, placement, stealing and preemption are those of `illumos/`, with queues of equal
//! length asked for. A vCPU thread has no user-level preemption control and no CPU cap, so those
//! rules have no part here. A count of requests does not go below zero.
//!
//! Source: illumos `disp/fss.c` before and after issue 11909, by its behaviour.

mod price;
#[cfg(test)]
mod tests;
mod threads;

use crate::event::{Standing, Waits};
use crate::ids::{CoreId, HostLockId, VcpuId};
use crate::policies::illumos::{self, Class};
use crate::policy::{
    Clocks, Division, Enqueue, Inherited, KernelRequest, Mode, Pick, Placed, Policy, Preempt,
    Refused, Resched, Slice, SliceEnd, VcpuParams, WorkConserving,
};
use crate::registry::{PolicyInfo, ScheduledBy};
use crate::spec::{Inconsistent, OptionInfo, OptionKind};
use crate::time::Nanos;
use price::{Because, Nice, Value};
use threads::{Fss, NEW, Thread};

/// What `fss` says of itself.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "fss",
    summary: "illumos fair share scheduler: shares per VM, with the kernel-priority flag or without",
    rules: &[
        "A VM is a project with shares, a vCPU a thread of it; all VMs are in one zone.",
        "Every tick costs the project usage (by nice value) and the thread a tick of its quantum; \
         usage decays by a quarter each second and is divided by the square of the share.",
        "When the quantum is used up, the thread is priced anew and goes to the back of its queue. \
         It makes room at a tick if somebody better waits.",
        "Each second all queued threads are priced; one whose priority changes goes to the back of \
         its new queue with a fresh quantum. Threads on a core are left alone.",
        "A thread that wakes goes to the back of its queue with a fresh quantum, or, if dispatched in \
         this same tick, to the front with what it had left. It preempts a lower priority at once.",
        "A thread preempted by a better one keeps its place at the front and the rest of its quantum.",
        "Variants before and classic: a thread that is preempted, blocks or wakes with a request for \
         kernel priority catches a flag: priority 60, no quantum, no re-pricing. Giving the request \
         back does not clear the flag; a return to user mode does, or to block without a request.",
        "Variants before and after: in a VM with several runnable vCPUs, one that uses up its quantum \
         takes the greatest value of all; in classic it pays what it used.",
        illumos::RULES,
        illumos::TURNSTILE_RULES,
    ],
    source: "illumos disp/fss.c: classic (to July 2014), before and after issue 11909 (April 2020)",
    quirks: &[
        "A vCPU thread that caught the kernel-priority flag and never returns to user mode starves \
         everybody on its core (variants before and classic): issue 11909.",
        "With several spinning vCPUs a VM, variants before and after divide time by the number of \
         vCPUs, not by shares. This is derived from the rules, not a reported fault of illumos.",
        "Only ticks are charged: who always sleeps at the tick runs for nothing.",
        "A VM with 0 shares runs only when nobody else wants to.",
        "Until somebody has paid for a tick, a price is the lowest priority, for who has used nothing \
         too: at first, who sleeps much waits for all the others.",
        illumos::CROWD,
        illumos::QUIRKS,
    ],
    options: &[
        OptionInfo {
            name: "variant",
            kind: OptionKind::Word(&["classic", "before", "after"]),
            default: "before",
            help: "which history: classic (to July 2014), before or after issue 11909",
        },
        OptionInfo {
            name: "kpri",
            kind: OptionKind::Word(&["variant", "on", "off"]),
            default: "variant",
            help: "the kernel-priority flag: as in the variant, or on or off whatever the variant",
        },
        OptionInfo {
            name: "quantum",
            kind: OptionKind::Time {
                min: Nanos::from_millis(1),
                max: Nanos::from_millis(990),
            },
            default: "110ms",
            help: "time before a thread is priced anew: a whole number of ticks",
        },
        OptionInfo {
            name: "tick",
            kind: OptionKind::Time {
                min: Nanos::from_millis(1),
                max: Nanos::from_millis(100),
            },
            default: "10ms",
            help: "period of the clock tick; rates in usage are per tick",
        },
        illumos::RECHOOSE,
        illumos::CACHE,
        illumos::NOSTEAL,
        illumos::KERNEL_PREEMPTS,
        illumos::TURNSTILE,
    ],
    scheduled_by: ScheduledBy::Policy,
    consistent: |options| {
        let (quantum, tick) = (options.time("quantum"), options.time("tick"));
        if quantum >= tick && quantum.get() % tick.get() == 0 {
            return Ok(());
        }
        Err(Inconsistent {
            option: "quantum",
            expected: format!("a whole number of ticks of {tick}"),
        })
    },
    build: |options, cores| Box::new(Fss::new(options, cores)),
};

/// Which history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Variant {
    Classic,
    Before,
    After,
}

/// The most shares that a project can have.
const MOST_SHARES: u32 = 65_535;

impl Policy for Fss {
    fn clocks(&self) -> Clocks {
        Clocks {
            tick: Some(self.tick),
            period: Some(Nanos::from_secs(1)),
        }
    }

    fn declare(&mut self, _vcpu: VcpuId, params: &VcpuParams) -> Result<(), Refused> {
        let knows = "shares per VM (0 to 65535, the same for all its vCPUs) and nice values";
        params.refuse_slice("fss", knows)?;
        params.refuse_limits("fss", knows)?;
        let shares = params.group_shares_or_zero("fss")?;
        if shares > MOST_SHARES {
            return Err(Refused::Value {
                policy: "fss",
                param: "shares",
                value: shares,
                takes: "0 to 65535",
            });
        }
        let known = self.projects.iter().find(|(vm, _)| *vm == params.vm);
        let project = match known {
            Some((_, project)) => *project,
            None => {
                let project = self.pool.add_project(self.zone, u64::from(shares));
                self.projects.push((params.vm, project));
                project
            }
        };
        if self.pool.projects[project].shares != u64::from(shares) {
            return Err(Refused::unknown("fss", "shares", knows));
        }
        let user = if shares == 0 { 0 } else { NEW };
        self.threads.push(Thread {
            project,
            nice: Nice::new(params.nice.unwrap_or(0)),
            value: Value::default(),
            left: self.quantum,
            user,
            priority: user,
            back: false,
            flag: false,
            requests: 0,
            active: false,
            dispatched: None,
        });
        self.dispatch.add(user);
        self.turnstiles.add();
        Ok(())
    }

    fn enqueue(&mut self, now: Nanos, vcpu: VcpuId, why: Enqueue) -> Placed {
        self.turnstiles.awake(vcpu);
        self.activate(vcpu);
        if let Enqueue::Preempted(core, _) | Enqueue::Yield(core) = why {
            self.dispatch.leave(now, vcpu, core);
        }
        let end = match why {
            Enqueue::New => self.put_new(vcpu),
            Enqueue::Wake => self.put_woken(vcpu, now),
            Enqueue::Preempted(..) => self.put_preempted(vcpu),
            Enqueue::Yield(_) => self.put_yielded(vcpu),
        };
        Placed(self.push(now, vcpu, end))
    }

    fn remove(&mut self, _now: Nanos, vcpu: VcpuId) {
        self.dispatch.remove(vcpu);
        self.deactivate(vcpu);
    }

    fn take(&mut self, now: Nanos, core: CoreId, vcpu: VcpuId) -> Slice {
        self.dispatch.take(core, vcpu);
        let tick = now.get() / self.tick.get();
        self.thread(vcpu).dispatched = Some(tick);
        Slice::Open
    }

    fn pick(&mut self, now: Nanos, core: CoreId) -> Pick {
        let Some(vcpu) = self.dispatch.pick(now, core) else {
            return Pick::Idle;
        };
        let tick = now.get() / self.tick.get();
        self.thread(vcpu).dispatched = Some(tick);
        Pick::Run(vcpu, Slice::Open)
    }

    fn entered(&mut self, _now: Nanos, _core: CoreId, vcpu: VcpuId) {
        self.dispatch.entered(vcpu);
    }

    fn mode(&mut self, _now: Nanos, vcpu: VcpuId, mode: Mode) {
        self.dispatch.mode(vcpu, mode);
    }

    /// Time is charged by ticks alone.
    fn charge(&mut self, _now: Nanos, _vcpu: VcpuId, _ran: Nanos) {}

    fn preempts(&mut self, _now: Nanos, _core: CoreId, running: VcpuId, woken: VcpuId) -> Preempt {
        self.dispatch.preempts(running, woken)
    }

    fn slice_end(&mut self, _now: Nanos, _core: CoreId, _vcpu: VcpuId) -> SliceEnd {
        SliceEnd::Extend(Slice::Open)
    }

    fn block(&mut self, now: Nanos, core: CoreId, vcpu: VcpuId, _on: Waits) {
        self.dispatch.leave(now, vcpu, core);
        self.deactivate(vcpu);
        if self.thread(vcpu).requests == 0 {
            self.clear_flag(vcpu);
        } else {
            self.catch_flag(vcpu);
        }
        self.settle(now, vcpu);
    }

    fn retire(&mut self, now: Nanos, core: CoreId, vcpu: VcpuId) {
        self.dispatch.leave(now, vcpu, core);
        self.deactivate(vcpu);
    }

    fn tick(&mut self, now: Nanos, core: CoreId, vcpu: VcpuId) -> Preempt {
        let thread = &mut self.threads[vcpu.index()];
        self.pool
            .charge(thread.project, thread.nice, &mut thread.value);
        if thread.flag {
            return Preempt::Keep;
        }
        thread.left -= 1;
        if thread.left <= 0 {
            let user = self.price(vcpu, Because::QuantumUp);
            let thread = self.thread(vcpu);
            thread.priority = user;
            thread.back = true;
            self.settle(now, vcpu);
            return self.dispatch.surrender(core, vcpu);
        }
        let outranked = self.outranked(core, vcpu);
        if outranked != Preempt::Keep {
            self.thread(vcpu).back = true;
        }
        outranked
    }

    fn periodic(&mut self, now: Nanos) -> Resched {
        self.pool.decay();
        self.second(now)
    }

    fn user_return(&mut self, now: Nanos, core: CoreId, vcpu: VcpuId) -> Preempt {
        if !self.kernel_priority {
            return Preempt::Keep;
        }
        self.thread(vcpu).requests = 0;
        self.clear_flag(vcpu);
        self.settle(now, vcpu);
        self.outranked(core, vcpu)
    }

    fn wants_timer(&self) -> Option<Nanos> {
        self.dispatch.wants_timer()
    }

    fn timer(&mut self, now: Nanos) -> Resched {
        self.dispatch.timer(now);
        Resched::default()
    }

    fn conserving(&self) -> WorkConserving {
        self.dispatch.conserving()
    }

    fn kernel_priority(&mut self, _now: Nanos, vcpu: VcpuId, request: KernelRequest) {
        self.requested(vcpu, request);
    }

    fn divides(&self) -> Division {
        Division::Vms
    }

    fn lock_wait(&mut self, now: Nanos, vcpu: VcpuId, lock: HostLockId) -> Inherited {
        self.waits(now, vcpu, lock)
    }

    fn lock_taken(&mut self, now: Nanos, vcpu: VcpuId, lock: HostLockId) {
        self.owns(now, vcpu, lock);
    }

    fn lock_released(&mut self, now: Nanos, vcpu: VcpuId, lock: HostLockId) -> Inherited {
        self.releases(now, vcpu, lock)
    }

    fn lock_rank(&self, vcpu: VcpuId) -> u8 {
        self.dispatch_priority(vcpu)
    }

    fn retire_waiting(&mut self, _now: Nanos, vcpu: VcpuId) {
        self.turnstiles.awake(vcpu);
    }

    fn rank(&self, vcpu: VcpuId) -> Option<String> {
        Some(format!("priority {}", self.dispatch_priority(vcpu)))
    }

    fn standing(&self, vcpu: VcpuId) -> Standing {
        self.stands(vcpu)
    }
}
