//! Figures that explain a finding's rows: what cores and queues did, for each piece of work.

use super::measured::Run;
use super::model::{Measure, Unit};
use stealtime_guest::op::{Op, Step};

/// Which piece of work figures are given for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Piece {
    /// A message through a channel, of programs that send a fixed number.
    Message,
    /// A request, as the guests count them.
    Request,
}

/// The part of core time in which nobody had the core.
pub(super) const IDLE: Measure = Measure {
    name: "cores idle",
    unit: Unit::Part,
    figure: |run| run.traffic().idle(),
};

/// The part of the time that [`super::traffic::Traffic::stranded`] says.
pub(super) const STRANDED: Measure = Measure {
    name: "time in which a core idles while another queues who could run",
    unit: Unit::Part,
    figure: |run| run.traffic().stranded(),
};

/// The mean length of the longest queue.
pub(super) const FULLEST: Measure = Measure {
    name: "longest queue",
    unit: Unit::Number,
    figure: |run| run.traffic().fullest(),
};

/// The mean length of all queues.
pub(super) const QUEUE: Measure = Measure {
    name: "mean queue",
    unit: Unit::Number,
    figure: |run| run.traffic().queue(),
};

/// Cores granted for each piece.
pub(super) const fn switches(piece: Piece) -> Measure {
    match piece {
        Piece::Message => each("switches a message", |run| {
            per(run.traffic().switches, messages(run))
        }),
        Piece::Request => each("switches a request", |run| {
            per(run.traffic().switches, requests(run))
        }),
    }
}

/// Waits for a guest lock, asleep, for each piece.
pub(super) const fn sleeps(piece: Piece) -> Measure {
    match piece {
        Piece::Message => each("sleeps a message", |run| {
            per(run.traffic().sleeps, messages(run))
        }),
        Piece::Request => each("sleeps a request", |run| {
            per(run.traffic().sleeps, requests(run))
        }),
    }
}

/// Turns lent for each piece.
pub(super) const fn loans(piece: Piece) -> Measure {
    match piece {
        Piece::Message => each("loans a message", |run| {
            per(run.traffic().loans, messages(run))
        }),
        Piece::Request => each("loans a request", |run| {
            per(run.traffic().loans, requests(run))
        }),
    }
}

/// Sleepers queued to lend their turns, for each piece.
pub(super) const fn donors(piece: Piece) -> Measure {
    match piece {
        Piece::Message => each("sleepers queued a message", |run| {
            per(run.traffic().donors, messages(run))
        }),
        Piece::Request => each("sleepers queued a request", |run| {
            per(run.traffic().donors, requests(run))
        }),
    }
}

/// Grants of another core than the last, for each message.
pub(super) const MIGRATIONS: Measure = each("migrations a message", |run| {
    per(run.traffic().migrations, messages(run))
});

/// Cores asked back, for each message.
pub(super) const KICKS: Measure = each("kicks a message", |run| {
    per(run.traffic().kicks, messages(run))
});

/// Core time in use for each sleep.
pub(super) const A_SLEEP: Measure = Measure {
    name: "core time for each sleep",
    unit: Unit::Time,
    figure: |run| {
        let traffic = run.traffic();
        (traffic.sleeps > 0).then(|| traffic.busy() / traffic.sleeps as f64)
    },
};

const fn each(name: &'static str, figure: fn(&Run<'_>) -> Option<f64>) -> Measure {
    Measure {
        name,
        unit: Unit::Number,
        figure,
    }
}

fn per(count: u64, pieces: u64) -> Option<f64> {
    (pieces > 0).then(|| count as f64 / pieces as f64)
}

/// Requests done in the measured time.
pub(super) fn requests(run: &Run<'_>) -> u64 {
    let rows = run.reports("").into_iter();
    rows.map(|row| row.guest.request_ns.count).sum()
}

/// Messages that the programs of all vCPUs sent; 0 if that is not known, as they did not all come to their end in the
/// measured time.
fn messages(run: &Run<'_>) -> u64 {
    let all = run.plan.vcpus.iter().map(|vcpu| sent(&vcpu.program));
    let all = all.sum::<Option<u64>>();
    all.filter(|_| run.elapsed("").is_some()).unwrap_or(0)
}

/// Messages that a program sends, all repetitions counted; none if it repeats for ever.
fn sent(program: &[Op]) -> Option<u64> {
    let (mut sent, mut times) = (0, vec![1]);
    for op in program {
        let now = times.last().copied().unwrap_or(1);
        match Step::decode(*op) {
            Ok(Step::Repeat(0)) => return None,
            Ok(Step::Repeat(rounds)) => times.push(now * u64::from(rounds)),
            Ok(Step::EndRepeat) => {
                times.pop();
            }
            Ok(Step::Send(_)) => sent += now,
            _ => {}
        }
    }
    Some(sent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_counted_with_all_repetitions() {
        let program = [
            Step::Send(0),
            Step::Repeat(3),
            Step::Send(1),
            Step::Repeat(5),
            Step::Send(2),
            Step::EndRepeat,
            Step::EndRepeat,
            Step::Send(0),
        ];
        assert_eq!(sent(&program.map(Step::encode)), Some(1 + 3 + 15 + 1));
        let forever = [Step::Repeat(0), Step::Send(0), Step::EndRepeat];
        assert_eq!(sent(&forever.map(Step::encode)), None);
    }
}
