//! What the host has done before the program starts.

use super::{call, clock, work};
use core::sync::atomic::Ordering;
use stealtime_guest::call::{Command, Port, Refusal};
use stealtime_guest::page::Page;

/// Carries out commands until the one to start.
pub(super) fn until_start(page: &'static Page) {
    loop {
        call::call(page, Port::Ready, 0, 0);
        let command = page.command.load(Ordering::Relaxed);
        match Command::from_number(command) {
            Some(Command::ReadClock) => page.result.store(clock::ticks(), Ordering::Relaxed),
            Some(Command::Calibrate) => calibrate(page),
            Some(Command::Start) => return,
            None => call::refuse(page, Refusal::Protocol(command)),
        }
    }
}

/// Times chunks of the work loop as [`work`] does them, clock reading and accounts included.
fn calibrate(page: &'static Page) {
    let iterations = page.command_a.load(Ordering::Relaxed);
    let chunks = page.command_b.load(Ordering::Relaxed);
    let mut worker = work::Worker::new(page);
    let begin = clock::ticks();
    for _ in 0..chunks {
        worker.chunk(iterations, 0, u64::MAX);
    }
    page.result.store(clock::ticks() - begin, Ordering::Relaxed);
}
