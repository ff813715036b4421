//! Threads that begin at one moment, each on a core of its own choice.

use super::threads::pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::{io, panic, thread};

const WAIT: u8 = 0;
const BEGIN: u8 = 1;
const END: u8 = 2;

/// Runs a thread on each of these cores, which may be named more than once. None begins before all are there, and what
/// each found comes back in their order. `body` is told which thread it is.
///
/// # Errors
/// If a thread cannot be started, or not be bound to its core: then none begins.
pub(super) fn together<T: Send>(
    cores: &[u16],
    body: impl Fn(usize) -> T + Sync,
) -> io::Result<Vec<T>> {
    let word = AtomicU8::new(WAIT);
    thread::scope(|scope| {
        let (word, body) = (&word, &body);
        let start = |(me, core): (usize, &u16)| {
            let core = *core;
            thread::Builder::new().spawn_scoped(scope, move || {
                pin(core)?;
                loop {
                    match word.load(Ordering::Acquire) {
                        WAIT => thread::yield_now(),
                        BEGIN => return Ok(Some(body(me))),
                        _ => return Ok(None),
                    }
                }
            })
        };
        let started: io::Result<Vec<_>> = cores.iter().enumerate().map(start).collect();
        let begin = if started.is_ok() { BEGIN } else { END };
        word.store(begin, Ordering::Release);
        let ended = started?.into_iter().map(|thread| match thread.join() {
            Ok(found) => found,
            Err(panic) => panic::resume_unwind(panic),
        });
        let found: io::Result<Vec<Option<T>>> = ended.collect();
        Ok(found?.into_iter().flatten().collect())
    })
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::probe::rights::cores;

    #[test]
    fn every_thread_runs_on_its_core_and_answers_in_its_place() {
        let cores = cores();
        let twice = [cores.clone(), cores].concat();
        let found = together(&twice, |me| (me, rustix::thread::sched_getcpu()));
        let expected = twice.iter().map(|core| usize::from(*core)).enumerate();
        assert_eq!(found.unwrap(), expected.collect::<Vec<_>>());
    }

    #[test]
    fn a_core_that_may_not_be_used_is_an_error_and_nobody_waits_for_it() {
        let cores = [cores(), vec![u16::MAX >> 6]].concat();
        assert!(together(&cores, |me| me).is_err());
    }
}
