//! `relay`: spin while the owner runs, pass it the turn when it does not.
//!
//! Our own. Proxy execution's bounded inversion needs a waiter's turn only while the owner is off
//! core; optimistic spinning's speed needs spinning only while the owner is on one. The dispatcher
//! sees the whole chain at the moment it decides, so it need not choose between the two.

use super::chain::{self, WINDOW};
use super::{Chain, Elsewhere, Layer, LayerInfo, LoanEnds};
use crate::event::Charged;

pub(crate) const INFO: LayerInfo = LayerInfo {
    name: "relay",
    summary: "waiters spin while the owner is on a core, and lend it their turn when it is not",
    rules: &[
        "Guest mutexes are taken by whoever comes first, and a waiter spins while the owner is on a core (`handoff=off`): no switch where sections are short.",
        "A waiter whose owner is off core sleeps (mutex), or has spun for `window` (spinning locks): its turn is lent to the owner at the end of its chain, as with `proxy`.",
        "When a donor no longer waits, the owner goes on, on its own account, and the donor competes with it as anybody who wakes: no switch that the policy does not want.",
        "A waiter whose owner is on a core is not queued behind it: nothing piles up on the owner's core.",
        "Of a guest's mutex that was left free, the sleeper that is woken for it counts as the owner: those that sleep behind it lend it their turns.",
        "A sleeping mutex is handed to its first waiter once that one has woken in vain, so that a waiter is overtaken by at most one owner: its wait is bounded by two critical sections.",
    ],
    source: "our own, from what the proxy-execution series' author asked for: spin while a runnable owner of the blocked-on chain is on a core",
    quirks: &[
        "A spinning waiter loses up to `window` before it lends its turn.",
        chain::READERS,
    ],
    options: &[WINDOW, chain::hand_off("off")],
    build: |options| {
        Layer::Chain(Chain {
            lends: true,
            charged: Charged::Donor,
            mutex: chain::mutex_mode(options),
            spin_window: options.time_or_word("window"),
            blocked_donor: false,
            ends: LoanEnds::ByPolicy,
            elsewhere: Elsewhere::Aside,
        })
    },
};
