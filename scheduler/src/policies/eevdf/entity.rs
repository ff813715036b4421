//! A vCPU in virtual time: weight, request, deadline, lag.

use crate::ids::CoreId;
use crate::time::Nanos;

/// A vCPU as this policy knows it.
#[derive(Debug)]
pub(super) struct Entity {
    pub(super) weight: i64,
    /// Length of its requests.
    pub(super) slice: i64,
    pub(super) virtual_time: i64,
    /// What of the run time did not make a whole nanosecond of virtual time, times the weight.
    pub(super) remainder: i64,
    pub(super) deadline: i64,
    /// Lag when it last left a queue.
    pub(super) lag: i64,
    /// The core whose queue it is or was on.
    pub(super) core: Option<CoreId>,
    pub(super) queued: bool,
    /// Asleep, but left on the queue until its debt is paid.
    pub(super) delayed: bool,
    /// Recent virtual run time, for the balance between cores.
    pub(super) served: i64,
    /// It is to go to this core when it leaves its own.
    pub(super) sent_to: Option<CoreId>,
    /// The core to whose queue it is bound, as a donor.
    pub(super) bound: Option<CoreId>,
}

/// How a deadline comes about.
#[derive(Clone, Copy, Debug)]
pub(super) enum Request {
    /// Half a slice, for a newcomer.
    Half,
    /// A slice.
    Whole,
    /// What was left of it, in virtual time.
    Rest(i64),
}

/// `time * 1024 / weight` for what is not negative: quotient and remainder.
fn divide(time: i64, carried: i64, weight: i64) -> (i64, i64) {
    let scaled = time.checked_mul(1024).and_then(|t| t.checked_add(carried));
    if let Some(scaled) = scaled {
        return (scaled / weight, scaled % weight);
    }
    // Months in one piece: the slow way.
    let (scaled, weight) = (
        i128::from(time) * 1024 + i128::from(carried),
        i128::from(weight),
    );
    let whole = i64::try_from(scaled / weight).unwrap_or(i64::MAX);
    (whole, i64::try_from(scaled % weight).unwrap_or(0))
}

/// `time * 1024 / weight`, downwards.
pub(super) fn virtual_length(time: i64, weight: i64) -> i64 {
    divide(time, 0, weight).0
}

impl Entity {
    pub(super) fn new(weight: i64, slice: i64) -> Self {
        Self {
            weight,
            slice,
            virtual_time: 0,
            remainder: 0,
            deadline: 0,
            lag: 0,
            core: None,
            queued: false,
            delayed: false,
            served: 0,
            sent_to: None,
            bound: None,
        }
    }

    pub(super) fn virtual_slice(&self) -> i64 {
        virtual_length(self.slice, self.weight)
    }

    pub(super) fn run(&mut self, ran: Nanos) {
        let ran = i64::try_from(ran.get()).unwrap_or(i64::MAX);
        let (length, remainder) = divide(ran, self.remainder, self.weight);
        self.remainder = remainder;
        self.virtual_time += length;
        self.served += length;
        if self.virtual_time >= self.deadline {
            self.deadline = self.virtual_time + self.virtual_slice();
        }
    }

    /// The run time after which it will have come to a virtual time.
    pub(super) fn time_to(&self, virtual_time: i64) -> Nanos {
        let way = i128::from(virtual_time - self.virtual_time) * i128::from(self.weight);
        let time = (way - i128::from(self.remainder) + 1023).div_euclid(1024);
        Nanos(u64::try_from(time).unwrap_or(0).max(1))
    }
}
