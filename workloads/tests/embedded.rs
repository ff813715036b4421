//! Every scenario that `stealtime` carries is in order and does what its kind should.

use std::collections::{BTreeSet, HashSet};
use stealtime_guest::interp::{Action, Interpreter};
use stealtime_guest::lock::Want;
use stealtime_guest::rng::Rng;
use stealtime_scheduler::policy::VcpuParams;
use stealtime_scheduler::time::Nanos;
use stealtime_workloads::run::{LockKind, Plan, VcpuPlan};
use stealtime_workloads::scenario::{DEFAULT_SCENARIO, Overrides, Scenario, embedded};

/// How many actions of each vCPU are looked at.
const ACTIONS: usize = 20_000;

fn plan(name: &str) -> Plan {
    let scenario = Scenario::load(name).unwrap_or_else(|error| panic!("{error}"));
    let plan = scenario.plan(&Overrides::default());
    plan.unwrap_or_else(|error| panic!("{error}"))
}

fn plans() -> impl Iterator<Item = Plan> {
    embedded().iter().map(|one| plan(one.name))
}

/// The first actions of a vCPU; fewer if its program ends.
fn actions(plan: &Plan, number: usize) -> Vec<Action> {
    let mut interpreter = Interpreter::new(Rng::new(plan.seed, number as u64));
    let program = &plan.vcpus[number].program;
    let next = || interpreter.next(program);
    std::iter::repeat_with(next)
        .take(ACTIONS)
        .map(|action| action.unwrap_or_else(|error| panic!("{}: {error:?}", plan.scenario)))
        .take_while(|action| *action != Action::End)
        .collect()
}

/// Every vCPU whose program no earlier one of its scenario has.
fn each_vcpu() -> impl Iterator<Item = (Plan, usize)> {
    plans().flat_map(|plan| {
        let first = |number: &usize| {
            let program = &plan.vcpus[*number].program;
            let mut earlier = plan.vcpus[..*number].iter();
            earlier.all(|one| one.program != *program)
        };
        let numbers: Vec<_> = (0..plan.vcpus.len()).filter(first).collect();
        numbers
            .into_iter()
            .map(move |number| (plan.clone(), number))
    })
}

#[test]
fn every_scenario_file_is_embedded_and_named_as_its_file() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios");
    let files = std::fs::read_dir(directory).expect("the directory of scenarios");
    let files: BTreeSet<_> = files
        .map(|file| file.expect("an entry").path())
        .map(|path| {
            path.file_stem()
                .expect("a name")
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    let listed: BTreeSet<_> = embedded().iter().map(|one| one.name.to_owned()).collect();
    assert_eq!(files, listed);
    for one in embedded() {
        assert_eq!(plan(one.name).scenario, one.name);
        assert!(
            one.description.chars().count() <= 100,
            "{}",
            one.description
        );
        assert!(one.options.contains("policy "), "{}", one.options);
    }
}

#[test]
fn a_scenario_read_from_its_file_is_the_embedded_one() {
    for one in embedded() {
        let path = format!("{}/scenarios/{}.toml", env!("CARGO_MANIFEST_DIR"), one.name);
        let scenario = Scenario::load(&path).unwrap_or_else(|error| panic!("{error}"));
        let from_file = scenario.plan(&Overrides::default());
        assert_eq!(from_file, Ok(plan(one.name)));
    }
}

#[test]
fn every_program_does_something_that_takes_time_and_names_only_what_there_is() {
    for (plan, number) in each_vcpu() {
        let name = format!("{}: {}", plan.scenario, plan.vcpus[number].name);
        let locks = plan.vms[plan.vcpus[number].vm.index()].locks.len();
        let actions = actions(&plan, number);
        assert!(!actions.is_empty(), "{name}");
        let mut timed = 0;
        for action in &actions {
            match *action {
                Action::Run(n) | Action::Sleep(n) | Action::HostWait(n) | Action::Hypervisor(n) => {
                    assert!(n < 60_000_000_000, "{name}: {n}");
                    timed += 1;
                }
                Action::Guest(_, lock) => {
                    assert!(usize::from(lock) < locks, "{name}");
                }
                Action::HostLock { lock, .. }
                | Action::HostAcquire { lock, .. }
                | Action::HostUnlock(lock) => {
                    assert!(usize::from(lock) < plan.host_locks.len(), "{name}");
                }
                Action::Interrupt { vcpu, .. } => {
                    let to = vcpu as usize;
                    assert!(to < plan.vcpus.len() && to != number, "{name}");
                }
                Action::Exit | Action::WaitInterrupt | Action::Yield => timed += 1,
                _ => {}
            }
        }
        assert!(timed > 0, "{name}");
    }
}

#[test]
fn locks_and_requests_are_taken_and_given_back_in_turn() {
    for (plan, number) in each_vcpu() {
        let name = format!("{}: {}", plan.scenario, plan.vcpus[number].name);
        let (mut guest, mut host) = (HashSet::new(), HashSet::new());
        let mut open = false;
        for action in actions(&plan, number) {
            match action {
                Action::Guest(Want::Take, lock) => assert!(guest.insert(lock), "{name}"),
                Action::Guest(Want::Release, lock) => assert!(guest.remove(&lock), "{name}"),
                Action::HostLock { lock, .. } | Action::HostAcquire { lock, .. } => {
                    assert!(host.insert(lock), "{name}");
                }
                Action::HostUnlock(lock) => assert!(host.remove(&lock), "{name}"),
                Action::RequestBegin => assert!(!std::mem::replace(&mut open, true), "{name}"),
                Action::RequestEnd => assert!(std::mem::replace(&mut open, false), "{name}"),
                _ => {}
            }
        }
    }
}

#[test]
fn whoever_waits_for_an_interrupt_is_sent_some() {
    for (plan, number) in each_vcpu() {
        let mine = actions(&plan, number);
        if !mine.contains(&Action::WaitInterrupt) {
            continue;
        }
        let timer = mine
            .iter()
            .any(|a| matches!(a, Action::Periodic { period: 1.., .. }));
        let sent = (0..plan.vcpus.len()).any(|from| {
            let to_me = |a: &Action| matches!(a, Action::Interrupt { vcpu, .. } if *vcpu as usize == number);
            actions(&plan, from).iter().any(to_me)
        });
        assert!(
            timer || sent,
            "{}: {}",
            plan.scenario,
            plan.vcpus[number].name
        );
    }
}

fn asks_for_kernel_priority(plan: &Plan, vcpu: &str) -> bool {
    let number = plan
        .vcpus
        .iter()
        .position(|v| v.name == vcpu)
        .expect("there");
    let priority = |action: &Action| {
        matches!(
            action,
            Action::HostLock {
                kernel_priority: true,
                ..
            } | Action::HostAcquire {
                kernel_priority: true,
                ..
            }
        )
    };
    actions(plan, number).iter().any(priority)
}

#[test]
fn the_spinner_of_the_kernel_priority_scenarios_catches_the_flag_once_and_never_returns() {
    for name in [DEFAULT_SCENARIO, "kpri-fss"] {
        let plan = plan(name);
        assert!(asks_for_kernel_priority(&plan, "spinner"));
        let all = actions(&plan, 0);
        assert_eq!(
            plan.vcpu_name(stealtime_scheduler::ids::VcpuId(0)),
            "noisy/spinner"
        );
        let lock = all
            .iter()
            .position(|a| matches!(a, Action::HostLock { .. }))
            .expect("locks");
        let (before, after) = all.split_at(lock);
        let run = |action: &Action| matches!(action, Action::Run(_));
        assert!(before.iter().all(run));
        assert!(matches!(
            after[..3],
            [
                Action::HostLock {
                    kernel_priority: true,
                    ..
                },
                Action::HostWait(_),
                Action::HostUnlock(_)
            ]
        ));
        assert!(after[3..].iter().all(run) && after.len() > 1_000);
    }
}

#[test]
fn the_default_scenario_is_four_vcpus_in_two_vms_on_one_core_for_five_seconds() {
    let plan = plan(DEFAULT_SCENARIO);
    assert_eq!(
        (plan.vms.len(), plan.vcpus.len(), &*plan.cores),
        (2, 4, &[0][..])
    );
    assert_eq!(
        (plan.duration, plan.warmup),
        (Nanos::from_secs(5), Nanos::ZERO)
    );
    assert_eq!(plan.policy.to_string(), "fss");
}

#[test]
fn weights_and_shares_come_through() {
    let params = |name: &str, of: fn(&VcpuParams) -> Option<u32>| -> Vec<_> {
        plan(name)
            .vcpus
            .iter()
            .map(|vcpu| of(&vcpu.params))
            .collect()
    };
    assert_eq!(params("weights", |p| p.weight), [Some(1), Some(2), Some(4)]);
    assert_eq!(params("shares", |p| p.shares), [Some(1), Some(2), Some(3)]);
    assert_eq!(params("shares", |p| p.weight), [None; 3]);
}

#[test]
fn the_crowd_is_thirty_two_vcpus_on_two_cores_and_calls_stay_within_a_vm() {
    let plan = plan("crowd");
    assert_eq!(
        (plan.vcpus.len(), plan.cores.len(), plan.vms.len()),
        (32, 2, 4)
    );
    assert_eq!(plan.vms[3].name, "crowd-4");
    assert_eq!(plan.vms[0].locks[0], ("fair".to_owned(), LockKind::Ticket));
    for (number, VcpuPlan { vm, .. }) in plan.vcpus.iter().enumerate() {
        for action in actions(&plan, number) {
            if let Action::Interrupt { vcpu, .. } = action {
                assert_eq!(plan.vcpus[vcpu as usize].vm, *vm);
            }
        }
    }
}

#[test]
fn the_jobs_of_a_build_come_to_an_end() {
    let plan = plan("build");
    for (name, number) in [("job-1", 0), ("job-2", 1), ("job-3", 2), ("job", 3)] {
        assert_eq!(plan.vcpus[number].name, name);
        let all = actions(&plan, number);
        assert!(all.len() < ACTIONS);
        let returns = all.iter().filter(|a| **a == Action::UserReturn).count();
        assert_eq!(returns, if name == "job" { 250 } else { 40 });
    }
    assert!(asks_for_kernel_priority(&plan, "job-1"));
}

#[test]
fn a_plan_survives_being_stored() {
    for plan in plans() {
        let json = serde_json::to_string(&plan).expect("plain data");
        let back: Plan = serde_json::from_str(&json).expect("what was written");
        assert_eq!(back, plan);
    }
}

#[test]
fn what_the_user_asks_for_replaces_what_the_scenario_says() {
    let overrides = Overrides {
        policy: Some("rr".parse().expect("a policy")),
        cores: Some(vec![3, 1]),
        duration: Some(Nanos::from_millis(7)),
        warmup: Some(Nanos::from_millis(2)),
        seed: Some(u64::MAX),
    };
    let scenario = Scenario::load("spin-pair").expect("embedded");
    let plan = scenario.plan(&overrides).expect("in order");
    assert_eq!(plan.policy.to_string(), "rr");
    assert_eq!((&*plan.cores, plan.seed), (&[3, 1][..], u64::MAX));
    assert_eq!(
        (plan.duration, plan.warmup),
        (Nanos(7_000_000), Nanos(2_000_000))
    );
}
