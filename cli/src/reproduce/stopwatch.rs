//! A watch that leaves out what the host took.

use super::host::Taken;
use stealtime_scheduler::time::Nanos;

/// A delay by the host below this is not told from the platform's own costs.
const IN_PASSING: Nanos = Nanos::from_micros(100);

/// Tells times of a run on one core, less what the host took of them, from whomever.
///
/// What was taken may have begun before a time did: if it is longer than the whole time, nothing is known of it.
/// Threads and timers may be kept waiting at once, so the greater of the two counts and not their sum. What the
/// host takes in passing, interrupts of its own say, is the platform's and stays in.
#[derive(Debug)]
pub(super) struct Stopwatch {
    /// What threads waited for the host, in order.
    threads: Vec<Taken>,
    /// What timers waited for it.
    timers: Vec<Taken>,
}

impl Stopwatch {
    /// Of a run in which the host took this, each in order.
    pub(super) fn new(mut threads: Vec<Taken>, mut timers: Vec<Taken>) -> Self {
        threads.retain(|taken| taken.time >= IN_PASSING);
        timers.retain(|taken| taken.time >= IN_PASSING);
        Self { threads, timers }
    }

    /// From one instant to a later one, in nanoseconds, less what the host had taken by then since; none if
    /// that is all of it or more.
    pub(super) fn between(&self, since: Nanos, until: Nanos) -> Option<u64> {
        let taken = |of: &[Taken]| {
            let from = of.partition_point(|taken| taken.at <= since);
            let of = of[from..].iter().take_while(|taken| taken.at <= until);
            of.fold(Nanos::ZERO, |sum, taken| sum + taken.time)
        };
        let (length, host) = (
            until.since(since),
            taken(&self.threads).max(taken(&self.timers)),
        );
        (host < length).then(|| (length - host).get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    /// So much, in milliseconds, was over then.
    fn took(all: &[(u64, u64)]) -> Vec<Taken> {
        let taken = |(at, time): &(u64, u64)| Taken {
            at: ms(*at),
            time: ms(*time),
        };
        all.iter().map(taken).collect()
    }

    #[test]
    fn what_the_host_took_is_no_delay_of_ours() {
        let mut threads = took(&[(10, 3), (14, 4), (16, 2), (31, 4)]);
        threads.push(Taken {
            at: ms(45),
            time: Nanos::from_micros(5),
        });
        let watch = Stopwatch::new(threads, Vec::new());
        assert_eq!(watch.between(ms(10), ms(15)), Some(ms(1).get()));
        assert_eq!(watch.between(ms(20), ms(23)), Some(ms(3).get()));
        // Most of it was before: how much is not known.
        assert_eq!(watch.between(ms(30), ms(32)), None);
        assert_eq!(watch.between(ms(40), ms(50)), Some(ms(10).get()));
    }

    #[test]
    fn what_was_taken_after_the_end_belongs_to_the_next() {
        let watch = Stopwatch::new(took(&[(14, 4), (16, 2)]), Vec::new());
        assert_eq!(watch.between(ms(10), ms(13)), Some(ms(3).get()));
        assert_eq!(watch.between(ms(13), ms(20)), Some(ms(1).get()));
        assert_eq!(watch.between(ms(14), ms(20)), Some(ms(4).get()));
    }

    #[test]
    fn threads_and_timers_that_wait_at_once_are_not_taken_off_twice() {
        let watch = Stopwatch::new(took(&[(12, 4)]), took(&[(13, 3), (17, 3)]));
        assert_eq!(watch.between(ms(10), ms(20)), Some(ms(4).get()));
    }
}
