//! Operations on data of one length: slices are given, combined and shared.

use std::ops::Range;

use thalweg_core::{Combine, Element, OperationKind};
use thalweg_values::{Bits, combine};
use thalweg_wire::trailer::StreamId;

use super::call::Outcome;
use super::config::Place;
use super::grid::{Grid, Intake, Stream};
use super::layout::Layout;

/// One operation. See [`layout`](super::layout) for the steps.
#[derive(Debug)]
pub(super) struct Whole {
    place: Place,
    layout: Layout,
    reduction: Option<(Element, Combine)>,
    /// The data of this rank. The outcome takes its place chunk by chunk: what comes back of a chunk
    /// cannot come before the chunk has left.
    bytes: Vec<u8>,
    /// Number of ranks that must give before a chunk of this rank's slice can be combined.
    awaited: u32,
    /// Data that they give for each chunk.
    given: Vec<Given>,
    /// The chunks of this rank's slice that can be shared, as they became so.
    combined: Vec<u64>,
    /// Transfers of this rank to each owner, and of shared chunks to each reader.
    gives: Vec<Option<Stream>>,
    shares: Vec<Option<Stream>>,
    /// Chunks that the owners have shared with this rank.
    shared: Vec<Option<Bits>>,
    /// Buffer in which chunks are combined.
    scratch: Vec<u8>,
}

/// One chunk of this rank's slice.
#[derive(Debug, Default)]
struct Given {
    /// By rank. Empty before the first one came, and after the last one.
    parts: Vec<Option<Vec<u8>>>,
    count: u32,
}

impl Whole {
    /// `bytes` is as long as the layout says. Its content counts where this rank gives.
    pub fn new(
        place: Place,
        layout: Layout,
        reduction: Option<(Element, Combine)>,
        bytes: Vec<u8>,
    ) -> Whole {
        let (here, ranks) = (place.rank, place.ranks);
        let grid_of = |rank: u32| -> Option<Grid> {
            let slice = layout.slices[rank as usize].as_ref();
            slice.map(|slice| place.grid(slice.len() as u64))
        };
        let own = grid_of(here);
        let others_slice = |owner: u32| grid_of(owner).filter(|_| place.is_other(owner));
        let give = |owner| others_slice(owner).filter(|_| layout.givers.has(here));
        let come = |owner| others_slice(owner).filter(|_| layout.readers.has(here));
        let share = |reader| own.filter(|_| place.is_other(reader) && layout.readers.has(reader));
        let awaited =
            (0..ranks).filter(|&giver| place.is_other(giver) && layout.givers.has(giver)).count();
        let own_chunks = own.map_or(0, Grid::chunks);
        let none_came =
            |grid: Grid| grid.no_chunks().expect("chunks of memory have 32-bit numbers");
        Whole {
            reduction,
            bytes,
            // As many as there are ranks at most, which has 32 bits.
            awaited: awaited as u32,
            given: (0..own_chunks).map(|_| Given::default()).collect(),
            combined: if awaited == 0 { (0..own_chunks).collect() } else { Vec::new() },
            gives: (0..ranks).map(|owner| give(owner).map(Stream::new)).collect(),
            shares: (0..ranks).map(|reader| share(reader).map(Stream::new)).collect(),
            shared: (0..ranks).map(|owner| come(owner).map(none_came)).collect(),
            scratch: Vec::new(),
            place,
            layout,
        }
    }

    /// The chunks of a slice, and where it begins.
    fn slice(&self, owner: u32) -> Option<(Grid, usize)> {
        let slice = self.layout.slices[owner as usize].as_ref()?;
        Some((self.place.grid(slice.len() as u64), slice.start))
    }

    /// The next chunk to give to an owner.
    pub fn next_give(&mut self, owner: u32, has_called: bool) -> Option<(Grid, u64, &[u8])> {
        let (grid, start) = self.slice(owner)?;
        let limit = self.place.limit(grid, has_called);
        let chunk = self.gives[owner as usize].as_mut()?.next(limit)?;
        Some((grid, chunk, &self.bytes[place_of(grid, start, chunk)?]))
    }

    /// The next chunk to share with a reader.
    pub fn next_share(&mut self, reader: u32, has_called: bool) -> Option<(Grid, u64, &[u8])> {
        let (grid, start) = self.slice(self.place.rank)?;
        let limit = self.place.limit(grid, has_called).min(self.combined.len() as u64);
        let turn = self.shares[reader as usize].as_mut()?.next(limit)?;
        let chunk = self.combined[turn as usize];
        Some((grid, chunk, &self.bytes[place_of(grid, start, chunk)?]))
    }

    /// Bytes of a transfer to a rank that have not left.
    pub fn bytes_left(&self, stream: StreamId, rank: u32) -> u64 {
        let is_share = matches!(stream, StreamId::Share(_));
        let streams = if is_share { &self.shares } else { &self.gives };
        streams[rank as usize].as_ref().map_or(0, Stream::bytes_left)
    }

    /// Number of chunks that can be shared so far.
    pub fn combined(&self) -> usize {
        self.combined.len()
    }

    /// Grid of the data that a rank shares with this one. `None` if none is expected.
    pub fn expected_share(&self, owner: u32) -> Option<Grid> {
        self.shared[owner as usize].as_ref()?;
        self.slice(owner).map(|(grid, _)| grid)
    }

    /// Grid of the data that a rank gives to this one. `None` if none is expected.
    pub fn expected_give(&self, giver: u32) -> Option<Grid> {
        let (grid, _) = self.slice(self.place.rank)?;
        self.layout.givers.has(giver).then_some(grid)
    }

    /// Takes in what a rank gives.
    pub fn take_give(&mut self, giver: u32, chunk: u64, body: Vec<u8>) -> Intake {
        let Some((grid, start)) = self.slice(self.place.rank) else { return Intake::Unexpected };
        let Some(range) = place_of(grid, start, chunk).filter(|range| range.len() == body.len())
        else {
            return Intake::Garbled;
        };
        let awaited = self.awaited;
        let given = &mut self.given[chunk as usize];
        if given.count == awaited {
            return Intake::Unexpected;
        }
        given.parts.resize(self.place.ranks as usize, None);
        if given.parts[giver as usize].replace(body).is_some() {
            return Intake::Unexpected;
        }
        given.count += 1;
        if given.count == awaited {
            let parts = std::mem::take(&mut given.parts);
            self.combine(range, &parts);
            self.combined.push(chunk);
        }
        Intake::Taken
    }

    /// Takes in what an owner shares.
    pub fn take_share(&mut self, owner: u32, chunk: u64, body: &[u8]) -> Intake {
        let Some((grid, start)) = self.slice(owner) else { return Intake::Unexpected };
        let Some(arrivals) = &mut self.shared[owner as usize] else { return Intake::Unexpected };
        let Some(range) = place_of(grid, start, chunk).filter(|range| range.len() == body.len())
        else {
            return Intake::Garbled;
        };
        if !arrivals.insert(chunk as u32) {
            return Intake::Unexpected;
        }
        self.bytes[range].copy_from_slice(body);
        Intake::Taken
    }

    /// Combines what all ranks gave for a chunk, in the order of the ranks.
    fn combine(&mut self, range: Range<usize>, parts: &[Option<Vec<u8>>]) {
        let own = &mut self.bytes[range];
        let Some((element, how)) = self.reduction else {
            // Only one rank gives.
            parts.iter().flatten().for_each(|part| own.copy_from_slice(part));
            return;
        };
        self.scratch.resize(own.len(), 0);
        let parts: Vec<&[u8]> = parts.iter().map(|part| part.as_deref().unwrap_or(own)).collect();
        combine(element, how, &parts, &mut self.scratch);
        own.copy_from_slice(&self.scratch);
    }

    /// True if everything has come, and everything has left.
    pub fn is_done(&self) -> bool {
        let is_here = |arrivals: &Option<Bits>| arrivals.as_ref().is_none_or(Bits::is_full);
        self.combined.len() == self.given.len()
            && self.streams().all(Stream::is_sent)
            && self.shared.iter().all(is_here)
    }

    fn streams(&self) -> impl Iterator<Item = &Stream> {
        self.gives.iter().chain(&self.shares).flatten()
    }

    /// True if something of a rank has not come.
    pub fn awaits(&self, rank: u32) -> bool {
        let lacks = |given: &Given| match given.parts.get(rank as usize) {
            Some(part) => part.is_none(),
            None => given.count == 0,
        };
        let awaits_give = self.layout.givers.has(rank) && self.combined.len() < self.given.len();
        let awaits_share = |arrivals: &Bits| !arrivals.is_full();
        self.shared[rank as usize].as_ref().is_some_and(awaits_share)
            || (awaits_give && self.given.iter().any(lacks))
    }

    /// True if a transfer to a rank stands still until the rank has called.
    pub fn is_held(&self, rank: u32) -> bool {
        let streams = [&self.gives[rank as usize], &self.shares[rank as usize]];
        streams.into_iter().flatten().any(|stream| self.place.holds(stream))
    }

    /// Outcome for this rank, once all is done.
    pub fn outcome(self, kind: OperationKind) -> Outcome {
        let own = self.layout.slices[self.place.rank as usize].clone();
        match (kind, own) {
            (OperationKind::Reduce, _) if !self.layout.readers.has(self.place.rank) => {
                Outcome::Nothing
            }
            (OperationKind::ReduceScatter, Some(own)) => Outcome::Bytes(self.bytes[own].to_vec()),
            _ => Outcome::Bytes(self.bytes),
        }
    }
}

/// Range in the whole of a chunk of a slice that begins at `start`.
fn place_of(grid: Grid, start: usize, chunk: u64) -> Option<Range<usize>> {
    let range = grid.range(chunk)?;
    Some(start + range.start..start + range.end)
}
