//! The behaviours of FreeBSD's schedulers.

use super::{Behaviour, shown};

pub(crate) const FOUR_BSD: &[Behaviour] = &[
    shown(
        "estcpu 0, 8, 80, 295: priority 140, 141, 150, 176; nice moves it",
        "four_bsd/estcpu.rs",
        "priority_is_base_plus_an_eighth_of_usage_plus_nice",
    ),
    shown(
        "a lone hog: 127/84, 211/140, 267/178, 295/196; priority 164 to 176",
        "four_bsd/estcpu.rs",
        "a_lone_hog_saturates_and_its_priority_swings_between_164_and_176",
    ),
    shown(
        "two hogs: 63/50, 113/90, 153/122, 185/148, 211/168, near the limit",
        "four_bsd/estcpu.rs",
        "two_hogs_share_the_ticks_and_both_come_near_the_limit",
    ),
    shown(
        "two hogs alternate every 94.5 ms",
        "four_bsd/tests.rs",
        "two_hogs_alternate_every_slice_of_94_5_ms",
    ),
    shown(
        "asleep for 5 s at load 1: 295 becomes 57, priority 147",
        "four_bsd/estcpu.rs",
        "sleep_forgives_by_the_load",
    ),
    shown(
        "that counts the decay of the first second (the reading fixed here)",
        "four_bsd/tests.rs",
        "a_whole_sleep_of_n_seconds_is_forgiven_n_minus_1_times",
    ),
    shown(
        "an interrupt in a critical section: after 30 us, in 2004 at the end of the call",
        "four_bsd/tests.rs",
        "an_interrupt_in_a_critical_section_waits_for_its_end_and_in_2004_for_the_end_of_the_call",
    ),
    shown(
        "a remembered preemption is let through by a clock tick",
        "four_bsd/tests.rs",
        "a_remembered_interrupt_is_let_through_by_a_clock_interrupt_outside_a_section",
    ),
    shown(
        "or by another interrupt that can be switched to at once",
        "four_bsd/tests.rs",
        "another_interrupt_that_can_be_switched_to_at_once_ends_the_wait_too",
    ),
    shown(
        "inversion: who is ready behind a kernel priority waits for the slice's end",
        "four_bsd/tests.rs",
        "who_becomes_ready_behind_a_kernel_priority_waits_for_the_end_of_the_slice",
    ),
    shown(
        "restored number and sticky priority differ against later wake-ups",
        "four_bsd/tests.rs",
        "a_wake_up_after_the_return_is_compared_with_the_restored_number_and_not_with_the_sticky_one",
    ),
    shown(
        "who wakes from a kernel sleep preempts nobody in the kernel",
        "four_bsd/tests.rs",
        "who_wakes_from_a_kernel_sleep_preempts_nobody_in_the_kernel_but_asks_for_an_ast",
    ),
];

pub(crate) const ULE: &[Behaviour] = &[
    shown(
        "scores 0, 12, 25, 29, 31, 50; interactive below 30",
        "ule/interact.rs",
        "the_score_is_low_for_who_sleeps_more_than_five_thirds_of_what_it_runs",
    ),
    shown(
        "without the shortcut (4000, 1000) scores 88",
        "ule/interact.rs",
        "without_the_shortcut_who_runs_more_is_told_apart",
    ),
    shown(
        "interactive priorities 120, 132, 146, 150 and 88, 107, 128, 134",
        "ule/priority.rs",
        "the_interactive_lie_before_batch_by_their_score",
    ),
    shown(
        "batch priorities 203, 187, 179, 172 and 203, 179, 167, 156",
        "ule/priority.rs",
        "batch_priority_follows_usage_in_the_window_and_nice",
    ),
    shown(
        "calendar offsets 0, 17, 31, 45, 63",
        "ule/calendar.rs",
        "a_worse_priority_comes_later",
    ),
    shown(
        "history: bounded at 5 s by four fifths, by half, or at once",
        "ule/interact.rs",
        "the_history_is_bounded_at_5_s",
    ),
    shown(
        "slices of 12, 12, 6, 4, 3, 2, 2, 2 ticks",
        "ule/cores.rs",
        "a_slice_shrinks_with_the_number_of_runnable_threads",
    ),
    shown(
        "an interactive wake-up: at once in the guest, after the work in the hypervisor",
        "ule/tests.rs",
        "an_interactive_wake_up_replaces_a_hog_in_the_guest_at_once_and_one_in_the_hypervisor_after_it",
    ),
    shown(
        "on another core it preempts a hog, even in the hypervisor",
        "ule/tests.rs",
        "an_interactive_wake_up_preempts_a_hog_on_another_core_even_in_the_hypervisor",
    ),
    shown(
        "a batch wake-up on another core waits for the slice's end",
        "ule/tests.rs",
        "a_batch_wake_up_on_another_core_is_not_told_there_and_waits_for_the_slice_end",
    ),
    shown(
        "no starvation within the calendar",
        "ule/calendar.rs",
        "with_a_nice_20_hog_behind_ever_new_better_ones_its_day_comes_within_64_advances",
    ),
    shown(
        "a nice 19 hog still runs",
        "ule/tests.rs",
        "a_hog_of_nice_19_still_runs_beside_better_ones",
    ),
];
