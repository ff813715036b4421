//! What the sources say that policies do, and the test that shows it.

mod freebsd;
mod layers;
mod vms;
mod xen;

/// A behaviour and its test.
#[derive(Debug)]
pub(crate) struct Behaviour {
    /// What is claimed.
    pub(crate) what: &'static str,
    /// File of the test, below `scheduler/src/policies`, or below `scheduler/src` if it is in `layers`
    /// or `dispatcher`.
    pub(crate) file: &'static str,
    /// Name of the test.
    pub(crate) test: &'static str,
}

const fn shown(what: &'static str, file: &'static str, test: &'static str) -> Behaviour {
    Behaviour { what, file, test }
}

/// The behaviours of each policy.
pub(crate) const ALL: &[(&str, &[Behaviour])] = &[
    ("fss", FSS),
    ("ts", TS),
    ("eevdf", EEVDF),
    ("4bsd", freebsd::FOUR_BSD),
    ("ule", freebsd::ULE),
    ("credit", xen::CREDIT),
    ("credit2", xen::CREDIT2),
    ("delay", layers::DELAY),
    ("hint", layers::HINT),
    ("yieldto", layers::YIELDTO),
    ("pi", layers::PI),
    ("proxy", layers::PROXY),
    ("relay", layers::RELAY),
    ("gang", vms::GANG),
    ("relaxed", vms::RELAXED),
    ("balance", vms::BALANCE),
];

const FSS: &[Behaviour] = &[
    shown(
        "the quantum is 11 ticks: two equal spinners switch every 110 ms",
        "fss/tests.rs",
        "two_equal_spinners_switch_every_quantum_of_11_ticks",
    ),
    shown(
        "shares 1:2:3, one vCPU each: 16.7, 33.3 and 50 %",
        "fss/tests.rs",
        "time_follows_shares_for_one_thread_a_project",
    ),
    shown(
        "only the shares of active projects count",
        "fss/tests.rs",
        "shares_of_a_project_without_runnable_threads_do_not_count",
    ),
    shown(
        "two zones: normalised usage 25 600 000, 2 844 442 and 177 777",
        "fss/price.rs",
        "usage_is_set_against_zones_and_projects_and_truncated_twice",
    ),
    shown(
        "one zone: usage over the square of the share",
        "fss/price.rs",
        "in_one_zone_usage_is_divided_by_the_square_of_the_share",
    ),
    shown(
        "steady usage of a whole core ends just under 400 000",
        "fss/price.rs",
        "steady_usage_of_a_whole_core_ends_just_under_400_000",
    ),
    shown(
        "priorities from 59 (no use) to 1 (most use)",
        "fss/price.rs",
        "the_greatest_value_gets_1_and_no_use_gets_59",
    ),
    shown(
        "the greatest value decays by 95/128 a second, not below 59",
        "fss/price.rs",
        "the_greatest_value_decays_to_59_and_no_further",
    ),
    shown(
        "nice 19 pays 525 a tick and decays by 108/128, nice -20 pays 1500 and decays by 83/128",
        "fss/price.rs",
        "costs_and_decays_follow_the_nice_value",
    ),
    shown(
        "no shares: priority 0, nothing against a spinner",
        "fss/tests.rs",
        "a_project_without_shares_gets_nothing_against_a_spinner",
    ),
    shown(
        "who wakes in the tick of its dispatch goes to the front without a fresh quantum",
        "fss/tests.rs",
        "who_wakes_in_the_tick_of_its_dispatch_goes_to_the_front_with_what_was_left",
    ),
    shown(
        "the rule for a used-up quantum with several runnable vCPUs",
        "fss/price.rs",
        "a_used_up_quantum_costs_the_greatest_value_if_a_sibling_is_runnable",
    ),
    shown(
        "several vCPUs a project: only classic keeps to shares",
        "fss/tests.rs",
        "with_several_threads_a_project_only_classic_keeps_to_shares",
    ),
    shown(
        "the flag, never given up: 100 to 0 %, no switch",
        "fss/tests.rs",
        "a_flag_that_is_never_given_up_starves_the_other",
    ),
    shown(
        "after: the same two share the core",
        "fss/tests.rs",
        "without_the_flag_the_same_two_share_the_core",
    ),
    shown(
        "a return to user mode clears the flag",
        "fss/tests.rs",
        "a_return_to_user_mode_clears_the_flag_and_the_other_runs",
    ),
    shown(
        "two with the flag: no slicing",
        "fss/tests.rs",
        "two_with_the_flag_do_not_slice",
    ),
    shown(
        "the flag outlives the lock; to block without a request clears it",
        "fss/tests.rs",
        "the_flag_outlives_the_lock_until_it_blocks_without_a_request",
    ),
    shown(
        "the flag is caught by being preempted with a request",
        "fss/tests.rs",
        "the_flag_is_caught_by_being_preempted_with_a_request",
    ),
    shown(
        "hypervisor work is preempted from the threshold on: a priority of 75 waits, 120 does not",
        "illumos/tests.rs",
        "only_the_threshold_and_above_preempt_hypervisor_work",
    ),
    shown(
        "one that wakes during hypervisor work runs when guest code is to be entered again",
        "illumos/tests.rs",
        "one_that_wakes_during_10_ms_of_hypervisor_work_runs_when_the_guest_is_entered_again",
    ),
    shown(
        "queues of fss are equal, those of ts at priority 16 and above differ by two",
        "illumos/tests.rs",
        "queues_of_a_class_that_asks_for_matching_are_equal_and_others_differ_by_two",
    ),
    shown(
        "at the front of a queue nothing is balanced",
        "illumos/tests.rs",
        "at_the_front_nothing_is_balanced",
    ),
    shown(
        "a core is warm for 30 ms after the last run",
        "illumos/tests.rs",
        "a_core_is_warm_for_30_ms_after_the_last_run",
    ),
    shown(
        "without a warm core, the least busy one",
        "illumos/tests.rs",
        "who_has_no_warm_core_goes_where_the_least_is_going_on",
    ),
    shown(
        "no stealing across caches for 100 us; within a cache, or at priority 60, at once",
        "illumos/tests.rs",
        "a_thread_is_not_stolen_across_caches_for_100_us",
    ),
    shown(
        "who last ran elsewhere is not protected from stealing",
        "illumos/tests.rs",
        "a_thread_that_last_ran_elsewhere_is_not_protected",
    ),
    shown(
        "a thief looks through the best list of the core where the best waits, and no further",
        "illumos/tests.rs",
        "a_thief_looks_through_the_best_list_of_the_core_where_the_best_waits",
    ),
    shown(
        "a core that may steal nobody looks again when the first becomes free",
        "illumos/tests.rs",
        "while_all_that_wait_are_protected_an_idle_core_is_meant_to_be_idle_and_looks_again",
    ),
    shown(
        "the queue of all cores goes first if it is as good or better",
        "illumos/tests.rs",
        "the_queue_of_all_goes_first_if_it_has_an_equal_or_better_priority",
    ),
];

const TS: &[Behaviour] = &[
    shown(
        "the usual dispatch table",
        "ts/table.rs",
        "the_usual_table_has_short_quanta_above_and_promotes_after_a_second",
    ),
    shown(
        "the dispatch table for servers",
        "ts/table.rs",
        "the_server_table_has_long_quanta_and_waits_two_seconds",
    ),
    shown(
        "a spinner falls from row 29 to row 0 in 480 ms",
        "ts/tests.rs",
        "a_spinner_falls_to_row_0_in_480_ms",
    ),
    shown(
        "who is queued at the second rises to 50; the way down costs 440 ms",
        "ts/tests.rs",
        "a_second_in_the_queue_raises_and_the_way_down_again_costs_440_ms",
    ),
    shown(
        "who is on the core rises at its return to user mode, without any sleep",
        "ts/tests.rs",
        "a_second_on_the_core_raises_at_the_next_return_to_user_mode_without_any_sleep",
    ),
    shown(
        "two spinners share; one that never returns to user mode has less",
        "ts/tests.rs",
        "two_spinners_in_user_mode_share_and_one_that_never_returns_has_less",
    ),
    shown(
        "a sleeper rises from 29 to 52 after a second, then to 58",
        "ts/tests.rs",
        "a_sleeper_rises_to_52_after_a_second_and_to_58_after_another",
    ),
    shown(
        "to sleep gives back no quantum",
        "ts/tests.rs",
        "sleep_alone_gives_back_no_quantum",
    ),
    shown(
        "at priority 59 nobody rises; expiry after 20 ms, to 49",
        "ts/tests.rs",
        "at_priority_59_nobody_rises_and_the_quantum_is_20_ms",
    ),
    shown(
        "the quantum is that of the row, whatever the offset",
        "ts/tests.rs",
        "the_quantum_is_that_of_the_row_whatever_the_offset",
    ),
    shown(
        "the flag: 100 to 0 % before issue 11909, shared after",
        "ts/tests.rs",
        "a_flag_that_is_never_given_up_starves_the_other_before_11909_and_not_after",
    ),
    shown(
        "the flag stops quantum and rise",
        "ts/tests.rs",
        "the_flag_stops_the_quantum_and_the_rise_until_a_return_to_user_mode",
    ),
    shown(
        "a chain of owners inherits, and gives back lock by lock",
        "illumos/turnstile_tests.rs",
        "a_chain_of_owners_inherits_and_gives_back_lock_by_lock",
    ),
    shown(
        "an owner of two locks keeps what it inherits through the other",
        "illumos/turnstile_tests.rs",
        "an_owner_of_two_locks_keeps_what_it_inherits_through_the_other",
    ),
    shown(
        "who waits with a lower priority wills nothing",
        "illumos/turnstile_tests.rs",
        "who_waits_with_a_lower_priority_wills_nothing_but_the_walk_goes_on",
    ),
    shown(
        "a mutex with five sleepers is released: all five wake",
        "../dispatcher/host_locks_tests.rs",
        "a_released_mutex_is_free_and_all_five_sleepers_try_again",
    ),
    shown(
        "a writer hands over to readers that rank no lower than the best writer",
        "../dispatcher/host_locks_tests.rs",
        "a_writer_hands_over_to_readers_that_rank_no_lower_than_the_best_writer",
    ),
    shown(
        "the last reader hands over to the best writer",
        "../dispatcher/host_locks_tests.rs",
        "the_last_reader_hands_over_to_the_best_writer_the_first_among_equals",
    ),
    shown(
        "a waiting writer keeps new readers out",
        "../dispatcher/host_locks_tests.rs",
        "readers_share_and_a_waiting_writer_keeps_new_readers_out",
    ),
    shown(
        "readers never inherit; only kernel priority helped",
        "illumos/turnstile_tests.rs",
        "readers_never_inherit_and_only_kernel_priority_helped",
    ),
    shown(
        "a new owner inherits only what is better",
        "illumos/turnstile_tests.rs",
        "a_new_owner_inherits_from_those_that_still_wait_only_what_is_better",
    ),
    shown(
        "the owner of a mutex, or a writer, runs in the stead of who waits",
        "illumos/turnstile_tests.rs",
        "the_owner_of_a_mutex_runs_in_the_stead_of_who_waits_for_it",
    ),
];

const EEVDF: &[Behaviour] = &[
    shown(
        "two equal spinners switch after every slice",
        "eevdf/tests.rs",
        "two_equal_spinners_switch_after_every_slice",
    ),
    shown(
        "after a slice the one on the core has lag -1.4 ms and is not eligible",
        "eevdf/tests.rs",
        "after_a_slice_the_one_on_the_core_is_no_longer_eligible",
    ),
    shown(
        "weights 1024 : 335: 75.3 and 24.7 %, a slice every 11.35 ms",
        "eevdf/tests.rs",
        "nice_5_gets_24_7_per_cent_beside_nice_0",
    ),
    shown(
        "time follows weights",
        "eevdf/tests.rs",
        "time_follows_weights",
    ),
    shown(
        "service is never two slices away from the ideal, whatever weights and slices",
        "eevdf/tests.rs",
        "service_differs_from_the_ideal_by_less_than_two_slices",
    ),
    shown(
        "placement: lag is grown so that it is as it was after joining",
        "eevdf/tests.rs",
        "a_newcomer_has_the_lag_it_left_with_once_it_has_joined",
    ),
    shown(
        "lag is clamped to two slices or a tick",
        "eevdf/tests.rs",
        "lag_is_bounded_by_two_slices_or_a_tick",
    ),
    shown(
        "delayed dequeue: really dequeued when the average has come to it, with no credit",
        "eevdf/tests.rs",
        "a_sleeper_in_debt_stays_queued_until_the_average_has_come_to_it",
    ),
    shown(
        "delayed dequeue: woken early it owes the rest",
        "eevdf/tests.rs",
        "a_sleeper_in_debt_that_wakes_early_still_owes_the_rest",
    ),
    shown(
        "a short slice preempts at once, a usual one when protection ends",
        "eevdf/tests.rs",
        "a_short_slice_preempts_at_once_and_a_usual_one_waits_for_the_end_of_protection",
    ),
    shown(
        "a long sleeper gains at most its bounded lag",
        "eevdf/tests.rs",
        "a_long_sleeper_gains_at_most_its_bounded_lag",
    ),
    shown(
        "with a tick of 4 ms a request of 2.8 ms ends at 4 ms",
        "eevdf/tests.rs",
        "with_a_tick_a_request_of_2_8_ms_ends_at_4_ms",
    ),
    shown(
        "the base slice grows with the logarithm of the cores",
        "eevdf/tests.rs",
        "the_usual_slice_grows_with_the_logarithm_of_the_cores",
    ),
    shown(
        "yield forfeits the rest of the request",
        "eevdf/tests.rs",
        "who_yields_forfeits_the_rest_of_its_request",
    ),
    shown(
        "three spinners on two cores get two thirds each",
        "eevdf/tests.rs",
        "three_spinners_on_two_cores_get_two_thirds_each",
    ),
];
