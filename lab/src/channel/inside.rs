//! The machine's end of the channel: a PCI device whose memory is mapped through `sysfs`.

#![expect(unsafe_code, reason = "a device's memory can only be mapped")]

use super::{CHECKSUM, COMPLETE, ELAPSED, LENGTH, RESULTS, SIZE, STAGE, STATE, STOP, Stage};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const VENDOR: &str = "0x1af4";
const DEVICE: &str = "0x1110";

/// The mapped memory.
///
/// # Invariants
/// `base` begins a mapping of [`SIZE`] bytes, readable and writable, that lives as long as the process.
#[derive(Debug)]
pub(crate) struct Channel {
    base: NonNull<u8>,
}

// SAFETY: the mapping belongs to the whole process; its header is reached by atomics only and its
// results are written by `send`, which takes the channel exclusively.
unsafe impl Send for Channel {}
// SAFETY: see above; what a shared reference allows are atomic accesses.
unsafe impl Sync for Channel {}

impl Channel {
    /// Finds and maps the device; `/sys` must be mounted.
    pub(crate) fn open() -> io::Result<Self> {
        let device = find_device()?;
        fs::write(device.join("enable"), "1")?;
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(device.join("resource2"))?;
        let length = usize::try_from(SIZE).map_err(io::Error::other)?;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at a place of the kernel's choice touches no memory of ours.
        let base = unsafe { mmap(std::ptr::null_mut(), length, protection, flags, &file, 0) }?;
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at 0"))?;
        Ok(Self { base })
    }

    pub(crate) fn set_stage(&self, stage: Stage) {
        self.word(STAGE).store(stage.number(), Ordering::Release);
    }

    pub(crate) fn set_elapsed_ns(&self, elapsed: u64) {
        self.long(ELAPSED).store(elapsed, Ordering::Relaxed);
    }

    /// Whether the host wants the command to end early.
    pub(crate) fn stop_asked(&self) -> bool {
        self.word(STOP).load(Ordering::Relaxed) != 0
    }

    /// Hands the results over. Only the last call counts.
    pub(crate) fn send(&mut self, results: &[u8]) -> io::Result<()> {
        let length = results.len() as u64;
        if length > SIZE - RESULTS {
            return Err(io::Error::other(format!(
                "{length} bytes of results are more than the channel's {}",
                SIZE - RESULTS
            )));
        }
        let offset = usize::try_from(RESULTS).map_err(io::Error::other)?;
        // SAFETY: the range lies within the mapping by the check above, and nobody else in this process
        // reaches it while `self` is borrowed exclusively; the host reads it only after `STATE` is set.
        unsafe {
            let target = self.base.as_ptr().add(offset);
            std::ptr::copy_nonoverlapping(results.as_ptr(), target, results.len());
        }
        self.long(LENGTH).store(length, Ordering::Relaxed);
        self.word(CHECKSUM)
            .store(crc32fast::hash(results), Ordering::Relaxed);
        // Release: whoever sees the mark sees the results.
        self.word(STATE).store(COMPLETE, Ordering::Release);
        Ok(())
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        debug_assert!(at.is_multiple_of(4) && at < 4096);
        // SAFETY: by the type's invariant the place is mapped for as long as `self` lives; it is aligned
        // (the mapping by pages, the offset by the constants above) and reached by atomics only.
        unsafe { self.base.as_ptr().add(at).cast::<AtomicU32>().as_ref() }
            .expect("base is not null")
    }

    fn long(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at.is_multiple_of(8) && at < 4096);
        // SAFETY: as in `word`.
        unsafe { self.base.as_ptr().add(at).cast::<AtomicU64>().as_ref() }
            .expect("base is not null")
    }
}

fn find_device() -> io::Result<PathBuf> {
    let is = |path: &std::path::Path, name: &str, wanted: &str| {
        fs::read_to_string(path.join(name)).is_ok_and(|text| text.trim() == wanted)
    };
    for entry in fs::read_dir("/sys/bus/pci/devices")? {
        let path = entry?.path();
        if is(&path, "vendor", VENDOR) && is(&path, "device", DEVICE) {
            return Ok(path);
        }
    }
    Err(io::Error::new(
        io::ErrorKind::NotFound,
        "the lab's PCI device is not there",
    ))
}
