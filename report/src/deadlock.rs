//! vCPUs that wait for each other's locks in a circle, and the sentence about each circle.
//!
//! To the policy they are idle, so no figure of a wait for a core shows them: they are told beside the
//! diagnosis.

use crate::collector::{Collector, Link, Wanted};
use crate::model::{DeadlockLink, DeadlockReport};
use crate::names::Names;
use stealtime_scheduler::ids::VcpuId;
use stealtime_scheduler::time::Nanos;
use stealtime_workloads::run::Plan;

/// All circles of a run, in the order in which they were found, each with a sentence about it to follow the
/// diagnosis.
pub(crate) fn all(plan: &Plan, collector: &Collector) -> Vec<(DeadlockReport, String)> {
    let names = Names::new(plan);
    let report = |circle: Vec<Link>| {
        let report = DeadlockReport {
            from_ns: circle.iter().map(|link| link.since).max().unwrap_or(0),
            circle: circle.iter().map(|link| named(&names, link)).collect(),
        };
        let owners = circle.iter().map(|link| names.parts(id(link.owner)));
        let words = words(&report, owners);
        (report, words)
    };
    collector.circles.told().into_iter().map(report).collect()
}

fn id(vcpu: usize) -> VcpuId {
    VcpuId(u32::try_from(vcpu).unwrap_or(u32::MAX))
}

fn named(names: &Names, link: &Link) -> DeadlockLink {
    let (vm, vcpu) = names.parts(id(link.vcpu));
    let (guest_lock, host_lock) = match link.wanted {
        Some(Wanted::Guest(lock)) => (Some(names.guest_lock(lock)), None),
        Some(Wanted::Host(lock)) => (None, Some(names.host_lock(lock).to_owned())),
        None => (None, None),
    };
    DeadlockLink {
        vm: vm.to_owned(),
        vcpu: vcpu.to_owned(),
        guest_lock,
        host_lock,
    }
}

/// The sentence about a circle; `owners` are VM and vCPU of whom each of it waits for.
fn words<'a>(
    deadlock: &DeadlockReport,
    owners: impl Iterator<Item = (&'a str, &'a str)>,
) -> String {
    let name = |(vm, vcpu): (&str, &str)| format!("{vm}/{vcpu}");
    let waits = deadlock.circle.iter().zip(owners).map(|(link, owner)| {
        let lock = match (&link.guest_lock, &link.host_lock) {
            (Some(lock), _) => format!("guest lock `{lock}`"),
            (None, Some(lock)) => format!("host lock `{lock}`"),
            (None, None) => "a lock".to_owned(),
        };
        format!(
            "{} waits for {lock}, which {} holds",
            name((&link.vm, &link.vcpu)),
            name(owner)
        )
    });
    format!(
        " Deadlock since {:.3} s: {}. None of them can ever go on.",
        Nanos(deadlock.from_ns).as_secs_f64(),
        waits.collect::<Vec<_>>().join("; ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Report;
    use crate::testing::{Tape, outcome, plan};
    use stealtime_scheduler::event::{EventKind, Waits};
    use stealtime_scheduler::ids::{GuestLockId, HostLockId, VmId};
    use stealtime_scheduler::input::Mark;

    const MS: u64 = 1_000_000;

    fn spins(lock: GuestLockId) -> EventKind {
        EventKind::Locks {
            held: 1,
            critical: 0,
            waits_for: Some(lock),
            in_line: false,
        }
    }

    /// vCPUs 0, 2 and 1 wait for each other in this order from 30 ms on, and 3 and 4 from 70 ms on; the
    /// measurement begins between the two.
    fn report() -> Report {
        let plan = plan("rr", 5, 1);
        let mut tape = Tape::new(&plan);
        let lock = |vm| GuestLockId::new(VmId(vm), 0);
        for vcpu in 0..5 {
            tape.at(0, vcpu, EventKind::Admitted);
        }
        // A wait that was over before.
        tape.at(MS, 0, spins(lock(1)));
        tape.at(
            2 * MS,
            0,
            EventKind::Locks {
                held: 1,
                critical: 0,
                waits_for: None,
                in_line: false,
            },
        );
        tape.at(10 * MS, 0, spins(lock(2)));
        tape.at(20 * MS, 2, spins(lock(1)));
        let on = Waits::HostLock(HostLockId(1), VcpuId(0));
        tape.at(30 * MS, 1, EventKind::Blocked(on));
        // Said again, as when its depth changes: no new wait.
        tape.at(35 * MS, 2, spins(lock(1)));
        for (vcpu, owner) in [(0, 2), (1, 0), (2, 1)] {
            let owner = VcpuId(owner);
            tape.at(40 * MS, vcpu, EventKind::Deadlock { owner });
        }
        tape.at(50 * MS, 0, EventKind::Mark(Mark::MeasureStart));
        tape.at(60 * MS, 3, spins(lock(4)));
        tape.at(70 * MS, 4, spins(lock(3)));
        for (vcpu, owner) in [(3, 4), (4, 3)] {
            let owner = VcpuId(owner);
            tape.at(90 * MS, vcpu, EventKind::Deadlock { owner });
        }
        tape.at(100 * MS, 0, EventKind::Mark(Mark::MeasureEnd));
        let outcome = outcome(tape.collector.events);
        Report::build(&plan, "kvm", tape.collector, &outcome)
    }

    #[test]
    fn each_circle_is_told_with_its_vcpus_its_locks_and_when_it_closed() {
        let report = report();
        assert_eq!(report.deadlocks.len(), 2);
        let text = report.to_text().replace('\n', " ");
        for said in [
            "Deadlock since 0.030 s: vm0/main waits for guest lock `vm2:0`, which vm2/main holds; \
             vm2/main waits for guest lock `vm1:0`, which vm1/main holds; \
             vm1/main waits for host lock `pages`, which vm0/main holds. None of them",
            "Deadlock since 0.070 s: vm3/main waits for guest lock `vm4:0`, which vm4/main holds; \
             vm4/main waits for guest lock `vm3:0`, which vm3/main holds. None of them",
        ] {
            assert!(
                report.diagnosis.text.contains(said),
                "{}",
                report.diagnosis.text
            );
            assert!(text.contains("Deadlock since"), "{text}");
        }
    }

    #[test]
    fn the_holder_is_whom_the_dispatcher_named_though_not_all_of_the_circle_is_told() {
        let plan = plan("rr", 3, 1);
        let mut tape = Tape::new(&plan);
        for vcpu in 0..3 {
            tape.at(0, vcpu, EventKind::Admitted);
        }
        for (vcpu, owner) in [(0, 1), (1, 2)] {
            let owner = VcpuId(owner);
            tape.at(MS, vcpu, EventKind::Deadlock { owner });
        }
        tape.at(2 * MS, 0, EventKind::Mark(Mark::MeasureEnd));
        let outcome = outcome(tape.collector.events);
        let report = Report::build(&plan, "kvm", tape.collector, &outcome);
        let said = "vm0/main waits for a lock, which vm1/main holds; \
                    vm1/main waits for a lock, which vm2/main holds.";
        let text = &report.diagnosis.text;
        assert!(text.contains(said), "{text}");
    }

    #[test]
    fn a_run_without_a_circle_says_nothing_of_one() {
        let report = crate::testing::starved();
        assert_eq!(report.deadlocks, []);
        assert!(!report.to_text().contains("Deadlock"));
    }

    #[test]
    fn the_names_of_a_deadlock_are_documented() {
        let page = include_str!("../../docs/report-format.md");
        let row = page.lines().find(|line| line.starts_with("| `deadlocks`"));
        let row = row.expect("a row for it");
        let json = serde_json::to_value(&report().deadlocks[0]).expect("JSON");
        let circle = json["circle"][0].as_object().expect("an object");
        for name in json
            .as_object()
            .expect("an object")
            .keys()
            .chain(circle.keys())
        {
            assert!(row.contains(&format!("`{name}`")), "`{name}` is missing");
        }
    }
}
