//! Layout of the shared memory.
//!
//! A page of words for all, a record a member, and for every member a ring of [`SLOTS`] slots. A slot
//! has room for a chunk as its owner puts it in, and for the owner's slice of the combined chunk.

use std::ops::Range;

use crate::call::STEP_WORDS;

/// Chunks that can be in flight at a time: one is put in, one combined and one taken out.
pub(crate) const SLOTS: usize = 3;

/// A cache line. Slices of a chunk begin at one, so that no two members write to the same line, and
/// no value is cut.
pub(crate) const LINE_BYTES: usize = 64;

pub(crate) const MAGIC: usize = 0;
pub(crate) const VERSION: usize = 8;
pub(crate) const MEMBERS: usize = 12;
pub(crate) const CHUNK_BYTES: usize = 16;
pub(crate) const STATE: usize = 64;
pub(crate) const BELL: usize = 128;
pub(crate) const SLEEPERS: usize = 192;
/// Why the team has failed.
pub(crate) const VERDICT: usize = 256;

/// Bytes before the members' records.
pub(crate) const HEADER_BYTES: usize = PAGE_BYTES;

/// Each progress is alone in its pair of lines, since processors fetch them in pairs.
pub(crate) const RECORD_BYTES: usize = 384;
pub(crate) const PUT: usize = 0;
pub(crate) const MERGED: usize = 8;
pub(crate) const MEMBERSHIP: usize = 128;
pub(crate) const PID: usize = 132;
pub(crate) const STARTED: usize = 136;
pub(crate) const NAMESPACE: usize = 144;
pub(crate) const IS_BLAMED: usize = 152;
/// Two descriptions of calls, used in turns.
pub(crate) const CALLS: usize = 160;
pub(crate) const CALL_BYTES: usize = 8 * (1 + STEP_WORDS);

const PAGE_BYTES: usize = 4_096;

const _: () = assert!(CALLS + 2 * CALL_BYTES <= RECORD_BYTES);

/// The sizes that follow from the members and the chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    pub(crate) members: u32,
    /// A multiple of [`LINE_BYTES`].
    pub(crate) chunk_bytes: usize,
    slot_bytes: usize,
    data_at: usize,
    /// Bytes of the whole memory.
    pub(crate) bytes: usize,
}

impl Layout {
    /// `None` where it would not fit into any memory.
    pub(crate) fn new(members: u32, chunk_bytes: usize) -> Option<Layout> {
        let chunk_bytes = chunk_bytes.max(1).checked_next_multiple_of(LINE_BYTES)?;
        let result_bytes = slice_bytes(chunk_bytes, members);
        let slot_bytes = chunk_bytes.checked_add(result_bytes)?;
        let records_bytes = RECORD_BYTES.checked_mul(members as usize)?;
        let data_at =
            HEADER_BYTES.checked_add(records_bytes)?.checked_next_multiple_of(PAGE_BYTES)?;
        let data_bytes = slot_bytes.checked_mul(SLOTS)?.checked_mul(members as usize)?;
        let bytes = data_at.checked_add(data_bytes)?.checked_next_multiple_of(PAGE_BYTES)?;
        // No object is larger than this.
        (bytes <= isize::MAX as usize).then_some(Layout {
            members,
            chunk_bytes,
            slot_bytes,
            data_at,
            bytes,
        })
    }

    /// Start of a member's record.
    pub(crate) fn record(&self, member: u32) -> usize {
        HEADER_BYTES + member as usize * RECORD_BYTES
    }

    /// Start of a member's chunk.
    pub(crate) fn input(&self, member: u32, slot: usize) -> usize {
        self.data_at + (member as usize * SLOTS + slot) * self.slot_bytes
    }

    /// Start of a member's slice of the combined chunk.
    pub(crate) fn result(&self, member: u32, slot: usize) -> usize {
        self.input(member, slot) + self.chunk_bytes
    }

    /// The slice of a chunk that a member combines.
    pub(crate) fn slice(&self, chunk_bytes: usize, member: u32) -> Range<usize> {
        let each = slice_bytes(chunk_bytes, self.members);
        let start = (each * member as usize).min(chunk_bytes);
        start..(start + each).min(chunk_bytes)
    }
}

fn slice_bytes(chunk_bytes: usize, members: u32) -> usize {
    chunk_bytes.div_ceil(members.max(1) as usize).next_multiple_of(LINE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_cover_a_chunk_without_gap_and_fit_their_place() {
        for members in [1, 2, 3, 5, 64] {
            let layout = Layout::new(members, 4_096).unwrap();
            let room = layout.slot_bytes - layout.chunk_bytes;
            for bytes in [0, 1, 63, 64, 65, 1_000, 4_095, 4_096] {
                let mut end = 0;
                for member in 0..members {
                    let slice = layout.slice(bytes, member);
                    assert_eq!(slice.start, end);
                    assert!(slice.len() <= room, "{members} members, {bytes} bytes");
                    assert!(slice.is_empty() || slice.start.is_multiple_of(LINE_BYTES));
                    end = slice.end;
                }
                assert_eq!(end, bytes);
            }
        }
    }

    #[test]
    fn places_do_not_overlap() {
        let layout = Layout::new(3, 1_000).unwrap();
        assert_eq!(layout.chunk_bytes, 1_024, "rounded up to a line");
        assert_eq!(layout.slot_bytes, 1_024 + 384, "a third, rounded up to a line");
        assert_eq!(layout.record(2) + RECORD_BYTES, 4_096 + 1_152);
        assert_eq!(layout.input(0, 0), 8_192);
        assert_eq!(layout.result(0, 0), 8_192 + 1_024);
        assert_eq!(layout.input(0, 1), 8_192 + 1_408);
        assert_eq!(layout.input(1, 0), 8_192 + 3 * 1_408);
        assert_eq!(layout.bytes, (8_192 + 9 * 1_408usize).next_multiple_of(4_096));
    }

    #[test]
    fn what_no_memory_could_hold_is_refused() {
        assert_eq!(Layout::new(2, usize::MAX), None);
        assert_eq!(Layout::new(1_024, usize::MAX / 1_000), None);
    }
}
