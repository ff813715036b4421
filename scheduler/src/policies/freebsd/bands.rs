//! The bands of priorities, by release, and the priorities of those that sleep in the kernel.
//!
//! | band | to 8.x | 9 to 14 | 15 |
//! |---|---|---|---|
//! | interrupt threads | 0–63 | 0–47 | 0–15 |
//! | real time | 128–159 | 48–79 | 16–47 |
//! | kernel | 64–127 | 80–119 | 48–87 |
//! | timeshare | 160–223 | 120–223 | 88–223 |
//! | idle | 224–255 | 224–255 | 224–255 |

use crate::event::Waits;

/// Priorities from the first to the last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::policies) struct Band {
    pub(in crate::policies) first: u8,
    pub(in crate::policies) last: u8,
}

/// Those that matter to a vCPU's thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::policies) struct Bands {
    pub(in crate::policies) interrupt: Band,
    pub(in crate::policies) kernel: Band,
    pub(in crate::policies) timeshare: Band,
    pub(in crate::policies) idle: Band,
    /// Where in the interrupt band the threads of devices stand.
    pub(in crate::policies) device: u8,
    /// Offsets in the kernel band of who waits for a lock, and of who pauses.
    lock: u8,
    pause: u8,
}

const IDLE: Band = Band {
    first: 224,
    last: 255,
};

/// Offset of who waits for a device.
const BLOCK_IO: u8 = 12;
/// Offset of who waits for word from others.
const SOCKET: u8 = 24;

impl Bands {
    /// Of a release by its word in the option `bands`.
    pub(in crate::policies) fn of(release: &str) -> Self {
        let band = |first, last| Band { first, last };
        match release {
            "8" => Self {
                interrupt: band(0, 63),
                kernel: band(64, 127),
                timeshare: band(160, 223),
                idle: IDLE,
                device: 8,
                lock: 36,
                pause: 40,
            },
            "15" => Self {
                interrupt: band(0, 15),
                kernel: band(48, 87),
                timeshare: band(88, 223),
                idle: IDLE,
                device: 4,
                lock: 32,
                pause: 36,
            },
            _ => Self {
                interrupt: band(0, 47),
                kernel: band(80, 119),
                timeshare: band(120, 223),
                idle: IDLE,
                device: 8,
                lock: 32,
                pause: 36,
            },
        }
    }

    /// The sleep priority of a wait: a vCPU that halted, or that sleeps for a lock of its guest, waits
    /// for word from others as at a socket, one in the hypervisor for a device as for block I/O, a sleeping one pauses.
    pub(in crate::policies) const fn sleep(&self, on: Waits) -> u8 {
        let offset = match on {
            Waits::Idle | Waits::GuestLock(_) => SOCKET,
            Waits::Sleep => self.pause,
            Waits::Host => BLOCK_IO,
            Waits::HostLock(..) => self.lock,
        };
        self.kernel.first + offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{HostLockId, VcpuId};

    #[test]
    fn every_sleep_priority_lies_in_the_kernel_band_and_before_all_of_user_mode() {
        let waits = [
            Waits::Idle,
            Waits::Sleep,
            Waits::Host,
            Waits::HostLock(HostLockId(0), VcpuId(0)),
        ];
        for release in ["8", "14", "15"] {
            let bands = Bands::of(release);
            for on in waits {
                let priority = bands.sleep(on);
                assert!((bands.kernel.first..=bands.kernel.last).contains(&priority));
                assert!(priority < bands.timeshare.first, "{release}: {on:?}");
            }
            assert!((bands.interrupt.first..=bands.interrupt.last).contains(&bands.device));
        }
        assert_eq!(Bands::of("14").sleep(Waits::Idle), 104);
        assert_eq!(Bands::of("8").sleep(Waits::Sleep), 104);
        assert_eq!(Bands::of("15").sleep(Waits::Host), 60);
    }
}
