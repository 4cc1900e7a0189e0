//! Transfers in chunks: where each belongs, which have come, which are next.

use std::ops::Range;

use thalweg_values::Bits;

/// A transfer cut into chunks of one length; only the last may be shorter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Grid {
    /// Bytes of the transfer.
    pub total: u64,
    /// Bytes of a full chunk.
    pub chunk_bytes: u64,
}

impl Grid {
    /// Number of chunks. An empty transfer has one as well, so that its receiver learns of it.
    pub fn chunks(self) -> u64 {
        self.total.div_ceil(self.chunk_bytes).max(1)
    }

    /// Bytes of a chunk, if there is such a one.
    pub fn range(self, chunk: u64) -> Option<Range<usize>> {
        if chunk >= self.chunks() {
            return None;
        }
        let start = chunk * self.chunk_bytes;
        let end = start.saturating_add(self.chunk_bytes).min(self.total);
        Some(start as usize..end as usize)
    }

    /// The empty set of its chunks. `None` if they have no numbers of 32 bits.
    pub fn no_chunks(self) -> Option<Bits> {
        Some(Bits::new(u32::try_from(self.chunks()).ok()?))
    }
}

/// Outcome of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Intake {
    /// It was taken in.
    Taken,
    /// It is here already, or nobody waits for it.
    Unexpected,
    /// It has a length that it cannot have.
    Garbled,
}

/// A transfer that arrives, of a length that its sender chose.
#[derive(Debug)]
pub(super) struct Filling {
    grid: Grid,
    bytes: Vec<u8>,
    arrivals: Bits,
}

impl Filling {
    /// `None` if there is no memory for it.
    pub fn new(grid: Grid) -> Option<Filling> {
        // A single chunk brings its own memory.
        let length = if grid.chunks() == 1 { 0 } else { grid.total };
        Some(Filling { grid, bytes: zeroed(length)?, arrivals: grid.no_chunks()? })
    }

    pub fn grid(&self) -> Grid {
        self.grid
    }

    pub fn take(&mut self, chunk: u64, body: Vec<u8>) -> Intake {
        let Some(range) = self.grid.range(chunk).filter(|range| range.len() == body.len()) else {
            return Intake::Garbled;
        };
        if !self.arrivals.insert(chunk as u32) {
            return Intake::Unexpected;
        }
        if self.grid.chunks() == 1 {
            self.bytes = body;
        } else {
            self.bytes[range].copy_from_slice(&body);
        }
        Intake::Taken
    }

    pub fn is_complete(&self) -> bool {
        self.arrivals.is_full()
    }

    /// Recounts. Panics where chunks that are missing are counted wrongly, and where none is.
    pub fn check(&self) {
        self.arrivals.check();
        assert!(!self.is_complete(), "a transfer that has all chunks has ended");
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Zeroed memory of a length that another rank chose. The system provides pages of it only as they
/// are written. `None` if there are not enough.
pub(super) fn zeroed(bytes: u64) -> Option<Vec<u8>> {
    let length = usize::try_from(bytes).ok()?;
    // The attempt alone tells: a failing allocation of the usual kind would end the process.
    Vec::<u8>::new().try_reserve_exact(length).ok()?;
    Some(vec![0; length])
}

/// A transfer that leaves.
#[derive(Debug)]
pub(super) struct Stream {
    pub grid: Grid,
    sent: u64,
}

impl Stream {
    pub fn new(grid: Grid) -> Stream {
        Stream { grid, sent: 0 }
    }

    /// The running number of the chunk that leaves now, if it is below `limit`.
    pub fn next(&mut self, limit: u64) -> Option<u64> {
        let chunk = self.sent;
        (chunk < limit.min(self.grid.chunks())).then(|| {
            self.sent += 1;
            chunk
        })
    }

    /// Bytes of the chunks that have not left.
    pub fn bytes_left(&self) -> u64 {
        self.grid.total.saturating_sub(self.sent * self.grid.chunk_bytes)
    }

    pub fn is_sent(&self) -> bool {
        self.sent == self.grid.chunks()
    }

    /// True if this many chunks were sent and more will follow.
    pub fn is_held_at(&self, chunks: u64) -> bool {
        self.sent >= chunks && !self.is_sent()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_chunk_is_shorter() {
        let ranges = |total| {
            let grid = Grid { total, chunk_bytes: 8 };
            (0..).map_while(|chunk| grid.range(chunk)).collect::<Vec<_>>()
        };
        assert_eq!((ranges(0).len(), ranges(0)[0].clone()), (1, 0..0));
        assert_eq!((ranges(8).len(), ranges(8)[0].clone()), (1, 0..8));
        assert_eq!(ranges(17), [0..8, 8..16, 16..17]);
    }

    #[test]
    fn chunks_fill_a_transfer_in_any_order_once() {
        let mut filling = Filling::new(Grid { total: 10, chunk_bytes: 8 }).expect("little memory");
        assert_eq!(filling.take(1, vec![7; 3]), Intake::Garbled);
        assert_eq!(filling.take(2, vec![]), Intake::Garbled);
        assert_eq!(filling.take(1, vec![7; 2]), Intake::Taken);
        assert_eq!(filling.take(1, vec![8; 2]), Intake::Unexpected);
        assert!(!filling.is_complete());
        assert_eq!(filling.take(0, vec![5; 8]), Intake::Taken);
        assert!(filling.is_complete());
        assert_eq!(filling.into_bytes(), [5, 5, 5, 5, 5, 5, 5, 5, 7, 7]);
    }

    #[test]
    fn too_much_memory_is_an_answer() {
        assert_eq!(zeroed(u64::MAX), None);
        assert_eq!(zeroed(3), Some(vec![0; 3]));
    }

    #[test]
    fn a_stream_stops_at_its_limit_and_its_end() {
        let mut stream = Stream::new(Grid { total: 20, chunk_bytes: 8 });
        assert_eq!([stream.next(1), stream.next(1)], [Some(0), None]);
        assert_eq!(stream.bytes_left(), 12);
        assert!(stream.is_held_at(1) && !stream.is_held_at(2));
        assert_eq!([stream.next(9), stream.next(9), stream.next(9)], [Some(1), Some(2), None]);
        assert!(stream.is_sent() && !stream.is_held_at(1) && stream.bytes_left() == 0);
    }
}
