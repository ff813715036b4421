//! Bad input: one clear line that says what was expected, status 2, and nothing runs.

use crate::support::stealtime;

#[test]
fn an_unknown_policy_is_refused_with_all_that_there_are() {
    stealtime(&["run", "--policy", "fass"])
        .expect_status(2)
        .expect_error(&["no policy `fass`", "rr", "fss", "eevdf", "host"]);
}

#[test]
fn an_unknown_policy_option_is_refused_with_those_it_has() {
    stealtime(&["run", "--policy", "fss:quantom=10ms"])
        .expect_status(2)
        .expect_error(&["no option `quantom`", "quantum"]);
}

#[test]
fn a_policy_value_that_does_not_fit_is_refused_with_what_would() {
    stealtime(&["run", "--policy", "eevdf:slice=fast"])
        .expect_status(2)
        .expect_error(&["slice", "`fast`", "a time from"]);
}

#[test]
fn a_duration_of_zero_is_refused() {
    stealtime(&["run", "--duration", "0"])
        .expect_status(2)
        .expect_error(&["--duration", "longer than 0"]);
}

#[test]
fn a_duration_without_a_unit_is_refused_with_the_units() {
    stealtime(&["run", "--duration", "5"])
        .expect_status(2)
        .expect_error(&["`5` is not a length of time", "500us"]);
}

#[test]
fn an_unknown_policy_is_not_described() {
    stealtime(&["policies", "nosuch"])
        .expect_status(2)
        .expect_error(&["no policy `nosuch`", "fss"]);
}
