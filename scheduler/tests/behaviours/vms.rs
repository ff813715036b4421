//! Policies that know VMs: gang, relaxed co-scheduling, balance.

use super::{Behaviour, shown};

pub(super) const GANG: &[Behaviour] = &[
    shown(
        "VMs of 4 and 2 on 4 cores: alternate slots, 75 % used",
        "gang/tests.rs",
        "four_and_two_on_four_cores_use_three_quarters",
    ),
    shown(
        "a third VM of 2 fills the hole: 100 % used",
        "gang/tests.rs",
        "a_third_vm_of_two_fills_the_hole",
    ),
    shown(
        "at a switch all cores change together",
        "gang/tests.rs",
        "at_the_end_of_a_slot_all_cores_change_together",
    ),
    shown(
        "a gang goes to the first row with enough empty columns, else to a new row",
        "gang/matrix.rs",
        "a_gang_goes_to_the_first_row_with_enough_empty_columns",
    ),
    shown(
        "a column whose vCPU waits idles, or is filled by alternate selection",
        "gang/tests.rs",
        "the_column_of_one_that_waits_idles_unless_there_is_alternate_selection",
    ),
    shown(
        "rows are unified",
        "gang/tests.rs",
        "when_a_gang_ends_the_others_close_up",
    ),
    shown(
        "priority inversion: who wakes waits for its row",
        "gang/tests.rs",
        "who_wakes_waits_for_its_slot",
    ),
];

pub(super) const RELAXED: &[Behaviour] = &[
    shown(
        "one runs, its sibling waits: stopped at the poll that sees 4 ms, released 3 ms later",
        "relaxed/tests.rs",
        "a_vcpu_that_runs_alone_is_stopped_at_the_poll_that_sees_4_ms_and_released_3_ms_later",
    ),
    shown(
        "the same with a comparison that 3 ms are enough for",
        "relaxed/tests.rs",
        "if_3_ms_are_enough_it_is_stopped_at_the_poll_that_sees_3_ms",
    ),
    shown(
        "the sibling is halted instead: never a stop",
        "relaxed/tests.rs",
        "a_halted_sibling_stops_nobody",
    ),
    shown(
        "who was halted is brought up to the slowest when it wakes",
        "relaxed/tests.rs",
        "who_wakes_from_a_halt_is_no_laggard",
    ),
    shown(
        "threshold 0: never",
        "relaxed/tests.rs",
        "a_limit_of_0_stops_nobody",
    ),
    shown(
        "the core of one that is stopped goes to a laggard sibling",
        "relaxed/tests.rs",
        "the_core_of_one_that_is_stopped_goes_to_its_laggard_whoever_else_waits",
    ),
    shown(
        "skew against the slowest or against the mean",
        "relaxed/tests.rs",
        "skew_may_be_set_against_the_mean",
    ),
    shown(
        "time in the hypervisor is no progress",
        "relaxed/tests.rs",
        "work_of_the_hypervisor_is_no_progress",
    ),
    shown(
        "ESX 2: VMs of 4 and 2 on 4 cores use 75 %",
        "relaxed/tests.rs",
        "the_strict_scheduler_of_esx_2_wastes_half_of_every_second_turn",
    ),
    shown(
        "ESX 2: a stopped VM starts as a whole",
        "relaxed/tests.rs",
        "under_esx_2_the_vcpus_of_a_vm_start_at_one_instant",
    ),
    shown(
        "relaxed: VMs of 4 and 2 on 4 cores use all",
        "relaxed/tests.rs",
        "four_and_two_on_four_cores_use_all_of_them",
    ),
];

pub(super) const BALANCE: &[Behaviour] = &[
    shown(
        "4 vCPUs on 4 cores: never stacked",
        "balance/tests.rs",
        "four_siblings_on_four_cores_are_never_stacked",
    ),
    shown(
        "the same at random: apart in 9.4 % of cases",
        "balance/tests.rs",
        "placed_at_random_four_siblings_are_all_apart_in_one_case_of_eleven",
    ),
    shown(
        "6 vCPUs on 4 cores: the first four apart, no core with three",
        "balance/tests.rs",
        "of_six_siblings_on_four_cores_the_first_four_are_apart_and_no_core_has_three",
    ),
    shown(
        "apart whatever happens, as long as there are cores for all",
        "balance/tests.rs",
        "siblings_are_apart_whatever_happens_as_long_as_there_are_cores_for_all",
    ),
];
