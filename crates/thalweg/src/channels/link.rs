//! One end of a channel, without I/O: messages that wait, and their pieces in flight.
//!
//! A message travels as pieces, which are messages of a flow. A piece begins with the number of its message, the message's
//! length, and its place in it, so that pieces may arrive in any order. The receiver grants a message by an empty one in the
//! other direction, whose number is that of the granted message: it grants all before it as well.
// spec: N-01

use std::collections::{BTreeMap, VecDeque};

use thalweg_core::{Check, Machine, NodeId, Outbox, Packet, Reports, Tag, Time};
use thalweg_flow::{Config, ConfigError, Endpoint, Event, FlowTagger, Message, Payload};
use thalweg_wire::Prefix;
use thiserror::Error;

use super::{Direction, RequestMemory};
use crate::tuning::PIECES_IN_FLIGHT;

/// Most bytes of a message in one piece. The largest message of NCCL then has fewer pieces than a receiver remembers.
pub const PIECE_BYTES: usize = 128 << 10;
/// Bytes before the contents of a piece: three numbers.
pub const PIECE_HEADER_BYTES: usize = 24;

/// One end of a channel.
pub(super) struct Link {
    peer: NodeId,
    flow: Endpoint,
    side: Side,
    /// True once it has failed: nothing is sent or received any more.
    has_failed: bool,
}

enum Side {
    Sending(Sending),
    Receiving(Receiving),
}

/// An event of a link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LinkEvent {
    /// A request has ended, with this number of bytes.
    Ended { request: usize, bytes: usize },
    /// The link has failed.
    Failed(Fault),
}

/// Why a link has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Fault {
    /// The other end has not answered for too long.
    #[error("it does not answer")]
    Silent,
    /// The other end sent something that no honest one sends.
    #[error("it sent a message that is invalid")]
    Invalid,
    /// The message is longer than the memory for it.
    #[error("a message of {bytes} bytes came where {room} were expected")]
    TooLong {
        /// Length of the message.
        bytes: u64,
        /// Length of the memory.
        room: usize,
    },
}

/// Messages to send.
#[derive(Default)]
struct Sending {
    queue: VecDeque<Outgoing>,
    /// Number of the next message.
    next: u64,
    /// Messages below this number may be sent.
    granted: u64,
    /// Message of every piece in flight, by the number of the piece.
    pieces: BTreeMap<u64, u64>,
}

struct Outgoing {
    number: u64,
    request: usize,
    memory: RequestMemory,
    begun: usize,
    ended: usize,
}

/// Messages to receive.
#[derive(Default)]
struct Receiving {
    posted: VecDeque<Incoming>,
    /// Number of the next message.
    next: u64,
    /// Messages below this number were granted.
    granted: u64,
}

struct Incoming {
    number: u64,
    request: usize,
    memory: RequestMemory,
    /// Pieces that have arrived. Empty until the first has.
    arrived: Vec<bool>,
}

impl Link {
    pub fn new(direction: Direction, peer: NodeId, flow: Config) -> Result<Link, ConfigError> {
        let side = match direction {
            Direction::Sending => Side::Sending(Sending::default()),
            Direction::Receiving => Side::Receiving(Receiving::default()),
        };
        Ok(Link { peer, flow: Endpoint::new(flow)?, side, has_failed: false })
    }

    /// Begins to send a message, or to receive one.
    pub fn begin(&mut self, now: Time, request: usize, memory: RequestMemory) {
        if self.has_failed {
            return;
        }
        match &mut self.side {
            Side::Sending(sending) => {
                let number = sending.next;
                sending.next += 1;
                sending.queue.push_back(Outgoing { number, request, memory, begun: 0, ended: 0 });
                sending.fill(now, self.peer, &mut self.flow);
            }
            Side::Receiving(receiving) => {
                let number = receiving.next;
                receiving.next += 1;
                let arrived = Vec::new();
                receiving.posted.push_back(Incoming { number, request, memory, arrived });
            }
        }
    }

    /// Number of messages that were received, up to the first that was not.
    pub fn received(&self) -> u64 {
        match &self.side {
            Side::Sending(_) => 0,
            Side::Receiving(receiving) => {
                receiving.posted.front().map_or(receiving.next, |first| first.number)
            }
        }
    }

    /// The receiver has this number of messages: those that are still in flight have ended.
    pub fn settle(&mut self, received: u64, events: &mut impl FnMut(LinkEvent)) {
        let Side::Sending(sending) = &mut self.side else { return };
        while let Some(message) = sending.queue.pop_front_if(|first| first.number < received) {
            events(message.end());
        }
    }

    /// Gives up all messages, and their memory.
    pub fn fail(&mut self) {
        self.has_failed = true;
        match &mut self.side {
            Side::Sending(sending) => sending.queue.clear(),
            Side::Receiving(receiving) => receiving.posted.clear(),
        }
    }

    #[inline]
    pub fn handle_packet(&mut self, now: Time, prefix: Prefix, packet: &Packet<'_>) {
        // Packets of other nodes are sealed with other keys, unless one of the two sends from elsewhere.
        if !self.has_failed && packet.meta.src == self.peer {
            self.flow.handle_checked(now, prefix, packet);
        }
    }

    pub fn handle_timeout(&mut self, now: Time) {
        if !self.has_failed {
            self.flow.handle_timeout(now);
        }
    }

    /// Takes in the events of the flow.
    pub fn take_events(&mut self, now: Time, events: &mut impl FnMut(LinkEvent)) {
        while !self.has_failed
            && let Some(event) = self.flow.poll_event()
        {
            let taken = match &mut self.side {
                Side::Sending(sending) => sending.take(&event, events),
                Side::Receiving(receiving) => receiving.take(event, events),
            };
            if let Err(fault) = taken {
                self.fail();
                events(LinkEvent::Failed(fault));
            }
        }
        if let Side::Sending(sending) = &mut self.side {
            sending.fill(now, self.peer, &mut self.flow);
        }
    }

    #[inline]
    pub fn poll_transmit(&mut self, now: Time, outbox: &mut dyn Outbox) {
        if self.has_failed {
            return;
        }
        if let Side::Receiving(receiving) = &mut self.side {
            receiving.grant(now, self.peer, &mut self.flow);
        }
        self.flow.poll_transmit(now, outbox);
    }

    #[inline]
    pub fn has_backlog(&self) -> bool {
        let has_grant = match &self.side {
            Side::Sending(_) => false,
            Side::Receiving(receiving) => receiving.granted < receiving.next,
        };
        !self.has_failed && (has_grant || self.flow.has_backlog())
    }

    #[inline]
    pub fn poll_timeout(&self) -> Time {
        if self.has_failed { Time::NEVER } else { self.flow.poll_timeout() }
    }

    /// Panics where accounts are wrong.
    pub fn check(&self) {
        self.flow.check();
        if let Side::Sending(sending) = &self.side {
            assert!(
                sending.pieces.len() <= PIECES_IN_FLIGHT as usize,
                "too many pieces are in flight"
            );
        }
    }
}

impl Sending {
    /// Sends as many pieces of granted messages as may be in flight, in order.
    fn fill(&mut self, now: Time, peer: NodeId, flow: &mut Endpoint) {
        while self.pieces.len() < PIECES_IN_FLIGHT as usize {
            let has_more = |message: &&mut Outgoing| message.begun < message.pieces();
            let granted = self.granted;
            let next = self.queue.iter_mut().find(has_more);
            let Some(message) = next.filter(|message| message.number < granted) else { return };
            let piece = numbered(peer, Payload::Bytes(message.next_piece()));
            let sent = flow.start(now, piece);
            let sent = sent.expect("pieces are short, and few are in flight");
            self.pieces.insert(sent.number(), message.number);
        }
    }

    fn take(&mut self, event: &Event, events: &mut impl FnMut(LinkEvent)) -> Result<(), Fault> {
        match event {
            Event::Sent(sent) => {
                let number = self.pieces.remove(&sent.flow.number());
                let is_own = |message: &Outgoing| Some(message.number) == number;
                let Some(at) = self.queue.iter().position(is_own) else { return Ok(()) };
                self.queue[at].ended += 1;
                if self.queue[at].ended == self.queue[at].pieces() {
                    self.queue.remove(at).into_iter().for_each(|message| events(message.end()));
                }
                Ok(())
            }
            Event::Received(grant) => {
                self.granted = self.granted.max(grant.flow.number() + 1);
                Ok(())
            }
            Event::Failed(_) => Err(Fault::Silent),
        }
    }
}

impl Outgoing {
    fn pieces(&self) -> usize {
        pieces_of((*self.memory).as_ref().len())
    }

    fn next_piece(&mut self) -> Box<[u8]> {
        let bytes = (*self.memory).as_ref();
        let offset = self.begun * PIECE_BYTES;
        let contents = &bytes[offset..bytes.len().min(offset + PIECE_BYTES)];
        let mut piece = Vec::with_capacity(PIECE_HEADER_BYTES + contents.len());
        for number in [self.number, bytes.len() as u64, self.begun as u64] {
            piece.extend(number.to_le_bytes());
        }
        piece.extend(contents);
        self.begun += 1;
        piece.into()
    }

    fn end(&self) -> LinkEvent {
        LinkEvent::Ended { request: self.request, bytes: (*self.memory).as_ref().len() }
    }
}

impl Receiving {
    /// Grants the messages that there is memory for.
    fn grant(&mut self, now: Time, peer: NodeId, flow: &mut Endpoint) {
        if self.granted < self.next {
            let grant = numbered(peer, Payload::Bytes(Box::default()));
            let sent = flow.start_numbered(now, self.next - 1, grant);
            sent.expect("grants are short, and as few as requests");
            self.granted = self.next;
        }
    }

    fn take(&mut self, event: Event, events: &mut impl FnMut(LinkEvent)) -> Result<(), Fault> {
        match event {
            Event::Received(piece) => self.take_piece(piece.body.as_deref(), events),
            Event::Sent(_) => Ok(()),
            Event::Failed(_) => Err(Fault::Silent),
        }
    }

    fn take_piece(
        &mut self,
        piece: Option<&[u8]>,
        events: &mut impl FnMut(LinkEvent),
    ) -> Result<(), Fault> {
        let (header, contents) = piece
            .and_then(|piece| piece.split_first_chunk::<PIECE_HEADER_BYTES>())
            .ok_or(Fault::Invalid)?;
        let number = |at: usize| {
            let bytes = header[at..].first_chunk().expect("the header has three numbers");
            u64::from_le_bytes(*bytes)
        };
        let (message, bytes, index) = (number(0), number(8), number(16));
        let Some(at) = self.posted.iter().position(|posted| posted.number == message) else {
            // A copy of a piece that came before, or a message that nobody has granted.
            return if message < self.next { Ok(()) } else { Err(Fault::Invalid) };
        };
        if self.posted[at].put(bytes, index, contents)? {
            let ended = self.posted.remove(at);
            // The length has been compared with that of the memory.
            let bytes = bytes as usize;
            ended.into_iter().for_each(|Incoming { request, .. }| {
                events(LinkEvent::Ended { request, bytes });
            });
        }
        Ok(())
    }
}

impl Incoming {
    /// Puts a piece into its place. Returns whether it was the last one.
    fn put(&mut self, bytes: u64, index: u64, contents: &[u8]) -> Result<bool, Fault> {
        let memory = (*self.memory).as_mut();
        let room = memory.len();
        let fits = usize::try_from(bytes).ok().filter(|bytes| *bytes <= room);
        let message = fits.ok_or(Fault::TooLong { bytes, room })?;
        let pieces = pieces_of(message);
        if self.arrived.is_empty() {
            self.arrived = vec![false; pieces];
        }
        let index = usize::try_from(index).ok().filter(|index| *index < pieces);
        let index = index.filter(|_| self.arrived.len() == pieces).ok_or(Fault::Invalid)?;
        let offset = index * PIECE_BYTES;
        let place = &mut memory[offset..message.min(offset + PIECE_BYTES)];
        if place.len() != contents.len() {
            return Err(Fault::Invalid);
        }
        place.copy_from_slice(contents);
        self.arrived[index] = true;
        Ok(self.arrived.iter().all(|has_arrived| *has_arrived))
    }
}

/// Number of pieces of a message. An empty one is a piece as well.
fn pieces_of(bytes: usize) -> usize {
    bytes.div_ceil(PIECE_BYTES).max(1)
}

fn numbered(dst: NodeId, body: Payload) -> Message {
    Message { dst, body, tagger: FlowTagger::Fixed(Tag::training()), entropy: 0 }
}

#[cfg(test)]
mod tests {
    use thalweg_core::Rng;

    use super::*;

    fn piece(numbers: [u64; 3], contents: usize) -> Vec<u8> {
        let header = numbers.into_iter().flat_map(u64::to_le_bytes);
        header.chain(std::iter::repeat_n(7, contents)).collect()
    }

    /// A receiver of one message of two pieces.
    fn receiving() -> Receiving {
        let memory: RequestMemory = Box::new(vec![0; PIECE_BYTES + 10]);
        let posted = Incoming { number: 0, request: 3, memory, arrived: Vec::new() };
        Receiving { posted: [posted].into(), next: 1, granted: 1 }
    }

    #[test]
    fn pieces_have_one_place_and_come_once() {
        let (mut receiving, mut events) = (receiving(), Vec::new());
        let bytes = PIECE_BYTES as u64 + 5;
        let mut take = |numbers, contents| {
            receiving.take_piece(Some(&piece(numbers, contents)), &mut |event| events.push(event))
        };
        assert_eq!(take([0, bytes, 1], 5), Ok(()));
        assert_eq!(take([0, bytes, 1], 5), Ok(()), "a copy");
        for (numbers, contents) in [
            ([0, bytes, 2], 5),
            ([0, bytes, 1], 6),
            ([0, bytes, 0], 5),
            ([0, 5, 0], 5),
            ([1, 5, 0], 5),
            ([u64::MAX, 0, 0], 0),
            ([0, bytes, u64::MAX], 5),
        ] {
            assert_eq!(take(numbers, contents), Err(Fault::Invalid), "{numbers:?}");
        }
        let room = PIECE_BYTES + 10;
        for bytes in [room as u64 + 1, u64::MAX] {
            assert_eq!(take([0, bytes, 0], 0), Err(Fault::TooLong { bytes, room }));
        }
        assert_eq!(take([0, bytes, 0], PIECE_BYTES), Ok(()));
        assert_eq!(take([0, bytes, 0], PIECE_BYTES), Ok(()), "a copy of an ended message");
        let bytes = bytes as usize;
        assert_eq!(events, [LinkEvent::Ended { request: 3, bytes }]);
    }

    #[test]
    fn no_bytes_make_a_receiver_panic() {
        let mut rng = Rng::new(5);
        for _ in 0..2_000 {
            let mut receiving = receiving();
            for _ in 0..4 {
                let numbers = std::array::from_fn(|_| match rng.below(4) {
                    0 => rng.bits(),
                    1 => PIECE_BYTES as u64 + rng.below(12),
                    _ => rng.below(3),
                });
                let mut bytes = piece(numbers, rng.below(20) as usize);
                bytes.truncate(rng.below(60) as usize);
                let _ = receiving.take_piece(Some(&bytes), &mut |_| {});
            }
            let _ = receiving.take_piece(None, &mut |_| {});
        }
    }
}
