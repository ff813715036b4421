//! The head of a stream file, and its records as entries.

use stealtime_scheduler::record::{self, BadRecord, Item, RECORD_BYTES, Record};
use stealtime_workloads::run::Entry;

/// How a stream file begins.
pub const MAGIC: [u8; 8] = *b"STEALTIM";

/// The version of the stream's format.
pub const STREAM_VERSION: u32 = 3;

/// Length of the head.
pub const HEADER_BYTES: usize = 32;

/// The length of a record as the head gives it.
const RECORD_LENGTH: u32 = 32;
const _: () = assert!(RECORD_LENGTH as usize == RECORD_BYTES);

/// A head that is not ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadHeader {
    /// It does not begin with the magic.
    #[error("it is not the stream of a run")]
    Magic,
    /// Another version.
    #[error("its format has version {0}, and this program knows version {STREAM_VERSION}")]
    Version(u32),
    /// Something else in it is not as it must be.
    #[error("its head is damaged")]
    Damaged,
}

/// The head of a stream file.
pub(super) fn header() -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&STREAM_VERSION.to_le_bytes());
    header[12..16].copy_from_slice(&RECORD_LENGTH.to_le_bytes());
    header
}

/// Checks a head.
pub(super) fn check_header(found: &[u8; HEADER_BYTES]) -> Result<(), BadHeader> {
    if found[..8] != MAGIC {
        return Err(BadHeader::Magic);
    }
    let version = u32::from_le_bytes([found[8], found[9], found[10], found[11]]);
    if version != STREAM_VERSION {
        return Err(BadHeader::Version(version));
    }
    if *found == header() {
        Ok(())
    } else {
        Err(BadHeader::Damaged)
    }
}

/// The record of an entry.
pub(super) fn encode(entry: &Entry) -> Record {
    record::encode(&match *entry {
        Entry::Input(at, input) => Item::Input(at, input),
        Entry::Effect(effect) => Item::Effect(effect),
        Entry::Event(event) => Item::Event(event),
    })
}

/// The entry of a record.
pub(super) fn decode(record: &Record) -> Result<Entry, BadRecord> {
    Ok(match record::decode(record)? {
        Item::Input(at, input) => Entry::Input(at, input),
        Item::Effect(effect) => Entry::Effect(effect),
        Item::Event(event) => Entry::Event(event),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_that_is_not_ours_is_refused_for_what_is_wrong_with_it() {
        assert_eq!(check_header(&header()), Ok(()));
        let with = |place: usize, byte: u8| {
            let mut head = header();
            head[place] = byte;
            check_header(&head)
        };
        assert_eq!(with(0, b'X'), Err(BadHeader::Magic));
        assert_eq!(with(8, 9), Err(BadHeader::Version(9)));
        assert_eq!(with(12, 33), Err(BadHeader::Damaged));
        assert_eq!(with(31, 1), Err(BadHeader::Damaged));
    }
}
