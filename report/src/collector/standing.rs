//! Why a vCPU was not preempted: the times at which it stood at kernel priority, or at which a
//! preemption of it was only remembered.
//!
//! The longest of each kind is kept, and the one that goes on.

use stealtime_scheduler::event::Until;
use stealtime_scheduler::ids::HostLockId;

/// A time at kernel priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Priority {
    /// Since when.
    pub(crate) since: u64,
    /// Until when; none if it goes on.
    pub(crate) until: Option<u64>,
    /// The host lock it held when it began, if any.
    pub(crate) lock: Option<HostLockId>,
    /// When it released that lock, if it did before the priority ended.
    pub(crate) released: Option<u64>,
    /// How often its thread returned to user mode since it began.
    pub(crate) user_returns: u64,
}

/// A time at which a preemption was remembered but not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Deferral {
    /// Since when.
    pub(crate) since: u64,
    /// Until when; none if it goes on.
    pub(crate) until: Option<u64>,
    /// What it waited for.
    pub(crate) moment: Until,
}

/// A time with a beginning and, perhaps, an end.
pub(crate) trait Episode: Copy {
    fn since(&self) -> u64;
    fn until(&self) -> Option<u64>;
    fn end(&mut self, at: u64);

    fn overlap(&self, from: u64, to: u64) -> u64 {
        let end = self.until().unwrap_or(u64::MAX).min(to);
        end.saturating_sub(self.since().max(from))
    }
}

macro_rules! episode {
    ($name:ident) => {
        impl Episode for $name {
            fn since(&self) -> u64 {
                self.since
            }
            fn until(&self) -> Option<u64> {
                self.until
            }
            fn end(&mut self, at: u64) {
                self.until = Some(at);
            }
        }
    };
}
episode!(Priority);
episode!(Deferral);

/// The longest of its kind and the one that goes on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Episodes<T> {
    longest: Option<T>,
    current: Option<T>,
}

impl<T> Default for Episodes<T> {
    fn default() -> Self {
        Self {
            longest: None,
            current: None,
        }
    }
}

impl<T: Episode> Episodes<T> {
    /// Begins one, unless one goes on.
    pub(crate) fn begin(&mut self, episode: T) {
        self.current.get_or_insert(episode);
    }

    /// Ends the one that goes on.
    pub(crate) fn end(&mut self, at: u64) {
        let length = |e: &T| e.until().unwrap_or(at).saturating_sub(e.since());
        if let Some(mut ended) = self.current.take() {
            ended.end(at);
            if self
                .longest
                .as_ref()
                .is_none_or(|l| length(&ended) > length(l))
            {
                self.longest = Some(ended);
            }
        }
    }

    /// The one that goes on.
    pub(crate) fn current(&mut self) -> Option<&mut T> {
        self.current.as_mut()
    }

    /// Of the longest and the one that goes on, the one that has more in common with a wait, and how
    /// much.
    pub(crate) fn during(&self, from: u64, to: u64) -> Option<(T, u64)> {
        let both = [self.longest, self.current];
        let overlaps = both.into_iter().flatten().map(|e| (e, e.overlap(from, to)));
        overlaps
            .filter(|(_, overlap)| *overlap > 0)
            .max_by_key(|(_, overlap)| *overlap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deferral(since: u64) -> Deferral {
        Deferral {
            since,
            until: None,
            moment: Until::UserReturn,
        }
    }

    #[test]
    fn the_episode_that_fits_a_wait_best_is_found() {
        let mut all = Episodes::default();
        assert_eq!(all.during(0, 100), None);
        all.begin(deferral(10));
        all.end(40);
        all.begin(deferral(50));
        all.begin(deferral(55)); // goes on since 50
        let overlap = |from, to| all.during(from, to).map(|(e, common)| (e.since, common));
        assert_eq!(overlap(0, 60), Some((10, 30)));
        assert_eq!(overlap(20, 100), Some((50, 50)));
        assert_eq!(overlap(41, 50), None);
    }

    #[test]
    fn a_short_one_does_not_replace_the_longest() {
        let mut all = Episodes::default();
        all.begin(deferral(0));
        all.end(30);
        all.begin(deferral(50));
        all.end(60);
        assert_eq!(all.during(0, 100).map(|(e, _)| e.since), Some(0));
    }
}
