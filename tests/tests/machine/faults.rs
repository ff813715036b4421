//! Guests that fail: each ends its own VM with one line that says why.

use super::{booted, next, only, plan, run};
use crate::support;
use stealtime_guest::op::{Misdeed, Op, Step};
use stealtime_vmm::cpu::Exit;

/// The line with which a VM ends that runs these steps.
fn last_words(steps: &[Step]) -> String {
    let mut cpu = only(steps);
    match next(&mut cpu) {
        Exit::Fault(line) => line,
        exit => panic!("{exit:?}"),
    }
}

#[test]
fn every_misdeed_ends_the_vm_with_a_line_that_names_it() {
    let Some(_kvm) = support::kvm() else { return };
    for (misdeed, words) in [
        (Misdeed::TripleFault, "triple fault"),
        (
            Misdeed::BadPort,
            "wrote to port 0x51f, where nothing answers",
        ),
        (
            Misdeed::BadMemory,
            "page fault at address 0x7000000000 (vector 14, error code 0x4",
        ),
        (
            Misdeed::BadInstruction,
            "undefined instruction (vector 6, error code 0x0",
        ),
    ] {
        let line = last_words(&[run(1_000), Step::Fault(misdeed)]);
        assert!(line.contains(words), "{misdeed:?}: {line}");
        assert_eq!(line.lines().count(), 1, "{line}");
    }
}

#[test]
fn a_program_that_makes_no_sense_ends_the_vm_with_the_reason() {
    let Some(_kvm) = support::kvm() else { return };
    let line = last_words(&[Step::EndRepeat]);
    assert!(line.contains("ends one that did not begin"), "{line}");
    let line = last_words(&[Step::Lock(0)]);
    assert!(line.contains("guest lock 0: no such lock"), "{line}");
    let line = last_words(&[Step::CriticalLeave]);
    assert!(
        line.contains("critical section that it did not enter"),
        "{line}"
    );
    let mut nonsense = plan(&[], &[&[]]);
    nonsense.vcpus[0].program = vec![Op {
        code: 999,
        ..Op::default()
    }];
    let exit = next(&mut booted(&nonsense).remove(0));
    assert!(
        matches!(&exit, Exit::Fault(line) if line.contains("code 999")),
        "{exit:?}"
    );
}
