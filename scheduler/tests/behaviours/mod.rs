//! What the sources say that policies do, and the test that shows it.

/// A behaviour and its test.
#[derive(Debug)]
pub(crate) struct Behaviour {
    /// What is claimed.
    pub(crate) what: &'static str,
    /// File of the test, below `scheduler/src/policies`.
    pub(crate) file: &'static str,
    /// Name of the test.
    pub(crate) test: &'static str,
}

const fn shown(what: &'static str, file: &'static str, test: &'static str) -> Behaviour {
    Behaviour { what, file, test }
}

/// The behaviours of each policy.
pub(crate) const ALL: &[(&str, &[Behaviour])] = &[("fss", FSS), ("eevdf", EEVDF)];

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
