//! The file, its keys and values, and what the user asks for instead.

use crate::{HEAD, expect, expect_steps};
use stealtime_scheduler::time::Nanos;
use stealtime_workloads::scenario::{Overrides, Problem, Scenario};

#[test]
fn an_unknown_key_is_told_with_the_known_ones() {
    expect(
        &HEAD.replace("cores = 1", "corse = 1"),
        3,
        &[
            "unknown key `corse` in the scenario: expected one of name, description, policy, cores",
            "did you mean `cores`?",
        ],
    );
    expect(
        &format!("{HEAD}wieght = 3\n"),
        11,
        &["`wieght` in [[vm.vcpu]]", "`weight`"],
    );
    expect(
        &HEAD.replace("locks =", "lokcs ="),
        8,
        &["[[vm]]", "name, count, shares"],
    );
}

#[test]
fn a_missing_key_is_told_at_its_table() {
    expect(
        HEAD,
        9,
        &["`program` is missing in [[vm.vcpu]]: expected at least one step"],
    );
    expect(
        "description = \"d\"\n",
        1,
        &["`name` is missing", "a name of letters"],
    );
    let no_vcpu = HEAD.split("[[vm.vcpu]]").next().expect("first part");
    expect(
        no_vcpu,
        6,
        &["`vcpu` is missing in [[vm]]", "at least one [[vm.vcpu]]"],
    );
    expect(
        "name = \"t\"\ndescription = \"d\"\n",
        1,
        &["at least one [[vm]] table"],
    );
    let text = format!("{HEAD}period = \"10ms\"\nprogram = [\"spin\"]\n");
    expect(&text, 9, &["`budget` is missing", "beside `period`"]);
}

#[test]
fn a_value_out_of_range_is_told_with_the_range() {
    for (line, parts) in [
        ("count = 0", ["`count` cannot be 0", "from 1 to 100000"]),
        ("weight = 0", ["`weight` cannot be 0", "from 1 to 10000"]),
        (
            "weight = 10001",
            ["`weight` cannot be 10001", "from 1 to 10000"],
        ),
        ("nice = 20", ["`nice` cannot be 20", "from -20 to 19"]),
        ("nice = 300", ["`nice` cannot be 300", "from -20 to 19"]),
        ("cap = 101", ["`cap` cannot be 101", "from 1 to 100"]),
        (
            "slice = 5",
            ["`slice` cannot be 5", "a time from 1us to 10s"],
        ),
        (
            "start = \"soon\"",
            ["`start` cannot be \"soon\"", "a time from 0"],
        ),
        (
            "repeat = \"twice\"",
            ["\"twice\"", "\"once\" or \"forever\""],
        ),
        (
            "repeat = 0",
            ["`repeat` cannot be 0", "from 1 to 4294967295"],
        ),
        (
            "setup = \"run 1ms\"",
            ["`setup` cannot be", "a list of steps"],
        ),
        (
            "program = [1]",
            ["`program` cannot be 1", "a list of steps"],
        ),
    ] {
        expect(&format!("{HEAD}{line}\n"), 11, &parts);
    }
    for (from, to, line, part) in [
        ("cores = 1", "cores = 0", 3, "from 1 to 65535"),
        ("\"1s\"", "\"0\"", 4, "a time from 1ns to 86400s"),
        ("name = \"t\"", "name = \"a b\"", 1, "a name of letters"),
        ("\"a test\"", "\"\"", 2, "one line"),
        (
            "\"ticket\"",
            "\"spin\"",
            8,
            "\"ticket\", \"test-and-set\", \"mcs\"",
        ),
        ("{ l", "{ \"l l\"", 8, "a name of letters"),
    ] {
        expect(&HEAD.replace(from, to), line, &["cannot be", part]);
    }
    let shares = HEAD.replace("name = \"a\"", "name = \"a\"\nshares = 65536");
    expect(&shares, 8, &["`shares` cannot be 65536", "from 1 to 65535"]);
    let cap = HEAD.replace("name = \"a\"", "name = \"a\"\ncap = 150");
    let cap = format!("{cap}program = [\"spin\"]\n");
    expect(&cap, 8, &["`cap` cannot be 150", "100 for each vCPU"]);
}

#[test]
fn weight_and_nice_together_are_refused() {
    let text = format!("{HEAD}weight = 2\nnice = 1\n");
    expect(&text, 12, &["both `weight` and `nice`", "at most one"]);
}

#[test]
fn what_is_not_toml_is_told_where_it_breaks() {
    expect(
        "name = \"t\"\nvm = [\n",
        2,
        &["not valid TOML: ", "expected `]`"],
    );
    expect("name = \"t\"\nname = \"u\"\n", 2, &["not valid TOML"]);
}

#[test]
fn names_must_differ() {
    let vcpu = "program = [\"spin\"]\n[[vm.vcpu]]\nname = \"v\"\nprogram = [\"spin\"]\n";
    expect(&format!("{HEAD}{vcpu}"), 13, &["two vCPUs named `a/v`"]);
    let vm = "program = [\"spin\"]\n[[vm]]\nname = \"a\"\n[[vm.vcpu]]\nname = \"v\"\n\
              program = [\"spin\"]\n";
    expect(&format!("{HEAD}{vm}"), 13, &["two VMs named `a`"]);
}

#[test]
fn more_than_can_be_numbered_is_refused() {
    let spin = "program = [\"spin\"]\n";
    let vms = HEAD.replace("name = \"a\"", "name = \"a\"\ncount = 65536");
    expect(
        &format!("{vms}{spin}"),
        8,
        &["`count` cannot be 65536", "from 1 to 65535"],
    );
    let vcpus = HEAD.replace("name = \"a\"", "name = \"a\"\ncount = 2");
    let text = format!("{vcpus}count = 50001\n{spin}");
    expect(
        &text,
        7,
        &["too many vCPUs: 100002, expected at most 100000"],
    );
    let long = vec!["run 1ms"; 1_023];
    expect_steps(
        &long,
        10,
        &["too many ops in a program: 1026, expected at most 1024"],
    );
    let locks: Vec<_> = (0..1_025).map(|n| format!("l{n} = \"ticket\"")).collect();
    let many = HEAD.replace("l = \"ticket\", m = \"test-and-set\"", &locks.join(", "));
    expect(
        &many,
        8,
        &["too many locks in a VM: 1025, expected at most 1024"],
    );
}

#[test]
fn a_policy_that_is_not_known_is_told_at_its_line() {
    for (policy, part) in [
        ("fsss", "there is no policy `fsss`; there are host, rr"),
        ("rr:quantun=1ms", "policy `rr` has no option `quantun`"),
        ("rr:", "is not a policy"),
    ] {
        let text = HEAD.replace("cores = 1", &format!("policy = \"{policy}\""));
        expect(&text, 3, &[part]);
    }
}

#[test]
fn a_parameter_that_the_policy_does_not_know_is_told_with_the_vcpu() {
    let text = format!("{HEAD}weight = 3\nprogram = [\"spin\"]\n");
    let scenario = Scenario::parse("t.toml", &text).expect("in order");
    let overrides = Overrides {
        policy: Some("rr".parse().expect("a policy")),
        ..Overrides::default()
    };
    let message = scenario.plan(&overrides).expect_err("refused").to_string();
    let expected = "t.toml: a/v: policy `rr` does not know the parameter `weight`";
    assert!(message.starts_with(expected), "{message}");
}

#[test]
fn what_the_user_asks_for_must_make_sense_too() {
    let scenario = Scenario::load("spin-alone").expect("embedded");
    let plan = |overrides: Overrides| {
        let error = scenario.plan(&overrides).expect_err("refused");
        error.to_string()
    };
    let cores = |cores: &[u16]| Overrides {
        cores: Some(cores.to_vec()),
        ..Overrides::default()
    };
    assert!(plan(cores(&[])).contains("at least one core"));
    assert!(plan(cores(&[1, 1])).contains("each only once"));
    let zero = Overrides {
        duration: Some(Nanos::ZERO),
        ..Overrides::default()
    };
    assert!(plan(zero).contains("`duration` cannot be 0: expected a time of more than 0"));
    let unknown = Overrides {
        policy: Some("nosuch".parse().expect("grammar")),
        ..Overrides::default()
    };
    assert!(plan(unknown).contains("there is no policy `nosuch`"));
}

#[test]
fn an_unknown_name_lists_the_embedded_scenarios_and_a_missing_file_is_named() {
    let message = Scenario::load("starvatoin")
        .expect_err("no such")
        .to_string();
    for part in [
        "starvatoin: ",
        "starvation, kpri-fss",
        "did you mean `starvation`?",
    ] {
        assert!(message.contains(part), "{message}");
    }
    let error = Scenario::load("./no/such.toml").expect_err("no such");
    assert!(matches!(*error.problem, Problem::Unreadable { .. }));
    assert!(
        error
            .to_string()
            .starts_with("./no/such.toml: cannot be read: "),
        "{error}"
    );
}
