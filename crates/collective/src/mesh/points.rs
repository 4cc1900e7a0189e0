//! Transfers from one rank to another.
//!
//! The k-th transfer that a rank sends to another with some tag is the k-th that the other receives
//! from it with that tag. What is kept of a tag for good is two numbers.

use std::collections::{BTreeMap, VecDeque};

use thalweg_core::{Element, Fingerprint, OperationKind};

use super::call::check_length;
use super::config::Place;
use super::event::{Failure, SubmitError, Transfer};
use super::grid::{Filling, Intake, Stream};
use thalweg_wire::trailer::{StreamId, Trailer};

/// The other rank, the tag, and which one between them with this tag.
pub(super) type PointKey = (u32, u64, u64);

/// The transfers of this rank.
#[derive(Debug)]
pub(super) struct Points {
    place: Place,
    transfers: u64,
    sends: BTreeMap<PointKey, Send>,
    receives: BTreeMap<PointKey, Receive>,
    /// Number of transfers so far, by rank and tag.
    sent: BTreeMap<(u32, u64), u64>,
    received: BTreeMap<(u32, u64), u64>,
    /// Receives from any rank that no transfer has been matched with, by tag.
    open: BTreeMap<u64, VecDeque<(Transfer, Fingerprint)>>,
}

#[derive(Debug)]
struct Send {
    transfer: Transfer,
    fingerprint: Fingerprint,
    bytes: Vec<u8>,
    stream: Stream,
    is_awaited: bool,
    unanswered: u64,
}

#[derive(Debug)]
struct Receive {
    transfer: Transfer,
    fingerprint: Fingerprint,
    filling: Option<Filling>,
}

/// Effect of a chunk.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Nobody waited for it.
    Refused,
    /// It was taken in.
    Taken {
        /// True if its sender must learn that it may go on.
        needs_go: bool,
    },
    /// It was the last one.
    Complete(Transfer, Vec<u8>),
}

impl Points {
    pub fn new(place: Place) -> Points {
        Points {
            place,
            transfers: 0,
            sends: BTreeMap::new(),
            receives: BTreeMap::new(),
            sent: BTreeMap::new(),
            received: BTreeMap::new(),
            open: BTreeMap::new(),
        }
    }

    /// Begins to send. The second is the transfer's name between the two ranks.
    pub fn send(
        &mut self,
        to: u32,
        tag: u64,
        bytes: Vec<u8>,
        element: Option<Element>,
    ) -> Result<(Transfer, PointKey), SubmitError> {
        self.check_other(to)?;
        check_length(&self.place, bytes.len())?;
        let grid = self.place.grid(bytes.len() as u64);
        let key = (to, tag, count(&mut self.sent, (to, tag)));
        let transfer = self.next_transfer();
        let (stream, unanswered) = (Stream::new(grid), grid.chunks());
        let fingerprint = fingerprint(element, Some(bytes.len() as u64));
        let is_awaited = false;
        let send = Send { transfer, fingerprint, bytes, stream, is_awaited, unanswered };
        self.sends.insert(key, send);
        Ok((transfer, key))
    }

    /// Waits for the next transfer from a rank with this tag.
    pub fn receive(
        &mut self,
        from: u32,
        tag: u64,
        (element, bytes): (Option<Element>, Option<u64>),
    ) -> Result<(Transfer, PointKey), SubmitError> {
        self.check_other(from)?;
        let key = (from, tag, count(&mut self.received, (from, tag)));
        let transfer = self.next_transfer();
        let fingerprint = fingerprint(element, bytes);
        self.receives.insert(key, Receive { transfer, fingerprint, filling: None });
        Ok((transfer, key))
    }

    /// Waits for the next transfer with this tag from any rank.
    pub fn receive_any(
        &mut self,
        tag: u64,
        (element, bytes): (Option<Element>, Option<u64>),
    ) -> Transfer {
        let transfer = self.next_transfer();
        self.open.entry(tag).or_default().push_back((transfer, fingerprint(element, bytes)));
        transfer
    }

    /// Matches a transfer that nobody asked for with the oldest receive from any rank, if there is one with its tag
    /// and the transfer is the next of its rank.
    pub fn adopt(&mut self, key: PointKey) -> bool {
        let (from, tag, number) = key;
        let next = self.received.get(&(from, tag)).copied().unwrap_or(0);
        let Some(open) = self.open.get_mut(&tag).filter(|_| number == next) else { return false };
        let Some((transfer, fingerprint)) = open.pop_front() else { return false };
        if open.is_empty() {
            self.open.remove(&tag);
        }
        count(&mut self.received, (from, tag));
        self.receives.insert(key, Receive { transfer, fingerprint, filling: None });
        true
    }

    fn check_other(&self, rank: u32) -> Result<(), SubmitError> {
        let ranks = self.place.ranks;
        match rank {
            rank if rank >= ranks => Err(SubmitError::NoSuchRank { rank, ranks }),
            rank if rank == self.place.rank => Err(SubmitError::Oneself),
            _ => Ok(()),
        }
    }

    fn next_transfer(&mut self) -> Transfer {
        let transfer = Transfer(self.transfers);
        self.transfers += 1;
        transfer
    }

    /// The next message of a transfer to a rank.
    pub fn next_message(&mut self, key: PointKey) -> Option<Box<[u8]>> {
        let send = self.sends.get_mut(&key)?;
        let grid = send.stream.grid;
        let chunk = send.stream.next(self.place.limit(grid, send.is_awaited))?;
        let (_, tag, number) = key;
        let fingerprint = send.fingerprint;
        let trailer = Trailer::Point { tag, number, fingerprint, total: grid.total, chunk };
        let message = trailer.frame(&send.bytes[grid.range(chunk)?]);
        if send.stream.is_sent() {
            send.bytes = Vec::new();
        }
        Some(message)
    }

    /// Bytes of a transfer that have not left.
    pub fn bytes_left(&self, key: PointKey) -> u64 {
        self.sends.get(&key).map_or(0, |send| send.stream.bytes_left())
    }

    /// The other rank waits for a transfer.
    pub fn on_go(&mut self, key: PointKey) {
        if let Some(send) = self.sends.get_mut(&key) {
            send.is_awaited = true;
        }
    }

    /// A message of a transfer has arrived. Returns the transfer if it was the last one.
    pub fn on_sent(&mut self, key: PointKey) -> Option<Transfer> {
        let send = self.sends.get_mut(&key)?;
        send.unanswered -= 1;
        if send.unanswered > 0 {
            return None;
        }
        self.sends.remove(&key).map(|send| send.transfer)
    }

    /// Panics where chunks of a transfer are counted wrongly.
    // spec: T-12
    pub fn check(&self) {
        for (key, send) in &self.sends {
            let chunks = send.stream.grid.chunks();
            let is_open = (1..=chunks).contains(&send.unanswered);
            assert!(is_open, "{key:?}: {} of {chunks} chunks are unanswered", send.unanswered);
        }
        let fillings = self.receives.values().filter_map(|receive| receive.filling.as_ref());
        for filling in fillings {
            filling.check();
        }
    }

    /// True if a transfer from another rank was not asked for yet.
    pub fn is_early(&self, (from, tag, number): PointKey) -> bool {
        number >= self.received.get(&(from, tag)).copied().unwrap_or(0)
    }

    /// Takes in a chunk.
    pub fn take(
        &mut self,
        key: PointKey,
        theirs: &Fingerprint,
        (total, chunk): (u64, u64),
        body: Vec<u8>,
    ) -> Result<Change, Failure> {
        let (rank, ..) = key;
        let Some(receive) = self.receives.get_mut(&key) else { return Ok(Change::Refused) };
        let own = (self.place.rank, &receive.fingerprint);
        Fingerprint::compare(own, (rank, theirs)).map_err(Failure::Differs)?;
        let grid = self.place.grid(total);
        let is_first = receive.filling.is_none();
        if is_first {
            let filling = (total <= self.place.max_bytes).then(|| Filling::new(grid)).flatten();
            receive.filling = Some(filling.ok_or(Failure::TooLong { rank, bytes: total })?);
        }
        let Some(filling) = receive.filling.as_mut().filter(|filling| filling.grid() == grid)
        else {
            return Err(Failure::Garbled { rank });
        };
        match filling.take(chunk, body) {
            Intake::Garbled => return Err(Failure::Garbled { rank }),
            Intake::Unexpected => return Ok(Change::Refused),
            Intake::Taken if !filling.is_complete() => {
                return Ok(Change::Taken { needs_go: is_first && self.place.needs_go(grid) });
            }
            Intake::Taken => {}
        }
        let complete = self.receives.remove(&key);
        let done = complete.and_then(|done| Some((done.transfer, done.filling?.into_bytes())));
        Ok(done.map_or(Change::Refused, |(transfer, bytes)| Change::Complete(transfer, bytes)))
    }

    /// Drops all transfers and says which they were.
    pub fn abandon(&mut self) -> Vec<Transfer> {
        let sends = std::mem::take(&mut self.sends).into_values().map(|send| send.transfer);
        let receives = std::mem::take(&mut self.receives);
        let receives = receives.into_values().map(|receive| receive.transfer);
        let open = std::mem::take(&mut self.open).into_values().flatten();
        let open = open.map(|(transfer, _)| transfer);
        let mut transfers: Vec<Transfer> = sends.chain(receives).chain(open).collect();
        transfers.sort_unstable();
        transfers
    }
}

/// Fingerprint that both ends of a transfer have to agree on, as far as it is known.
fn fingerprint(element: Option<Element>, bytes: Option<u64>) -> Fingerprint {
    Fingerprint { element, bytes, ..Fingerprint::new(OperationKind::Transfer) }
}

/// The name of a transfer at its sender.
pub(super) fn stream_of((_, tag, number): PointKey) -> StreamId {
    StreamId::Point { tag, number }
}

/// The next of a running number.
fn count(numbers: &mut BTreeMap<(u32, u64), u64>, name: (u32, u64)) -> u64 {
    let next = numbers.entry(name).or_default();
    let number = *next;
    *next += 1;
    number
}
