//! Order in which segments go around.

use std::collections::BTreeMap;
use std::ops::Range;

use thalweg_core::{Fingerprint, NodeId, Operation, Time};
use thalweg_values::{Bits, Coverage};
use thalweg_wire::frame::{CalledOperation, SumFrame};

use crate::block::{Block, VALUE_BYTES};
use crate::call::{Care, SumCall};
use crate::carrier::{NumberedMessage, Phase, Want};
use crate::delivery::Delivery;
use crate::event::{Event, Failure, SubmitError};
use crate::member::{Offer, Part};
use crate::plan::{Found, Plan, part};
use crate::post::{Post, STOP_MESSAGE};
use crate::window::Window;

/// The place of a worker in the ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Neighbours {
    pub predecessor: NodeId,
    pub successor: NodeId,
    pub rank: u64,
    pub workers: u64,
}

/// The rounds of all pieces.
///
/// A message is known by its piece and its round: in round h worker r sends segment r − h. What
/// comes in one round goes on in the next, so rounds of different pieces, and even of one, may
/// overtake each other.
pub struct Rounds {
    neighbours: Neighbours,
    plan: Plan,
    pieces_in_flight: u64,
    /// Most values of a message.
    chunk_values: u64,
    /// The first piece that this worker has not begun.
    unbegun: u64,
    progress: Window<Progress>,
    /// Messages that came for operations that were not submitted here yet, by piece and round.
    early: BTreeMap<(u64, u64), NumberedMessage>,
}

/// The rounds of a piece in which its message has come. Without a length before the first.
#[derive(Debug, Default)]
struct Progress(Bits);

impl Rounds {
    pub(super) fn new(
        neighbours: Neighbours,
        chunk_values: u64,
        pieces_in_flight: u32,
        delivery: Option<&Delivery>,
    ) -> Rounds {
        // A worker alone sends nothing, so there is nothing to be gained from pieces.
        let piece_values =
            if neighbours.workers == 1 { u64::MAX } else { chunk_values * neighbours.workers };
        let max_pieces = STOP_MESSAGE / neighbours.rounds().max(1);
        Rounds {
            neighbours,
            plan: Plan::new(piece_values, max_pieces).with_delivery(delivery),
            pieces_in_flight: pieces_in_flight.into(),
            chunk_values,
            unbegun: 0,
            progress: Window::default(),
            early: BTreeMap::new(),
        }
    }

    /// Distance of the furthest piece that the predecessor may send beyond the oldest one. Others may have
    /// finished all that this worker has begun, and have begun as many again.
    fn span(&self) -> u64 {
        2 * self.pieces_in_flight
    }

    /// Keeps a message until its operation is submitted. Before that no segment can be all the way
    /// around.
    fn keep(
        &mut self,
        post: &mut Post,
        (piece, round): (u64, u64),
        message: NumberedMessage,
    ) -> Result<(), Failure> {
        if message.block.is_longer_than(self.chunk_values) {
            return Err(Failure::Mismatch(self.neighbours.predecessor));
        }
        let is_near = piece < self.progress.oldest() + self.span();
        let is_new = !self.early.contains_key(&(piece, round));
        if is_near && is_new && round < self.neighbours.workers - 1 {
            self.early.insert((piece, round), message);
        } else {
            post.refuse();
        }
        Ok(())
    }

    /// Takes in the message of a round and sends that of the next.
    fn take(
        &mut self,
        post: &mut Post,
        (piece, round): (u64, u64),
        message: NumberedMessage,
    ) -> Result<(), Failure> {
        let Neighbours { predecessor, workers, .. } = self.neighbours;
        let (rounds, span) = (self.neighbours.rounds(), self.span());
        let slot = self.progress.slot(piece, span).filter(|progress| !progress.has(round));
        let (Some(progress), Some(mut found)) = (slot, self.plan.find(piece)) else {
            post.refuse();
            return Ok(());
        };
        let (care, called, frame) = (found.care, found.called, message.frame);
        if !self.neighbours.agree(&called, frame)? {
            post.refuse();
            return Ok(());
        }
        let range = self.neighbours.segment(found.range.clone(), round + 1);
        if !message.block.fits(found.tensor, &range, frame.is_some()) {
            return Err(Failure::Mismatch(predecessor));
        }
        let coverage = message.arrived_coverage(&self.neighbours.contributors(round));
        let mut block = message.block;
        if round + 1 < workers {
            block.add_values(found.tensor, range.clone());
        }
        if round + 2 >= workers {
            found.cover(range.start, &coverage);
            block.write(found.tensor, range);
        }
        progress.note(round, rounds);
        let is_done = progress.is_done();
        if round + 1 < rounds {
            self.send(post, (piece, round + 1), (care, called), (block, coverage))?;
        }
        if is_done {
            self.progress.slide(Progress::is_done);
            self.close(post, piece);
        }
        Ok(())
    }

    fn send(
        &mut self,
        post: &mut Post,
        (piece, round): (u64, u64),
        (care, called): (Care, CalledOperation),
        (block, coverage): (Block, Coverage),
    ) -> Result<(), Failure> {
        let index = piece * self.neighbours.rounds() + round;
        let phase = self.neighbours.phase(round);
        // A segment is lost bit by bit on the hops of the first half.
        let loss = care.loss.map(|loss| loss.divided(self.neighbours.workers - 1));
        let (care, frame) = (Care { loss, ..care }, Some(SumFrame::Values(called)));
        let message = NumberedMessage::new(index, block);
        let message = NumberedMessage { care, phase, frame, coverage, ..message };
        Ok(post.send(self.neighbours.successor, message)?)
    }

    fn close(&mut self, post: &mut Post, piece: u64) {
        if let Some(finished) = self.plan.close(piece) {
            post.finish(finished);
        }
    }

    /// Sends the first segment of the next piece.
    fn begin(&mut self, post: &mut Post) -> Result<(), Failure> {
        let piece = self.unbegun;
        self.unbegun += 1;
        if self.neighbours.workers == 1 {
            self.close(post, piece);
            return Ok(());
        }
        let Some(found) = self.plan.find(piece) else { return Ok(()) };
        let Found { tensor, range, care, called, form, .. } = found;
        let block = Block::copy(tensor, self.neighbours.segment(range, 0), form);
        self.send(post, (piece, 0), (care, called), (block, Coverage::Exact))
    }

    fn may_begin(&self) -> bool {
        let is_near = self.unbegun < self.progress.oldest() + self.pieces_in_flight;
        self.unbegun < self.plan.pieces() && (is_near || self.neighbours.workers == 1)
    }
}

impl Part for Rounds {
    type Call = SumCall;
    type Refusal = SubmitError;
    type Event = Event;
    type Failure = Failure;

    fn add(&mut self, _: Time, operation: Operation, call: SumCall) -> Result<(), SubmitError> {
        self.plan.add(operation, call)
    }

    fn on_received(
        &mut self,
        post: &mut Post,
        src: NodeId,
        message: NumberedMessage,
    ) -> Result<(), Failure> {
        let index = message.index;
        let rounds = self.neighbours.rounds();
        if src != self.neighbours.predecessor || rounds == 0 {
            post.refuse();
            return Ok(());
        }
        if index == STOP_MESSAGE {
            post.refuse();
            return stopped(message.frame);
        }
        let place = (index / rounds, index % rounds);
        if place.0 >= self.plan.pieces() {
            return self.keep(post, place, message);
        }
        self.take(post, place, message)
    }

    fn want(&mut self, offer: &Offer) -> Result<Want, Failure> {
        let &Offer { src, index, bytes, frame } = offer;
        let (rounds, span) = (self.neighbours.rounds(), self.span());
        if src != self.neighbours.predecessor || rounds == 0 {
            return Ok(Want::Never);
        }
        if index == STOP_MESSAGE {
            return stopped(frame).map(|()| Want::Never);
        }
        let (piece, round) = (index / rounds, index % rounds);
        let slot = self.progress.slot(piece, span).filter(|progress| !progress.has(round));
        let found = match (slot, self.plan.find(piece)) {
            (None, _) => return Ok(Want::Never),
            // Its operation was not submitted here yet.
            (Some(_), None) => return Ok(Want::Later),
            (Some(_), Some(found)) => found,
        };
        if !self.neighbours.agree(&found.called, frame)? {
            return Ok(Want::Never);
        }
        let range = self.neighbours.segment(found.range, round + 1);
        match self.neighbours.phase(round) {
            _ if bytes != (range.end - range.start) * VALUE_BYTES => Err(Failure::Mismatch(src)),
            Phase::Gradient => Ok(Want::Gradient),
            Phase::Result => Ok(Want::Result(None)),
        }
    }

    fn on_sent(&mut self, _: &mut Post, _index: u64) {}

    fn advance(&mut self, post: &mut Post) -> Result<(), Failure> {
        while self.may_begin() {
            self.begin(post)?;
        }
        while let Some(entry) = self.early.first_entry() {
            let place = *entry.key();
            if place.0 >= self.plan.pieces() {
                break;
            }
            let message = entry.remove();
            self.take(post, place, message)?;
        }
        Ok(())
    }

    fn lost(&self, node: NodeId) -> Failure {
        Failure::Lost(node)
    }

    /// Every piece has as many rounds as are noted, and none is further ahead than may be.
    // spec: T-12
    fn check(&self) {
        self.plan.check_pieces();
        let (rounds, span) = (self.neighbours.rounds(), self.span());
        if rounds == 0 {
            return;
        }
        self.progress.check(span, Progress::is_done);
        self.progress.iter().for_each(|progress| progress.0.check());
        let oldest = self.progress.oldest();
        let is_near = self.unbegun <= oldest + self.pieces_in_flight;
        assert!(is_near, "piece {} is next, the oldest is {oldest}", self.unbegun);
        let last = self.early.keys().next_back().map_or(0, |(piece, _)| *piece);
        assert!(last < oldest + span, "piece {last} came too early, the oldest is {oldest}");
    }

    fn disagrees(&self, node: NodeId) -> Failure {
        Failure::Mismatch(node)
    }

    fn abandon(&mut self, post: &mut Post, failure: Failure) {
        if let Failure::Differs(mismatch) = failure {
            // It goes around once: who has stopped does not pass it on.
            post.send_stop(self.neighbours.successor, mismatch);
        }
        self.early.clear();
        post.fail(self.plan.abandon(), failure);
    }
}

/// Returns the failure that a message reports if its sender has stopped.
fn stopped(frame: Option<SumFrame>) -> Result<(), Failure> {
    match frame {
        Some(SumFrame::Stop(mismatch)) => Err(Failure::Differs(mismatch)),
        _ => Ok(()),
    }
}

impl Neighbours {
    /// Returns whether a message of the predecessor is of the same operation. An error if it is of the same number,
    /// and another operation.
    // spec: E-11
    fn agree(&self, own: &CalledOperation, frame: Option<SumFrame>) -> Result<bool, Failure> {
        let theirs = match frame {
            Some(SumFrame::Values(theirs)) => theirs,
            Some(SumFrame::Stop(_)) => return Ok(false),
            // Only the length of the values is known.
            None => return Ok(true),
        };
        if theirs.number != own.number {
            return Ok(false);
        }
        // Places have 32 bits.
        let [rank, before] =
            [self.rank, (self.rank + self.workers - 1) % self.workers].map(|rank| rank as u32);
        Fingerprint::compare((rank, &own.fingerprint), (before, &theirs.fingerprint))
            .map_err(Failure::Differs)?;
        Ok(true)
    }

    /// Number of messages of a piece that a worker sends, and receives.
    fn rounds(&self) -> u64 {
        2 * (self.workers - 1)
    }

    /// Ranks whose values are in a message of the predecessor.
    fn contributors(&self, round: u64) -> Vec<u32> {
        let count = (round + 1).min(self.workers);
        let rank = |steps: u64| ((self.rank + self.workers - steps) % self.workers) as u32;
        let mut ranks: Vec<u32> = (1..=count).map(rank).collect();
        ranks.sort_unstable();
        ranks
    }

    /// Phase of the message of a round: it goes into a sum, or is one.
    fn phase(&self, round: u64) -> Phase {
        if round + 1 < self.workers { Phase::Gradient } else { Phase::Result }
    }

    /// The values of a piece that this worker sends in a round.
    fn segment(&self, piece: Range<u64>, round: u64) -> Range<u64> {
        let segment = (self.rank + 2 * self.workers - round) % self.workers;
        part(piece, self.workers, segment)
    }
}

impl Progress {
    fn has(&self, round: u64) -> bool {
        self.0.contains(round as u32)
    }

    fn note(&mut self, round: u64, rounds: u64) {
        if self.0.is_empty() {
            self.0 = Bits::new(rounds as u32);
        }
        self.0.insert(round as u32);
    }

    fn is_done(&self) -> bool {
        !self.0.is_empty() && self.0.is_full()
    }
}
