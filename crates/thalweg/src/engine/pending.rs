//! Operations that have not ended.

use std::collections::BTreeMap;

use thalweg_collective::Event as SumEvent;
use thalweg_collective::mesh::{self, Transfer};
use thalweg_control::{Failure, FailureKind};
use thalweg_core::{JobId, Operation, Time};
use thalweg_deliver::{Completion, Failure as DeliveryFailure, Name};
use thalweg_stack::Event;

use super::Summed;
use super::comparison::{Begun, OpenPart};
use crate::error::{Error, ErrorKind};
use crate::handle::Reply;

/// Operations under way, and those that wait for them.
#[derive(Default)]
pub(super) struct Pending {
    sums: BTreeMap<(JobId, Operation), (BegunSum, Reply)>,
    calls: BTreeMap<Operation, (Begun, Reply)>,
    transfers: BTreeMap<Transfer, (Peer, Reply)>,
    /// Deliveries, by the side of this rank and their name.
    deliveries: BTreeMap<(Side, Name), (Peer, Reply)>,
    /// Replies that can only fail, once all ranks know why.
    doomed: Vec<Reply>,
}

/// The side of a delivery on which this rank is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Side {
    Sends,
    Receives,
}

/// The part of a sum that a sending thread has begun.
pub(super) struct BegunSum {
    pub part: OpenPart,
    pub at: Time,
}

/// The other end of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Peer {
    /// `None` if it may be any rank.
    pub rank: Option<u32>,
    /// True if it sends, and this rank receives.
    pub is_sender: bool,
    /// When the transfer began here.
    pub at: Time,
}

/// Why a transport stopped.
pub(super) enum Fault {
    /// This rank has noticed it.
    Own(Failure),
    /// Sums stopped at this rank, or at the leader of another host, by host number.
    Sums(thalweg_collective::Failure),
    /// Another rank has noticed it, and knows more.
    Hearsay(Hearsay),
}

/// The report of another rank that it stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Hearsay {
    /// The rank that stopped.
    pub rank: u32,
    /// The rank that it blames.
    pub culprit: u32,
}

impl Hearsay {
    /// The failure to report when the other rank has not. It never sends the reader from one rank to the other and back.
    pub fn failure(self, own: u32) -> Failure {
        let Hearsay { rank, culprit } = self;
        let blame = if culprit == own || culprit == rank {
            String::new()
        } else {
            format!(", because of rank {culprit}")
        };
        let text = format!("rank {rank} stopped first{blame}, and has not reported why");
        let culprit = if blame.is_empty() { rank } else { culprit };
        Failure::new(FailureKind::Other, text, vec![culprit])
    }
}

impl Pending {
    pub fn sum(&mut self, begun: BegunSum, job: JobId, operation: Operation, reply: Reply) {
        self.sums.insert((job, operation), (begun, reply));
    }

    pub fn call(&mut self, begun: Begun, operation: Operation, reply: Reply) {
        self.calls.insert(operation, (begun, reply));
    }

    /// Keeps what cannot begin, because the job is about to fail.
    pub fn doom(&mut self, reply: Reply) {
        self.doomed.push(reply);
    }

    pub fn transfer(&mut self, transfer: Transfer, peer: Peer, reply: Reply) {
        self.transfers.insert(transfer, (peer, reply));
    }

    /// Keeps a delivery until it ends.
    // spec: M-10
    pub fn delivery(&mut self, side: Side, name: Name, peer: Peer, reply: Reply) {
        self.deliveries.insert((side, name), (peer, reply));
    }

    /// The transfer or delivery that waits longest.
    pub fn oldest_transfer(&self) -> Option<Peer> {
        let transfer = self.transfers.first_key_value().map(|(_, (peer, _))| *peer);
        let deliveries = self.deliveries.values().map(|(peer, _)| *peer);
        transfer.into_iter().chain(deliveries).min_by_key(|peer| peer.at)
    }

    pub fn has_transfer_with(&self, rank: u32) -> bool {
        let mut all = self.transfers.values().chain(self.deliveries.values());
        all.any(|(peer, _)| peer.rank == Some(rank))
    }

    pub fn is_empty(&self) -> bool {
        let is_any_left =
            !self.sums.is_empty() || !self.calls.is_empty() || !self.deliveries.is_empty();
        !is_any_left && self.doomed.is_empty() && self.transfers.is_empty()
    }

    /// The number of the first sum or collective of this thread that has not ended.
    pub fn first_open(&self) -> Option<u64> {
        let sums = self.sums.values().filter_map(|(begun, _)| begun.part.operation().number());
        let calls = self.calls.values().map(|(begun, _)| begun.number);
        sums.chain(calls).min()
    }

    /// The collective that waits longest.
    pub fn oldest_call(&self) -> Option<(Operation, Begun)> {
        self.calls.first_key_value().map(|(operation, (begun, _))| (*operation, *begun))
    }

    /// The oldest sum of a lane, once it has a number.
    pub fn oldest_sum(&self, lane: JobId) -> Option<Begun> {
        let mut of_lane = self.sums.range((lane, Operation(0))..=(lane, Operation(u64::MAX)));
        let (_, (BegunSum { part, at }, _)) = of_lane.next()?;
        Some(Begun { number: part.operation().number()?, at: *at })
    }

    /// Ends what an event is about. A failure is everybody's.
    pub fn end(&mut self, event: Event) -> Option<Fault> {
        match event {
            Event::Sum { job, event: SumEvent::Finished { operation, tensor, coverage } } => {
                if let Some((begun, reply)) = self.sums.remove(&(job, operation)) {
                    // Who gets the result may leave at once.
                    drop(begun);
                    reply.end_with(Box::new(Summed { tensor, coverage }));
                }
                None
            }
            Event::Sum { event: SumEvent::Failed { failure, .. }, .. } => {
                Some(Fault::Sums(failure))
            }
            Event::Mesh { event, .. } => self.end_of_mesh(event),
            Event::Delivery { end, .. } => self.end_of_delivery(end),
            Event::Flow(_) | Event::Server(_) | Event::Paths(_) => None,
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
                if let Some((_, reply)) = self.transfers.remove(&transfer) {
                    reply.end(Ok(()));
                }
                None
            }
            mesh::Event::Received { transfer, from, bytes } => {
                if let Some((_, reply)) = self.transfers.remove(&transfer) {
                    reply.end(Ok((from, bytes)));
                }
                None
            }
            mesh::Event::Failed { failure, .. } | mesh::Event::TransferFailed { failure, .. } => {
                Some(fault_of_mesh(&failure))
            }
        }
    }

    /// Ends a delivery. One that the two ends do not agree about fails alone, and one whose other end is silent fails the
    /// job.
    // spec: M-10
    fn end_of_delivery(&mut self, end: Completion) -> Option<Fault> {
        let (side, name, result) = match end {
            Completion::Sent(sent) => (Side::Sends, sent.name, Ok(None)),
            Completion::Received(received) => (Side::Receives, received.name, Ok(Some(received))),
            Completion::Failed(failed) => {
                let side = if failed.buffer.is_some() { Side::Receives } else { Side::Sends };
                (side, failed.name, Err(failed.failure))
            }
        };
        let (peer, reply) = self.deliveries.remove(&(side, name))?;
        match result {
            Ok(received) => reply.end_with(Box::new(received)),
            Err(failure @ DeliveryFailure::Refused(_)) => {
                reply.fail(Error::of(ErrorKind::Disagreement, failure));
            }
            Err(DeliveryFailure::Silent) => {
                self.doom(reply);
                let rank = peer.rank.unwrap_or_default();
                let text = format!("rank {rank} did not answer a delivery for too long");
                return Some(Fault::Own(Failure::new(FailureKind::Timeout, text, vec![rank])));
            }
        }
        None
    }

    /// Ends everything with one error.
    pub fn fail(&mut self, error: &Error) {
        let sums = std::mem::take(&mut self.sums).into_values().map(|(_, reply)| reply);
        let calls = std::mem::take(&mut self.calls).into_values().map(|(_, reply)| reply);
        let transfers = std::mem::take(&mut self.transfers).into_values().map(|(_, reply)| reply);
        let doomed = std::mem::take(&mut self.doomed);
        let deliveries = std::mem::take(&mut self.deliveries).into_values().map(|(_, reply)| reply);
        for reply in sums.chain(calls).chain(transfers).chain(deliveries).chain(doomed) {
            reply.fail(error.clone());
        }
    }
}

/// A rank that received the report of a failure knows less than the one that sent it.
pub(super) fn fault_of_mesh(failure: &mesh::Failure) -> Fault {
    let kind = match failure {
        mesh::Failure::Stopped { rank, culprit } => {
            return Fault::Hearsay(Hearsay { rank: *rank, culprit: *culprit });
        }
        mesh::Failure::Lost { .. } => FailureKind::Timeout,
        mesh::Failure::Differs(mismatch) => {
            let (text, ranks) = (mismatch.to_string(), mismatch.ranks().to_vec());
            return Fault::Own(Failure::new(FailureKind::Agreement, text, ranks));
        }
        mesh::Failure::Garbled { .. } => FailureKind::Agreement,
        _ => FailureKind::Other,
    };
    let culprits = failure.culprit().into_iter().collect();
    Fault::Own(Failure::new(kind, failure.to_string(), culprits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_never_sends_its_reader_in_a_circle() {
        let text = |rank, culprit| {
            let failure = Hearsay { rank, culprit }.failure(1);
            (failure.text, failure.culprits)
        };
        let circle = "rank 0 stopped first, and has not reported why".to_owned();
        assert_eq!(text(0, 1), (circle.clone(), vec![0]), "it blames this rank");
        assert_eq!(text(0, 0), (circle, vec![0]), "it blames itself");
        let third = "rank 0 stopped first, because of rank 2, and has not reported why".to_owned();
        assert_eq!(text(0, 2), (third, vec![2]));
    }
}
