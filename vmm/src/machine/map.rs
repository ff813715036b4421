//! Where a VM's things lie in its memory, and who may touch them.
//!
//! `stealtime_guest::layout` fixes the first part. Behind the vCPUs' blocks come the guest locks, the
//! vCPUs' nodes, the programs, and the page tables, each on pages of its own, so that a VM needs no more memory than
//! its plan. Pure arithmetic; [`super::memory`] carries it out.

use super::MachineError;
use std::ops::Range;
use stealtime_guest::layout::{
    BLOCK, DATA, GUARD, IDT, IMAGE_END, PAGE, SHARED, STACK, TEXT, block,
};
use stealtime_guest::lock::{Lock, Node};
use stealtime_guest::op::Op;

/// Who may do what with a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Access {
    /// Ring 0: read and write.
    Kernel,
    /// All: read and execute.
    Execute,
    /// All: read.
    Read,
    /// All: read and write.
    Write,
}

impl Access {
    /// The bits of a page table entry.
    pub(super) const fn bits(self) -> u64 {
        const PRESENT: u64 = 1;
        const WRITE: u64 = 1 << 1;
        const USER: u64 = 1 << 2;
        const NO_EXECUTE: u64 = 1 << 63;
        match self {
            Self::Kernel => PRESENT | WRITE | NO_EXECUTE,
            Self::Execute => PRESENT | USER,
            Self::Read => PRESENT | USER | NO_EXECUTE,
            Self::Write => PRESENT | WRITE | USER | NO_EXECUTE,
        }
    }
}

/// What one page directory maps: all the memory a VM can have.
pub(super) const LARGEST: u64 = 1 << 30;

/// What one page table maps.
const TABLE_SPAN: u64 = 512 * PAGE;

/// The memory of a VM.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Map {
    vcpus: u32,
    /// The guest locks.
    pub(super) locks: Range<u64>,
    /// The vCPUs' nodes.
    pub(super) nodes: Range<u64>,
    /// Each vCPU's program.
    pub(super) programs: Vec<Range<u64>>,
    /// The page tables: the root first, then its two levels, then the last level in order.
    pub(super) tables: Range<u64>,
}

impl Map {
    /// A map for so many locks and vCPUs with programs of these lengths (in ops).
    pub(super) fn new(locks: usize, programs: &[usize]) -> Result<Self, MachineError> {
        let vcpus = u32::try_from(programs.len()).unwrap_or(u32::MAX);
        let mut end = block(vcpus);
        let mut place = |count: usize, size: usize| {
            let begin = end;
            let bytes = (count as u64).saturating_mul(size as u64);
            end = begin.saturating_add(pages(bytes));
            begin..begin.saturating_add(bytes)
        };
        let locks = place(locks, size_of::<Lock>());
        let nodes = place(programs.len(), size_of::<Node>());
        let programs: Vec<_> = programs
            .iter()
            .map(|ops| place(*ops, size_of::<Op>()))
            .collect();
        // The tables map everything below themselves.
        let last_level = end.div_ceil(TABLE_SPAN);
        let size = end.saturating_add((3 + last_level) * PAGE);
        if size > LARGEST {
            return Err(MachineError::TooLarge {
                needed: size,
                most: LARGEST,
            });
        }
        Ok(Self {
            vcpus,
            locks,
            nodes,
            programs,
            tables: end..size,
        })
    }

    /// Bytes of memory.
    pub(super) const fn size(&self) -> u64 {
        self.tables.end
    }

    /// All that is mapped, one to one: whole pages. The page tables themselves are not.
    pub(super) fn mapped(&self) -> Vec<(Range<u64>, Access)> {
        let mut all = vec![
            (IDT..IDT + PAGE, Access::Kernel),
            (TEXT..DATA, Access::Execute),
            (DATA..IMAGE_END, Access::Write),
        ];
        for index in 0..self.vcpus {
            let block = block(index);
            all.push((block..block + SHARED, Access::Kernel));
            all.push((block + SHARED..block + GUARD, Access::Write));
            all.push((block + STACK..block + BLOCK, Access::Write));
        }
        let whole = |range: &Range<u64>| range.start..range.start + pages(range.end - range.start);
        all.push((whole(&self.locks), Access::Write));
        all.push((whole(&self.nodes), Access::Write));
        let programs = self.programs.iter();
        all.extend(programs.map(|program| (whole(program), Access::Read)));
        all
    }

    /// All page table entries that are not 0, with their addresses.
    pub(super) fn entries(&self) -> Vec<(u64, u64)> {
        // The upper levels allow everything; the last level decides.
        const UPPER: u64 = Access::Write.bits() & !(1 << 63);
        let root = self.tables.start;
        let (second, third, last) = (root + PAGE, root + 2 * PAGE, root + 3 * PAGE);
        let mut entries = vec![(root, second | UPPER), (second, third | UPPER)];
        for table in 0..(self.tables.end - last) / PAGE {
            entries.push((third + table * 8, (last + table * PAGE) | UPPER));
        }
        for (range, access) in self.mapped() {
            for page in range.step_by(usize::try_from(PAGE).unwrap_or(1)) {
                // The last level's tables are contiguous, hence so are its entries.
                entries.push((last + page / PAGE * 8, page | access.bits()));
            }
        }
        entries
    }
}

const fn pages(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE) * PAGE
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// What a processor finds for an address in these page table entries.
    fn walk(entries: &HashMap<u64, u64>, map: &Map, address: u64) -> Option<u64> {
        let mut table = map.tables.start;
        for shift in [39, 30, 21, 12] {
            let entry = *entries.get(&(table + (address >> shift & 511) * 8))?;
            if entry & 1 == 0 {
                return None;
            }
            table = entry & 0x000f_ffff_ffff_f000;
            if shift == 12 {
                return Some(entry);
            }
        }
        None
    }

    #[test]
    fn every_mapped_page_is_found_at_its_own_address_with_its_rights() {
        // Enough vCPUs to need several tables.
        let map = Map::new(100, &[1_000; 300]).expect("it fits");
        let entries = map.entries().into_iter().collect();
        for (range, access) in map.mapped() {
            for page in [range.start, range.end - PAGE] {
                assert_eq!(
                    walk(&entries, &map, page),
                    Some(page | access.bits()),
                    "{page:#x}"
                );
            }
        }
    }

    #[test]
    fn null_and_the_page_below_a_stack_and_the_page_tables_are_not_mapped() {
        let map = Map::new(1, &[1, 1]).expect("it fits");
        let entries = map.entries().into_iter().collect();
        let walk = |address| walk(&entries, &map, address);
        assert_eq!(walk(0), None);
        assert_eq!(walk(block(1) + GUARD), None);
        assert_eq!(walk(map.tables.start), None);
    }

    #[test]
    fn nothing_overlaps() {
        let map = Map::new(70, &[0, 5, 200, 0, 1]).expect("it fits");
        let mut all: Vec<_> = map.mapped().into_iter().map(|(range, _)| range).collect();
        all.push(map.tables.clone());
        all.retain(|range| !range.is_empty());
        all.sort_by_key(|range| range.start);
        for pair in all.windows(2) {
            assert!(pair[0].end <= pair[1].start, "{pair:x?}");
        }
    }

    #[test]
    fn a_small_vm_is_small_and_a_program_without_end_is_refused() {
        let map = Map::new(4, &[20]).expect("it fits");
        assert!(map.size() < 300 << 10, "{}", map.size());
        let error = Map::new(0, &[1 << 30]).expect_err("24 GiB of program");
        assert!(matches!(error, MachineError::TooLarge { .. }), "{error}");
    }
}
