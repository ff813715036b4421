//! The form loses nothing and accepts nothing that is not of it.

use super::{BadRecord, Item, Record, decode, encode};
use crate::effect::Effect;
use crate::event::{
    Charged, Event, EventKind, Owns, PreemptReason, Standing, Until, Waits, WakeSource,
};
use crate::ids::{CoreId, GuestLockId, HostLockId, VcpuId};
use crate::input::{
    BlockOn, ExitReason, GuestLocks, HostMode, Input, KernelPriority, Mark, RetireReason, Timer,
};
use crate::time::Nanos;
use proptest::collection::vec;
use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};
use std::collections::{BTreeSet, HashSet};

/// Numbers from which one of every variant is made.
#[derive(Clone, Copy)]
struct Seed {
    at: u64,
    vcpu: u32,
    other: Option<u32>,
    value: u64,
    place: u16,
    place_2: u16,
    byte: u8,
}

const EXTREME: Seed = Seed {
    at: u64::MAX,
    vcpu: u32::MAX,
    other: Some(u32::MAX),
    value: u64::MAX,
    place: u16::MAX,
    place_2: u16::MAX,
    byte: u8::MAX,
};

const REASONS: [PreemptReason; 7] = [
    PreemptReason::SliceEnd,
    PreemptReason::Wakeup,
    PreemptReason::Tick,
    PreemptReason::Period,
    PreemptReason::PriorityDrop,
    PreemptReason::LockWait,
    PreemptReason::LoanOver,
];
const RETIRES: [RetireReason; 3] = [
    RetireReason::Finished,
    RetireReason::Fault,
    RetireReason::RunOver,
];
const MARKS: [Mark; 2] = [Mark::MeasureStart, Mark::MeasureEnd];

/// A guest lock from the numbers that hold no other identity.
const fn guest_lock(s: Seed) -> GuestLockId {
    GuestLockId(u32::from_le_bytes([s.byte; 4]))
}

fn timers(s: Seed) -> [Timer; 7] {
    [
        Timer::Slice(CoreId(s.place)),
        Timer::Wake(VcpuId(s.vcpu)),
        Timer::Periodic(VcpuId(s.vcpu)),
        Timer::Tick,
        Timer::Period,
        Timer::Policy,
        Timer::Grace(CoreId(s.place)),
    ]
}

fn inputs(s: Seed) -> Vec<Input> {
    let (vcpu, core, lock) = (VcpuId(s.vcpu), CoreId(s.place), HostLockId(s.place));
    let mut all = vec![
        Input::Admit { vcpu },
        Input::Entered { core, vcpu },
        Input::Resumed { vcpu },
        Input::UserReturn { vcpu },
        Input::Stopped { core, vcpu },
        Input::Yield { vcpu },
        Input::CriticalLeft { vcpu },
        Input::InterruptsTaken {
            vcpu,
            at: Nanos(s.value),
            more: s.byte % 2 == 1,
        },
        Input::ArmPeriodic {
            vcpu,
            period: Nanos(s.value),
            vector: s.byte,
        },
        Input::HostUnlock { vcpu, lock },
        Input::GuestWait {
            vcpu,
            lock: guest_lock(s),
        },
        Input::GuestWake {
            vcpu,
            by: VcpuId(s.place.into()),
            lock: guest_lock(s),
        },
        Input::SpunTooLong {
            vcpu,
            lock: guest_lock(s),
        },
        Input::HostDelay {
            vcpu,
            delay: Nanos(s.value),
        },
    ];
    for on in [
        BlockOn::Idle,
        BlockOn::Sleep(Nanos(s.value)),
        BlockOn::Host(Nanos(s.value)),
    ] {
        all.push(Input::Block { vcpu, on });
    }
    for priority in [KernelPriority::NotAsked, KernelPriority::Asked] {
        all.push(Input::HostLock {
            vcpu,
            lock,
            priority,
        });
        for mode in [HostMode::Mutex, HostMode::Read, HostMode::Write] {
            all.push(Input::HostAcquire {
                vcpu,
                lock,
                mode,
                priority,
            });
        }
    }
    for other in [None, s.other] {
        all.push(Input::Interrupt {
            to: vcpu,
            vector: s.byte,
            from: other.map(VcpuId),
        });
        let locks = GuestLocks {
            held: s.place,
            critical: s.place_2,
            waits_for: other.map(GuestLockId),
            in_line: s.byte % 2 == 1,
        };
        all.push(Input::Locks { vcpu, locks });
        all.push(Input::GuestOwner {
            lock: guest_lock(s),
            owner: other.map(VcpuId),
        });
    }
    all.extend(RETIRES.map(|why| Input::Retire { vcpu, why }));
    all.extend(ExitReason::ALL.map(|why| Input::Exited { vcpu, why }));
    all.extend(timers(s).map(|timer| Input::TimerDue { timer }));
    all.extend(MARKS.map(Input::Mark));
    all
}

fn effects(s: Seed) -> Vec<Effect> {
    let (vcpu, core) = (VcpuId(s.vcpu), CoreId(s.place));
    let mut all = vec![
        Effect::Run { core, vcpu },
        Effect::Park { core, vcpu },
        Effect::Kick { core, vcpu },
        Effect::Owe { core, vcpu },
        Effect::Inject {
            vcpu,
            vector: s.byte,
        },
    ];
    for donor in [None, s.other.map(VcpuId)] {
        all.push(Effect::Lent { to: vcpu, donor });
    }
    let at = Nanos(s.value);
    all.extend(timers(s).map(|timer| Effect::Arm { timer, at }));
    all.extend(timers(s).map(|timer| Effect::Cancel { timer }));
    all
}

fn event_kinds(s: Seed) -> Vec<EventKind> {
    let (core, lock) = (CoreId(s.place), HostLockId(s.place));
    let mut all = vec![
        EventKind::Admitted,
        EventKind::Placed(core),
        EventKind::Granted(core),
        EventKind::Running(core),
        EventKind::Resumed,
        EventKind::Yielded(core),
        EventKind::Migrated {
            from: CoreId(s.place_2),
            to: core,
        },
        EventKind::InterruptsTaken { at: Nanos(s.value) },
        EventKind::HostLockTaken(lock),
        EventKind::HostLockReleased(lock),
        EventKind::UserReturn,
        EventKind::HostDelay(Nanos(s.value)),
        EventKind::Violation(s.place),
        EventKind::Woken(WakeSource::Timer),
        EventKind::Woken(WakeSource::HostLock(VcpuId(s.vcpu))),
        EventKind::Woken(WakeSource::GuestLock(VcpuId(s.vcpu))),
        EventKind::Blocked(Waits::GuestLock(guest_lock(s))),
        EventKind::SpunTooLong(guest_lock(s)),
        EventKind::YieldedTo(VcpuId(s.vcpu)),
        EventKind::Deadlock {
            owner: VcpuId(s.vcpu),
        },
        EventKind::Blocked(Waits::Idle),
        EventKind::Blocked(Waits::Sleep),
        EventKind::Blocked(Waits::Host),
        EventKind::Blocked(Waits::HostLock(lock, VcpuId(s.vcpu))),
    ];
    for other in [None, s.other] {
        let from = other.map(VcpuId);
        all.push(EventKind::Woken(WakeSource::Interrupt(from)));
        all.push(EventKind::SetAside { behind: from });
        all.push(EventKind::InterruptRaised {
            vector: s.byte,
            from,
        });
        all.push(EventKind::Locks {
            held: s.place,
            critical: s.place_2,
            waits_for: other.map(GuestLockId),
            in_line: s.byte % 2 == 1,
        });
    }
    for flags in 0..8 {
        all.push(EventKind::Standing(Standing {
            kernel_priority: flags & 1 != 0,
            boosted: flags & 2 != 0,
            costopped: flags & 4 != 0,
        }));
    }
    for owns in [Owns::Yes, Owns::NoLonger] {
        let lock = guest_lock(s);
        all.push(EventKind::GuestOwner { lock, owns });
    }
    for charged in [Charged::Donor, Charged::Owner] {
        let donor = VcpuId(s.vcpu);
        all.push(EventKind::Borrows { donor, charged });
    }
    all.extend(RETIRES.map(EventKind::Retired));
    all.extend(ExitReason::ALL.map(EventKind::Exited));
    all.extend(REASONS.map(|why| EventKind::Kicked(core, why)));
    all.extend(REASONS.map(|why| EventKind::Preempted(core, why)));
    for until in [Until::CriticalExit, Until::UserReturn, Until::GuestEntry] {
        all.extend(REASONS.map(|why| EventKind::Owed(core, why, until)));
    }
    all.extend(MARKS.map(EventKind::Mark));
    all
}

fn every_variant(s: Seed) -> Vec<Item> {
    let at = Nanos(s.at);
    let event = |kind| {
        Item::Event(Event {
            at,
            vcpu: VcpuId(s.vcpu),
            kind,
        })
    };
    let mut all: Vec<_> = inputs(s).into_iter().map(|i| Item::Input(at, i)).collect();
    all.extend(effects(s).into_iter().map(Item::Effect));
    all.extend(event_kinds(s).into_iter().map(event));
    all
}

/// Every variant, with every switch on and off, and whatever holds a number having a large one.
pub(super) fn all() -> Vec<Item> {
    let off = Seed {
        byte: u8::MAX - 1,
        ..EXTREME
    };
    [EXTREME, off].map(every_variant).concat()
}

#[test]
fn every_variant_survives_with_its_largest_numbers_and_no_two_look_alike() {
    let all = every_variant(EXTREME);
    let mut seen = HashSet::new();
    for item in &all {
        let record = encode(item);
        assert_eq!(decode(&record), Ok(*item), "{item:?}");
        assert!(seen.insert(record), "{item:?} looks like another item");
    }
    // Every code of every class occurs, so that a variant without a test would be noticed.
    let codes: BTreeSet<_> = seen.iter().map(|record| (record[0], record[1])).collect();
    let expected = usize::from(super::INPUTS + super::EFFECTS + super::EVENTS);
    assert_eq!(codes.len(), expected);
}

#[test]
fn a_record_is_laid_out_as_documented() {
    let item = Item::Input(
        Nanos(0x0102_0304_0506_0708),
        Input::Entered {
            core: CoreId(0x1112),
            vcpu: VcpuId(0x2122_2324),
        },
    );
    let mut expected: Record = [0; 32];
    expected[..2].copy_from_slice(&[1, 2]);
    expected[4..8].copy_from_slice(&[0x24, 0x23, 0x22, 0x21]);
    expected[8..16].copy_from_slice(&[8, 7, 6, 5, 4, 3, 2, 1]);
    expected[28..30].copy_from_slice(&[0x12, 0x11]);
    assert_eq!(encode(&item), expected);
}

#[test]
fn unknown_numbers_are_refused_each_for_its_reason() {
    let mut record = encode(&Item::Effect(Effect::Cancel { timer: Timer::Tick }));
    record[2] = 99;
    let class = "effect";
    let (code, detail) = (4, 99);
    assert_eq!(
        decode(&record),
        Err(BadRecord::Detail {
            class,
            code,
            detail
        })
    );
    record[1] = super::EFFECTS;
    let code = super::EFFECTS;
    assert_eq!(decode(&record), Err(BadRecord::Code { class, code }));
    record[0] = 0;
    assert_eq!(decode(&record), Err(BadRecord::Class(0)));
    let mut unused = encode(&Item::Effect(Effect::Cancel { timer: Timer::Tick }));
    unused[31] = 1;
    assert_eq!(
        decode(&unused),
        Err(BadRecord::NotCanonical { class, code: 4 })
    );
}

proptest! {
    #[test]
    fn every_variant_survives_with_any_numbers(
        at: u64, vcpu: u32, other: u32, value: u64, place: u16, place_2: u16, byte: u8,
    ) {
        let seed = Seed { at, vcpu, other: Some(other), value, place, place_2, byte };
        for item in every_variant(seed) {
            prop_assert_eq!(decode(&encode(&item)), Ok(item));
        }
    }

    #[test]
    fn bytes_at_random_are_refused_or_mean_just_themselves(bytes in vec(any::<u8>(), 32)) {
        let mut record: Record = bytes.try_into().expect("32 bytes");
        record[0] %= 5;
        record[1] %= 24;
        if let Ok(item) = decode(&record) {
            prop_assert_eq!(encode(&item), record);
        }
    }

    #[test]
    fn a_changed_byte_never_leaves_the_item_as_it_was(
        which in any::<proptest::sample::Index>(), byte in 0_usize..32, flip in 1_u8..,
    ) {
        let all = every_variant(EXTREME);
        let item = all[which.index(all.len())];
        let mut record = encode(&item);
        record[byte] ^= flip;
        prop_assert!(decode(&record) != Ok(item));
    }
}
