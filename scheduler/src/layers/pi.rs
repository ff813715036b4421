//! `pi`: who owns a lock runs when its best waiter would, and pays for it itself.

use super::chain::{self, WINDOW};
use super::{Chain, Elsewhere, Layer, LayerInfo, LoanEnds};
use crate::event::Charged;

pub(crate) const INFO: LayerInfo = LayerInfo {
    name: "pi",
    summary: "priority inheritance: the owner of a lock runs when its best waiter would, and pays itself",
    rules: &[
        "A vCPU that waits for a lock (guest lock or host lock, asleep or spinning) keeps its place in the run queue while the owner at the end of its chain is runnable and off core.",
        "When the policy picks such a waiter, the owner is taken out of the queue and runs in its stead, with a slice of its own and on its own account; the waiter is set aside.",
        "The waiter comes back to the queue when the owner leaves its core, runnable, still with the lock.",
        "Of a guest's mutex that was left free, the sleeper that is woken for it counts as the owner: those that sleep behind it lend it their turns.",
        "Inheritance goes along the whole chain and ends with the lock.",
    ],
    source: "illumos turnstiles (os/turnstile.c), carried over from dispatch priorities to the place in any policy's queue",
    quirks: &[
        "A waiter that is set aside and comes back does so as after a sleep, with what the policy gives to that.",
        "The owner pays: after a long critical section it has to wait for its share, where with `proxy` its waiters do.",
        "A host lock held by readers has no single owner: its first reader is followed.",
        chain::READERS,
    ],
    options: &[WINDOW, chain::hand_off("off")],
    build: |options| {
        Layer::Chain(Chain {
            lends: true,
            charged: Charged::Owner,
            mutex: chain::mutex_mode(options),
            spin_window: options.time_or_word("window"),
            blocked_donor: false,
            ends: LoanEnds::AtOnce,
            elsewhere: Elsewhere::Aside,
        })
    },
};
