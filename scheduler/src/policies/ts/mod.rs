//! `ts`: the time-sharing class of illumos, with its dispatch tables.
//!
//! 1. A thread has a row of the table, which carries its history, and an offset from its nice value.
//!    Its user priority is the sum, between 0 and 59. A new thread begins in row 29.
//! 2. Every tick costs the thread on a core a tick of its quantum. When that is used up it falls to a
//!    lower row and goes to the back of its queue. It also makes room at a tick if somebody better
//!    waits. The quantum is that of its row, whatever its offset.
//! 3. Each second everybody's wait grows by one, wherever it is. Who has waited more seconds than the
//!    row of its user priority allows (0, but at priority 59 for ever) and is queued rises to another
//!    row, and goes to the back of its new queue with a fresh quantum. The list that is walked first
//!    rotates over 16.
//! 4. The same wait raises a thread that goes to sleep, wakes, or returns to user mode; else these
//!    change neither row nor quantum. So does a return to user mode without any sleep: who never
//!    returns rises only while it is queued.
//! 5. A used-up quantum, such a rise, and to be preempted at the end of a turn make the wait 0.
//! 6. A thread that wakes goes to the back of its queue; if it was dispatched in this same tick, to
//!    the front. One that is preempted by a better one keeps its place at the front, and its quantum.
//! 7. `before`: the kernel-priority flag of `fss`, with the same rules.
//! 8. Nice n is an offset of -3n.
//!
//! Queues, placement, stealing and preemption are those of `illumos/`; queues may differ in length by
//! two. The interactive class, user-level preemption control and CPU caps have no part here.
//!
//! Source: illumos `disp/ts.c`, `disp/ts_dptbl.c` before and after issue 11909, by their behaviour.

mod table;
#[cfg(test)]
mod tests;
mod threads;

use crate::event::{Standing, Waits};
use crate::ids::{CoreId, HostLockId, VcpuId};
use crate::policies::illumos::{self, Class};
use crate::policy::{
    Clocks, Enqueue, Inherited, KernelRequest, Mode, Pick, Placed, Policy, Preempt, Refused,
    Resched, Slice, SliceEnd, VcpuParams, WorkConserving,
};
use crate::registry::{PolicyInfo, ScheduledBy};
use crate::spec::{OptionInfo, OptionKind};
use crate::time::Nanos;
use threads::Ts;

/// What `ts` says of itself.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "ts",
    summary: "illumos time sharing: a dispatch table, with the kernel-priority flag or without",
    rules: &[
        "A vCPU has a row of the table and an offset of -3 times its nice value; its user priority is \
         the sum, between 0 and 59. It begins in row 29.",
        "Every tick costs a tick of the quantum of its row. When that is used up it falls to a lower \
         row and goes to the back of its queue. It makes room at a tick if somebody better waits.",
        "Each second everybody's wait grows by one. Who is queued and has waited more seconds than its \
         priority allows (0; at 59 for ever) rises, to the back of its new queue with a fresh quantum.",
        "The same wait raises a vCPU that goes to sleep, wakes or returns to user mode; otherwise \
         these change neither row nor quantum.",
        "A used-up quantum, a rise, and the end of a turn make the wait 0.",
        "A vCPU that wakes goes to the back of its queue, or, if dispatched in this same tick, to the \
         front. One preempted by a better one keeps its place at the front and its quantum.",
        "Variant before: a vCPU that is preempted, blocks or wakes with a request for kernel priority \
         catches a flag: priority 60, no quantum, no rise. A return to user mode clears it, or to \
         block without a request.",
        illumos::RULES,
        illumos::TURNSTILE_RULES,
    ],
    source: "illumos disp/ts.c and disp/ts_dptbl.c, before and after issue 11909 (April 2020)",
    quirks: &[
        "A vCPU thread that caught the kernel-priority flag and never returns to user mode starves \
         everybody on its core (variant before): issue 11909.",
        "A spinning vCPU rises every second as others do, but only while it is queued if it never \
         returns to user mode: two of them need not get equal parts.",
        "Only ticks are charged: who always sleeps at the tick keeps its quantum.",
        illumos::CROWD,
        illumos::QUIRKS,
    ],
    options: &[
        OptionInfo {
            name: "variant",
            kind: OptionKind::Word(&["before", "after"]),
            default: "before",
            help: "which history: before or after issue 11909",
        },
        OptionInfo {
            name: "kpri",
            kind: OptionKind::Word(&["variant", "on", "off"]),
            default: "variant",
            help: "the kernel-priority flag: as in the variant, or on or off whatever the variant",
        },
        OptionInfo {
            name: "table",
            kind: OptionKind::Word(&["default", "server"]),
            default: "default",
            help: "the dispatch table: the usual one, or the one with long quanta for servers",
        },
        OptionInfo {
            name: "tick",
            kind: OptionKind::Time {
                min: Nanos::from_millis(1),
                max: Nanos::from_millis(100),
            },
            default: "10ms",
            help: "period of the clock tick, in which quanta are counted",
        },
        illumos::RECHOOSE,
        illumos::CACHE,
        illumos::NOSTEAL,
        illumos::KERNEL_PREEMPTS,
        illumos::TURNSTILE,
    ],
    scheduled_by: ScheduledBy::Policy,
    consistent: |_| Ok(()),
    build: |options, cores| Box::new(Ts::new(options, cores)),
};

impl Policy for Ts {
    fn clocks(&self) -> Clocks {
        Clocks {
            tick: Some(self.tick),
            period: Some(Nanos::from_secs(1)),
        }
    }

    fn declare(&mut self, _vcpu: VcpuId, params: &VcpuParams) -> Result<(), Refused> {
        let knows = "nice values (-20 to 19)";
        params.refuse_weights("ts", knows)?;
        params.refuse_slice("ts", knows)?;
        params.refuse_limits("ts", knows)?;
        self.add(params.nice.unwrap_or(0));
        Ok(())
    }

    fn enqueue(&mut self, now: Nanos, vcpu: VcpuId, why: Enqueue) -> Placed {
        self.turnstiles.awake(vcpu);
        if let Enqueue::Preempted(core, _) | Enqueue::Yield(core) = why {
            self.dispatch.leave(now, vcpu, core);
        }
        let end = match why {
            Enqueue::New | Enqueue::Wake => self.put_woken(vcpu, now),
            Enqueue::Preempted(..) => self.put_preempted(vcpu),
            Enqueue::Yield(_) => self.put_yielded(vcpu),
        };
        let priority = self.dispatch_priority(vcpu);
        Placed(self.dispatch.put(now, vcpu, priority, end))
    }

    fn remove(&mut self, _now: Nanos, vcpu: VcpuId) {
        self.dispatch.remove(vcpu);
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
        self.put_to_sleep(vcpu);
        self.settle(now, vcpu);
    }

    fn retire(&mut self, now: Nanos, core: CoreId, vcpu: VcpuId) {
        self.dispatch.leave(now, vcpu, core);
    }

    fn tick(&mut self, now: Nanos, core: CoreId, vcpu: VcpuId) -> Preempt {
        let thread = self.thread(vcpu);
        if thread.flag {
            return Preempt::Keep;
        }
        thread.left -= 1;
        if thread.left <= 0 {
            self.expire(vcpu);
            self.thread(vcpu).back = true;
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
        self.second(now)
    }

    fn user_return(&mut self, now: Nanos, core: CoreId, vcpu: VcpuId) -> Preempt {
        self.thread(vcpu).requests = 0;
        self.clear_flag(vcpu);
        self.rise_if_due(vcpu);
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
