//! The worker's role: which chunks to push, where the sums go.

use thalweg_core::Operation;
use thalweg_wire::frame::{CalledOperation, SumFrame};

use crate::block::{self, Block, VALUE_BYTES};
use crate::call::{Care, SumCall};
use crate::carrier::{NumberedMessage, Older, Want};
use crate::event::SubmitError;
use crate::plan::{Finished, Found, Plan};
use crate::window::Window;

/// Cuts tensors into chunks and deals them out to the servers: chunk c goes to server c mod N and is
/// number c / N there.
pub(super) struct Worker {
    plan: Plan,
    /// One for each server.
    lanes: Vec<Lane>,
    /// Number of workers.
    ranks: u32,
    chunks_in_flight: u64,
    pushes_at_once: u32,
}

/// The chunks of one server.
#[derive(Default)]
struct Lane {
    /// The first that was not pushed.
    unpushed: u64,
    /// Number of pushes in flight.
    pushes: u32,
    /// By pushed chunk, true if it has its sum.
    has_sum: Window<bool>,
}

/// Outcome of a sum.
pub(super) enum Intake {
    /// Nobody waited for it.
    Unexpected,
    /// It cannot be of the chunk that it names.
    Mismatch,
    /// It was taken in.
    Taken,
    /// It was the last one of an operation.
    Finished(Finished),
}

impl Worker {
    pub fn new(
        plan: Plan,
        servers: usize,
        ranks: u32,
        (chunks_in_flight, pushes_at_once): (u32, u32),
    ) -> Worker {
        let lanes = (0..servers).map(|_| Lane::default()).collect();
        Worker { plan, lanes, ranks, chunks_in_flight: chunks_in_flight.into(), pushes_at_once }
    }

    pub fn add(&mut self, operation: Operation, call: SumCall) -> Result<(), SubmitError> {
        self.plan.add(operation, call)
    }

    pub fn abandon(&mut self) -> Vec<Operation> {
        self.plan.abandon()
    }

    /// The next chunk for a server, the care that it needs and its operation, if one may be pushed now. It
    /// counts as in flight until [`on_pushed`](Worker::on_pushed).
    pub fn next_push(&mut self, server: usize) -> Option<(u64, Care, CalledOperation, Block)> {
        let servers = self.lanes.len() as u64;
        let lane = &mut self.lanes[server];
        let chunk = lane.unpushed * servers + server as u64;
        let may_push = chunk < self.plan.pieces()
            && lane.unpushed < lane.has_sum.oldest() + self.chunks_in_flight
            && lane.pushes < self.pushes_at_once;
        if !may_push {
            return None;
        }
        let Found { tensor, range, care, called, form, .. } = self.plan.find(chunk)?;
        lane.unpushed += 1;
        lane.pushes += 1;
        Some((chunk, care, called, Block::copy(tensor, range, form)))
    }

    /// A push is no longer in flight.
    pub fn on_pushed(&mut self, chunk: u64) {
        let lane = (chunk % self.lanes.len() as u64) as usize;
        self.lanes[lane].pushes -= 1;
    }

    /// Panics where a server's chunks are counted wrongly, or more are in flight than may be.
    // spec: T-12
    pub fn check(&self) {
        self.plan.check_pieces();
        for (server, lane) in self.lanes.iter().enumerate() {
            lane.has_sum.check(self.chunks_in_flight, |&has_sum| has_sum);
            let open = lane.unpushed.checked_sub(lane.has_sum.oldest());
            let is_within = open.is_some_and(|open| open <= self.chunks_in_flight);
            assert!(is_within, "server {server}: {open:?} chunks without a sum were pushed");
            let (pushes, most) = (lane.pushes, self.pushes_at_once);
            assert!(pushes <= most, "server {server}: {pushes} pushes are in flight, not {most}");
        }
    }

    /// Answers a server that offers the sum of a chunk. `None` if the sum has another length than it must
    /// have.
    pub fn want(&mut self, chunk: u64, bytes: u64) -> Option<Want> {
        let servers = self.lanes.len() as u64;
        let lane = &mut self.lanes[(chunk % servers) as usize];
        let pushed = lane.unpushed - lane.has_sum.oldest();
        let slot = lane.has_sum.slot(chunk / servers, pushed).filter(|has_sum| !**has_sum);
        let (Some(_), Some(found)) = (slot, self.plan.find(chunk)) else {
            return Some(Want::Never);
        };
        let Found { range, older, care, .. } = found;
        let fits = bytes == (range.end - range.start) * VALUE_BYTES;
        // The bound of the call holds for what is pulled as well.
        // spec: M-07, T-02
        let loss = care.loss;
        let kept = |older| Older { values: block::widened(older, range), loss };
        fits.then(|| Want::Result(older.map(kept)))
    }

    /// Takes in the sum of a chunk.
    pub fn take(&mut self, chunk: u64, sum: &NumberedMessage) -> Intake {
        let NumberedMessage { block, frame, .. } = sum;
        let servers = self.lanes.len() as u64;
        let lane = &mut self.lanes[(chunk % servers) as usize];
        let pushed = lane.unpushed - lane.has_sum.oldest();
        let slot = lane.has_sum.slot(chunk / servers, pushed).filter(|has_sum| !**has_sum);
        let (Some(has_sum), Some(mut found)) = (slot, self.plan.find(chunk)) else {
            return Intake::Unexpected;
        };
        // A server adds only what is of one operation, so this is about the server.
        let is_same = frame.is_none_or(|frame| match frame {
            SumFrame::Values(theirs) => found.called.is_same(&theirs),
            SumFrame::Stop(_) => false,
        });
        if !is_same || !block.fits(found.tensor, &found.range, frame.is_some()) {
            return Intake::Mismatch;
        }
        let everybody: Vec<u32> = (0..self.ranks).collect();
        found.cover(found.range.start, &sum.arrived_coverage(&everybody));
        block.write(found.tensor, found.range);
        *has_sum = true;
        lane.has_sum.slide(|&has_sum| has_sum);
        self.plan.close(chunk).map_or(Intake::Taken, Intake::Finished)
    }
}
