//! Operations that have not ended.

use std::collections::BTreeMap;

use thalweg_collective::mesh::{self, Transfer};
use thalweg_core::{JobId, Operation};
use thalweg_stack::Event;

use super::Summed;
use super::comparison::Begun;
use crate::error::Error;
use crate::handle::Reply;

/// Who waits for what.
#[derive(Default)]
pub(super) struct Pending {
    sums: BTreeMap<(JobId, Operation), (Begun, Reply)>,
    calls: BTreeMap<Operation, (Begun, Reply)>,
    transfers: BTreeMap<Transfer, Reply>,
    /// What can only fail, once everybody knows why.
    doomed: Vec<Reply>,
}

/// Why a transport stopped.
pub(super) enum Fault {
    /// This rank has noticed it.
    Own(String),
    /// Sums stopped at this rank, or at the leader of another host, by seat.
    Sums(thalweg_collective::Failure),
    /// Another rank has noticed it, and knows more.
    Hearsay(String),
}

impl Pending {
    pub fn sum(&mut self, begun: Begun, job: JobId, operation: Operation, reply: Reply) {
        self.sums.insert((job, operation), (begun, reply));
    }

    pub fn call(&mut self, begun: Begun, operation: Operation, reply: Reply) {
        self.calls.insert(operation, (begun, reply));
    }

    /// Keeps what cannot begin, because the job is about to fail.
    pub fn doom(&mut self, reply: Reply) {
        self.doomed.push(reply);
    }

    pub fn transfer(&mut self, transfer: Transfer, reply: Reply) {
        self.transfers.insert(transfer, reply);
    }

    pub fn is_empty(&self) -> bool {
        let is_any_left = !self.sums.is_empty() || !self.calls.is_empty();
        !is_any_left && self.doomed.is_empty() && self.transfers.is_empty()
    }

    /// The number of the first sum or collective that has not ended.
    pub fn first_open(&self) -> Option<u64> {
        let sums = self.sums.values().map(|(begun, _)| begun.number);
        let calls = self.calls.values().map(|(begun, _)| begun.number);
        sums.chain(calls).min()
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

    /// Ends what an event is about. A failure is everybody's.
    pub fn end(&mut self, event: Event) -> Option<Fault> {
        match event {
            Event::Finished { job, operation, tensor, coverage, .. } => {
                if let Some((_, reply)) = self.sums.remove(&(job, operation)) {
                    reply.end_with(Box::new(Summed { tensor, coverage }));
                }
                None
            }
            Event::Failed { failure, .. } => Some(Fault::Sums(failure)),
            Event::Mesh { event, .. } => self.end_of_mesh(event),
            Event::Flow(_) | Event::Server(_) => None,
        }
    }

    fn end_of_mesh(&mut self, event: mesh::Event) -> Option<Fault> {
        match event {
            mesh::Event::Finished { operation, outcome } => {
                if let Some((_, reply)) = self.calls.remove(&operation) {
                    reply.end_with(Box::new(outcome));
                }
                None
            }
            mesh::Event::Sent { transfer } => {
                if let Some(reply) = self.transfers.remove(&transfer) {
                    reply.end(Ok(()));
                }
                None
            }
            mesh::Event::Received { transfer, from, bytes } => {
                if let Some(reply) = self.transfers.remove(&transfer) {
                    reply.end(Ok((from, bytes)));
                }
                None
            }
            mesh::Event::Failed { failure, .. } | mesh::Event::TransferFailed { failure, .. } => {
                Some(fault_of_mesh(&failure))
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

/// A rank that received the report of a failure knows less than the one that sent it.
pub(super) fn fault_of_mesh(failure: &mesh::Failure) -> Fault {
    match failure {
        mesh::Failure::Stopped { .. } => Fault::Hearsay(failure.to_string()),
        _ => Fault::Own(failure.to_string()),
    }
}
