//! All that a rank has to do with the others.

use std::collections::BTreeMap;

use thalweg_core::{Element, Fingerprint, NodeId, Operation, Time};
use thalweg_flow::Payload;

use super::call::Request;
use super::config::{Config, Place, TransferOrder};
use super::early::{self, Early, Key};
use super::event::{Event, Failure, SubmitError, Transfer, Wait};
use super::lanes::Lane;
use super::op::{Chunk, Op};
use super::points::{self, PointKey, Points};
use thalweg_wire::trailer::{StreamId, Trailer};

use crate::block::Block;
use crate::carrier::NumberedMessage;
use crate::member::Part;
use crate::post::{MAX_MESSAGES, Post};

/// The operations and transfers of a rank, and the lanes to the others.
pub struct Hub {
    place: Place,
    members: Vec<NodeId>,
    ranks: BTreeMap<NodeId, u32>,
    chunks_at_once: u32,
    order: TransferOrder,
    /// By rank.
    lanes: Vec<Lane>,
    /// The next operation that is not submitted here.
    next_operation: u64,
    ops: BTreeMap<u64, Op>,
    /// Fingerprints of the last operations that ended here.
    ended: BTreeMap<u64, Fingerprint>,
    points: Points,
    early: Early,
    /// Calls that were made here since the early messages were last looked at.
    called: Vec<Key>,
    /// The next message.
    next_index: u64,
    /// The chunks in flight: receiver and transfer of each.
    in_flight: BTreeMap<u64, (u32, StreamId)>,
    /// True if another rank has reported that calls differ: this rank does not report it again.
    is_reported: bool,
}

type MeshPost = Post<Event>;

/// Number of ended operations that are remembered, to notice a rank that was in something else.
const ENDED_MEMORY: usize = 1_024;

impl Hub {
    pub(super) fn new(config: Config, place: Place) -> Hub {
        Hub {
            place,
            ranks: config.members.iter().copied().zip(0..).collect(),
            lanes: config.members.iter().map(|_| Lane::default()).collect(),
            members: config.members,
            chunks_at_once: config.chunks_at_once,
            order: config.order,
            next_operation: 0,
            ops: BTreeMap::new(),
            ended: BTreeMap::new(),
            points: Points::new(place),
            early: Early::new(config.max_early_bytes, config.max_early_messages),
            called: Vec::new(),
            next_index: 0,
            in_flight: BTreeMap::new(),
            is_reported: false,
        }
    }

    pub(super) fn send(
        &mut self,
        to: u32,
        tag: u64,
        bytes: Vec<u8>,
        element: Option<Element>,
    ) -> Result<Transfer, SubmitError> {
        let (transfer, key) = self.points.send(to, tag, bytes, element)?;
        self.lanes[to as usize].wake(points::stream_of(key));
        Ok(transfer)
    }

    pub(super) fn receive(
        &mut self,
        from: u32,
        tag: u64,
        expected: (Option<Element>, Option<u64>),
    ) -> Result<Transfer, SubmitError> {
        let (transfer, key) = self.points.receive(from, tag, expected)?;
        self.called.push(Key::Point(key));
        Ok(transfer)
    }

    pub(super) fn receive_any(
        &mut self,
        tag: u64,
        expected: (Option<Element>, Option<u64>),
    ) -> Transfer {
        let transfer = self.points.receive_any(tag, expected);
        self.match_early();
        transfer
    }

    /// Matches transfers that came early with receives from any rank.
    fn match_early(&mut self) {
        let early: Vec<PointKey> = self.early.points().collect();
        let matched = early.into_iter().filter(|&key| self.points.adopt(key));
        self.called.extend(matched.map(Key::Point));
    }

    pub(super) fn waits(&self, operation: Operation) -> Vec<Wait> {
        self.ops.get(&operation.0).map(Op::waits).unwrap_or_default()
    }

    /// Acts on a message of another rank.
    fn on_message(&mut self, post: &mut MeshPost, message: early::Message) -> Result<(), Failure> {
        if let Some(key) = message.key().filter(|&key| self.is_early(key)) {
            let is_adopted = matches!(key, Key::Point(point) if self.points.adopt(point));
            if !is_adopted {
                return self.early.keep(key, message);
            }
            // A later transfer of the rank may have come before this one.
            self.match_early();
        }
        let early::Message { from, trailer, body } = message;
        match trailer {
            Trailer::Operation { stream, fingerprint, total, chunk } => {
                self.on_chunk(post, from, Chunk { stream, fingerprint, total, chunk, body })
            }
            Trailer::Called { operation, fingerprint } => {
                self.on_called(post, from, operation, &fingerprint, false)
            }
            Trailer::Agreed { operation, fingerprint } => {
                self.on_called(post, from, operation, &fingerprint, true)
            }
            Trailer::Point { tag, number, fingerprint, total, chunk } => {
                let key = (from, tag, number);
                let change = self.points.take(key, &fingerprint, (total, chunk), body)?;
                self.on_point(post, key, change)
            }
            Trailer::Go { stream } => {
                self.on_go(post.now, from, stream);
                Ok(())
            }
            Trailer::Stop { culprit } => Err(Failure::Stopped { rank: from, culprit }),
            Trailer::Differ(mismatch) => {
                self.is_reported = true;
                Err(Failure::Differs(mismatch))
            }
        }
    }

    /// True if the call that a message needs was not made here yet.
    fn is_early(&self, key: Key) -> bool {
        match key {
            Key::Operation(operation) => operation >= self.next_operation,
            Key::Point(key) => self.points.is_early(key),
        }
    }

    /// Acts on a chunk of an operation that was submitted here.
    fn on_chunk(&mut self, post: &mut MeshPost, from: u32, chunk: Chunk) -> Result<(), Failure> {
        let stream = chunk.stream;
        let (StreamId::Give(operation) | StreamId::Share(operation)) = stream else {
            return Ok(());
        };
        let Some(op) = self.ops.get_mut(&operation) else {
            post.refuse();
            return self.check_ended(from, operation, &chunk.fingerprint);
        };
        let change = op.take(post.now, from, chunk)?;
        if change.is_refused {
            post.refuse();
        }
        if change.needs_go {
            self.tell(post, from, Trailer::Go { stream })?;
        }
        if change.is_first {
            self.lanes[from as usize].wake(StreamId::Give(operation));
            self.lanes[from as usize].wake(StreamId::Share(operation));
        }
        if change.can_share {
            self.wake_all(StreamId::Share(operation));
        }
        self.settle_calls(post, operation)
    }

    /// A rank has made the call of an operation, and says so. If it is the root, it may have compared the calls of
    /// all ranks.
    fn on_called(
        &mut self,
        post: &mut MeshPost,
        from: u32,
        operation: u64,
        theirs: &Fingerprint,
        has_compared: bool,
    ) -> Result<(), Failure> {
        let Some(op) = self.ops.get_mut(&operation) else {
            return self.check_ended(from, operation, theirs);
        };
        op.compare(post.now, from, theirs)?;
        if has_compared {
            if op.other_root() == Some(from) {
                op.on_agreed();
            }
            self.end_if_done(post, operation);
            return Ok(());
        }
        self.lanes[from as usize].wake(StreamId::Give(operation));
        self.lanes[from as usize].wake(StreamId::Share(operation));
        self.settle_calls(post, operation)
    }

    /// Tells the others if all have made the same call, and ends the operation if it is done.
    // spec: E-11
    fn settle_calls(&mut self, post: &mut MeshPost, operation: u64) -> Result<(), Failure> {
        if let Some(op) = self.ops.get_mut(&operation)
            && op.has_compared_all()
        {
            let Place { rank, ranks, .. } = self.place;
            let others = (0..ranks).filter(|&to| to != rank);
            let agreed: Vec<_> = others.map(|to| (to, op.fingerprint_to(to))).collect();
            for (to, fingerprint) in agreed {
                self.tell(post, to, Trailer::Agreed { operation, fingerprint })?;
            }
        }
        self.end_if_done(post, operation);
        Ok(())
    }

    /// A message of an operation that has ended here is a copy that comes late, or a rank is in
    /// something else.
    fn check_ended(&self, from: u32, operation: u64, theirs: &Fingerprint) -> Result<(), Failure> {
        let Some(own) = self.ended.get(&operation) else { return Ok(()) };
        Fingerprint::compare((self.place.rank, own), (from, theirs)).map_err(Failure::Differs)
    }

    fn on_point(
        &mut self,
        post: &mut MeshPost,
        key: PointKey,
        change: points::Change,
    ) -> Result<(), Failure> {
        match change {
            points::Change::Refused => post.refuse(),
            points::Change::Taken { needs_go: false } => {}
            points::Change::Taken { needs_go: true } => {
                let (from, ..) = key;
                self.tell(post, from, Trailer::Go { stream: points::stream_of(key) })?;
            }
            points::Change::Complete(transfer, bytes) => {
                let (from, ..) = key;
                post.events.push_back(Event::Received { transfer, from, bytes });
            }
        }
        Ok(())
    }

    /// A rank has made the call that a transfer to it belongs to. The transfer may have ended.
    fn on_go(&mut self, now: Time, from: u32, stream: StreamId) {
        match stream {
            StreamId::Give(operation) | StreamId::Share(operation) => {
                if let Some(op) = self.ops.get_mut(&operation) {
                    op.note_received(now, from);
                }
            }
            StreamId::Point { tag, number } => self.points.on_go((from, tag, number)),
        }
        self.lanes[from as usize].wake(stream);
    }

    fn end_if_done(&mut self, post: &mut MeshPost, operation: u64) {
        if !self.ops.get(&operation).is_some_and(Op::is_done) {
            return;
        }
        if let Some(op) = self.ops.remove(&operation) {
            self.ended.insert(operation, op.fingerprint());
            if self.ended.len() > ENDED_MEMORY {
                self.ended.pop_first();
            }
            post.counters.finished_operations += 1;
            let (operation, outcome) = (Operation(operation), op.outcome());
            post.events.push_back(Event::Finished { operation, outcome });
        }
    }

    /// A transfer to every other rank may have a chunk to send.
    fn wake_all(&mut self, stream: StreamId) {
        for (rank, lane) in (0..).zip(&mut self.lanes) {
            if self.place.is_other(rank) {
                lane.wake(stream);
            }
        }
    }

    /// Acts on the messages that came before the calls that were made since.
    fn replay(&mut self, post: &mut MeshPost) -> Result<(), Failure> {
        // A message may be matched with a receive from any rank, which makes another call.
        while let Some(key) = self.next_called() {
            self.tell_call(post, key)?;
            for message in self.early.take(key) {
                self.on_message(post, message)?;
            }
            // A rank alone waits for nobody.
            if let Key::Operation(operation) = key {
                self.end_if_done(post, operation);
            }
        }
        Ok(())
    }

    /// The next call whose early messages were not looked at.
    fn next_called(&mut self) -> Option<Key> {
        (!self.called.is_empty()).then(|| self.called.remove(0))
    }

    /// Sends the call of an operation to its root, which compares all of them, or from there.
    fn tell_call(&mut self, post: &mut MeshPost, key: Key) -> Result<(), Failure> {
        let Key::Operation(operation) = key else { return Ok(()) };
        let Some(op) = self.ops.get(&operation) else { return Ok(()) };
        let ranks = op.ranks_to_tell().into_iter();
        let calls: Vec<_> = ranks.map(|rank| (rank, op.fingerprint_to(rank))).collect();
        for (rank, fingerprint) in calls {
            self.tell(post, rank, Trailer::Called { operation, fingerprint })?;
        }
        Ok(())
    }

    /// The transfer to a rank that may send the next chunk, if there is room for one.
    fn next_stream(&mut self, to: u32) -> Option<StreamId> {
        let (lane, ops, points) = (&mut self.lanes[to as usize], &self.ops, &self.points);
        match self.order {
            TransferOrder::InTurn => lane.next(self.chunks_at_once),
            TransferOrder::ShortestFirst => {
                lane.shortest(self.chunks_at_once, |stream| match stream {
                    StreamId::Give(operation) | StreamId::Share(operation) => {
                        ops.get(&operation).map_or(0, |op| op.bytes_left(stream, to))
                    }
                    StreamId::Point { tag, number } => points.bytes_left((to, tag, number)),
                })
            }
        }
    }

    /// Sends to a rank what may be sent.
    fn fill_lane(&mut self, post: &mut MeshPost, to: u32) -> Result<(), Failure> {
        while let Some(stream) = self.next_stream(to) {
            let message = match stream {
                StreamId::Give(operation) | StreamId::Share(operation) => {
                    self.ops.get_mut(&operation).and_then(|op| op.next_message(stream, to))
                }
                StreamId::Point { tag, number } => self.points.next_message((to, tag, number)),
            };
            let Some(message) = message else {
                self.lanes[to as usize].rest(stream);
                continue;
            };
            let index = self.start(post, to, message)?;
            self.in_flight.insert(index, (to, stream));
            self.lanes[to as usize].on_started();
            if let StreamId::Give(operation) | StreamId::Share(operation) = stream {
                self.end_if_done(post, operation);
            }
        }
        Ok(())
    }

    /// Sends what is too short to wait for its turn.
    fn tell(&mut self, post: &mut MeshPost, to: u32, trailer: Trailer) -> Result<(), Failure> {
        self.start(post, to, trailer.frame(&[])).map(|_| ())
    }

    fn start(&mut self, post: &mut MeshPost, to: u32, message: Box<[u8]>) -> Result<u64, Failure> {
        let index = self.next_index;
        if index >= MAX_MESSAGES {
            return Err(Failure::Exhausted);
        }
        self.next_index += 1;
        let message = NumberedMessage::new(index, Block::Bytes(Payload::Bytes(message)));
        post.send(self.members[to as usize], message)?;
        Ok(index)
    }

    /// Tells everybody who can still hear it that this rank has stopped.
    fn tell_stop(&mut self, post: &mut MeshPost, failure: Failure) {
        if self.is_reported || matches!(failure, Failure::Stopped { .. }) {
            return;
        }
        let lost = if let Failure::Lost { rank } = failure { Some(rank) } else { None };
        let culprit = failure.culprit().unwrap_or(self.place.rank);
        let trailer = match failure {
            Failure::Differs(mismatch) => Trailer::Differ(mismatch),
            _ => Trailer::Stop { culprit },
        };
        for rank in 0..self.place.ranks {
            if self.place.is_other(rank) && Some(rank) != lost {
                // Where this fails too, silence tells the others.
                let _ = self.tell(post, rank, trailer);
            }
        }
    }
}

impl Part for Hub {
    type Call = Request;
    type Refusal = SubmitError;
    type Event = Event;
    type Failure = Failure;

    fn add(
        &mut self,
        now: Time,
        operation: Operation,
        request: Request,
    ) -> Result<(), SubmitError> {
        request.call.check(&self.place)?;
        self.ops.insert(operation.0, Op::new(now, operation, self.place, request));
        self.next_operation = operation.0 + 1;
        self.called.push(Key::Operation(operation.0));
        self.wake_all(StreamId::Give(operation.0));
        Ok(())
    }

    fn on_received(
        &mut self,
        post: &mut MeshPost,
        src: NodeId,
        message: NumberedMessage,
    ) -> Result<(), Failure> {
        let from = self.ranks.get(&src).copied().filter(|&rank| self.place.is_other(rank));
        if let (Some(from), Block::Bytes(Payload::Bytes(bytes))) = (from, message.block) {
            let mut body = bytes.into_vec();
            if let Ok(trailer) = Trailer::unframe(&mut body) {
                return self.on_message(post, early::Message { from, trailer, body });
            }
        }
        post.refuse();
        Ok(())
    }

    fn on_sent(&mut self, post: &mut MeshPost, index: u64) {
        let Some((to, stream)) = self.in_flight.remove(&index) else { return };
        self.lanes[to as usize].on_sent();
        if let StreamId::Point { tag, number } = stream
            && let Some(transfer) = self.points.on_sent((to, tag, number))
        {
            post.events.push_back(Event::Sent { transfer });
        }
    }

    fn advance(&mut self, post: &mut MeshPost) -> Result<(), Failure> {
        self.replay(post)?;
        let Place { rank, ranks, .. } = self.place;
        // Everybody begins with the next one, so that not all send to the same rank first.
        for to in (rank + 1..ranks).chain(0..rank) {
            self.fill_lane(post, to)?;
        }
        Ok(())
    }

    fn lost(&self, node: NodeId) -> Failure {
        let rank = self.ranks.get(&node).copied();
        Failure::Lost { rank: rank.expect("messages go to members only") }
    }

    /// Every chunk in flight is counted at the rank that it goes to.
    // spec: T-12
    fn check(&self) {
        self.early.check();
        self.points.check();
        let mut in_flight = vec![0; self.lanes.len()];
        self.in_flight.values().for_each(|(to, _)| in_flight[*to as usize] += 1);
        for (lane, in_flight) in self.lanes.iter().zip(in_flight) {
            lane.check(in_flight, self.chunks_at_once);
        }
        let last = self.in_flight.keys().next_back();
        assert!(last.is_none_or(|&last| last < self.next_index), "messages have their own numbers");
    }

    fn abandon(&mut self, post: &mut MeshPost, failure: Failure) {
        self.tell_stop(post, failure);
        self.early.clear();
        self.called.clear();
        for operation in std::mem::take(&mut self.ops).into_keys().map(Operation) {
            post.events.push_back(Event::Failed { operation, failure });
        }
        for transfer in self.points.abandon() {
            post.events.push_back(Event::TransferFailed { transfer, failure });
        }
    }
}
