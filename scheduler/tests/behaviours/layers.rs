//! Behaviours of the layers.

use super::{Behaviour, shown};

const TESTS: &str = "dispatcher/tests/layers.rs";
const CHAINS: &str = "dispatcher/tests/chains.rs";
const CIRCLES: &str = "dispatcher/tests/circles.rs";
const CHOICE: &str = "layers/yieldto.rs";

pub(crate) const DELAY: &[Behaviour] = &[
    shown(
        "a slice that ends 20 us before the unlock: the preemption is 20 us late",
        TESTS,
        "a_preemption_waits_for_the_unlock_and_comes_at_that_instant",
    ),
    shown(
        "a lock held for 5 ms: preempted 1 ms late, still holding",
        TESTS,
        "a_preemption_waits_no_longer_than_the_limit",
    ),
    shown(
        "leaving an inner lock does not yield",
        TESTS,
        "leaving_an_inner_lock_does_not_yield",
    ),
    shown(
        "a waiter at a place in line that nobody may pass keeps its core until it has had the lock",
        TESTS,
        "a_waiter_in_line_keeps_its_core_until_it_has_had_the_lock",
    ),
    shown(
        "not if the owner of the lock has no core, nor where it can be passed",
        TESTS,
        "a_waiter_is_preempted_in_a_line_that_stands_and_where_it_can_be_passed",
    ),
    shown(
        "the time beyond is taken off the next slices",
        TESTS,
        "what_was_had_beyond_the_slice_is_taken_off_the_next",
    ),
    shown(
        "a holder that never releases has its share and no more",
        TESTS,
        "a_holder_that_never_releases_takes_no_more_than_its_share_and_the_grace",
    ),
    shown(
        "without locks every decision is the bare policy's",
        TESTS,
        "without_locks_every_layer_decides_as_the_bare_policy",
    ),
];

pub(crate) const HINT: &[Behaviour] = &[shown(
    "one extra turn only, whether or not the section is over",
    TESTS,
    "an_extra_turn_is_taken_whole_and_only_once",
)];

pub(crate) const YIELDTO: &[Behaviour] = &[
    shown(
        "the order is round robin from behind the last boosted; who is not ready is skipped",
        CHOICE,
        "candidates_come_round_robin_from_behind_the_last_boosted",
    ),
    shown(
        "preempted outside any section: skipped, unless an interrupt waits",
        CHOICE,
        "one_preempted_outside_any_section_is_skipped_unless_an_interrupt_waits_for_it",
    ),
    shown(
        "one that has itself yielded by spinning is eligible every second time",
        CHOICE,
        "one_that_is_off_core_for_spinning_is_considered_every_second_time",
    ),
    shown(
        "the yield goes to the preempted holder",
        TESTS,
        "a_directed_yield_goes_to_the_preempted_holder_and_not_to_a_spinner",
    ),
];

pub(crate) const PI: &[Behaviour] = &[shown(
    "the owner pays, the waiter does not",
    CHAINS,
    "with_pi_the_owner_pays_and_with_proxy_the_waiter_does",
)];

pub(crate) const PROXY: &[Behaviour] = &[
    shown(
        "nice 19 holds, nice -20 waits, nice 0 hogs: the section takes its own length",
        CHAINS,
        "a_light_owner_runs_with_its_waiters_weight_and_the_waiter_pays",
    ),
    shown(
        "a chain of two locks is followed to its end",
        CHAINS,
        "a_chain_of_two_locks_is_followed_to_its_end",
    ),
    shown(
        "the owner sleeps: donors are off all queues, nobody spins",
        CHAINS,
        "nobody_spins_or_runs_for_an_owner_that_sleeps_and_all_go_on_when_it_wakes",
    ),
    shown(
        "any graph of locks: nobody is lost, nobody is granted twice",
        CHAINS,
        "in_any_graph_of_locks_everybody_gets_on_and_nobody_is_lost",
    ),
    shown(
        "a real deadlock is told with its circle",
        CIRCLES,
        "two_that_wait_for_each_other_are_reported_with_their_circle",
    ),
    shown(
        "who is given its lock on the way to sleep is in no circle",
        CIRCLES,
        "who_was_given_its_lock_on_the_way_to_sleep_waits_for_nobody",
    ),
    shown(
        "the best waiter waits for the sections before it and a constant",
        CHAINS,
        "the_heaviest_waiter_waits_for_the_sections_before_it_and_a_constant",
    ),
];

pub(crate) const RELAY: &[Behaviour] = &[shown(
    "a spinner lends its turn when its window is over",
    CHAINS,
    "a_spinner_lends_its_turn_when_its_window_is_over",
)];
