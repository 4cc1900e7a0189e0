//! Operations that have not ended.

use std::collections::BTreeMap;

use thalweg_collective::mesh::{self, Transfer};
use thalweg_core::{JobId, Operation, Time};
use thalweg_stack::Event;

use super::Summed;
use crate::error::Error;
use crate::handle::Reply;

/// Who waits for what.
#[derive(Default)]
pub(super) struct Pending {
    /// How many sums and collectives have begun.
    begun: u64,
    sums: BTreeMap<(JobId, Operation), (Begun, Reply)>,
    calls: BTreeMap<Operation, (Begun, Reply)>,
    transfers: BTreeMap<Transfer, Reply>,
    /// What can only fail, once everybody knows why.
    doomed: Vec<Reply>,
}

/// The beginning of a sum or a collective.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    /// How many had begun before it: the same at every rank, whatever carries them out.
    pub number: u64,
    pub at: Time,
}

impl Pending {
    pub fn sum(&mut self, now: Time, job: JobId, operation: Operation, reply: Reply) {
        let begun = self.begin(now);
        self.sums.insert((job, operation), (begun, reply));
    }

    pub fn call(&mut self, now: Time, operation: Operation, reply: Reply) {
        let begun = self.begin(now);
        self.calls.insert(operation, (begun, reply));
    }

    /// Keeps what cannot begin, because the job is about to fail.
    pub fn doom(&mut self, reply: Reply) {
        self.doomed.push(reply);
    }

    fn begin(&mut self, now: Time) -> Begun {
        self.begun += 1;
        Begun { number: self.begun - 1, at: now }
    }

    pub fn transfer(&mut self, transfer: Transfer, reply: Reply) {
        self.transfers.insert(transfer, reply);
    }

    pub fn is_empty(&self) -> bool {
        let is_any_left = !self.sums.is_empty() || !self.calls.is_empty();
        !is_any_left && self.transfers.is_empty() && self.doomed.is_empty()
    }

    /// The number of the first sum or collective that has not ended, or of the next one to begin.
    pub fn first_open(&self) -> u64 {
        let sums = self.sums.values().map(|(begun, _)| begun.number);
        let calls = self.calls.values().map(|(begun, _)| begun.number);
        sums.chain(calls).min().unwrap_or(self.begun)
    }

    /// The collective that waits longest.
    pub fn oldest_call(&self) -> Option<(Operation, Begun)> {
        self.calls.first_key_value().map(|(operation, (begun, _))| (*operation, *begun))
    }

    /// The oldest sum of a lane.
    pub fn oldest_sum(&self, lane: JobId) -> Option<Begun> {
        let mut of_lane = self.sums.range((lane, Operation(0))..=(lane, Operation(u64::MAX)));
        of_lane.next().map(|(_, (begun, _))| *begun)
    }

    /// Ends what an event is about. The text of a failure that is everybody's.
    pub fn end(&mut self, event: Event) -> Option<String> {
        match event {
            Event::Finished { job, operation, tensor, coverage, .. } => {
                if let Some((_, reply)) = self.sums.remove(&(job, operation)) {
                    reply.end(Ok(Summed { tensor, coverage }));
                }
                None
            }
            Event::Failed { failure, .. } => Some(failure.to_string()),
            Event::Mesh { event, .. } => self.end_of_mesh(event),
            Event::Flow(_) | Event::Server(_) => None,
        }
    }

    fn end_of_mesh(&mut self, event: mesh::Event) -> Option<String> {
        match event {
            mesh::Event::Finished { operation, outcome } => {
                if let Some((_, reply)) = self.calls.remove(&operation) {
                    reply.end(Ok(outcome));
                }
                None
            }
            mesh::Event::Sent { transfer } => {
                if let Some(reply) = self.transfers.remove(&transfer) {
                    reply.end(Ok(()));
                }
                None
            }
            mesh::Event::Received { transfer, bytes } => {
                if let Some(reply) = self.transfers.remove(&transfer) {
                    reply.end(Ok(bytes));
                }
                None
            }
            mesh::Event::Failed { failure, .. } | mesh::Event::TransferFailed { failure, .. } => {
                Some(failure.to_string())
            }
        }
    }

    /// Ends everything with one error.
    pub fn fail(&mut self, error: &Error) {
        let sums = std::mem::take(&mut self.sums).into_values().map(|(_, reply)| reply);
        let calls = std::mem::take(&mut self.calls).into_values().map(|(_, reply)| reply);
        let transfers = std::mem::take(&mut self.transfers).into_values();
        let doomed = std::mem::take(&mut self.doomed);
        for reply in sums.chain(calls).chain(transfers).chain(doomed) {
            reply.fail(error.clone());
        }
    }
}
