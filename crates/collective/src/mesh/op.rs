//! One operation at one rank.

use std::collections::BTreeSet;

use thalweg_core::{Fingerprint, Operation, OperationKind, Time};

use super::call::{Call, Outcome, Request};
use super::config::Place;
use super::event::{Failure, Wait};
use super::grid::{Grid, Intake, zeroed};
use super::layout::Layout;
use super::lengths::Lengths;
use super::parts::{Parts, Source};
use super::whole::Whole;
use thalweg_wire::trailer::{StreamId, Trailer};

/// An operation that has not ended here.
#[derive(Debug)]
pub(super) struct Op {
    place: Place,
    /// The kind of the call, which may carry out an operation of another kind.
    call: OperationKind,
    fingerprint: Fingerprint,
    lengths: Lengths,
    begun: Time,
    state: State,
    /// When the last message of it came from each rank. A rank that sent one has made the call.
    received_at: Vec<Option<Time>>,
    /// The long transfers whose senders know that this rank has made the call.
    informed: BTreeSet<(u32, StreamId)>,
    /// True once all ranks are known to have made the same call. Without a root the data shows it.
    is_agreed: bool,
}

/// Progress of an operation.
#[derive(Debug)]
enum State {
    /// A broadcast, before its length is known.
    Unknown,
    /// An operation on data of one length.
    Whole(Whole),
    /// An operation on data of any lengths.
    Parts(Parts),
}

/// A chunk of a transfer to this rank.
pub(super) struct Chunk {
    pub stream: StreamId,
    pub fingerprint: Fingerprint,
    pub total: u64,
    pub chunk: u64,
    pub body: Vec<u8>,
}

/// Effects of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Change {
    /// Nobody waited for it.
    pub is_refused: bool,
    /// True if its sender must learn that this rank has made the call.
    pub needs_go: bool,
    /// It is the first that shows that its sender has made the call.
    pub is_first: bool,
    /// There is a chunk to share.
    pub can_share: bool,
}

impl Op {
    /// The operation of a call that was checked.
    pub fn new(now: Time, operation: Operation, place: Place, request: Request) -> Op {
        let fingerprint = request.fingerprint_at(place.rank);
        let (kind, root) = (request.call.kind(), fingerprint.root.unwrap_or(0));
        let lengths = Lengths::of(&place, &request);
        let reduction = request.call.reduction();
        let parts = |source| State::Parts(Parts::new(place, kind, root, source));
        let whole = |layout, data| State::Whole(Whole::new(place, layout, reduction, data));
        let state = match request.call {
            Call::AllReduce { data, .. } | Call::Reduce { data, .. } => {
                let bytes = data.len() as u64;
                whole(Layout::of_reduction(&place, &fingerprint, operation.0, bytes), data)
            }
            Call::ReduceScatter { data, counts, element, .. } => {
                whole(Layout::of_counts(&counts, element.bytes()), data)
            }
            Call::Broadcast { data, root } if root == place.rank => {
                whole(Layout::of_broadcast(&place, root, data.len() as u64), data)
            }
            Call::Broadcast { .. } => State::Unknown,
            Call::AllGather { data } | Call::Gather { data, .. } => parts(Source::Same(data)),
            Call::Scatter { root, .. } if root != place.rank => parts(Source::Each(Vec::new())),
            Call::Scatter { parts: each, .. } | Call::AllToAll { parts: each } => {
                parts(Source::Each(each))
            }
            Call::Barrier => parts(Source::Same(Vec::new())),
        };
        let received_at = vec![None; place.ranks as usize];
        let is_agreed = !kind.has_root() || place.ranks == 1;
        let informed = BTreeSet::new();
        Op {
            place,
            call: kind,
            fingerprint,
            lengths,
            begun: now,
            state,
            received_at,
            informed,
            is_agreed,
        }
    }

    /// Fingerprint that the ranks must agree on, as far as it is known here.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Returns the fingerprint that a message to a rank carries.
    pub fn fingerprint_to(&self, rank: u32) -> Fingerprint {
        let bytes = self.lengths.stated_to(rank).or(self.fingerprint.bytes);
        Fingerprint { bytes, ..self.fingerprint }
    }

    /// The root, if it is another rank.
    pub fn other_root(&self) -> Option<u32> {
        self.fingerprint.root.filter(|&root| self.place.is_other(root))
    }

    /// The ranks that this call is sent to, because the data would not tell them: the root, and from the root
    /// everybody who gets no data of it.
    pub fn ranks_to_tell(&self) -> Vec<u32> {
        let Fingerprint { kind, root, .. } = self.fingerprint;
        let is_silent_root = matches!(kind, OperationKind::Gather | OperationKind::Reduce);
        match root {
            Some(root) if self.place.is_other(root) => vec![root],
            Some(_) if is_silent_root => {
                (0..self.place.ranks).filter(|&rank| self.place.is_other(rank)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// A rank has made this call.
    // spec: E-11
    pub fn compare(&mut self, now: Time, rank: u32, theirs: &Fingerprint) -> Result<(), Failure> {
        let bytes = self.lengths.required_of(rank).or(self.fingerprint.bytes);
        let own = (self.place.rank, &Fingerprint { bytes, ..self.fingerprint });
        Fingerprint::compare(own, (rank, theirs)).map_err(Failure::Differs)?;
        self.note_received(now, rank);
        Ok(())
    }

    /// The root has compared all calls.
    pub fn on_agreed(&mut self) {
        self.is_agreed = true;
    }

    /// Returns true once: when this rank is the root and has compared all calls.
    pub fn has_compared_all(&mut self) -> bool {
        let is_root = self.fingerprint.root == Some(self.place.rank);
        let is_new = is_root && !self.is_agreed && self.has_received_from_all();
        self.is_agreed |= is_new;
        is_new
    }

    fn has_received_from_all(&self) -> bool {
        let ranks = (0..).zip(&self.received_at);
        ranks.filter(|&(rank, _)| self.place.is_other(rank)).all(|(_, at)| at.is_some())
    }

    /// The next message of a transfer to a rank.
    pub fn next_message(&mut self, stream: StreamId, rank: u32) -> Option<Box<[u8]>> {
        let fingerprint = self.fingerprint_to(rank);
        let has_called = self.received_at[rank as usize].is_some();
        let (grid, chunk, bytes) = match (&mut self.state, stream) {
            (State::Whole(whole), StreamId::Give(_)) => whole.next_give(rank, has_called),
            (State::Whole(whole), StreamId::Share(_)) => whole.next_share(rank, has_called),
            (State::Parts(parts), StreamId::Give(_)) => parts.next_give(rank, has_called),
            _ => None,
        }?;
        let trailer = Trailer::Operation { stream, fingerprint, total: grid.total, chunk };
        Some(trailer.frame(bytes))
    }

    /// Bytes of a transfer to a rank that have not left.
    pub fn bytes_left(&self, stream: StreamId, rank: u32) -> u64 {
        match &self.state {
            State::Unknown => 0,
            State::Whole(whole) => whole.bytes_left(stream, rank),
            State::Parts(parts) => parts.bytes_left(rank),
        }
    }

    /// A rank has made the call.
    pub fn note_received(&mut self, now: Time, rank: u32) {
        self.received_at[rank as usize] = Some(now);
    }

    /// Takes in a chunk that a rank sent.
    pub fn take(&mut self, now: Time, rank: u32, chunk: Chunk) -> Result<Change, Failure> {
        let is_first = self.received_at[rank as usize].is_none();
        self.compare(now, rank, &chunk.fingerprint)?;
        if chunk.total > self.place.max_bytes {
            return Err(Failure::TooLong { rank, bytes: chunk.total });
        }
        self.compare_length(rank, &chunk)?;
        self.learn_length(rank, &chunk.fingerprint)?;
        let refusal = Change { is_refused: true, is_first, ..Change::default() };
        let Some(grid) = self.expected(rank, &chunk) else { return Ok(refusal) };
        if grid.total != chunk.total {
            return Err(Failure::Garbled { rank });
        }
        let (stream, combined) = (chunk.stream, self.combined());
        match self.take_in(rank, grid, chunk)? {
            Intake::Garbled => Err(Failure::Garbled { rank }),
            Intake::Unexpected => Ok(refusal),
            Intake::Taken => {
                let needs_go = self.place.needs_go(grid) && self.informed.insert((rank, stream));
                let can_share = self.combined() > combined;
                Ok(Change { needs_go, is_first, can_share, is_refused: false })
            }
        }
    }

    /// A rank has to send as much as this rank expects of it.
    fn compare_length(&self, rank: u32, chunk: &Chunk) -> Result<(), Failure> {
        let Some(expected) = self.lengths.expected_of(rank) else { return Ok(()) };
        let own = Fingerprint { bytes: Some(expected), ..self.fingerprint };
        let theirs = Fingerprint { bytes: Some(chunk.total), ..chunk.fingerprint };
        Fingerprint::compare((self.place.rank, &own), (rank, &theirs)).map_err(Failure::Differs)
    }

    /// The first message of a broadcast says how long it is.
    fn learn_length(&mut self, rank: u32, theirs: &Fingerprint) -> Result<(), Failure> {
        let (State::Unknown, Some(bytes)) = (&self.state, theirs.bytes) else { return Ok(()) };
        let room = Some(bytes).filter(|&bytes| bytes <= self.place.max_bytes).and_then(zeroed);
        let room = room.ok_or(Failure::TooLong { rank, bytes })?;
        let root = self.fingerprint.root.unwrap_or(0);
        let layout = Layout::of_broadcast(&self.place, root, bytes);
        self.fingerprint.bytes = Some(bytes);
        self.state = State::Whole(Whole::new(self.place, layout, None, room));
        Ok(())
    }

    /// Grid of a transfer from a rank. `None` if none is expected.
    fn expected(&self, rank: u32, chunk: &Chunk) -> Option<Grid> {
        match (&self.state, chunk.stream) {
            (State::Whole(whole), StreamId::Give(_)) => whole.expected_give(rank),
            (State::Whole(whole), StreamId::Share(_)) => whole.expected_share(rank),
            // Its sender chooses the length.
            (State::Parts(parts), StreamId::Give(_)) => {
                parts.expects(rank).then(|| self.place.grid(chunk.total))
            }
            _ => None,
        }
    }

    fn take_in(&mut self, rank: u32, grid: Grid, chunk: Chunk) -> Result<Intake, Failure> {
        let Chunk { stream, total, chunk, body, .. } = chunk;
        match (&mut self.state, stream) {
            (State::Whole(whole), StreamId::Give(_)) => Ok(whole.take_give(rank, chunk, body)),
            (State::Whole(whole), StreamId::Share(_)) => Ok(whole.take_share(rank, chunk, &body)),
            (State::Parts(parts), StreamId::Give(_)) => {
                parts.take(rank, grid, chunk, body).ok_or(Failure::TooLong { rank, bytes: total })
            }
            _ => Ok(Intake::Unexpected),
        }
    }

    /// Number of chunks that can be shared so far.
    fn combined(&self) -> usize {
        if let State::Whole(whole) = &self.state { whole.combined() } else { 0 }
    }

    /// Returns whether everything was received and sent, and all ranks have made the same call.
    pub fn is_done(&self) -> bool {
        self.is_agreed && self.has_moved_all()
    }

    fn has_moved_all(&self) -> bool {
        match &self.state {
            State::Unknown => false,
            State::Whole(whole) => whole.is_done(),
            State::Parts(parts) => parts.is_done(),
        }
    }

    /// Outcome for this rank, once all is done.
    pub fn outcome(self) -> Outcome {
        let (kind, root) = (self.call, self.fingerprint.root.unwrap_or(0));
        match self.state {
            State::Unknown => Outcome::Nothing,
            State::Whole(whole) => whole.outcome(kind),
            State::Parts(parts) => parts.outcome(kind, root),
        }
    }

    /// The ranks whose messages have not come, and those that did not ask for what is left to send.
    pub fn waits(&self) -> Vec<Wait> {
        let wait = |rank: u32| {
            let at = self.received_at[rank as usize];
            let wait = Wait { rank, since: at.unwrap_or(self.begun), has_called: at.is_some() };
            self.is_waiting_for(rank, wait.has_called).then_some(wait)
        };
        (0..self.place.ranks).filter(|&rank| self.place.is_other(rank)).filter_map(wait).collect()
    }

    fn is_waiting_for(&self, rank: u32, has_called: bool) -> bool {
        if !self.is_agreed {
            let root = self.fingerprint.root.unwrap_or(0);
            let waits = if self.place.is_other(root) { rank == root } else { !has_called };
            if waits {
                return true;
            }
        }
        match &self.state {
            State::Unknown => self.fingerprint.root == Some(rank),
            State::Whole(whole) => whole.awaits(rank) || (!has_called && whole.is_held(rank)),
            State::Parts(parts) => parts.awaits(rank) || (!has_called && parts.is_held(rank)),
        }
    }
}
