//! A watch that leaves out what the host took.

use super::host::Taken;
use stealtime_scheduler::time::Nanos;

/// A delay by the host below this is not told from the platform's own costs.
const IN_PASSING: Nanos = Nanos::from_micros(100);

/// Takes a time on a core of the run, less what the host took of it.
///
/// What was taken may have begun before the watch was started: if it is longer than the whole time,
/// nothing is known of it. Threads and timers may be kept waiting at once, so the greater of the two
/// counts and not their sum.
#[derive(Default, Debug)]
pub(super) struct Stopwatch {
    since: Option<Nanos>,
    threads: Nanos,
    timers: Nanos,
}

impl Stopwatch {
    pub(super) fn start(&mut self, now: Nanos) {
        *self = Self {
            since: Some(now),
            ..Self::default()
        };
    }

    /// Starts it unless it runs.
    pub(super) fn go_on(&mut self, now: Nanos) {
        if self.since.is_none() {
            self.start(now);
        }
    }

    /// What the host takes in passing, interrupts of its own say, is the platform's and stays in.
    pub(super) fn threads_waited(&mut self, taken: Taken) {
        if taken.time >= IN_PASSING {
            self.threads += taken.time;
        }
    }

    /// The same of the thread that serves timers.
    pub(super) fn timers_waited(&mut self, taken: Taken) {
        if taken.time >= IN_PASSING {
            self.timers += taken.time;
        }
    }

    pub(super) fn stop(&mut self, now: Nanos) -> Option<u64> {
        let length = now.since(self.since.take()?);
        let host = self.threads.max(self.timers);
        (host < length).then(|| (length - host).get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    fn took(time: Nanos) -> Taken {
        Taken {
            at: Nanos::ZERO,
            time,
        }
    }

    #[test]
    fn what_the_host_took_is_no_delay_of_ours() {
        let mut watch = Stopwatch::default();
        watch.start(ms(10));
        watch.threads_waited(took(ms(4)));
        watch.threads_waited(took(Nanos::from_micros(5)));
        assert_eq!(watch.stop(ms(15)), Some(ms(1).get()));
        assert_eq!(watch.stop(ms(16)), None, "it does not run");
        watch.go_on(ms(20));
        watch.go_on(ms(21));
        assert_eq!(watch.stop(ms(23)), Some(ms(3).get()));
        // Most of it was before: how much is not known.
        watch.start(ms(30));
        watch.threads_waited(took(ms(4)));
        assert_eq!(watch.stop(ms(32)), None);
    }

    #[test]
    fn threads_and_timers_that_wait_at_once_are_not_taken_off_twice() {
        let mut watch = Stopwatch::default();
        watch.start(ms(10));
        watch.threads_waited(took(ms(4)));
        watch.timers_waited(took(ms(3)));
        watch.timers_waited(took(ms(3)));
        assert_eq!(watch.stop(ms(20)), Some(ms(4).get()));
    }
}
