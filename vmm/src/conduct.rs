//! The course of a run, as the main thread conducts it: admissions, warm-up, measuring, the end.
//!
//! Guests are read at the same two moments that are marked in the stream, so that what they saw and
//! what the dispatcher saw cover the same time.

use crate::engine::Engine;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use stealtime_scheduler::ids::VcpuId;
use stealtime_scheduler::input::{Input, Mark};
use stealtime_scheduler::time::Nanos;
use stealtime_workloads::run::{Entry, GuestView, Observer, Plan};

/// How often the stream is handed on, and the stop flag looked at.
const HAND_ON: Nanos = Nanos::from_millis(50);

/// How often the run delay of vCPUs that do not leave their cores is told.
const TELL_DELAY: Nanos = Nanos::from_millis(100);

/// What the run yielded, beside its stream.
#[derive(Debug)]
pub struct Measured {
    /// What each guest saw over the measured time.
    pub guests: Vec<GuestView>,
    /// Host interference over the measured time.
    pub host_interference: Nanos,
    /// It was ended before its time.
    pub interrupted: bool,
}

/// The course of one run.
pub struct Course<'a> {
    engine: &'a Engine,
    plan: &'a Plan,
    observer: &'a mut dyn Observer,
    entries: Vec<Entry>,
    /// vCPUs not yet admitted, the latest first.
    to_admit: Vec<(Nanos, VcpuId)>,
    hand_on_at: Nanos,
    tell_delay_at: Nanos,
}

impl std::fmt::Debug for Course<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let to_admit = self.to_admit.len();
        f.debug_struct("Course")
            .field("to_admit", &to_admit)
            .finish_non_exhaustive()
    }
}

impl<'a> Course<'a> {
    /// The run of a plan, whose threads have started.
    pub fn new(engine: &'a Engine, plan: &'a Plan, observer: &'a mut dyn Observer) -> Self {
        let starts = plan.vcpus.iter().map(|vcpu| vcpu.start);
        let mut to_admit: Vec<_> = starts.zip((0..).map(VcpuId)).collect();
        to_admit.sort_unstable();
        to_admit.reverse();
        Self {
            engine,
            plan,
            observer,
            entries: Vec::new(),
            to_admit,
            hand_on_at: HAND_ON,
            tell_delay_at: TELL_DELAY,
        }
    }

    /// Conducts the run to its end: its time is up, the user stops it, no vCPU is `alive`, or the
    /// policy failed.
    pub fn conduct(&mut self, stop: &AtomicBool, alive: impl Fn() -> usize) -> Measured {
        let end = self.plan.warmup + self.plan.duration;
        let over =
            |engine: &Engine| stop.load(Ordering::Relaxed) || alive() == 0 || engine.is_broken();
        while !over(self.engine) && self.engine.clock.now() < self.plan.warmup {
            self.step(self.plan.warmup);
        }
        let before = self.views(Input::Mark(Mark::MeasureStart));
        let delay_before = self.engine.host_delay_total();
        for seat in self.engine.seats() {
            seat.watch.restart_maxima();
        }
        while !over(self.engine) && self.engine.clock.now() < end {
            self.step(end);
        }
        let stopped = stop.load(Ordering::Relaxed) && !self.engine.is_broken();
        let interrupted = stopped && self.engine.clock.now() < end;
        let after = self.views(Input::Mark(Mark::MeasureEnd));
        Measured {
            guests: after
                .iter()
                .zip(&before)
                .map(|(a, b)| since(a, b))
                .collect(),
            host_interference: self.engine.host_delay_total().since(delay_before),
            interrupted,
        }
    }

    /// Hands on what is left of the stream. To be called when all threads have ended.
    pub fn finish(&mut self) {
        self.hand_on();
    }

    /// One round: what is due, then sleep until the next thing is, `limit` at the latest.
    fn step(&mut self, limit: Nanos) {
        let now = self.engine.clock.now();
        while let Some((_, vcpu)) = self.to_admit.pop_if(|(start, _)| *start <= now) {
            self.engine.report(&[Input::Admit { vcpu }]);
        }
        if now >= self.tell_delay_at {
            self.tell_delays();
            self.tell_delay_at = now + TELL_DELAY;
        }
        if now >= self.hand_on_at {
            self.hand_on();
            self.hand_on_at = now + HAND_ON;
        }
        let admit = self.to_admit.last().map_or(Nanos::MAX, |(start, _)| *start);
        let wake = limit
            .min(self.hand_on_at)
            .min(self.tell_delay_at)
            .min(admit);
        let sleep = wake.since(self.engine.clock.now());
        if sleep > Nanos::ZERO {
            thread::park_timeout(Duration::from_nanos(sleep.get()));
        }
    }

    fn tell_delays(&self) {
        let count = self.engine.seats().len();
        let vcpus = (0..).map(VcpuId).take(count);
        let delays: Vec<_> = vcpus
            .filter_map(|vcpu| self.engine.host_delay(vcpu))
            .collect();
        self.engine.report(&delays);
    }

    fn hand_on(&mut self) {
        self.engine.swap_entries(&mut self.entries);
        self.observer.entries(&self.entries);
        self.observer.progress(self.engine.clock.now());
    }

    /// What the guests saw up to a mark. What threads waited up to it is told before it, so that no
    /// interference is booked on the wrong side.
    fn views(&self, mark: Input) -> Vec<GuestView> {
        self.tell_delays();
        let seats = self.engine.seats().iter();
        let views = seats.map(|seat| seat.watch.view()).collect();
        self.engine.report(&[mark]);
        views
    }
}

/// What was seen between two views. The largest values are those since they were last restarted.
fn since(after: &GuestView, before: &GuestView) -> GuestView {
    let histogram = after
        .request_hist
        .iter()
        .enumerate()
        .map(|(bucket, count)| {
            let earlier = before.request_hist.get(bucket).copied().unwrap_or(0);
            count.wrapping_sub(earlier)
        });
    GuestView {
        progress_ns: after.progress_ns.saturating_sub(before.progress_ns),
        gaps: after.gaps.saturating_sub(before.gaps),
        gap_total_ns: after.gap_total_ns.saturating_sub(before.gap_total_ns),
        gap_max_ns: after.gap_max_ns,
        requests: after.requests.saturating_sub(before.requests),
        request_hist: histogram.collect(),
        request_max_ns: after.request_max_ns,
        interrupts: after.interrupts.saturating_sub(before.interrupts),
        lock_acquisitions: after
            .lock_acquisitions
            .saturating_sub(before.lock_acquisitions),
        lock_spin_ns: after.lock_spin_ns.saturating_sub(before.lock_spin_ns),
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_before_the_measured_time_does_not_count() {
        let before = GuestView {
            progress_ns: 5,
            gap_total_ns: 2,
            gap_max_ns: 9,
            request_hist: vec![1, 2],
            ..GuestView::default()
        };
        let after = GuestView {
            progress_ns: 12,
            gap_total_ns: 3,
            gap_max_ns: 1,
            request_hist: vec![1, 5],
            ..GuestView::default()
        };
        let seen = since(&after, &before);
        assert_eq!(
            (seen.progress_ns, seen.gap_total_ns, seen.gap_max_ns),
            (7, 1, 1)
        );
        assert_eq!(seen.request_hist, [0, 3]);
    }
}
