//! `proxy`: who waits for a lock lends its turn to the owner, and the lock is handed on.

use super::chain::{self, WINDOW};
use super::{Chain, Elsewhere, Layer, LayerInfo, LoanEnds, Return};
use crate::event::Charged;
use crate::spec::{OptionInfo, OptionKind, Options, SWITCH};

pub(crate) const INFO: LayerInfo = LayerInfo {
    name: "proxy",
    summary: "proxy execution: a vCPU that waits for a lock lends its turn to the lock's owner",
    rules: &[
        "A vCPU that waits for a lock (guest lock or host lock, asleep or spinning) keeps its place in the run queue while the owner at the end of its chain is runnable and off core.",
        "When the policy picks such a donor, the owner runs in its stead, on the donor's slice and account (scheduling context and execution context apart). The owner keeps its own place in the queue.",
        "The end on a core, or asleep: a sleeping donor is set aside until it leaves that core runnable, wakes, or gives up a lock; a spinning one spins.",
        "The loan is over when the donor's slice is, or when the donor no longer waits: its core is asked back at once.",
        "With `migrate=on` (as in the series, blocked-waiter migration) a sleeping donor whose owner is on, or queued at, another core moves to that core's queue and stays there, whatever else idles; with the lock it is placed anew when it wakes (`return=wake`, the step in try-to-wake-up) or when it is picked there (`return=pick`).",
        "Guest mutexes are handed over (`handoff=on`): a waiter does not spin, an unlock gives the mutex to a waiter; to the one that lent its turn if there is one (`blocked-donor=on`), else to the first in line.",
    ],
    source: "Linux proxy execution, series v4 to v6 (2023): blocked_on, donor and curr, mutex hand-off, blocked_donor, sleeping owners",
    quirks: &[
        "Hand-off makes every contended mutex cost a switch: several times slower where sections are short.",
        "With `blocked-donor=on` the first in line can be passed over, 8 times at most: the guests' mutexes bound it. The series does not, and the first in line can starve so.",
        "A donor that is set aside comes back as after a sleep.",
        chain::READERS,
        "An owner whose own turn comes on another core while it uses a donor's does not run twice: its own claim waits.",
    ],
    options: &[
        WINDOW,
        chain::hand_off("on"),
        chain::blocked_donor("on"),
        OptionInfo {
            name: "lend",
            kind: SWITCH,
            default: "on",
            help: "who waits lends its turn; off: only the guests' mutexes are handed over, as the first step of the series",
        },
        OptionInfo {
            name: "migrate",
            kind: SWITCH,
            default: "off",
            help: "a sleeping donor moves to the queue of its owner's core (eevdf); off: it is set aside while the owner runs",
        },
        OptionInfo {
            name: "return",
            kind: OptionKind::Word(&["wake", "pick"]),
            default: "wake",
            help: "with migrate=on, when a donor that has moved and has the lock is placed anew: when it is woken, or only when it is picked there",
        },
    ],
    build: |options| {
        Layer::Chain(Chain {
            lends: options.on("lend"),
            charged: Charged::Donor,
            mutex: chain::mutex_mode(options),
            spin_window: options.time_or_word("window"),
            blocked_donor: options.on("blocked-donor"),
            ends: LoanEnds::AtOnce,
            elsewhere: elsewhere(options),
        })
    },
};

fn elsewhere(options: &Options) -> Elsewhere {
    match (options.on("migrate"), options.word("return")) {
        (false, _) => Elsewhere::Aside,
        (true, "pick") => Elsewhere::Follows(Return::OnPick),
        (true, _) => Elsewhere::Follows(Return::OnWake),
    }
}
