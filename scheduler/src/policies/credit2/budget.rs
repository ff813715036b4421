//! Caps of credit2: a VM's budget of run time in each period, drawn by its vCPUs in parts.

use crate::ids::VcpuId;
use crate::time::Nanos;

/// The period in which a cap holds.
pub(super) const PERIOD: Nanos = Nanos::from_millis(10);

/// The least part that a vCPU draws.
const LEAST: i64 = 500_000;

/// Whether there is budget to run on.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Draw {
    /// There is, or the VM has no cap.
    Some,
    /// There is none until the next period.
    Empty,
}

#[derive(Debug, Default)]
struct Pool {
    /// Budget of a period.
    total: i64,
    /// What is not drawn yet; negative after an overrun.
    left: i64,
    vcpus: i64,
}

#[derive(Debug, Default)]
pub(super) struct Budgets {
    pools: Vec<Option<Pool>>,
    /// What each vCPU has drawn and not yet burnt.
    drawn: Vec<i64>,
}

impl Budgets {
    /// A vCPU of a VM with this cap, in per cent of a core.
    pub(super) fn declare(&mut self, vm: usize, vcpu: VcpuId, cap: Option<u32>) {
        self.drawn.resize(self.drawn.len().max(vcpu.index() + 1), 0);
        if self.pools.len() <= vm {
            self.pools.resize_with(vm + 1, || None);
        }
        if let Some(cap) = cap {
            let total = i64::try_from(PERIOD.0).unwrap_or(i64::MAX) * i64::from(cap) / 100;
            let pool = self.pools[vm].get_or_insert_default();
            pool.total = total;
            pool.left = total;
            pool.vcpus += 1;
        }
    }

    /// Whether any VM is capped.
    pub(super) fn any(&self) -> bool {
        self.pools.iter().any(Option::is_some)
    }

    /// Makes sure that the vCPU has budget, drawing max(total / vCPUs, 500 us) if it has none.
    pub(super) fn draw(&mut self, vm: usize, vcpu: VcpuId) -> Draw {
        let Some(pool) = &mut self.pools[vm] else {
            return Draw::Some;
        };
        let drawn = &mut self.drawn[vcpu.index()];
        if *drawn <= 0 {
            let part = (pool.total / pool.vcpus.max(1)).max(LEAST).min(pool.left);
            if part > 0 {
                pool.left -= part;
                *drawn += part;
            }
        }
        if *drawn > 0 { Draw::Some } else { Draw::Empty }
    }

    /// How long the vCPU may run on what it has drawn; `None` without a cap.
    pub(super) fn left(&self, vm: usize, vcpu: VcpuId) -> Option<Nanos> {
        self.pools[vm].as_ref()?;
        Some(Nanos(self.drawn[vcpu.index()].max(0).unsigned_abs()))
    }

    /// The vCPU ran. An overrun is kept and paid from the next part.
    pub(super) fn burn(&mut self, vm: usize, vcpu: VcpuId, ran: Nanos) {
        if self.pools[vm].is_some() {
            self.drawn[vcpu.index()] -= i64::try_from(ran.0).unwrap_or(i64::MAX);
        }
    }

    /// The vCPU waits: what it has drawn goes back, what it owes it still owes.
    pub(super) fn give_back(&mut self, vm: usize, vcpu: VcpuId) {
        if let Some(pool) = &mut self.pools[vm] {
            let drawn = &mut self.drawn[vcpu.index()];
            pool.left = (pool.left + (*drawn).max(0)).min(pool.total);
            *drawn = (*drawn).min(0);
        }
    }

    /// A new period: what is left over is kept, up to the budget of one period in all.
    pub(super) fn replenish(&mut self) {
        for pool in self.pools.iter_mut().flatten() {
            pool.left = (pool.left + pool.total).min(pool.total);
        }
    }
}
