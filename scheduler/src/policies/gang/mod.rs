//! `gang`: strict gang scheduling by an Ousterhout matrix.
//!
//! 1. The vCPUs of a VM are a gang. Time is cut into slots; a row of the matrix is what runs in a slot,
//!    a column is a core.
//! 2. A gang is placed when its first vCPU comes: in the first row with enough empty columns, else in a
//!    new row. It keeps its columns. One that is wider than the machine is cut into several.
//! 3. Rows take turns, and at a switch all cores change together. A row in which everybody waits is
//!    passed over; a slot ends early when everybody in it waits.
//! 4. Who wakes runs at once if its row's slot is on, else it waits for that.
//! 5. A column whose vCPU waits, or that is empty, idles. With `alternate=on` it is filled meanwhile: a
//!    runnable vCPU of the same column runs, of the rows in the order of their turns.
//! 6. When all rows have had their turn, gangs that do not run are moved to earlier rows in which there
//!    is room by now, and rows without gangs are given up.
//!
//! Readings: the source has a slot take its full length even if everybody in it waits; the matrix is
//! unified once a round.
//!
//! Source: Ousterhout, "Scheduling techniques for concurrent systems", ICDCS 1982, from general
//! knowledge.

mod matrix;
#[cfg(test)]
mod tests;

use crate::event::{Standing, Waits};
use crate::ids::{CoreId, VcpuId};
use crate::policy::{
    Enqueue, Pick, Placed, Policy, Preempt, Refused, Resched, Slice, SliceEnd, VcpuParams,
    WorkConserving,
};
use crate::registry::{PolicyInfo, ScheduledBy};
use crate::spec::{OptionInfo, OptionKind, SWITCH};
use crate::time::Nanos;
use matrix::Matrix;

/// What `gang` says of itself.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "gang",
    summary: "strict gang scheduling: the vCPUs of a VM run together or not at all",
    rules: &[
        "The vCPUs of a VM are a gang. Time is cut into slots; a row of the matrix is what runs in a \
         slot, a column is a core.",
        "A gang is placed when its first vCPU comes, in the first row with enough empty columns, else \
         in a new row, and keeps its columns. One wider than the machine is cut into several.",
        "Rows take turns, and at a switch all cores change together. A row in which everybody waits is \
         passed over; a slot ends early when everybody in it waits.",
        "Who wakes runs at once if its row's slot is on, else it waits for that.",
        "A column whose vCPU waits, or that is empty, idles; with `alternate=on` a runnable vCPU of the \
         same column in another row fills it.",
        "Once a round, gangs that do not run move to earlier rows in which there is room by now.",
    ],
    source: "Ousterhout, ICDCS 1982, from general knowledge",
    quirks: &[
        "Fragmentation: a slot in which a narrow VM runs leaves cores idle although others wait. Time \
         that a vCPU waits for its slot while its own core is empty by that is told as co-stopped.",
        "A vCPU that wakes for a moment's work waits for its slot: up to a whole round.",
        "The last to come of a gang finds its column kept free; until then it idles.",
    ],
    options: &[
        OptionInfo {
            name: "slot",
            kind: OptionKind::Time {
                min: Nanos::from_micros(100),
                max: Nanos::from_secs(1),
            },
            default: "10ms",
            help: "length of a slot",
        },
        OptionInfo {
            name: "alternate",
            kind: SWITCH,
            default: "off",
            help: "alternate selection: fill columns that would idle with vCPUs of other rows",
        },
    ],
    scheduled_by: ScheduledBy::Policy,
    consistent: |_options| Ok(()),
    build: |options, cores| {
        Box::new(Gang {
            slot: options.time("slot"),
            alternate: options.on("alternate"),
            matrix: Matrix::new(usize::from(cores)),
            vcpus: Vec::new(),
            vms: Vec::new(),
            running: vec![None; usize::from(cores)],
            active: 0,
            slot_ends: None,
        })
    },
};

#[derive(Debug)]
struct Vcpu {
    vm: usize,
    queued: bool,
    on: bool,
}

#[derive(Debug, Default)]
struct Vm {
    members: Vec<VcpuId>,
    placed: bool,
}

#[derive(Debug)]
struct Gang {
    slot: Nanos,
    alternate: bool,
    matrix: Matrix,
    vcpus: Vec<Vcpu>,
    vms: Vec<Vm>,
    running: Vec<Option<VcpuId>>,
    /// The row whose slot is on.
    active: usize,
    /// When that slot ends; none while nobody is runnable.
    slot_ends: Option<Nanos>,
}

impl Gang {
    fn wants_to_run(&self, vcpu: VcpuId) -> bool {
        let vcpu = &self.vcpus[vcpu.index()];
        vcpu.queued || vcpu.on
    }

    /// Whether anybody of the row is runnable.
    fn is_live(&self, row: usize) -> bool {
        self.matrix.members(row).any(|vcpu| self.wants_to_run(vcpu))
    }

    /// The rows in the order of their turns, beginning with the one whose slot is on.
    fn turns(&self) -> impl Iterator<Item = usize> + use<> {
        let (rows, active) = (self.matrix.rows(), self.active);
        (active..rows).chain(0..active.min(rows))
    }

    /// Gives the gang its place. One that comes back after it was taken out is placed alone.
    fn settle(&mut self, vcpu: VcpuId) -> usize {
        if let Some(place) = self.matrix.place_of(vcpu) {
            return place.row;
        }
        let vm = &mut self.vms[self.vcpus[vcpu.index()].vm];
        if std::mem::replace(&mut vm.placed, true) {
            self.matrix.place(&[vcpu]);
        } else {
            self.matrix.place(&vm.members);
        }
        self.matrix.place_of(vcpu).map_or(0, |place| place.row)
    }

    /// The vCPU of this row in the core's column, if it is queued.
    fn queued_in(&self, row: usize, core: CoreId) -> Option<VcpuId> {
        let member = self.matrix.at(row, core.index());
        member.filter(|member| self.vcpus[member.index()].queued)
    }

    fn sits(&mut self, core: CoreId, vcpu: VcpuId) {
        self.running[core.index()] = Some(vcpu);
        let entry = &mut self.vcpus[vcpu.index()];
        entry.queued = false;
        entry.on = true;
    }

    fn left(&mut self, core: CoreId, vcpu: VcpuId) {
        self.running[core.index()] = None;
        self.vcpus[vcpu.index()].on = false;
    }

    /// A vCPU waits from now on, or is gone: if its row's slot is on and that was the last one who
    /// wanted to run in it, the slot is over.
    fn end_empty_slot(&mut self, now: Nanos) {
        if !self.is_live(self.active) {
            let others = self.turns().any(|row| self.is_live(row));
            self.slot_ends = others.then_some(now);
        }
    }

    fn gone(&mut self, now: Nanos, vcpu: VcpuId) {
        self.vcpus[vcpu.index()].queued = false;
        self.matrix.remove(vcpu);
        self.end_empty_slot(now);
    }

    /// The slot of the next row in which anybody is runnable.
    fn next_slot(&mut self, now: Nanos) -> Resched {
        let Some(next) = self.turns().skip(1).find(|row| self.is_live(*row)) else {
            // Nobody else: the same row again.
            self.slot_ends = self.is_live(self.active).then(|| now + self.slot);
            return Resched::default();
        };
        let round_is_over = next < self.active;
        self.active = next;
        if round_is_over {
            let (active, vcpus) = (self.active, &self.vcpus);
            let stays = |vcpu: VcpuId| vcpus[vcpu.index()].on;
            self.active = self.matrix.unify(active, stays);
        }
        self.slot_ends = Some(now + self.slot);
        Resched(self.wrongly_occupied())
    }

    /// Cores on which somebody is whose column that is not in the row whose slot is on. With alternate selection
    /// those may stay where nobody of that row would take their place.
    fn wrongly_occupied(&self) -> Vec<CoreId> {
        let cores = (0..=u16::MAX).map(CoreId).zip(&self.running);
        let wrong = cores.filter(|(core, on)| {
            let own = self.matrix.at(self.active, core.index());
            let wanted = !self.alternate || self.queued_in(self.active, *core).is_some();
            on.is_some() && **on != own && wanted
        });
        wrong.map(|(core, _)| core).collect()
    }
}

impl Policy for Gang {
    fn declare(&mut self, vcpu: VcpuId, params: &VcpuParams) -> Result<(), Refused> {
        let knows = "none: all VMs take turns";
        params.refuse_all("gang", knows)?;
        let vm = params.vm.index();
        if self.vms.len() <= vm {
            self.vms.resize_with(vm + 1, Vm::default);
        }
        self.vms[vm].members.push(vcpu);
        self.matrix.declare();
        self.vcpus.push(Vcpu {
            vm,
            queued: false,
            on: false,
        });
        Ok(())
    }

    fn enqueue(&mut self, now: Nanos, vcpu: VcpuId, why: Enqueue) -> Placed {
        if let Enqueue::Preempted(core, _) | Enqueue::Yield(core) = why {
            self.left(core, vcpu);
        }
        self.vcpus[vcpu.index()].queued = true;
        let row = self.settle(vcpu);
        if self.slot_ends.is_none() {
            self.active = row;
            self.slot_ends = Some(now + self.slot);
        }
        let column = self.matrix.place_of(vcpu).map_or(0, |place| place.column);
        Placed(CoreId(u16::try_from(column).unwrap_or(0)))
    }

    fn remove(&mut self, now: Nanos, vcpu: VcpuId) {
        self.gone(now, vcpu);
    }

    /// In a column that is not its own it stays for a slot.
    fn take(&mut self, _now: Nanos, core: CoreId, vcpu: VcpuId) -> Slice {
        self.sits(core, vcpu);
        if self.matrix.at(self.active, core.index()) == Some(vcpu) {
            Slice::Open
        } else {
            Slice::For(self.slot)
        }
    }

    fn pick(&mut self, _now: Nanos, core: CoreId) -> Pick {
        let rows = if self.alternate {
            self.matrix.rows()
        } else {
            1
        };
        let mut turns = self.turns().take(rows);
        let Some(vcpu) = turns.find_map(|row| self.queued_in(row, core)) else {
            return Pick::Idle;
        };
        self.sits(core, vcpu);
        Pick::Run(vcpu, Slice::Open)
    }

    /// Slots are counted, not the time used in them.
    fn charge(&mut self, _now: Nanos, _vcpu: VcpuId, _ran: Nanos) {}

    fn preempts(&mut self, _now: Nanos, core: CoreId, _run: VcpuId, woken: VcpuId) -> Preempt {
        if self.queued_in(self.active, core) == Some(woken) {
            Preempt::Kick
        } else {
            Preempt::Keep
        }
    }

    /// Only who was put there by others has a slice.
    fn slice_end(&mut self, _now: Nanos, _core: CoreId, _vcpu: VcpuId) -> SliceEnd {
        SliceEnd::Kick
    }

    fn block(&mut self, now: Nanos, core: CoreId, vcpu: VcpuId, _on: Waits) {
        self.left(core, vcpu);
        self.end_empty_slot(now);
    }

    fn retire(&mut self, now: Nanos, core: CoreId, vcpu: VcpuId) {
        self.left(core, vcpu);
        self.gone(now, vcpu);
    }

    fn retire_waiting(&mut self, now: Nanos, vcpu: VcpuId) {
        self.gone(now, vcpu);
    }

    fn wants_timer(&self) -> Option<Nanos> {
        self.slot_ends
    }

    fn timer(&mut self, now: Nanos) -> Resched {
        if self.slot_ends.is_some_and(|at| at <= now) {
            self.next_slot(now)
        } else {
            Resched::default()
        }
    }

    /// It waits for its slot while nobody at all may use its core.
    fn standing(&self, vcpu: VcpuId) -> Standing {
        let place = self.matrix.place_of(vcpu);
        let hole = place.is_some_and(|place| {
            place.row != self.active && self.matrix.at(self.active, place.column).is_none()
        });
        Standing {
            costopped: self.vcpus[vcpu.index()].queued && hole && !self.alternate,
            ..Standing::default()
        }
    }

    fn conserving(&self) -> WorkConserving {
        WorkConserving::No
    }
}
