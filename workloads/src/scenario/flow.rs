//! What can be said of a program without running it.
//!
//! A program has straight lines and repeats only, so what is held at each step is known. Checked are:
//! locks are known, taken once and released by who holds them; requests and critical sections begin
//! and end in turn; every round of a repeat leaves things as it found them; repeats are closed, not
//! nested too deeply, and contain something that takes time; nothing stands where it is never reached.

use super::error::{Fault, Problem, StepFault};
use super::guest_lock::{GuestLocks, Use};
use super::model::{Rounds, StepLine, VcpuText};
use super::step::Statement;
use stealtime_guest::interp::MAX_NESTING;

/// Steps that take time, for messages.
const TIMED: &str = "run, spin, sleep, host-wait, hypervisor, timer, wait, yield, interrupt, \
                     barrier, send, receive, host-lock, host-read-lock, host-unlock, user-return, exit, \
                     fault";

/// What is held or open at a step.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Held {
    guest_locks: Vec<String>,
    host_locks: Vec<String>,
    request: bool,
    critical: usize,
}

/// An open repeat.
struct Frame<'a> {
    line: &'a StepLine,
    endless: bool,
    before: Held,
    takes_time: bool,
}

struct Walk<'a> {
    locks: &'a GuestLocks,
    held: Held,
    frames: Vec<Frame<'a>>,
    /// Repeats around everything.
    outside: usize,
    takes_time: bool,
    /// The step after which nothing is reached.
    dead: Option<&'a str>,
}

/// Checks setup and program of a vCPU.
pub(super) fn check(vcpu: &VcpuText, vm: &str, locks: &GuestLocks) -> Result<(), Fault> {
    let name = format!("{vm}/{}", vcpu.name.value);
    let mut walk = Walk {
        locks,
        held: Held::default(),
        frames: Vec::new(),
        outside: 0,
        takes_time: false,
        dead: None,
    };
    walk.lines(&vcpu.setup)?;
    let before = walk.held.clone();
    walk.outside = usize::from(vcpu.rounds != Rounds::Times(1));
    walk.takes_time = false;
    walk.lines(&vcpu.program)?;
    let unfinished = |what: String| {
        let (part, vcpu_name) = ("program", name.clone());
        let problem = Problem::Unfinished {
            part,
            vcpu: vcpu_name,
            what,
        };
        Fault::at(
            vcpu.program.last().map_or(vcpu.name.at, |line| line.at),
            problem,
        )
    };
    if walk.outside > 0 && !walk.takes_time {
        let what = format!("is repeated and takes no time: expected at least one of {TIMED} in it");
        return Err(unfinished(what));
    }
    let at_end = if walk.outside > 0 {
        before
    } else {
        Held::default()
    };
    match walk.held.differs(&at_end) {
        Some((what, expected)) if walk.dead.is_none() => Err(unfinished(if walk.outside > 0 {
            format!(
                "leaves {what} not as it was when the round began: expected it to be {expected} again"
            )
        } else {
            format!("ends while {what} is not {expected}")
        })),
        _ => Ok(()),
    }
}

impl Held {
    /// The first difference: what, and how it is in `other`.
    fn differs(&self, other: &Self) -> Option<(String, &'static str)> {
        let lists = [
            ("lock", &self.guest_locks, &other.guest_locks),
            ("host lock", &self.host_locks, &other.host_locks),
        ];
        for (kind, ours, theirs) in lists {
            if let Some(more) = ours.iter().find(|lock| !theirs.contains(lock)) {
                return Some((format!("{kind} `{more}`"), "released"));
            }
            if let Some(less) = theirs.iter().find(|lock| !ours.contains(lock)) {
                return Some((format!("{kind} `{less}`"), "held"));
            }
        }
        match (self.request, other.request) {
            (true, false) => return Some(("the request".into(), "ended")),
            (false, true) => return Some(("the request".into(), "begun")),
            _ => {}
        }
        match self.critical.cmp(&other.critical) {
            std::cmp::Ordering::Greater => Some(("the critical section".into(), "left")),
            std::cmp::Ordering::Less => Some(("the critical section".into(), "entered")),
            std::cmp::Ordering::Equal => None,
        }
    }
}

impl<'a> Walk<'a> {
    fn lines(&mut self, lines: &'a [StepLine]) -> Result<(), Fault> {
        for line in lines {
            self.line(line)
                .map_err(|fault| Fault::step(line.at, &line.text, fault))?;
        }
        match self.frames.pop() {
            None => Ok(()),
            Some(open) => {
                let fault = StepFault::Grammar {
                    expected: "an `end-repeat` that closes it".into(),
                    meant: None,
                };
                Err(Fault::step(open.line.at, &open.line.text, fault))
            }
        }
    }

    fn line(&mut self, line: &'a StepLine) -> Result<(), StepFault> {
        if let (Some(after), false) = (self.dead, line.statement == Statement::EndRepeat) {
            let after = after.to_owned();
            return Err(StepFault::Unreachable { after });
        }
        match &line.statement {
            Statement::Lock(lock) => {
                self.locks.check(lock, Use::Lock)?;
                take(&mut self.held.guest_locks, "lock", lock)?;
            }
            Statement::Unlock(lock) => {
                self.locks.check(lock, Use::Lock)?;
                release(&mut self.held.guest_locks, "lock", lock)?;
            }
            Statement::ReadLock(lock) => {
                self.locks.check(lock, Use::Read)?;
                take(&mut self.held.guest_locks, "lock", lock)?;
            }
            Statement::Barrier(barrier) => self.locks.check(barrier, Use::Meet)?,
            Statement::Send(channel) | Statement::Receive(channel) => {
                self.locks.check(channel, Use::Message)?;
            }
            Statement::HostLock { lock, .. } | Statement::HostReadLock { lock, .. } => {
                take(&mut self.held.host_locks, "host-lock", lock)?;
            }
            Statement::HostUnlock(lock) => {
                release(&mut self.held.host_locks, "host-lock", lock)?;
            }
            Statement::Begin if self.held.request => {
                return Err(held("the request", "already begun", "an `end` before it"));
            }
            Statement::End if !self.held.request => {
                return Err(held("the request", "not begun", "a `begin` before it"));
            }
            Statement::Begin => self.held.request = true,
            Statement::End => self.held.request = false,
            Statement::CriticalEnter => self.held.critical += 1,
            Statement::CriticalLeave => {
                let what = "the critical section";
                let expected = "a `critical-enter` before it";
                let left = self.held.critical.checked_sub(1);
                self.held.critical = left.ok_or_else(|| held(what, "not entered", expected))?;
            }
            Statement::Repeat(rounds) => self.open(line, rounds.is_none())?,
            Statement::EndRepeat => self.close()?,
            Statement::Spin => {
                self.deeper(1)?;
                self.dead = Some(&line.text);
            }
            Statement::Fault(_) => self.dead = Some(&line.text),
            _ => {}
        }
        self.takes_time |= takes_time(&line.statement);
        Ok(())
    }

    /// Whether so many more repeats fit around each other here.
    fn deeper(&self, more: usize) -> Result<(), StepFault> {
        let limit = MAX_NESTING;
        if self.outside + self.frames.len() + more > limit {
            return Err(StepFault::TooDeep { limit });
        }
        Ok(())
    }

    fn open(&mut self, line: &'a StepLine, endless: bool) -> Result<(), StepFault> {
        self.deeper(1)?;
        self.frames.push(Frame {
            line,
            endless,
            before: self.held.clone(),
            takes_time: std::mem::take(&mut self.takes_time),
        });
        Ok(())
    }

    fn close(&mut self) -> Result<(), StepFault> {
        let frame = self.frames.pop().ok_or(StepFault::NoRepeat)?;
        if !self.takes_time {
            let expected = TIMED.to_owned();
            return Err(StepFault::NoTime { expected });
        }
        self.takes_time |= frame.takes_time;
        if self.dead.is_none()
            && let Some((what, expected)) = self.held.differs(&frame.before)
        {
            return Err(StepFault::Round { what, expected });
        }
        if frame.endless && self.dead.is_none() {
            self.dead = Some(&frame.line.text);
        }
        Ok(())
    }
}

/// Whether a step lets time pass in any run, in the guest or in the hypervisor.
fn takes_time(statement: &Statement) -> bool {
    !matches!(
        statement,
        Statement::Lock(_)
            | Statement::Unlock(_)
            | Statement::ReadLock(_)
            | Statement::Begin
            | Statement::End
            | Statement::CriticalEnter
            | Statement::CriticalLeave
            | Statement::Repeat(_)
            | Statement::EndRepeat
    )
}

fn held(what: &str, state: &'static str, expected: &str) -> StepFault {
    StepFault::Held {
        what: what.to_owned(),
        state,
        expected: expected.to_owned(),
    }
}

fn take(locks: &mut Vec<String>, step: &str, lock: &str) -> Result<(), StepFault> {
    if locks.iter().any(|held| held == lock) {
        let release = step.replace("lock", "unlock");
        let expected = format!("`{release} {lock}` before it is taken again");
        return Err(held(&format!("lock `{lock}`"), "already held", &expected));
    }
    locks.push(lock.to_owned());
    Ok(())
}

fn release(locks: &mut Vec<String>, step: &str, lock: &str) -> Result<(), StepFault> {
    let Some(place) = locks.iter().position(|held| held == lock) else {
        let expected = format!("`{step} {lock}` before it");
        return Err(held(&format!("lock `{lock}`"), "not held", &expected));
    };
    locks.remove(place);
    Ok(())
}
