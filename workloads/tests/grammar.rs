//! The language of steps: what is printed reads back, what is read means what it says, and nothing
//! that anybody types makes the reader panic.

use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::{collection, proptest};
use std::num::NonZeroU32;
use stealtime_guest::op::{HostMode, Length, Misdeed, Step};
use stealtime_scheduler::time::Nanos;
use stealtime_workloads::run::LockKind;
use stealtime_workloads::scenario::{
    INTERRUPT_VECTOR, LONGEST_STEP, SHORTEST_PERIOD, Scenario, Statement, TIMER_VECTOR, Target,
    WORDS,
};

fn length() -> impl Strategy<Value = Length> {
    // Short, round and odd ones alike.
    let nanos = prop_oneof![
        1..=LONGEST_STEP.get(),
        1..1_000u64,
        (1..1_000u64).prop_map(|n| n * 1_000_000)
    ];
    prop_oneof![
        nanos.clone().prop_map(Length::Fixed),
        nanos.clone().prop_map(Length::Exponential),
        (0..=1u64, nanos.clone(), nanos)
            .prop_map(|(some, a, b)| Length::Uniform(some * a.min(b), a.max(b))),
    ]
}

fn statement() -> impl Strategy<Value = Statement> {
    let name = || "[A-Za-z0-9._-]{1,12}";
    let period = SHORTEST_PERIOD.get()..=LONGEST_STEP.get();
    prop_oneof![
        length().prop_map(Statement::Run),
        length().prop_map(Statement::Sleep),
        length().prop_map(Statement::HostWait),
        length().prop_map(Statement::Hypervisor),
        proptest::option::of(period).prop_map(|p| Statement::Timer(p.map(Nanos))),
        (proptest::option::of(name()), name())
            .prop_map(|(vm, vcpu)| Statement::Interrupt(Target { vm, vcpu })),
        name().prop_map(Statement::Lock),
        name().prop_map(Statement::Unlock),
        name().prop_map(Statement::ReadLock),
        name().prop_map(Statement::Barrier),
        name().prop_map(Statement::Send),
        name().prop_map(Statement::Receive),
        (name(), any::<bool>()).prop_map(|(lock, kernel_priority)| Statement::HostLock {
            lock,
            kernel_priority
        }),
        (name(), any::<bool>()).prop_map(|(lock, kernel_priority)| Statement::HostReadLock {
            lock,
            kernel_priority
        }),
        name().prop_map(Statement::HostUnlock),
        any::<u32>().prop_map(|n| Statement::Repeat(NonZeroU32::new(n))),
        proptest::sample::select(vec![
            Statement::Spin,
            Statement::Wait,
            Statement::Yield,
            Statement::UserReturn,
            Statement::Begin,
            Statement::End,
            Statement::CriticalEnter,
            Statement::CriticalLeave,
            Statement::Exit,
            Statement::EndRepeat,
            Statement::Repeat(None),
            Statement::Fault(Misdeed::TripleFault),
            Statement::Fault(Misdeed::BadMemory),
            Statement::Fault(Misdeed::BadPort),
            Statement::Fault(Misdeed::BadInstruction),
        ]),
    ]
}

/// Something like a step: known words, numbers, signs and rubbish in any order.
fn scrap() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        proptest::sample::select(WORDS.to_vec()).prop_map(str::to_owned),
        "[0-9]{0,21}(ns|us|ms|s|m|µs|\\.\\.|\\.)?",
        "[ -~µ\u{3000}é]{0,6}",
        Just("exponential".to_owned()),
        Just("kernel-priority".to_owned()),
    ];
    collection::vec(word, 0..5).prop_map(|words| words.join(" "))
}

proptest! {
    #[test]
    fn a_printed_step_reads_back_as_the_same(statement in statement()) {
        let printed = statement.to_string();
        assert_eq!(Statement::parse(&printed), Ok(statement), "{printed}");
    }

    #[test]
    fn whatever_is_read_prints_and_reads_as_the_same(text in scrap()) {
        match Statement::parse(&text) {
            Ok(read) => assert_eq!(Statement::parse(&read.to_string()), Ok(read)),
            Err(error) => assert!(text.is_char_boundary(error.at), "{text:?}: {error:?}"),
        }
    }

    #[test]
    fn garbage_is_refused_without_panic(text in "\\PC{0,200}") {
        let _ = Scenario::parse("garbage.toml", &text);
    }

    #[test]
    fn garbled_scenarios_are_read_or_refused_without_panic(
        steps in collection::vec(scrap(), 1..12),
        key in "[a-z]{1,8}",
        value in "(-?[0-9]{1,20}|\"[a-z0-9 ]{0,8}\"|\\[\\]|\\{\\}|true|1\\.5|'')",
    ) {
        let list: Vec<_> = steps.iter().map(|step| format!("{step:?}")).collect();
        let known = ["count", "weight", "nice", "slice", "repeat", "start", "setup", "cap"];
        for key in known.into_iter().chain([&*key]) {
            let text = format!(
                "name = \"g\"\ndescription = \"d\"\n[[vm]]\nname = \"a\"\nlocks = {{ l = \"ticket\" }}\n\
                 [[vm.vcpu]]\nname = \"v\"\n{key} = {value}\nprogram = [{}]\n",
                list.join(", ")
            );
            if let Err(error) = Scenario::parse("g.toml", &text) {
                let at = error.at.expect("a place");
                assert!(at.line <= text.lines().count() + 1, "{error}");
            }
        }
    }

    #[test]
    fn a_cut_or_spoiled_scenario_never_makes_the_reader_panic(
        at in any::<proptest::sample::Index>(),
        spoil in "\\PC{0,3}",
    ) {
        let whole = include_str!("../scenarios/crowd.toml");
        let at = at.index(whole.len());
        let _ = Scenario::parse("cut.toml", &whole[..at]);
        let _ = Scenario::parse("spoiled.toml", &format!("{}{spoil}{}", &whole[..at], &whole[at..]));
    }
}

/// The ops of a vCPU with this program, as steps.
fn compiled(keys: &str, program: &str) -> Vec<Step> {
    let text = format!(
        "name = \"t\"\ndescription = \"d\"\n[[vm]]\nname = \"a\"\ncount = 2\nlocks = {{ z = \"ticket\", \
         b = \"ticket\" }}\n[[vm.vcpu]]\nname = \"v\"\ncount = 2\n{keys}\nprogram = {program}\n\
         [[vm.vcpu]]\nname = \"w\"\ncount = 2\nprogram = [\"wait\"]\n"
    );
    let scenario = Scenario::parse("t.toml", &text).unwrap_or_else(|error| panic!("{error}"));
    // Copy 2 of vCPU `v` in copy 2 of VM `a`.
    let vcpu = &scenario.vcpus()[5];
    assert_eq!((&*vcpu.name, vcpu.index), ("v-2", 1));
    let decode = |op| Step::decode(op).expect("an op of ours");
    vcpu.program.iter().copied().map(decode).collect()
}

const MS: u64 = 1_000_000;

#[test]
fn setup_comes_once_and_the_program_as_often_as_it_says() {
    let (one, two) = (Step::Run(Length::Fixed(MS)), Step::Exit);
    let setup = "setup = [\"run 1ms\"]";
    let forever = compiled(setup, "[\"exit\"]");
    assert_eq!(
        forever,
        [one, Step::Repeat(0), two, Step::EndRepeat, Step::End]
    );
    let thrice = compiled(&format!("{setup}\nrepeat = 3"), "[\"exit\"]");
    assert_eq!(
        thrice,
        [one, Step::Repeat(3), two, Step::EndRepeat, Step::End]
    );
    let once = compiled(&format!("{setup}\nrepeat = \"once\""), "[\"exit\"]");
    assert_eq!(once, [one, two, Step::End]);
}

#[test]
fn locks_are_numbered_in_the_order_written() {
    let steps = compiled(
        "repeat = 1",
        "[\"lock b\", \"lock z\", \"unlock z\", \"unlock b\"]",
    );
    let expected = [
        Step::Lock(1),
        Step::Lock(0),
        Step::Unlock(0),
        Step::Unlock(1),
        Step::End,
    ];
    assert_eq!(steps, expected);
}

#[test]
fn a_channel_takes_two_numbers_and_a_name_without_a_number_is_the_copy_with_the_vcpus_own() {
    let text = "name = \"t\"\ndescription = \"d\"\n[[vm]]\nname = \"a\"\n\
                locks = { first = \"mcs\", inbox = \"channel 16 300ns x2\", last = \"mutex\" }\n\
                [[vm.vcpu]]\nname = \"r\"\ncount = 2\nrepeat = \"once\"\n\
                program = [\"send inbox-1\", \"receive inbox\", \"lock last\", \"unlock last\"]\n";
    let scenario = Scenario::parse("t.toml", text).expect("in order");
    let named = |name: &str, kind| (name.to_owned(), kind);
    let channel = LockKind::Channel {
        room: 16,
        copy_ns: 300,
    };
    assert_eq!(
        scenario.vms()[0].locks,
        [
            named("first", LockKind::Mcs),
            named("inbox-1", channel),
            named("inbox-1/mutex", LockKind::Mutex),
            named("inbox-2", channel),
            named("inbox-2/mutex", LockKind::Mutex),
            named("last", LockKind::Mutex),
        ]
    );
    let steps: Vec<Vec<_>> = scenario
        .vcpus()
        .iter()
        .map(|vcpu| {
            let decoded = vcpu.program.iter().map(|op| Step::decode(*op));
            decoded.collect::<Result<_, _>>().expect("ops")
        })
        .collect();
    let expected = |own| {
        [
            Step::Send(1),
            Step::Receive(own),
            Step::Lock(5),
            Step::Unlock(5),
            Step::End,
        ]
    };
    assert_eq!(steps, [expected(1), expected(3)]);
}

#[test]
fn a_lock_is_no_channel_and_a_channel_no_lock_and_copies_are_counted() {
    let wrong = [
        ("lock = \"channel\"", "run 1ms", "\"channel 16 300ns\""),
        ("lock = \"channel 0\"", "run 1ms", "\"channel 16 300ns\""),
        ("lock = \"mutex 4\"", "run 1ms", "\"mutex x4\""),
        ("lock = \"mutex x0\"", "run 1ms", "\"mutex x4\""),
        (
            "lock = \"channel 2\"",
            "unlock lock",
            "a lock: this is none",
        ),
        (
            "lock = \"mutex\"",
            "receive lock",
            "a channel: this is none",
        ),
        (
            "lock = \"channel 2 x1\"",
            "send lock",
            "unknown lock `lock-2`",
        ),
        (
            "l-1 = \"mutex\", l = \"mutex x1\"",
            "run 1ms",
            "two locks named `l-1`",
        ),
    ];
    for (locks, step, expected) in wrong {
        let text = format!(
            "name = \"t\"\ndescription = \"d\"\n[[vm]]\nname = \"a\"\nlocks = {{ {locks} }}\n\
             [[vm.vcpu]]\nname = \"v\"\ncount = 2\nprogram = [\"{step}\"]\n"
        );
        let error = Scenario::parse("t.toml", &text)
            .expect_err(locks)
            .to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_target_without_a_number_is_the_copy_with_the_senders_own() {
    for (target, vcpu) in [
        ("w", 7),
        ("w-1", 6),
        ("a/w", 7),
        ("a-1/w", 3),
        ("a-1/w-1", 2),
        ("v", 5),
    ] {
        let program = format!("[\"interrupt {target}\"]");
        let steps = compiled("repeat = 1", &program);
        let vector = INTERRUPT_VECTOR;
        assert_eq!(
            steps,
            [Step::Interrupt { vcpu, vector }, Step::End],
            "{target}"
        );
    }
}

#[test]
fn spin_and_timer_and_host_locks_become_ops() {
    let program = "[\"timer 16ms\", \"timer off\", \"host-lock h kernel-priority\", \"spin\"]";
    let vector = TIMER_VECTOR;
    let expected = [
        Step::Periodic {
            period: 16 * MS,
            vector,
        },
        Step::Periodic { period: 0, vector },
        Step::HostLock {
            lock: 0,
            kernel_priority: true,
        },
        Step::Repeat(0),
        Step::Run(Length::Fixed(MS)),
        Step::EndRepeat,
        Step::End,
    ];
    assert_eq!(compiled("repeat = \"once\"", program), expected);
}

#[test]
fn a_host_lock_is_taken_as_the_kind_that_it_is_declared() {
    let text = "name = \"t\"\ndescription = \"d\"\n\
                host-locks = { m = \"mutex\", r = \"rwlock\", h = \"handoff\" }\n\
                [[vm]]\nname = \"a\"\n[[vm.vcpu]]\nname = \"v\"\nrepeat = \"once\"\n\
                program = [\"host-lock m\", \"host-lock r\", \"host-unlock r\", \
                \"host-read-lock r kernel-priority\", \"host-lock h\", \"host-lock plain\", \
                \"host-unlock r\", \"host-unlock h\", \"host-unlock plain\", \"host-unlock m\"]\n";
    let scenario = Scenario::parse("t.toml", text).unwrap_or_else(|error| panic!("{error}"));
    let steps = scenario.vcpus()[0].program.iter();
    let steps: Vec<_> = steps.map(|op| Step::decode(*op).expect("ours")).collect();
    let as_mode = |lock, mode, kernel_priority| Step::HostAcquire {
        lock,
        mode,
        kernel_priority,
    };
    let plain = |lock| Step::HostLock {
        lock,
        kernel_priority: false,
    };
    let expected = [
        as_mode(0, HostMode::Mutex, false),
        as_mode(1, HostMode::Write, false),
        Step::HostUnlock(1),
        as_mode(1, HostMode::Read, true),
        plain(2),
        plain(3),
        Step::HostUnlock(1),
        Step::HostUnlock(2),
        Step::HostUnlock(3),
        Step::HostUnlock(0),
        Step::End,
    ];
    assert_eq!(steps, expected);
}

#[test]
fn blanks_do_not_matter_and_lengths_mean_what_they_say() {
    let read = |text: &str| Statement::parse(text).expect(text);
    assert_eq!(
        read("  run   1.5ms "),
        Statement::Run(Length::Fixed(1_500_000))
    );
    assert_eq!(
        read("sleep 0..2us"),
        Statement::Sleep(Length::Uniform(0, 2_000))
    );
    let mean = Length::Exponential(500_000);
    assert_eq!(
        read("host-wait exponential 500us"),
        Statement::HostWait(mean)
    );
    assert_eq!(read("repeat forever"), Statement::Repeat(None));
}
