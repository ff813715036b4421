//! Making the report of a run from what the collector kept and what the backend says of itself.

use crate::collector::{Account, Collector, PREEMPT_REASONS};
use crate::deadlock;
use crate::diagnosis;
use crate::latency::LatencyReport;
use crate::model::{
    FORMAT_VERSION, Failure, GuestReport, QualityReport, Report, RunReport, VcpuReport,
    ViolationEntry, Violations, VmReport,
};
use crate::stall;
use stealtime_guest::hist;
use stealtime_scheduler::input::ExitReason;
use stealtime_scheduler::registry::ScheduledBy;
use stealtime_workloads::run::{GuestView, Outcome, Plan};

impl Report {
    /// The report of a run of `plan`.
    #[must_use]
    pub fn build(
        plan: &Plan,
        backend_name: &str,
        mut collector: Collector,
        outcome: &Outcome,
    ) -> Self {
        collector.close();
        let (from, to) = collector.measured();
        let wall = to.saturating_sub(from);
        let capacity = wall as f64 * collector.cores as f64;
        let vcpus: Vec<_> = (0..plan.vcpus.len())
            .map(|number| {
                let entitled = part(collector.entitled(number), capacity);
                let guest = outcome.guests.get(number);
                vcpu(plan, number, &collector, (entitled, capacity), guest)
            })
            .collect();
        let run = run(&collector, &vcpus, capacity, outcome);
        let (worst, mut diagnosis) = diagnosis::diagnose(plan, &mut collector, &vcpus, outcome);
        let (deadlocks, sentences): (Vec<_>, Vec<_>) =
            deadlock::all(plan, &collector).into_iter().unzip();
        diagnosis.text.extend(sentences);
        let stall = stall::longest(plan, &collector);
        diagnosis.text.extend(stall.as_ref().map(stall::words));
        let interference = part(run.host_interference_ns as f64, capacity);
        diagnosis
            .text
            .extend(stall::interference(interference, collector.scheduled_by));
        Self {
            format_version: FORMAT_VERSION,
            backend: backend_name.to_owned(),
            policy: plan.policy.to_string(),
            scenario: plan.scenario.clone(),
            seed: plan.seed,
            cores: collector.cores as u64,
            host_cores: plan.cores.clone(),
            warmup_ns: from,
            wall_ns: wall,
            interrupted: outcome.interrupted,
            vcpus,
            vms: vms(plan, outcome),
            run,
            quality: quality(&collector, outcome),
            violations: violations(outcome),
            worst,
            deadlocks,
            stall,
            diagnosis,
        }
    }
}

/// `of` as a part of `whole`; 0 of nothing is 0.
fn part(of: f64, whole: f64) -> f64 {
    if whole > 0.0 { of / whole } else { 0.0 }
}

fn vcpu(
    plan: &Plan,
    number: usize,
    collector: &Collector,
    (entitled, capacity): (f64, f64),
    guest: Option<&GuestView>,
) -> VcpuReport {
    let asked = &plan.vcpus[number];
    let Account { figures, .. } = &collector.accounts[number];
    let times = figures.times;
    let (longest, longest_at, unfinished) = figures.longest;
    let reasons = PREEMPT_REASONS.iter().zip(figures.preemptions);
    let exits = ExitReason::ALL.iter().zip(figures.exits);
    VcpuReport {
        vm: plan.vms[asked.vm.index()].name.clone(),
        vcpu: asked.name.clone(),
        run_ns: times.run,
        ready_ns: times.ready,
        blocked_ns: times.blocked,
        hypervisor_ns: times.hypervisor,
        preempted_ns: figures.preempted,
        costop_ns: times.costopped,
        idle_ns: times.idle,
        kernel_priority_ns: figures.kernel_priority.min(times.run + times.hypervisor),
        share: part((times.run + times.hypervisor) as f64, capacity),
        entitled,
        wakeup_ns: figures.wakeup.report(),
        run_delay_ns: figures.run_delay.report(),
        longest_starvation_ns: longest,
        longest_starvation_at_ns: longest_at,
        starving_at_end: unfinished,
        preemptions: figures.preemptions.iter().sum(),
        preemptions_by_reason: reasons
            .map(|((_, name), n)| ((*name).to_owned(), n))
            .collect(),
        preemptions_in_lock: figures.preemptions_in_lock,
        migrations: figures.migrations,
        yields: figures.yields,
        kicks: figures.kicks,
        user_returns: figures.user_returns,
        exits: exits.map(|(why, n)| (why.name().to_owned(), n)).collect(),
        host_delay_ns: figures.host_delay,
        guest: guest.map_or_else(GuestReport::default, |view| {
            seen_inside(view, figures.preempted, figures.preempted_to_the_end)
        }),
    }
}

/// A wait that went on at the end is a gap to some guests (`sim` settles their books) and unknown to
/// others (a real guest has not run again): it is compared where the guest's figure contains it.
fn seen_inside(view: &GuestView, preempted: u64, to_the_end: u64) -> GuestReport {
    let ended = i128::from(view.gap_total_ns) - i128::from(preempted);
    let all = ended - i128::from(to_the_end);
    let difference = if all.abs() < ended.abs() { all } else { ended };
    GuestReport {
        progress_ns: view.progress_ns,
        gaps: view.gaps,
        gap_total_ns: view.gap_total_ns,
        gap_max_ns: view.gap_max_ns,
        gap_difference_ns: i64::try_from(difference).unwrap_or(if difference < 0 {
            i64::MIN
        } else {
            i64::MAX
        }),
        request_ns: requests(view),
        interrupts: view.interrupts,
        lock_acquisitions: view.lock_acquisitions,
        lock_spin_ns: view.lock_spin_ns,
    }
}

/// Percentiles from the guest's own histogram: the upper end of the bucket, so never too good. When
/// the longest happened is not known.
fn requests(view: &GuestView) -> LatencyReport {
    let total: u64 = view.request_hist.iter().map(|n| u64::from(*n)).sum();
    let quantile = |per_mille: u64| {
        let rank = (total * per_mille).div_ceil(1_000).max(1);
        let mut seen = 0;
        let bucket = view.request_hist.iter().position(|n| {
            seen += u64::from(*n);
            seen >= rank
        });
        bucket.map_or(0, |bucket| {
            (hist::lowest(bucket + 1) - 1).min(view.request_max_ns)
        })
    };
    LatencyReport {
        count: view.requests,
        p50: quantile(500),
        p90: quantile(900),
        p99: quantile(990),
        p999: quantile(999),
        max: view.request_max_ns,
        max_at_ns: 0,
    }
}

fn run(collector: &Collector, vcpus: &[VcpuReport], capacity: f64, outcome: &Outcome) -> RunReport {
    let progress: f64 = vcpus.iter().map(|v| v.guest.progress_ns as f64).sum();
    let interference: u64 = vcpus.iter().map(|v| v.host_delay_ns).sum();
    RunReport {
        jain: jain(vcpus.iter().filter_map(|vcpu| vcpu.received(vcpus.len()))),
        used: vcpus.iter().map(|v| v.share).sum(),
        throughput: part(progress, capacity),
        events: collector.events,
        lost_events: outcome
            .quality
            .events_emitted
            .saturating_sub(collector.events),
        host_interference_ns: interference,
        dispatch_overhead_ns: outcome.quality.dispatch_overhead_ns,
        dispatch_calls: outcome.quality.dispatch_calls,
        kick_ns: collector.kick.report(),
    }
}

/// Jain's fairness index, (Σx)² ÷ (n Σx²) (Jain, Chiu and Hawe 1984). Of nobody it is 1, and so it is
/// if all have nothing.
pub(crate) fn jain(received: impl Iterator<Item = f64>) -> f64 {
    let (mut n, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for x in received {
        n += 1.0;
        sum += x;
        squares += x * x;
    }
    if squares > 0.0 {
        sum * sum / (n * squares)
    } else {
        1.0
    }
}

fn vms(plan: &Plan, outcome: &Outcome) -> Vec<VmReport> {
    let all = plan.vms.iter().enumerate();
    all.map(|(number, vm)| {
        let failure = outcome.failures.iter().find(|f| f.vm.index() == number);
        VmReport {
            vm: vm.name.clone(),
            failure: failure.map(|f| Failure {
                at_ns: f.at.0,
                message: f.message.clone(),
            }),
        }
    })
    .collect()
}

fn quality(collector: &Collector, outcome: &Outcome) -> QualityReport {
    let mut notes = outcome.quality.notes.clone();
    let emitted = outcome.quality.events_emitted;
    if collector.events > emitted {
        let surplus = collector.events - emitted;
        notes.push(format!("{surplus} more events arrived than were emitted"));
    }
    if collector.started.is_none() {
        notes.push("the run ended during its warm-up: figures count from its start".into());
    }
    if collector.scheduled_by == ScheduledBy::Host {
        notes.push(
            "the host schedules: its waits are known as sums between two readings, so lengths of \
             waits are upper bounds, and preemptions are not seen"
                .into(),
        );
    }
    QualityReport {
        calibration: outcome.quality.calibration,
        clock: outcome.quality.clock,
        notes,
    }
}

fn violations(outcome: &Outcome) -> Violations {
    let entry = |report: &stealtime_scheduler::dispatcher::ViolationReport| ViolationEntry {
        at_ns: report.at.0,
        policy: report.policy.to_owned(),
        rule: report.violation.to_string(),
        dump: report.dump.clone(),
    };
    Violations {
        count: outcome.violation_count,
        first: outcome.violations.iter().map(entry).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jains_index_is_one_for_equals_and_one_nth_for_a_monopoly() {
        let index = |all: &[f64]| jain(all.iter().copied());
        assert!((index(&[0.3, 0.3, 0.3]) - 1.0).abs() < 1e-12);
        assert!((index(&[4.0, 0.0, 0.0, 0.0]) - 0.25).abs() < 1e-12);
        assert!((index(&[1.0, 3.0]) - 0.8).abs() < 1e-12);
        assert!((index(&[]) - 1.0).abs() < 1e-12);
        assert!((index(&[0.0, 0.0]) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn request_percentiles_are_upper_ends_of_the_guests_buckets() {
        let mut view = GuestView {
            requests: 100,
            request_hist: vec![0; hist::BUCKETS],
            request_max_ns: 50_000,
            ..GuestView::default()
        };
        view.request_hist[hist::bucket(1_000)] = 99;
        view.request_hist[hist::bucket(50_000)] = 1;
        let report = requests(&view);
        assert_eq!(report.count, 100);
        assert!((1_000..1_064).contains(&report.p50), "{report:?}");
        assert_eq!(report.p50, report.p99);
        assert_eq!((report.p999, report.max), (50_000, 50_000));
    }
}
