//! Operations on data of any lengths: every rank has a part for others, which goes to them directly.
//!
//! | | sent to | received from |
//! |---|---|---|
//! | all-gather | everybody | everybody |
//! | gather | the root | everybody, by the root |
//! | scatter | everybody, by the root | the root |
//! | all-to-all | everybody | everybody |
//! | barrier | everybody | everybody |
//!
//! Each byte crosses one link out and one link in, which nothing could improve on: in an all-gather
//! too, everybody has to receive the parts of all others. A barrier's messages are empty. Trees would
//! send fewer of them, but nobody could tell whom everybody waits for.

use thalweg_core::OperationKind;

use super::call::Outcome;
use super::config::Place;
use super::grid::{Filling, Grid, Intake, Stream};
use super::layout::Group;

/// One operation.
#[derive(Debug)]
pub(super) struct Parts {
    place: Place,
    source: Source,
    gives: Vec<Option<Stream>>,
    slots: Vec<Slot>,
}

/// Data of this rank for the others.
#[derive(Debug)]
pub(super) enum Source {
    /// The same bytes for all.
    Same(Vec<u8>),
    /// For each rank its own.
    Each(Vec<Vec<u8>>),
}

/// Data of a rank for this one.
#[derive(Debug)]
enum Slot {
    /// Nothing.
    Closed,
    /// Nothing came yet.
    Awaited,
    /// The chunks that have come.
    Filling(Filling),
}

impl Source {
    fn part(&self, rank: u32) -> &[u8] {
        match self {
            Source::Same(bytes) => bytes,
            Source::Each(parts) => &parts[rank as usize],
        }
    }

    fn into_part(self, rank: u32) -> Vec<u8> {
        match self {
            Source::Same(bytes) => bytes,
            Source::Each(mut parts) => parts.swap_remove(rank as usize),
        }
    }
}

impl Parts {
    /// The transfers of an operation with this root.
    pub fn new(place: Place, kind: OperationKind, root: u32, source: Source) -> Parts {
        let is_root = place.rank == root;
        let by_root = if is_root { Group::Everybody } else { Group::Nobody };
        let (to, from) = match kind {
            OperationKind::Gather => (Group::Only(root), by_root),
            OperationKind::Scatter => (by_root, Group::Only(root)),
            _ => (Group::Everybody, Group::Everybody),
        };
        let give = |rank: u32| {
            let is_to = place.is_other(rank) && to.has(rank);
            is_to.then(|| Stream::new(place.grid(source.part(rank).len() as u64)))
        };
        let slot = |rank: u32| match place.is_other(rank) && from.has(rank) {
            true => Slot::Awaited,
            false => Slot::Closed,
        };
        let gives = (0..place.ranks).map(give).collect();
        let slots = (0..place.ranks).map(slot).collect();
        Parts { place, source, gives, slots }
    }

    /// The next chunk for a rank.
    pub fn next_give(&mut self, rank: u32, has_called: bool) -> Option<(Grid, u64, &[u8])> {
        let stream = self.gives[rank as usize].as_mut()?;
        let grid = stream.grid;
        let chunk = stream.next(self.place.limit(grid, has_called))?;
        Some((grid, chunk, &self.source.part(rank)[grid.range(chunk)?]))
    }

    /// Bytes of the transfer to a rank that have not left.
    pub fn bytes_left(&self, rank: u32) -> u64 {
        self.gives[rank as usize].as_ref().map_or(0, Stream::bytes_left)
    }

    /// True if a rank has something for this one.
    pub fn expects(&self, rank: u32) -> bool {
        !matches!(self.slots[rank as usize], Slot::Closed)
    }

    /// Takes in a chunk. `None` if there is no memory for its transfer.
    pub fn take(&mut self, rank: u32, grid: Grid, chunk: u64, body: Vec<u8>) -> Option<Intake> {
        let slot = &mut self.slots[rank as usize];
        if matches!(slot, Slot::Awaited) {
            *slot = Slot::Filling(Filling::new(grid)?);
        }
        Some(match slot {
            Slot::Filling(filling) if filling.grid() == grid => filling.take(chunk, body),
            Slot::Filling(_) => Intake::Garbled,
            Slot::Closed | Slot::Awaited => Intake::Unexpected,
        })
    }

    /// True if everything has come, and everything has left.
    pub fn is_done(&self) -> bool {
        self.gives.iter().flatten().all(Stream::is_sent)
            && (0..self.place.ranks).all(|rank| !self.awaits(rank))
    }

    /// True if something of a rank has not come.
    pub fn awaits(&self, rank: u32) -> bool {
        match &self.slots[rank as usize] {
            Slot::Closed => false,
            Slot::Awaited => true,
            Slot::Filling(filling) => !filling.is_complete(),
        }
    }

    /// True if the transfer to a rank stands still until the rank has called.
    pub fn is_held(&self, rank: u32) -> bool {
        self.gives[rank as usize].as_ref().is_some_and(|stream| self.place.holds(stream))
    }

    /// Outcome for this rank, once all is done.
    pub fn outcome(self, kind: OperationKind, root: u32) -> Outcome {
        let is_root = self.place.rank == root;
        match kind {
            OperationKind::Barrier => Outcome::Nothing,
            OperationKind::Gather if !is_root => Outcome::Nothing,
            OperationKind::Scatter if is_root => Outcome::Bytes(self.source.into_part(root)),
            OperationKind::Scatter => {
                let slot = self.slots.into_iter().nth(root as usize);
                Outcome::Bytes(slot.map(Slot::into_bytes).unwrap_or_default())
            }
            _ => Outcome::Parts(self.into_parts()),
        }
    }

    /// Data of each rank for this one, and of this one for itself.
    fn into_parts(self) -> Vec<Vec<u8>> {
        let mut parts: Vec<Vec<u8>> = self.slots.into_iter().map(Slot::into_bytes).collect();
        let here = self.place.rank;
        parts[here as usize] = self.source.into_part(here);
        parts
    }
}

impl Slot {
    fn into_bytes(self) -> Vec<u8> {
        match self {
            Slot::Filling(filling) => filling.into_bytes(),
            Slot::Closed | Slot::Awaited => Vec::new(),
        }
    }
}
