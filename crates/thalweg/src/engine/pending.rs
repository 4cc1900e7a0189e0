//! Operations that have not ended.

use std::collections::BTreeMap;

use thalweg_collective::mesh::{self, Transfer};
use thalweg_core::{JobId, Operation, Time};
use thalweg_stack::Event;

use crate::error::Error;
use crate::handle::Reply;

/// Who waits for what.
#[derive(Default)]
pub(super) struct Pending {
    /// With the time when each began.
    sums: BTreeMap<(JobId, Operation), (Time, Reply)>,
    calls: BTreeMap<Operation, Reply>,
    transfers: BTreeMap<Transfer, Reply>,
}

impl Pending {
    pub fn sum(&mut self, now: Time, job: JobId, operation: Operation, reply: Reply) {
        self.sums.insert((job, operation), (now, reply));
    }

    pub fn call(&mut self, operation: Operation, reply: Reply) {
        self.calls.insert(operation, reply);
    }

    pub fn transfer(&mut self, transfer: Transfer, reply: Reply) {
        self.transfers.insert(transfer, reply);
    }

    pub fn is_empty(&self) -> bool {
        self.sums.is_empty() && self.calls.is_empty() && self.transfers.is_empty()
    }

    /// The collective that waits longest.
    pub fn oldest_call(&self) -> Option<Operation> {
        self.calls.first_key_value().map(|(operation, _)| *operation)
    }

    /// The oldest sum of a lane, and when it began.
    pub fn oldest_sum(&self, lane: JobId) -> Option<(Operation, Time)> {
        let mut of_lane = self.sums.range((lane, Operation(0))..=(lane, Operation(u64::MAX)));
        of_lane.next().map(|((_, operation), (since, _))| (*operation, *since))
    }

    /// Ends what an event is about. The text of a failure that is everybody's.
    pub fn end(&mut self, event: Event) -> Option<String> {
        match event {
            Event::Finished { job, operation, tensor, .. } => {
                if let Some((_, reply)) = self.sums.remove(&(job, operation)) {
                    reply.end(Ok(tensor));
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
                if let Some(reply) = self.calls.remove(&operation) {
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
        let calls = std::mem::take(&mut self.calls).into_values();
        let transfers = std::mem::take(&mut self.transfers).into_values();
        for reply in sums.chain(calls).chain(transfers) {
            reply.fail(error.clone());
        }
    }
}
