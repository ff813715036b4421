//! Explanations of streams written by hand.

use super::*;
use crate::testing::plan;
use stealtime_scheduler::effect::Effect;
use stealtime_scheduler::event::{
    Event, EventKind, Owns, PreemptReason, Standing, Until, Waits, WakeSource,
};
use stealtime_scheduler::ids::{CoreId, GuestLockId, HostLockId};
use stealtime_scheduler::input::{ExitReason, Input, Mark, Timer};
use stealtime_scheduler::time::Nanos;

const MS: u64 = 1_000_000;
const C0: CoreId = CoreId(0);

/// A stream that is written down event by event. Every instant begins with an input that means
/// nothing, as time only passes with inputs.
#[derive(Default)]
struct Tape {
    entries: Vec<Entry>,
    at: u64,
}

impl Tape {
    fn at(&mut self, ms: u64) -> &mut Self {
        self.at = ms * MS;
        let timer = Timer::Policy;
        let input = Input::TimerDue { timer };
        self.entries.push(Entry::Input(Nanos(self.at), input));
        self
    }

    fn is(&mut self, vcpu: u32, kind: EventKind) -> &mut Self {
        self.entries.push(Entry::Event(Event {
            at: Nanos(self.at),
            vcpu: VcpuId(vcpu),
            kind,
        }));
        match kind {
            // The dispatcher tells it of everybody who is new.
            EventKind::Admitted => self.is(vcpu, EventKind::Placed(C0)),
            _ => self,
        }
    }

    fn runs(&mut self, vcpu: u32, core: CoreId) -> &mut Self {
        self.is(vcpu, EventKind::Granted(core))
            .is(vcpu, EventKind::Running(core))
    }

    fn waits(&mut self, vcpu: u32, lock: u16, owner: u32) -> &mut Self {
        let on = Waits::HostLock(HostLockId(lock), VcpuId(owner));
        self.is(vcpu, EventKind::Blocked(on))
    }

    fn takes(&mut self, vcpu: u32, lock: u16) -> &mut Self {
        self.is(vcpu, EventKind::HostLockTaken(HostLockId(lock)))
    }

    fn flagged(&mut self, vcpu: u32) -> &mut Self {
        let standing = Standing {
            kernel_priority: true,
            ..Standing::default()
        };
        self.is(vcpu, EventKind::Standing(standing))
    }

    /// Until when it goes on.
    fn ends(&mut self, ms: u64) -> &mut Self {
        self.at(ms).is(0, EventKind::Mark(Mark::MeasureEnd))
    }

    fn explain(&self, vcpus: u16, cores: usize, worst: usize) -> Explanation {
        let plan = plan("fss", vcpus, cores);
        let all = vec![true; usize::from(vcpus)];
        explain(&plan, "sim", self.entries.as_slice(), &all, worst).expect("memory can be read")
    }
}

/// vCPU 0 is flagged and will keep the core; 1 holds lock 2 and tries lock 3, which is released while
/// the core is 0's; 2 holds lock 1 and waits for 2; all others wait for lock 1.
fn convoy(waiters: u32) -> Tape {
    let mut tape = Tape::default();
    tape.at(0);
    for vcpu in 0..waiters + 4 {
        tape.is(vcpu, EventKind::Admitted);
    }
    tape.at(1).runs(0, C0).takes(0, 0).flagged(0);
    tape.at(2).is(0, EventKind::HostLockReleased(HostLockId(0)));
    tape.is(0, EventKind::Preempted(C0, PreemptReason::Wakeup));
    tape.at(3)
        .runs(3, C0)
        .takes(3, 3)
        .is(3, EventKind::Blocked(Waits::Host));
    tape.at(4).runs(1, C0).takes(1, 2).waits(1, 3, 3);
    tape.at(5).runs(2, C0).takes(2, 1).waits(2, 2, 1);
    for waiter in 4..waiters + 4 {
        tape.at(6).runs(waiter, C0).waits(waiter, 1, 2);
    }
    tape.at(10)
        .is(3, EventKind::Woken(WakeSource::Timer))
        .runs(3, C0);
    tape.at(11)
        .is(3, EventKind::HostLockReleased(HostLockId(3)))
        .is(1, EventKind::Woken(WakeSource::HostLock(VcpuId(3))))
        .is(3, EventKind::Blocked(Waits::Sleep))
        .runs(0, C0);
    tape.ends(3_000);
    tape
}

#[test]
fn a_convoy_is_told_from_its_hundreds_of_waiters_down_to_the_flag() {
    let told = convoy(312).explain(316, 1, 3);
    let first = &told.waits[0];
    let frames: Vec<_> = first
        .frames
        .iter()
        .map(|f| (f.vm.as_str(), f.state, f.what.as_deref(), f.others))
        .collect();
    assert_eq!(
        frames,
        [
            ("vm4", "blocked", Some("pages"), 311),
            ("vm2", "blocked", Some("device"), 0),
            ("vm1", "ready", Some("0"), 0),
            ("vm0", "running", None, 0),
        ]
    );
    assert_eq!(first.end, "occupied");
    assert_eq!(first.reasons[0].reason, "kernel-priority");
    assert_eq!(first.reasons[0].since_ns, Some(MS));
    let text = told.to_text();
    for words in [
        "vm4/main waited 2.99 s for host lock `pages`",
        "311 more wait for it",
        "holds `pages`",
        "woken to take host lock `swap`, free since 0.011 s",
        "vm0/main was not preempted: kernel priority since 0.001 s",
        "`address-space` and kept when it released that at 0.002 s",
        "312 blocked for host lock `pages`, 1 blocked for host lock `device`, 1 ready",
    ] {
        let unfolded = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(unfolded.contains(words), "`{words}` is missing in\n{text}");
    }
    // All of them are one story: nobody of it is told of again.
    let again = |waited: &Waited| waited.length_ns > 1_000 * MS;
    assert_eq!(told.waits.iter().filter(|w| again(w)).count(), 1, "{text}");
}

/// vCPU 1 waits for the core that vCPU 0 has, from 10 ms to 110 ms.
fn occupied(with: impl FnOnce(&mut Tape)) -> Explanation {
    let mut tape = Tape::default();
    tape.at(0).is(0, EventKind::Admitted).runs(0, C0);
    tape.at(10).is(1, EventKind::Admitted);
    with(&mut tape);
    tape.at(110);
    tape.is(0, EventKind::Preempted(C0, PreemptReason::Tick))
        .runs(1, C0);
    tape.ends(200);
    tape.explain(2, 1, 1)
}

#[test]
fn why_the_one_on_the_core_was_not_preempted_is_told_with_since_when() {
    let first = |with: &dyn Fn(&mut Tape)| {
        let told = occupied(|tape| with(tape));
        let waited = &told.waits[0];
        assert_eq!(waited.frames.len(), 2, "{told:#?}");
        assert_eq!(waited.end, "occupied");
        let reason = &waited.reasons[0];
        (reason.reason, reason.since_ns, reason.until_ns)
    };
    let tick = PreemptReason::Tick;
    assert_eq!(first(&|_| ()), ("open", None, None));
    let slice = |tape: &mut Tape| {
        tape.entries.push(Entry::Effect(Effect::Arm {
            timer: Timer::Slice(C0),
            at: Nanos(150 * MS),
        }));
    };
    assert_eq!(first(&slice), ("slice", None, Some(150 * MS)));
    let kicked = |tape: &mut Tape| {
        tape.at(12).is(0, EventKind::Kicked(C0, tick));
    };
    assert_eq!(first(&kicked), ("kicked", Some(12 * MS), None));
    let owed = |tape: &mut Tape| {
        tape.at(13)
            .is(0, EventKind::Owed(C0, tick, Until::CriticalExit));
    };
    assert_eq!(first(&owed), ("owed", Some(13 * MS), None));
    let put_off = |tape: &mut Tape| {
        owed(tape);
        tape.entries.push(Entry::Effect(Effect::Arm {
            timer: Timer::Grace(C0),
            at: Nanos(140 * MS),
        }));
    };
    let latest = Some(140 * MS);
    assert_eq!(first(&put_off), ("owed", Some(13 * MS), latest));
    let boosted = |tape: &mut Tape| {
        let boosted = Standing {
            boosted: true,
            ..Standing::default()
        };
        tape.at(14).is(0, EventKind::Standing(boosted));
    };
    assert_eq!(first(&boosted), ("boosted", Some(14 * MS), None));
}

#[test]
fn whoever_is_on_the_core_at_which_one_is_queued_is_in_its_way() {
    let mut tape = Tape::default();
    tape.at(0);
    for vcpu in 0..3 {
        tape.is(vcpu, EventKind::Admitted);
    }
    tape.runs(0, C0).runs(1, CoreId(1));
    tape.at(1).is(0, EventKind::Blocked(Waits::Sleep));
    tape.runs(2, C0);
    // It was on core 0 last, and is queued at core 1; core 0 takes it in the end.
    tape.at(10)
        .is(0, EventKind::Woken(WakeSource::Timer))
        .is(0, EventKind::Placed(CoreId(1)));
    tape.at(90)
        .is(2, EventKind::Preempted(C0, PreemptReason::Tick))
        .runs(0, C0);
    tape.ends(100);
    let told = tape.explain(3, 2, 1);
    let waited = &told.waits[0];
    assert_eq!((waited.length_ns, waited.frames.len()), (80 * MS, 2));
    assert_eq!(waited.frames[0].what.as_deref(), Some("1"));
    assert_eq!(waited.frames[1].vm, "vm1");
}

#[test]
fn who_is_set_aside_waits_for_the_one_it_is_set_aside_for() {
    let mut tape = Tape::default();
    tape.at(0);
    for vcpu in 0..3 {
        tape.is(vcpu, EventKind::Admitted);
    }
    tape.runs(0, C0).runs(1, CoreId(1));
    // 0 yields to 2, which gets its core, and is in no queue until 2 leaves it.
    tape.at(10)
        .is(0, EventKind::YieldedTo(VcpuId(2)))
        .is(0, EventKind::Yielded(C0))
        .is(
            0,
            EventKind::SetAside {
                behind: Some(VcpuId(2)),
            },
        )
        .runs(2, C0);
    tape.at(90)
        .is(2, EventKind::Preempted(C0, PreemptReason::Tick))
        .is(0, EventKind::Placed(C0))
        .runs(0, C0);
    tape.ends(95);
    let told = tape.explain(3, 2, 1);
    let waited = &told.waits[0];
    assert_eq!((waited.length_ns, waited.end), (80 * MS, "runs"));
    let first = &waited.frames[0];
    assert_eq!(first.waits_for, Some("vcpu"));
    assert!(
        first.text.contains("waits, set aside, for vm2/main"),
        "{}",
        first.text
    );
    assert_eq!(waited.frames[1].vm, "vm2");
}

#[test]
fn the_reason_shown_is_the_one_that_lasted_longest() {
    let told = occupied(|tape| {
        tape.at(100)
            .is(0, EventKind::Kicked(C0, PreemptReason::Tick));
    });
    let waited = &told.waits[0];
    assert_eq!(
        (waited.from_ns, waited.length_ns, waited.ended),
        (10 * MS, 100 * MS, true)
    );
    assert_eq!((waited.alike_ns, waited.moment_ns), (90 * MS, 55 * MS));
    assert_eq!(waited.reasons[0].reason, "open");
    let shares: Vec<_> = waited
        .ends
        .iter()
        .map(|end| (end.reason, end.length_ns))
        .collect();
    assert_eq!(shares, [(Some("open"), 90 * MS), (Some("kicked"), 10 * MS)]);
}

#[test]
fn an_owner_that_works_one_that_sleeps_and_one_that_has_just_been_granted_its_core() {
    let end = |then: &dyn Fn(&mut Tape)| {
        let mut tape = Tape::default();
        tape.at(0)
            .is(0, EventKind::Admitted)
            .is(1, EventKind::Admitted);
        tape.runs(0, C0).takes(0, 1).runs(1, CoreId(1));
        tape.at(1).waits(1, 1, 0);
        then(&mut tape);
        tape.ends(100);
        let told = tape.explain(2, 2, 1);
        let waited = &told.waits[0];
        assert_eq!(waited.vm, "vm1");
        assert_eq!(waited.frames[1].holds[0].lock, "pages");
        waited.end
    };
    assert_eq!(end(&|_| ()), "runs");
    let asleep = |tape: &mut Tape| {
        tape.at(2).is(0, EventKind::Blocked(Waits::Sleep));
    };
    assert_eq!(end(&asleep), "waits");
    let late = |tape: &mut Tape| {
        tape.at(2)
            .is(0, EventKind::Preempted(C0, PreemptReason::Tick));
        tape.is(0, EventKind::Granted(C0));
    };
    assert_eq!(end(&late), "entering");
    let idle = |tape: &mut Tape| {
        tape.at(2)
            .is(0, EventKind::Preempted(C0, PreemptReason::Tick));
    };
    assert_eq!(end(&idle), "idle");
}

#[test]
fn a_circle_is_told_as_such() {
    let mut tape = Tape::default();
    tape.at(0)
        .is(0, EventKind::Admitted)
        .is(1, EventKind::Admitted);
    tape.runs(0, C0).takes(0, 1).runs(1, CoreId(1)).takes(1, 2);
    tape.at(1).waits(0, 2, 1);
    tape.at(2).waits(1, 1, 0);
    tape.ends(100);
    let told = tape.explain(2, 2, 1);
    assert_eq!(told.waits[0].end, "circle");
    assert_eq!(told.waits[0].frames.len(), 2);
    assert!(told.to_text().contains("none of them can ever go on"));
}

#[test]
fn the_chain_goes_through_guest_locks_to_a_holder_that_was_preempted() {
    let lock = GuestLockId::new(VmId(0), 0);
    let mut tape = Tape::default();
    tape.at(0);
    for vcpu in 0..3 {
        tape.is(vcpu, EventKind::Admitted);
    }
    let locks = |held, waits_for| EventKind::Locks {
        held,
        critical: 0,
        waits_for,
        in_line: false,
    };
    let owns = Owns::Yes;
    tape.runs(0, C0).runs(1, CoreId(1)).is(0, locks(1, None));
    tape.at(5)
        .is(1, locks(0, Some(lock)))
        .is(0, EventKind::GuestOwner { lock, owns });
    tape.at(6)
        .is(0, EventKind::Preempted(C0, PreemptReason::Tick))
        .runs(2, C0);
    tape.at(90)
        .is(2, EventKind::Preempted(C0, PreemptReason::Tick))
        .runs(0, C0);
    tape.at(91).is(0, locks(0, None)).is(1, locks(1, None));
    tape.ends(100);
    let told = tape.explain(3, 2, 1);
    let waited = &told.waits[0];
    assert_eq!(
        (waited.waited_for, waited.length_ns),
        ("guest-lock", 86 * MS)
    );
    let frames: Vec<_> = waited
        .frames
        .iter()
        .map(|f| (f.vm.as_str(), f.state))
        .collect();
    assert_eq!(
        frames,
        [("vm1", "running"), ("vm0", "ready"), ("vm2", "running")]
    );
    assert!(
        told.to_text().contains("spins for guest lock"),
        "{}",
        told.to_text()
    );
}

#[test]
fn a_wait_for_a_mutex_that_was_found_taken_again_is_one_wait() {
    let mut tape = Tape::default();
    tape.at(0)
        .is(0, EventKind::Admitted)
        .is(1, EventKind::Admitted);
    tape.runs(0, C0).takes(0, 1);
    tape.runs(1, CoreId(1));
    tape.at(10).waits(1, 1, 0);
    tape.at(50)
        .is(0, EventKind::HostLockReleased(HostLockId(1)));
    tape.is(1, EventKind::Woken(WakeSource::HostLock(VcpuId(0))))
        .takes(0, 1);
    tape.at(60).waits(1, 1, 0);
    tape.at(100)
        .is(0, EventKind::HostLockReleased(HostLockId(1)));
    tape.is(1, EventKind::Woken(WakeSource::HostLock(VcpuId(0))));
    tape.at(101).takes(1, 1).runs(1, CoreId(1));
    tape.ends(200);
    let told = tape.explain(2, 2, 1);
    let waited = &told.waits[0];
    assert_eq!((waited.from_ns, waited.length_ns), (10 * MS, 90 * MS));
    assert_eq!(waited.lock.as_deref(), Some("pages"));
    assert!(waited.ended);
}

#[test]
fn waits_count_within_the_measurement_only_and_idling_is_none() {
    let mut tape = Tape::default();
    tape.at(0)
        .is(0, EventKind::Admitted)
        .runs(0, C0)
        .is(1, EventKind::Admitted);
    tape.at(50).is(0, EventKind::Mark(Mark::MeasureStart));
    tape.at(70)
        .is(0, EventKind::Blocked(Waits::Idle))
        .runs(1, C0);
    tape.at(80).is(1, EventKind::Exited(ExitReason::Halt));
    tape.is(1, EventKind::Blocked(Waits::Sleep));
    tape.ends(1_000);
    let told = tape.explain(2, 1, 5);
    assert_eq!(told.waits.len(), 1);
    let waited = &told.waits[0];
    assert_eq!((waited.from_ns, waited.length_ns), (50 * MS, 20 * MS));
    // The frame tells since when it was ready indeed.
    assert_eq!(waited.frames[0].since_ns, 0);
}

#[test]
fn if_nobody_waited_that_is_said() {
    let mut tape = Tape::default();
    tape.at(0).is(0, EventKind::Admitted).runs(0, C0);
    tape.ends(100);
    let told = tape.explain(1, 1, 3);
    assert!(told.waits.is_empty());
    assert!(told.to_text().contains("Nobody waited"));
}

#[test]
fn under_the_hosts_scheduler_nothing_is_made_up() {
    let mut tape = Tape::default();
    tape.at(0).is(0, EventKind::Admitted).runs(0, C0);
    tape.at(80).is(0, EventKind::HostDelay(Nanos(30 * MS)));
    tape.ends(100);
    let told = explain(
        &plan("host", 1, 1),
        "kvm",
        tape.entries.as_slice(),
        &[true],
        1,
    );
    let told = told.expect("memory can be read");
    let waited = &told.waits[0];
    assert_eq!(
        (waited.from_ns, waited.length_ns, waited.end),
        (50 * MS, 30 * MS, "host")
    );
    assert_eq!(waited.frames.len(), 1);
}

#[test]
fn only_the_vcpus_asked_about_are_explained() {
    let plan = plan("fss", 316, 1);
    let mut asked = vec![false; 316];
    asked[2] = true;
    let tape = convoy(312);
    let told = explain(&plan, "sim", tape.entries.as_slice(), &asked, 2).expect("memory");
    assert_eq!(told.waits[0].vm, "vm2");
    let json: serde_json::Value = serde_json::from_str(&told.to_json()).expect("JSON");
    assert_eq!(
        json["waits"][0]["frames"][2]["standing"]["kernel_priority"],
        true
    );
    assert_eq!(json["waits"][0]["census"]["ready"], 1);
}
