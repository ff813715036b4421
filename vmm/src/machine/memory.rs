//! A VM's memory as the host sees it: writes what the guest needs, lends what is shared.
//!
//! The guest writes to this memory while the host reads it. So the host makes references only to
//! types that consist of atomics ([`Page`], [`lock::Lock`], [`lock::Node`]); everything else is written before the guest
//! starts, through vm-memory, and never looked at again.
#![expect(unsafe_code, reason = "references into the memory of a guest")]

use super::map::Map;
use super::{MachineError, descriptors, image};
use std::mem::align_of;
use std::slice;
use std::sync::atomic::Ordering;
use stealtime_guest::layout::{GDT, IDT, TSS, block, shared_page};
use stealtime_guest::lock;
use stealtime_guest::op::Op;
use stealtime_guest::page::{Page, VERSION};
use stealtime_workloads::run::LockKind;
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};

/// The memory of a VM.
#[derive(Debug)]
pub(super) struct Memory {
    mmap: GuestMemoryMmap<()>,
    map: Map,
    vcpus: u32,
    locks: u32,
    entry: u64,
}

/// A vCPU's program with its stream of random numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Program<'a> {
    pub(super) ops: &'a [Op],
    pub(super) seed: u64,
    pub(super) stream: u64,
}

impl Memory {
    /// Memory with everything in it.
    pub(super) fn new(locks: &[LockKind], programs: &[Program<'_>]) -> Result<Self, MachineError> {
        let lengths: Vec<_> = programs.iter().map(|program| program.ops.len()).collect();
        let map = Map::new(locks.len(), &lengths)?;
        let bytes = map.size();
        let no_memory = |reason: String| MachineError::NoMemory { bytes, reason };
        let size = usize::try_from(bytes).map_err(|error| no_memory(error.to_string()))?;
        let mmap = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), size)])
            .map_err(|error| no_memory(error.to_string()))?;
        let entry = image::load(&mmap)?;
        let memory = Self {
            mmap,
            map,
            vcpus: u32::try_from(programs.len()).unwrap_or(u32::MAX),
            locks: u32::try_from(locks.len()).unwrap_or(u32::MAX),
            entry,
        };
        memory.write_tables()?;
        memory.write_locks(locks);
        for (index, program) in (0..memory.vcpus).zip(programs) {
            memory.write_program(index, *program)?;
        }
        Ok(memory)
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), MachineError> {
        self.mmap
            .write_slice(bytes, GuestAddress(address))
            .map_err(|source| MachineError::Access { address, source })
    }

    fn write_tables(&self) -> Result<(), MachineError> {
        for (address, entry) in self.map.entries() {
            self.write(address, &entry.to_le_bytes())?;
        }
        let words = |words: &[u64]| -> Vec<u8> {
            words.iter().flat_map(|word| word.to_le_bytes()).collect()
        };
        self.write(IDT, &words(descriptors::idt().as_flattened()))?;
        for index in 0..self.vcpus {
            let control = block(index);
            self.write(control + GDT, &words(&descriptors::gdt(control)))?;
            self.write(control + TSS, &descriptors::tss(control))?;
        }
        Ok(())
    }

    fn write_locks(&self, kinds: &[LockKind]) {
        for (lock, kind) in self.locks().locks.iter().zip(kinds) {
            kind.write(lock);
        }
    }

    fn write_program(&self, index: u32, program: Program<'_>) -> Result<(), MachineError> {
        let place = self.map.programs[index as usize].clone();
        let bytes: Vec<u8> = program.ops.iter().flat_map(op_bytes).collect();
        self.write(place.start, &bytes)?;
        let page = self.page(index);
        page.version.store(VERSION, Ordering::Relaxed);
        page.index.store(index, Ordering::Relaxed);
        page.program.store(place.start, Ordering::Relaxed);
        page.program_ops
            .store(program.ops.len() as u64, Ordering::Relaxed);
        page.locks.store(self.map.locks.start, Ordering::Relaxed);
        page.lock_count.store(self.locks, Ordering::Relaxed);
        page.nodes.store(self.map.nodes.start, Ordering::Relaxed);
        page.vcpus.store(self.vcpus, Ordering::Relaxed);
        page.seed.store(program.seed, Ordering::Relaxed);
        page.stream.store(program.stream, Ordering::Relaxed);
        Ok(())
    }

    /// Where the guest is entered.
    pub(super) const fn entry(&self) -> u64 {
        self.entry
    }

    /// The root of the page tables.
    pub(super) const fn root(&self) -> u64 {
        self.map.tables.start
    }

    /// The whole memory: its address in this process, and its size.
    pub(super) fn region(&self) -> Result<(u64, u64), MachineError> {
        Ok((self.host(0)?.addr() as u64, self.map.size()))
    }

    fn host(&self, address: u64) -> Result<*mut u8, MachineError> {
        self.mmap
            .get_host_address(GuestAddress(address))
            .map_err(|source| MachineError::Access { address, source })
    }

    /// The shared page of vCPU `index` of the VM, which must exist.
    pub(super) fn page(&self, index: u32) -> &Page {
        assert!(index < self.vcpus, "vCPU {index} of {}", self.vcpus);
        let address = self
            .host(shared_page(index))
            .expect("the map has a shared page for each vCPU");
        assert!(address.addr().is_multiple_of(align_of::<Page>()));
        // SAFETY: inside the mapping, which lives as long as `self`, and aligned (both just checked);
        // all bytes of a `Page` are atomics, for which every value is valid, and which the guest may
        // change at any time.
        unsafe { &*address.cast::<Page>().cast_const() }
    }

    /// The guest locks and the vCPUs' nodes.
    pub(super) fn locks(&self) -> lock::Memory<'_> {
        lock::Memory {
            locks: self.atomics(self.map.locks.start, self.locks),
            nodes: self.atomics(self.map.nodes.start, self.vcpus),
        }
    }

    /// So many of a type that consists of atomics, at an address of the map that has room for them.
    fn atomics<T: Atomics>(&self, address: u64, count: u32) -> &[T] {
        let first = self.host(address).expect("the map has room for them");
        assert!(first.addr().is_multiple_of(align_of::<T>()));
        // SAFETY: as for `page`: inside the mapping (the map has room for so many), aligned, and all
        // atomics (contract of `Atomics`).
        unsafe { slice::from_raw_parts(first.cast::<T>().cast_const(), count as usize) }
    }
}

/// # Safety
/// All bytes of the type that are not padding are atomics.
unsafe trait Atomics {}

// SAFETY: see the type.
unsafe impl Atomics for lock::Lock {}
// SAFETY: see the type.
unsafe impl Atomics for lock::Node {}

/// An op as it lies in guest memory: its fields in order, none padded (the ABI asserts the size).
fn op_bytes(op: &Op) -> [u8; size_of::<Op>()] {
    let mut bytes = [0; size_of::<Op>()];
    bytes[0..2].copy_from_slice(&op.code.to_le_bytes());
    bytes[2..4].copy_from_slice(&op.small.to_le_bytes());
    bytes[4..8].copy_from_slice(&op.medium.to_le_bytes());
    bytes[8..16].copy_from_slice(&op.a.to_le_bytes());
    bytes[16..24].copy_from_slice(&op.b.to_le_bytes());
    bytes
}
