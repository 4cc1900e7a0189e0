//! Moves data through the slots, chunk by chunk.
//!
//! Three chunks are in flight at a time. While the others still put in chunk `k`, a member already
//! puts in `k + 1`; while they merge `k`, it takes `k - 1`. So a member that is a little ahead finds
//! something to do before it has to wait. The counts below are chunks since the team was formed:
//!
//! - a chunk is put into the slot of the chunk [`SLOTS`] before it, when everybody has merged that one;
//! - a chunk is merged when everybody has put it in; the merged slice goes to the place of the slice
//!   [`SLOTS`] before it, which everybody has taken, because nobody puts in a chunk before it has
//!   taken the one [`SLOTS`] before;
//! - a chunk is taken when everybody has merged it.

use std::ops::Range;

use crate::board::{Board, Progress};
use crate::call::Step;
use crate::error::TeamError;
use crate::gate::Gate;
use crate::layout::SLOTS;

/// Steps of one operation for each chunk.
pub(crate) trait Steps {
    /// Bytes that a member moves.
    fn bytes(&self) -> usize;

    /// Copies what others need of this member's chunk into its slot.
    fn put(&mut self, at: &Place<'_>);

    /// Makes use of what everybody has put in, for the last time.
    fn merge(&mut self, at: &Place<'_>);

    /// True if this member takes anything that others have merged.
    fn takes(&self) -> bool {
        false
    }

    /// Copies what others have merged.
    fn take(&mut self, _at: &Place<'_>) {}
}

/// Place of one chunk.
pub(crate) struct Place<'a> {
    pub(crate) board: &'a Board,
    pub(crate) me: u32,
    pub(crate) slot: usize,
    /// Range of the chunk in the member's data.
    pub(crate) range: Range<usize>,
}

/// Runs an operation whose first chunk has this number, and says the number after its last one.
/// Whatever happens, every member goes through at least one chunk, though it may be empty: an
/// operation without data still waits for everybody.
pub(crate) fn run(
    gate: &mut Gate,
    operation: u64,
    call: Step,
    first: u64,
    steps: &mut impl Steps,
) -> Result<u64, TeamError> {
    gate.begin(operation, call);
    let chunk_bytes = gate.board.layout.chunk_bytes;
    let bytes = steps.bytes();
    let end = first + bytes.div_ceil(chunk_bytes).max(1) as u64;
    let range = |chunk: u64| {
        let start = (chunk - first) as usize * chunk_bytes;
        start..(start + chunk_bytes).min(bytes)
    };
    let turns_after = if steps.takes() { 2 } else { 1 };
    for turn in first..end + turns_after {
        if turn < end {
            gate.wait(Progress::Merged, (turn + 1).saturating_sub(SLOTS as u64))?;
            steps.put(&place(gate, turn, range(turn)));
            gate.arrive(Progress::Put, turn + 1);
        }
        if (first + 1..=end).contains(&turn) {
            let chunk = turn - 1;
            gate.wait(Progress::Put, chunk + 1)?;
            if chunk == first {
                gate.compare_calls()?;
            }
            steps.merge(&place(gate, chunk, range(chunk)));
            gate.arrive(Progress::Merged, chunk + 1);
        }
        if turn >= first + 2 && steps.takes() {
            let chunk = turn - 2;
            gate.wait(Progress::Merged, chunk + 1)?;
            steps.take(&place(gate, chunk, range(chunk)));
        }
    }
    Ok(end)
}

fn place(gate: &Gate, chunk: u64, range: Range<usize>) -> Place<'_> {
    let slot = (chunk % SLOTS as u64) as usize;
    Place { board: &gate.board, me: gate.me, slot, range }
}
