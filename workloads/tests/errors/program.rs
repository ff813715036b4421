//! Steps: grammar, locks, repeats, targets.

use crate::{HEAD, expect, expect_steps, refused};
use stealtime_workloads::scenario::{Position, Problem, StepFault};

#[test]
fn a_wrong_step_is_told_with_its_column_and_all_words() {
    let text = format!("{HEAD}program = [\n  \"run 1ms\",\n  \"rum 5ms\",\n]\n");
    let (message, at, problem) = refused(&text);
    assert_eq!(
        at,
        Position {
            line: 13,
            column: 4
        }
    );
    let expected = "t.toml:13:4: step \"rum 5ms\": expected one of run, spin, sleep, ";
    assert!(message.starts_with(expected), "{message}");
    assert!(message.ends_with("did you mean `run`?"), "{message}");
    let Problem::Step { step, fault } = problem else {
        panic!("{problem:?}")
    };
    assert_eq!(step, "rum 5ms");
    assert!(matches!(fault, StepFault::Grammar { meant: Some(word), .. } if word == "run"));
}

#[test]
fn a_wrong_argument_is_told_at_its_own_column() {
    let (message, at, _) = refused(&format!("{HEAD}program = [\"run\", \"run 5 ms\"]\n"));
    assert_eq!((at.line, at.column), (11, 16), "{message}");
    for (step, part) in [
        ("run", "`200us..800us` (uniform)"),
        ("run 0", "more than 0"),
        ("run 9us..3us", "a length of time"),
        ("run 61m", "at most 60m"),
        ("run 1ms 2ms", "nothing more after `run 1ms`"),
        ("sleep exponential", "`exponential 500us`"),
        ("timer 1us", "a period from 10us"),
        ("interrupt a/b/c", "VM/VCPU"),
        ("lock", "the name of a lock of this VM"),
        (
            "host-lock h kernel-prioriti",
            "did you mean `kernel-priority`?",
        ),
        (
            "repeat 0",
            "a whole number from 1 to 4294967295, or `forever`",
        ),
        ("fault tripel-fault", "did you mean `triple-fault`?"),
        ("", "one of run, spin"),
    ] {
        expect_steps(&[step], 12, &["step", "expected", part]);
    }
}

#[test]
fn only_a_declared_reader_writer_lock_has_readers() {
    let expected = ["for readers", "host-locks = { h = \"rwlock\" }"];
    expect_steps(&["host-read-lock h", "host-unlock h"], 12, &expected);
}

#[test]
fn a_host_lock_of_an_unknown_kind_is_told_with_those_that_there_are() {
    let text = format!("host-locks = {{ h = \"spin\" }}\n{HEAD}program = [\"spin\"]\n");
    let parts = ["h", "\"spin\"", "\"handoff\", \"mutex\" or \"rwlock\""];
    expect(&text, 1, &parts);
}

#[test]
fn an_unknown_lock_is_told_with_the_locks_of_the_vm() {
    expect_steps(
        &["run 1ms", "lock k"],
        13,
        &["unknown lock `k`: expected one of this VM's locks: l, m"],
    );
    let without = HEAD.replace("locks = { l = \"ticket\", m = \"test-and-set\" }", "");
    let text = format!("{without}program = [\"lock k\", \"run 1ms\"]\n");
    expect(
        &text,
        11,
        &["unknown lock `k`", "locks = { k = \"ticket\" }"],
    );
}

#[test]
fn locks_sections_and_requests_must_alternate() {
    expect_steps(
        &["unlock l"],
        12,
        &["lock `l` is not held here: expected `lock l` before it"],
    );
    expect_steps(
        &["lock l", "run 1ms", "lock l"],
        14,
        &["already held", "`unlock l` before"],
    );
    expect_steps(
        &["host-unlock h"],
        12,
        &["not held", "`host-lock h` before it"],
    );
    expect_steps(
        &["host-lock h", "host-lock h"],
        13,
        &["already held", "`host-unlock h`"],
    );
    expect_steps(
        &["end"],
        12,
        &["the request is not begun", "a `begin` before it"],
    );
    expect_steps(
        &["begin", "begin"],
        13,
        &["already begun", "an `end` before it"],
    );
    expect_steps(
        &["critical-leave"],
        12,
        &["not entered", "a `critical-enter` before it"],
    );
}

#[test]
fn every_round_must_leave_things_as_it_found_them() {
    expect_steps(
        &["lock l", "run 1ms"],
        13,
        &["`a/v`", "lock `l`", "to be released again"],
    );
    let steps = ["lock l", "repeat 2", "unlock l", "run 1ms", "end-repeat"];
    expect_steps(
        &steps,
        16,
        &["step \"end-repeat\"", "lock `l`", "to be held again"],
    );
    let once = format!("{HEAD}repeat = \"once\"\nprogram = [\"begin\", \"run 1ms\"]\n");
    expect(&once, 12, &["ends while the request is not ended"]);
}

#[test]
fn repeats_must_be_closed_and_not_too_deep() {
    expect_steps(
        &["repeat 2", "run 1ms"],
        12,
        &["\"repeat 2\"", "an `end-repeat`"],
    );
    expect_steps(
        &["run 1ms", "end-repeat"],
        13,
        &["no repeat is open", "a `repeat` before"],
    );
    let mut deep = vec!["repeat 2"; 8];
    deep.push("run 1ms");
    deep.extend(["end-repeat"; 8]);
    expect_steps(&deep, 19, &["nested too deeply: expected at most 8"]);
}

#[test]
fn a_repeat_that_takes_no_time_is_refused() {
    let steps = ["run 1ms", "repeat 9", "lock l", "unlock l", "end-repeat"];
    expect_steps(
        &steps,
        16,
        &["nothing in this repeat takes time", "run, spin, sleep"],
    );
    expect_steps(
        &["begin", "end"],
        13,
        &["`a/v`", "takes no time", "run, spin, sleep"],
    );
}

#[test]
fn a_step_that_is_never_reached_is_refused() {
    expect_steps(
        &["spin", "run 1ms"],
        13,
        &["never reached", "\"spin\" does not end"],
    );
    expect_steps(&["fault bad-port", "run 1ms"], 13, &["never reached"]);
    let steps = ["repeat forever", "run 1ms", "end-repeat", "exit"];
    expect_steps(&steps, 15, &["\"repeat forever\" does not end"]);
}

#[test]
fn an_interrupt_for_nobody_is_told_with_those_who_are_there() {
    expect_steps(&["interrupt b/v"], 12, &["no vCPU `b/v`", "of a/v"]);
    expect_steps(
        &["interrupt w"],
        12,
        &["no vCPU `a/w`", "did you mean `a/v`?"],
    );
}
