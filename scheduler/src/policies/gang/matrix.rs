//! The Ousterhout matrix: rows are slots of time, columns are cores, gangs stand in rows.
//!
//! # Invariants
//! A vCPU stands in one place at most. A gang that was placed whole stands in one row.

use crate::ids::VcpuId;

/// Where a vCPU stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) row: usize,
    pub(super) column: usize,
}

#[derive(Debug)]
struct Row {
    cells: Vec<Option<VcpuId>>,
    /// How many of them are empty.
    room: usize,
}

/// The matrix.
#[derive(Debug)]
pub(super) struct Matrix {
    columns: usize,
    rows: Vec<Row>,
    /// No row before this one has room.
    full_to: usize,
    places: Vec<Option<Place>>,
    /// The gang of each vCPU that has a place: who was placed together.
    gangs: Vec<Option<usize>>,
    /// Gangs placed so far.
    counted: usize,
}

impl Matrix {
    /// An empty one with this many columns.
    pub(super) fn new(columns: usize) -> Self {
        Self {
            columns,
            rows: Vec::new(),
            full_to: 0,
            places: Vec::new(),
            gangs: Vec::new(),
            counted: 0,
        }
    }

    /// One more vCPU that may get a place.
    pub(super) fn declare(&mut self) {
        self.places.push(None);
        self.gangs.push(None);
    }

    pub(super) fn rows(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn place_of(&self, vcpu: VcpuId) -> Option<Place> {
        self.places[vcpu.index()]
    }

    pub(super) fn at(&self, row: usize, column: usize) -> Option<VcpuId> {
        self.rows.get(row).and_then(|row| row.cells[column])
    }

    /// Who stands in the row.
    pub(super) fn members(&self, row: usize) -> impl Iterator<Item = VcpuId> {
        let cells = self.rows.get(row).map(|row| &row.cells);
        cells.into_iter().flatten().copied().flatten()
    }

    /// The first row before `end` that has room for so many.
    fn first_with_room(&mut self, vcpus: usize, end: usize) -> Option<usize> {
        let full = |row: &Row| row.room == 0;
        while self.rows.get(self.full_to).is_some_and(full) {
            self.full_to += 1;
        }
        (self.full_to..end).find(|row| self.rows[*row].room >= vcpus)
    }

    fn put(&mut self, row: usize, gang: &[VcpuId]) {
        let cells = self.rows[row].cells.iter_mut().enumerate();
        let empty = cells.filter(|(_, cell)| cell.is_none());
        for ((column, cell), vcpu) in empty.zip(gang) {
            *cell = Some(*vcpu);
            self.places[vcpu.index()] = Some(Place { row, column });
        }
        self.rows[row].room -= gang.len();
    }

    fn take(&mut self, vcpu: VcpuId) {
        if let Some(Place { row, column }) = self.places[vcpu.index()].take() {
            self.rows[row].cells[column] = None;
            self.rows[row].room += 1;
            self.full_to = self.full_to.min(row);
        }
    }

    /// Places a gang in the first row with enough empty columns, else in a new one; in several parts
    /// if it is wider than the matrix.
    pub(super) fn place(&mut self, gang: &[VcpuId]) {
        for part in gang.chunks(self.columns.max(1)) {
            let fits = self.first_with_room(part.len(), self.rows.len());
            let row = fits.unwrap_or_else(|| {
                self.rows.push(Row {
                    cells: vec![None; self.columns],
                    room: self.columns,
                });
                self.rows.len() - 1
            });
            self.put(row, part);
            for vcpu in part {
                self.gangs[vcpu.index()] = Some(self.counted);
            }
            self.counted += 1;
        }
    }

    /// A vCPU gives up its place.
    pub(super) fn remove(&mut self, vcpu: VcpuId) {
        self.take(vcpu);
        self.gangs[vcpu.index()] = None;
    }

    /// Moves gangs to the first earlier row with room enough, and gives up rows that are empty then.
    /// The gangs of the active row stay, and so do those of which a member `stays`. The answer is the
    /// active row's new number.
    pub(super) fn unify(&mut self, active: usize, stays: impl Fn(VcpuId) -> bool) -> usize {
        for row in (1..self.rows.len()).filter(|row| *row != active) {
            let mut gangs: Vec<_> = self.members(row).map(|v| self.gangs[v.index()]).collect();
            gangs.sort_unstable();
            gangs.dedup();
            for gang in gangs {
                let of_gang = |vcpu: &VcpuId| self.gangs[vcpu.index()] == gang;
                let members: Vec<_> = self.members(row).filter(of_gang).collect();
                let to = self.first_with_room(members.len(), row);
                if let (Some(to), false) = (to, members.iter().any(|member| stays(*member))) {
                    members.iter().for_each(|member| self.take(*member));
                    self.put(to, &members);
                }
            }
        }
        self.drop_empty(active)
    }

    fn drop_empty(&mut self, active: usize) -> usize {
        let mut kept = 0;
        let mut new_active = 0;
        for row in 0..self.rows.len() {
            if row == active {
                new_active = kept;
            }
            let members: Vec<_> = self.members(row).collect();
            if members.is_empty() && row != active {
                continue;
            }
            for vcpu in members {
                if let Some(place) = &mut self.places[vcpu.index()] {
                    place.row = kept;
                }
            }
            self.rows.swap(row, kept);
            kept += 1;
        }
        self.rows.truncate(kept);
        self.full_to = 0;
        new_active
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(columns: usize, gangs: &[&[u32]]) -> Matrix {
        let mut matrix = Matrix::new(columns);
        (0..20).for_each(|_| matrix.declare());
        for gang in gangs {
            matrix.place(&gang.iter().copied().map(VcpuId).collect::<Vec<_>>());
        }
        matrix
    }

    /// The rows as numbers; −1 is empty.
    fn shown(matrix: &Matrix) -> Vec<Vec<i64>> {
        let number = |cell: &Option<VcpuId>| cell.map_or(-1, |vcpu| i64::from(vcpu.0));
        let row = |row: &Row| row.cells.iter().map(number).collect();
        matrix.rows.iter().map(row).collect()
    }

    #[test]
    fn a_gang_goes_to_the_first_row_with_enough_empty_columns() {
        let matrix = matrix(4, &[&[0, 1, 2], &[3, 4], &[5], &[6, 7]]);
        assert_eq!(shown(&matrix), [[0, 1, 2, 5], [3, 4, 6, 7]]);
    }

    #[test]
    fn a_gang_that_is_wider_than_the_machine_is_cut() {
        let matrix = matrix(2, &[&[0, 1, 2, 3, 4]]);
        assert_eq!(shown(&matrix), [[0, 1], [2, 3], [4, -1]]);
    }

    #[test]
    fn once_a_gang_is_gone_those_behind_it_move_up_but_for_who_runs() {
        let gangs: &[&[u32]] = &[&[0, 1, 2], &[3, 4, 5], &[6, 7], &[8, 9]];
        let mut whole = matrix(4, gangs);
        assert_eq!(shown(&whole), [[0, 1, 2, -1], [3, 4, 5, -1], [6, 7, 8, 9]]);
        for gone in 0..3 {
            whole.remove(VcpuId(gone));
        }
        // A member of the second runs as an alternate, the last row's slot begins.
        let active = whole.unify(2, |vcpu| vcpu == VcpuId(4));
        assert_eq!(active, 1, "the first row is given up");
        assert_eq!(shown(&whole), [[3, 4, 5, -1], [6, 7, 8, 9]]);
        whole.remove(VcpuId(6));
        whole.remove(VcpuId(7));
        whole.remove(VcpuId(3));
        let active = whole.unify(0, |_| false);
        assert_eq!((active, whole.rows()), (0, 1));
        assert_eq!(shown(&whole), [[8, 4, 5, 9]]);
        for vcpu in [4, 5, 8, 9].map(VcpuId) {
            let place = whole.place_of(vcpu).expect("it stands somewhere");
            assert_eq!(whole.at(place.row, place.column), Some(vcpu));
        }
    }
}
