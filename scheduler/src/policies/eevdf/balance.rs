//! Several cores: where a vCPU goes, and how queues are kept even.
//!
//! 1. A vCPU that wakes goes to its last core if that is idle, else to the idle core of the lowest
//!    number, else stays with its last core. A new one takes the core of least weight instead.
//! 2. A core that becomes idle pulls from the longest queue the first eligible by deadline.
//! 3. Each period, as long as it lowers the weight of the busiest core, a queued vCPU goes from there
//!    to the core of least weight.
//! 4. If that is not possible but the vCPUs of the busier core have been served less of late (by more
//!    than a slice, in virtual time), the one of them that was served most goes over: so that three
//!    spinners on two cores take turns at being alone. If it is on the core, it goes when it is
//!    stopped. What was served is forgotten by a sixteenth each period.
//!
//! This is a simple form with the same aim as Linux's load balancing, not its algorithm.

use super::queue::Queues;
use crate::ids::{CoreId, VcpuId};
use crate::time::Nanos;

/// How often queues are made even.
pub(super) const PERIOD: Nanos = Nanos::from_millis(32);

fn all(queues: &Queues) -> impl Iterator<Item = CoreId> + use<> {
    let cores = u16::try_from(queues.cores.len()).unwrap_or(u16::MAX);
    (0..cores).map(CoreId)
}

/// The core for one that wakes or is new.
pub(super) fn place(queues: &Queues, vcpu: VcpuId) -> CoreId {
    let entity = &queues.entities[vcpu.index()];
    if let Some(bound) = entity.bound {
        return bound;
    }
    let last = entity.core;
    if let Some(last) = last.filter(|last| queues.is_idle(*last)) {
        return last;
    }
    let idle = all(queues).find(|core| queues.is_idle(*core));
    let least = || all(queues).min_by_key(|core| queues.load(*core));
    idle.or(last).or_else(least).unwrap_or(CoreId(0))
}

/// Those that wait on the core's queue and may go elsewhere.
fn movable(queues: &Queues, core: CoreId) -> impl Iterator<Item = VcpuId> + use<'_> {
    let free = |vcpu: &VcpuId| queues.entities[vcpu.index()].bound.is_none();
    queues.waiting(core).filter(free)
}

/// Brings one over to an idle core from the longest queue.
pub(super) fn pull(queues: &mut Queues, to: CoreId, now: Nanos) -> Option<VcpuId> {
    let length = |core: &CoreId| queues.cores[core.index()].runnable;
    let gives = |core: &CoreId| length(core) > 0 && movable(queues, *core).next().is_some();
    let longest = all(queues).filter(gives);
    let from = longest.max_by_key(|core| (length(core), std::cmp::Reverse(*core)))?;
    queues.update(from, now);
    let eligible = |vcpu: &VcpuId| queues.eligible(from, *vcpu);
    let first = movable(queues, from).find(eligible);
    let vcpu = first.or_else(|| movable(queues, from).next())?;
    queues.migrate(from, to, vcpu);
    Some(vcpu)
}

/// Makes queues even. The answer is the cores on which somebody else is to run now.
pub(super) fn even_out(queues: &mut Queues, margin: i64, now: Nanos) -> Vec<CoreId> {
    let mut wanted = Vec::new();
    for core in all(queues) {
        queues.update(core, now);
    }
    while let Some(move_) = improvement(queues) {
        queues.migrate(move_.from, move_.to, move_.vcpu);
        if displaces(queues, move_.to) {
            wanted.push(move_.to);
        }
    }
    if let Some(turn) = turn(queues, margin) {
        let on = queues.cores[turn.from.index()].current;
        if on.is_some_and(|on| on.vcpu == turn.vcpu) {
            queues.entity(turn.vcpu).sent_to = Some(turn.to);
            wanted.push(turn.from);
        } else {
            queues.migrate(turn.from, turn.to, turn.vcpu);
            if displaces(queues, turn.to) {
                wanted.push(turn.to);
            }
        }
    }
    for entity in &mut queues.entities {
        entity.served -= entity.served / 16;
    }
    wanted
}

struct Move {
    from: CoreId,
    to: CoreId,
    vcpu: VcpuId,
}

fn displaces(queues: &Queues, core: CoreId) -> bool {
    let on = queues.cores[core.index()].current;
    on.is_some_and(|on| queues.best(core) != Some(on.vcpu))
}

/// The busiest core that has somebody to give away, and the least busy one.
fn extremes(queues: &Queues) -> Option<(CoreId, CoreId)> {
    let gives = |core: &CoreId| queues.cores[core.index()].runnable > 0;
    let load = |core: &CoreId| (queues.load(*core), std::cmp::Reverse(*core));
    let busiest = all(queues).filter(gives).max_by_key(load)?;
    let least = all(queues).min_by_key(|core| queues.load(*core))?;
    (queues.load(busiest) > queues.load(least)).then_some((busiest, least))
}

/// A move after which both cores bear less weight than the busier one does now.
fn improvement(queues: &Queues) -> Option<Move> {
    let (from, to) = extremes(queues)?;
    let room = queues.load(from) - queues.load(to);
    let fits = |vcpu: &VcpuId| queues.entities[vcpu.index()].weight < room;
    let served = |vcpu: &VcpuId| {
        let served = queues.entities[vcpu.index()].served;
        (served, std::cmp::Reverse(*vcpu))
    };
    let vcpu = movable(queues, from).filter(fits).max_by_key(served)?;
    Some(Move { from, to, vcpu })
}

/// A change of places that makes up for what the vCPUs of the busier core have missed.
fn turn(queues: &Queues, margin: i64) -> Option<Move> {
    let (from, to) = extremes(queues)?;
    let served = |vcpu: &VcpuId| queues.entities[vcpu.index()].served;
    let members = |core: CoreId| {
        let on = queues.cores[core.index()].current.map(|on| on.vcpu);
        let members: Vec<_> = queues.waiting(core).chain(on).collect();
        let sum: i64 = members.iter().map(served).sum();
        let mean = sum / i64::try_from(members.len().max(1)).unwrap_or(1);
        (members, mean)
    };
    let ((busy, missed), (_, had)) = (members(from), members(to));
    let room = queues.load(from) - queues.load(to);
    let fits = |vcpu: &VcpuId| queues.entities[vcpu.index()].weight <= room;
    let most = |vcpu: &VcpuId| (served(vcpu), std::cmp::Reverse(*vcpu));
    let free = |vcpu: &VcpuId| queues.entities[vcpu.index()].bound.is_none();
    let vcpu = busy
        .into_iter()
        .filter(free)
        .filter(fits)
        .max_by_key(most)?;
    (had - missed > margin).then_some(Move { from, to, vcpu })
}
