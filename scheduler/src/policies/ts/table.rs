//! The dispatch tables of the time-sharing class: a row for each priority from 0 to 59.
//!
//! Quanta are in ticks, waits in seconds. Source: illumos `disp/ts_dptbl.c`, by its figures.

/// The greatest priority of the class.
pub(super) const BEST: u8 = 59;

/// What happens to a thread of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Row {
    /// Ticks of its quantum.
    pub(super) quantum: i64,
    /// Its row after the quantum is used up.
    pub(super) expired: u8,
    /// Its row after it has slept, or returned to user mode, having waited too long.
    pub(super) slept: u8,
    /// Its row after it has waited in a queue too long.
    pub(super) waited: u8,
    /// More seconds than this are too long.
    pub(super) max_wait: u64,
}

/// Which table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Table {
    /// The usual one.
    Default,
    /// The one for servers, with long quanta (`ts_dispatch_extended`).
    Server,
}

impl Table {
    pub(super) fn row(self, row: u8) -> Row {
        match self {
            Self::Default => default_row(row),
            Self::Server => server_row(row),
        }
    }
}

fn default_row(row: u8) -> Row {
    let quantum = match row {
        0..=9 => 20,
        10..=19 => 16,
        20..=29 => 12,
        30..=39 => 8,
        40..=58 => 4,
        _ => 2,
    };
    let waited = match row {
        0..=34 => 50 + row / 10,
        35..=39 => 54,
        40..=44 => 55,
        45 => 56,
        46 => 57,
        47..=48 => 58,
        _ => BEST,
    };
    Row {
        quantum,
        expired: row.saturating_sub(10),
        slept: if (49..BEST).contains(&row) {
            58
        } else {
            waited
        },
        waited,
        max_wait: if row < BEST { 0 } else { 32_000 },
    }
}

fn server_row(row: u8) -> Row {
    let quantum = match row {
        0 => 40,
        1..=19 => 38,
        20..=40 => 36,
        _ => 34,
    };
    let next = (row + 1).min(BEST);
    Row {
        quantum,
        expired: if row <= 20 { row / 2 } else { row - 10 },
        slept: next,
        waited: if row < 40 { 40 } else { next },
        max_wait: 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(table: Table, row: u8) -> (i64, u8, u8, u8, u64) {
        let it = table.row(row);
        (it.quantum, it.expired, it.slept, it.waited, it.max_wait)
    }

    #[test]
    fn the_usual_table_has_short_quanta_above_and_promotes_after_a_second() {
        let expected = [
            (0, (20, 0, 50, 50, 0)),
            (9, (20, 0, 50, 50, 0)),
            (10, (16, 0, 51, 51, 0)),
            (29, (12, 19, 52, 52, 0)),
            (30, (8, 20, 53, 53, 0)),
            (34, (8, 24, 53, 53, 0)),
            (35, (8, 25, 54, 54, 0)),
            (40, (4, 30, 55, 55, 0)),
            (45, (4, 35, 56, 56, 0)),
            (46, (4, 36, 57, 57, 0)),
            (47, (4, 37, 58, 58, 0)),
            (48, (4, 38, 58, 58, 0)),
            (49, (4, 39, 58, 59, 0)),
            (58, (4, 48, 58, 59, 0)),
            (59, (2, 49, 59, 59, 32_000)),
        ];
        for (number, expected) in expected {
            assert_eq!(row(Table::Default, number), expected, "row {number}");
        }
    }

    #[test]
    fn the_server_table_has_long_quanta_and_waits_two_seconds() {
        let expected = [
            (0, (40, 0, 1, 40, 2)),
            (1, (38, 0, 2, 40, 2)),
            (19, (38, 9, 20, 40, 2)),
            (20, (36, 10, 21, 40, 2)),
            (21, (36, 11, 22, 40, 2)),
            (39, (36, 29, 40, 40, 2)),
            (40, (36, 30, 41, 41, 2)),
            (41, (34, 31, 42, 42, 2)),
            (58, (34, 48, 59, 59, 2)),
            (59, (34, 49, 59, 59, 2)),
        ];
        for (number, expected) in expected {
            assert_eq!(row(Table::Server, number), expected, "row {number}");
        }
    }
}
