//! The behaviours of Xen's schedulers.

use super::{Behaviour, shown};

pub(crate) const CREDIT: &[Behaviour] = &[
    shown(
        "two VMs of two vCPUs, weights 1:2, on two cores: 100 and 200 credits each",
        "credit/account.rs",
        "credits_are_divided_by_weight",
    ),
    shown(
        "what a VM cannot use goes to those after it: 300, then 150 each",
        "credit/account.rs",
        "what_one_cannot_use_goes_to_those_after_it",
    ),
    shown(
        "cap 25 against none on one core: 75 and 225",
        "credit/account.rs",
        "a_cap_limits_and_its_surplus_is_handed_on",
    ),
    shown(
        "86, 172, 75 on four cores; the capped one goes to the head of the list",
        "credit/account.rs",
        "a_capped_domain_at_the_end_moves_to_the_head_because_others_could_use_its_surplus",
    ),
    shown(
        "two VMs of two vCPUs get a third and two thirds of two cores",
        "credit/tests.rs",
        "two_vms_of_two_vcpus_get_a_third_and_two_thirds",
    ),
    shown(
        "who wakes while UNDER is boosted and starts at once, but for the rate limit",
        "credit/tests.rs",
        "a_vcpu_that_wakes_under_is_boosted_and_starts_after_the_rate_limit_at_most",
    ),
    shown(
        "the boost ends at the first tick that finds it running",
        "credit/tests.rs",
        "a_boost_ends_at_the_first_tick_that_finds_its_vcpu_running",
    ),
    shown(
        "who is OVER is never boosted",
        "credit/tests.rs",
        "who_is_over_is_not_boosted_when_it_wakes",
    ),
    shown(
        "the rate limit: 700 us more after 300 us; looked at after 100 us when it ran 50 us",
        "credit/tests.rs",
        "the_rate_limit_protects_what_just_began_to_run",
    ),
    shown(
        "an idle vCPU earns until it has more than 300 credits, then keeps half and earns no more",
        "credit/tests.rs",
        "an_idle_vcpu_earns_until_it_has_saved_300_credits_and_then_keeps_half",
    ),
    shown(
        "charged by ticks a vCPU that sleeps at the tick is not charged; charged by time it is",
        "credit/tests.rs",
        "charging_by_tick_is_cheated_by_a_guest_that_sleeps_at_the_tick_and_charging_by_time_is_not",
    ),
];

pub(crate) const CREDIT2: &[Behaviour] = &[
    shown(
        "weights 256 and 512: the lighter one burns two for one",
        "credit2/tests.rs",
        "a_vcpu_of_half_the_weight_burns_two_for_one",
    ),
    shown(
        "the first timer of two equals is the rate limit, 1 ms",
        "credit2/tests.rs",
        "the_first_of_two_equals_runs_for_the_rate_limit",
    ),
    shown(
        "shares 1:2 get a third and two thirds",
        "credit2/tests.rs",
        "shares_of_one_and_two_get_a_third_and_two_thirds",
    ),
    shown(
        "a reset: -0.3, -2 and 4 ms become 9.7, 8.0 and 10.5",
        "credit2/tests.rs",
        "a_reset_gives_everybody_ten_milliseconds_and_clips_the_savers",
    ),
    shown(
        "a reset for one at the floor gives 20 ms",
        "credit2/tests.rs",
        "a_reset_for_one_at_the_floor_gives_twice_as_much",
    ),
    shown(
        "cap 30 %: 3 ms of every 10, idle for 7",
        "credit2/tests.rs",
        "a_cap_of_30_per_cent_runs_3_ms_of_every_10",
    ),
];
