//! The channel between the host and the emulated machine: memory that both see.
//!
//! QEMU shows a piece of the host's memory to the emulated machine as a PCI device (`ivshmem-plain`), which
//! needs no driver inside: the first program maps it through `sysfs`. It is fast, it cannot lose bytes
//! as a serial line can, and reading it on the host does not touch the machine, so that watching a run
//! does not change it.
//!
//! Layout, little-endian; offsets in bytes:
//!
//! | offset | size | written by | what |
//! |---|---|---|---|
//! | 0 | 4 | inside | stage reached, see [`Stage`] |
//! | 4 | 4 | host | 1 if the command shall end early |
//! | 8 | 8 | inside | how far the command is, in nanoseconds of its own time |
//! | 16 | 8 | inside | length of the results |
//! | 24 | 4 | inside | CRC-32 of the results |
//! | 28 | 4 | inside | [`COMPLETE`], written last |
//! | 4096 | | inside | the results: a `newc` archive |

pub(crate) mod host;
pub(crate) mod inside;

/// Size of the shared memory in bytes; a PCI window's size must be a power of two.
pub(crate) const SIZE: u64 = 256 << 20;
/// Where the results begin.
pub(crate) const RESULTS: u64 = 4096;
/// Stands in the header once the results are there as a whole.
pub(crate) const COMPLETE: u32 = 0x454e_4f44;

pub(crate) const STAGE: usize = 0;
pub(crate) const STOP: usize = 4;
pub(crate) const ELAPSED: usize = 8;
pub(crate) const LENGTH: usize = 16;
pub(crate) const CHECKSUM: usize = 24;
pub(crate) const STATE: usize = 28;

/// How far the machine is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Stage {
    /// QEMU has been started; nothing heard from inside.
    #[default]
    Booting,
    /// The kernel is up and our first program runs.
    Started,
    /// The modules are loaded and `/dev/kvm` can be opened.
    Ready,
    /// The command runs.
    Running,
    /// The command has ended; its results are being handed over.
    Results,
}

impl Stage {
    pub(crate) const fn number(self) -> u32 {
        match self {
            Self::Booting => 0,
            Self::Started => 1,
            Self::Ready => 2,
            Self::Running => 3,
            Self::Results => 4,
        }
    }

    pub(crate) const fn from_number(number: u32) -> Self {
        match number {
            0 => Self::Booting,
            1 => Self::Started,
            2 => Self::Ready,
            3 => Self::Running,
            _ => Self::Results,
        }
    }
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Booting => "while the kernel booted",
            Self::Started => "while the modules were loaded",
            Self::Ready => "before the command was started",
            Self::Running => "while the command ran",
            Self::Results => "while the results were handed over",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Stage;

    #[test]
    fn stages_keep_their_order_as_numbers() {
        for number in 0..5 {
            assert_eq!(Stage::from_number(number).number(), number);
        }
        assert!(Stage::Booting < Stage::Started && Stage::Running < Stage::Results);
    }
}
