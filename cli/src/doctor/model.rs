//! From what was measured to the simulator's cost model.

use super::host::Host;
use stealtime_scheduler::time::Nanos;
use stealtime_sim::cost::{CostModel, MOST_SPREAD, median_of_chance};
use stealtime_vmm::probe::{Cost, CourseCosts};

/// Name of a cost model that was measured.
const MEASURED: &str = "measured";

/// The cost model of this machine: medians in the course of a run, and what the host does if that is known; what
/// cannot be measured apart is as on bare hardware.
pub(super) fn model(costs: &CourseCosts, host: Option<&Host>) -> CostModel {
    let bare = CostModel::bare_hardware();
    let median = |cost: Cost| Nanos(cost.median_ns);
    let take_over = median(costs.take_over);
    let op = median(costs.op).max(Nanos(1));
    let lock_step = median(costs.lock_step).max(Nanos(1));
    let timer_spread = spread(costs.timer);
    let load = median(costs.first_call) - median(costs.call);
    // A round trip is measured as a whole. It is shared out as on bare hardware, as far as that fits to when a handler
    // begins if that is known: an entry and an injection are over then, and each is no longer than with what comes
    // after.
    let round_trip = median(costs.call) - op;
    let halt = median(costs.halt) - op;
    let interrupt = median(costs.interrupted_call) - median(costs.first_call);
    let share = Nanos(round_trip.get() * bare.entry.get() / (bare.exit + bare.entry).get());
    let until_handler = costs
        .until_handler
        .map_or(share + interrupt, |cost| median(cost) - load);
    let entry = share
        .max(until_handler - interrupt)
        .min(until_handler)
        .min(round_trip)
        .min(halt);
    let injection = (until_handler - entry).min(interrupt);
    CostModel {
        name: MEASURED.into(),
        exit: round_trip - entry,
        halt_exit: halt - entry,
        entry,
        load,
        handling: median(costs.handling),
        leaving: median(costs.leaving),
        kick: median(costs.kick),
        switch_same_core: take_over,
        park: median(costs.hand_over) - take_over,
        switch_other_core: median(costs.wake_up),
        migration: bare.migration,
        injection,
        handler: interrupt - injection,
        timer: median(costs.timer) - median_of_chance(timer_spread),
        timer_spread,
        timer_work: median(costs.timer_work),
        timer_wake: median(costs.timer_wake),
        spread_permille: how_much_they_vary(costs),
        op,
        lock_step,
        host_slice: host.and_then(|host| host.slice).map_or(Nanos::ZERO, median),
        interference: host.map_or_else(Vec::new, |host| host.interference.clone()),
    }
}

/// By how much costs vary, in thousandths: the median of them. See [`CostModel::pace`]. Interference that falls into more
/// than a tenth of what was measured is in it too.
pub(super) fn how_much_they_vary(costs: &CourseCosts) -> u64 {
    let mut all = [
        costs.kick,
        costs.hand_over,
        costs.take_over,
        costs.wake_up,
        costs.first_call,
        costs.interrupted_call,
        costs.call,
        costs.halt,
    ]
    .map(|cost| exponential(cost) * 1_000 / cost.median_ns.max(1));
    all.sort_unstable();
    all[(all.len() - 1) / 2].min(MOST_SPREAD)
}

/// The mean of an exponential distribution that has as much between its median and its 90th percentile: ln 5 of it.
/// What is beyond is mostly the host's interference, which is measured apart. The distribution begins at 0
/// at the earliest, so that its median is what was measured.
fn spread(cost: Cost) -> Nanos {
    Nanos(exponential(cost).min(cost.median_ns * 1_000 / 694))
}

fn exponential(cost: Cost) -> u64 {
    cost.p90_ns.saturating_sub(cost.median_ns) * 1_000 / 1_609
}
