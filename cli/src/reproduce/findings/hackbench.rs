//! `hackbench`: what each step of proxy execution costs where sections are short.
//!
//! Measured is the time until every message has arrived.

use crate::reproduce::measured::Run;
use crate::reproduce::measures::{self, Piece};
use crate::reproduce::model::{
    Case, Criterion, Explained, Knob, Place, Published, Reproduction, Row, Unit,
};

/// What is known of the finding.
pub(super) static FINDING: Reproduction = Reproduction {
    name: "hackbench",
    title: "what each step of proxy execution costs where sections are short",
    place: "Linux, proxy-exec v6; mails of K. Prateek Nayak and John Stultz, December 2023",
    history: "\
`perf bench sched messaging` was several times slower with proxy execution than without. Taken step by step \
on eight cores most of the loss came with the first: mutexes that are handed over instead of optimistic \
spinning. Moving waiters to the owner's core added to it, and returning them at wake-up took part of that \
away again.",
    mechanism: "\
A mutex that is handed to a sleeping waiter stays taken until that waiter has a core: every contended \
section then costs a wake-up and a switch, where a spinner would have gone on at once. A donor that has \
moved to its owner's core waits in that core's queue, whatever else idles.",
    model: "\
20 senders and 20 receivers, each a vCPU, on eight simulated cores or on all that KVM has here. Every \
sender writes to each receiver's channel (a ring behind a mutex, as a pipe is; 300 ns of copying with the \
mutex held). On KVM three tenths of the messages, because an exit costs so much more there; with a tenth the channels' \
room takes a third of them at once, and little but the start is measured. The steps are \
switches of the layer: `lend=off` only hands mutexes over; `migrate=on,return=pick` moves donors and \
brings them back when they are picked; `return=wake` when they wake; `blocked-donor=on` hands the mutex to \
the donor. The last but one sets donors aside while the owner runs instead of moving them.",
    left_out: "\
What a move of a donor costs between two run queues, and chain migration (which neither helped nor hurt). \
vCPUs stand for threads, so a sleep and a wake-up cost an exit and an entry each.",
    cases: &[
        steps("spinning", "eevdf"),
        steps("hand-off", "eevdf+proxy:lend=off"),
        steps(
            "donors, back when picked",
            "eevdf+proxy:migrate=on,return=pick,blocked-donor=off",
        ),
        steps(
            "donors, back when woken",
            "eevdf+proxy:migrate=on,return=wake,blocked-donor=off",
        ),
        steps("blocked donor", "eevdf+proxy:migrate=on"),
        steps("donors set aside", "eevdf+proxy"),
    ],
    rows: &[
        step(
            "hand-off",
            Published::figures(16.957e9, 4.583e9),
            &[Criterion::RatioAtLeast(2.0)],
        ),
        step(
            "donors, back when picked",
            Published::figures(29.628e9, 4.583e9),
            &[],
        ),
        step(
            "donors, back when woken",
            Published::figures(20.045e9, 4.583e9),
            &[],
        ),
        step("blocked donor", Published::figures(25.021e9, 4.583e9), &[]),
        step(
            "donors set aside",
            Published::said("no such variant was published"),
            &[],
        ),
    ],
    histogram: None,
    explained: Some(Explained {
        measures: &[
            measures::switches(Piece::Message),
            measures::sleeps(Piece::Message),
            measures::A_SLEEP,
            measures::loans(Piece::Message),
            measures::donors(Piece::Message),
            measures::MIGRATIONS,
            measures::KICKS,
            measures::IDLE,
            measures::FULLEST,
        ],
        reading: "\
Without hand-off few messages cost a sleep and a switch; with it every one that finds the mutex taken costs \
both, which is the first step's price, as published. Published, all further steps cost more than that one; here \
they mostly cost less. A turn that is lent takes the owner to a core before more of them come to sleep, so each \
kind of lending saves sleeps, and buys them with loans, kicks and sleepers that are queued anew. Here sleeps are \
what costs: the core time for each is much the same in all rows with hand-off, and most so where an exit is \
dear. There moving threads between run queues was: to queue a sleeper costs nothing here, however often it is \
done. So the blocked donor, to which the mutex goes because it is nearest to a core, is cheaper here than the \
step before it and was dearer there. Donors that come back when they are picked are the dearest there, and here \
on eight cores, where the longest queue grows while cores idle (`pileup`); on two hardly a core idles, and where \
switches are cheap everybody is picked so soon that it matters little.",
        queues: false,
    }),
    knobs: &[Knob {
        name: "copying a message, with the mutex held",
        place: Place::Scenario("copy = \"{}\""),
        documented: "300ns",
        values: &["50ns", "100ns", "300ns", "1us", "3us"],
    }],
};

const fn steps(name: &'static str, policy: &'static str) -> Case {
    Case {
        on_kvm: Some("hackbench:messages=300"),
        ..Case::new(name, "hackbench:messages=1000", policy)
    }
}

const fn step(of: &'static str, published: Published, criteria: &'static [Criterion]) -> Row {
    Row {
        name: "elapsed",
        unit: Unit::Time,
        of,
        against: Some("spinning"),
        published,
        figure: elapsed,
        criteria,
    }
}

pub(super) fn elapsed(run: &Run<'_>) -> Option<f64> {
    Some(run.elapsed("vm")?.get() as f64)
}
