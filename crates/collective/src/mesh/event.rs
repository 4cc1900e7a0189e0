//! Events that a mesh reports to the application, and failures that stop it.

use thalweg_core::{Mismatch, Operation, Time};
use thalweg_flow::StartError;
use thiserror::Error;

use super::call::Outcome;

/// Names a transfer between this rank and another one: counted from 0 in the order of the calls of
/// [`send`](super::Mesh::send) and [`receive`](super::Mesh::receive) here, never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Transfer(pub u64);

/// Event that a mesh reports to the application. Every operation and every transfer ends with one of these.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// An operation is done here: its outcome is there, and all that others need of this rank was
    /// handed to the transport. Run the mesh on until
    /// [`outgoing`](thalweg_flow::Endpoint::outgoing) of its endpoint is zero before ending it.
    Finished {
        /// The operation.
        operation: Operation,
        /// Outcome of the operation.
        outcome: Outcome,
    },
    /// An operation will not end well.
    Failed {
        /// The operation.
        operation: Operation,
        /// Reason of the failure.
        failure: Failure,
    },
    /// All bytes of a transfer have arrived, and this rank knows it.
    Sent {
        /// The transfer.
        transfer: Transfer,
    },
    /// A transfer is here.
    Received {
        /// The transfer.
        transfer: Transfer,
        /// The rank that sent it.
        from: u32,
        /// Data of the transfer.
        bytes: Vec<u8>,
    },
    /// A transfer will not end well.
    TransferFailed {
        /// The transfer.
        transfer: Transfer,
        /// Reason of the failure.
        failure: Failure,
    },
}

/// Why a mesh stopped. Operations need everybody, so the first failure is the end of it: the job has
/// to be set up again, in a new epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Failure {
    /// A rank is gone.
    #[error(
        "rank {rank} did not answer for too long: check it and the way to it, and set the job up again"
    )]
    Lost {
        /// The rank.
        rank: u32,
    },
    /// Two ranks called different operations.
    #[error("{0}")]
    Differs(Mismatch),
    /// A rank is too far ahead of this one.
    #[error(
        "rank {rank} sent more than there is room for before this rank made its calls: let it wait for \
         results now and then, or raise max_early_bytes and max_early_messages"
    )]
    TooEarly {
        /// Rank of the message that had no room.
        rank: u32,
    },
    /// A rank announces more than there is room for.
    #[error("rank {rank} announces {bytes} bytes: raise max_bytes, or split the data")]
    TooLong {
        /// The rank.
        rank: u32,
        /// Number of bytes.
        bytes: u64,
    },
    /// A rank sent what none with the same settings sends.
    #[error("rank {rank} sent a chunk of a wrong length: use the same chunk_bytes at every rank")]
    Garbled {
        /// The rank.
        rank: u32,
    },
    /// Another rank stopped first.
    #[error("rank {rank} stopped because of rank {culprit}: see there for the reason")]
    Stopped {
        /// The rank that stopped first.
        rank: u32,
        /// The rank that its failure names, or itself.
        culprit: u32,
    },
    /// The transport took no message.
    #[error("a chunk could not be sent: {0}")]
    Start(#[from] StartError),
    /// All numbers of messages are used up.
    #[error("no message numbers are left: set the job up again in a new epoch")]
    Exhausted,
}

impl Failure {
    /// The rank that is to blame, if one is.
    pub fn culprit(&self) -> Option<u32> {
        match *self {
            Failure::Lost { rank }
            | Failure::TooEarly { rank }
            | Failure::TooLong { rank, .. }
            | Failure::Garbled { rank } => Some(rank),
            Failure::Stopped { culprit, .. } => Some(culprit),
            // Either may be wrong.
            Failure::Differs(_) | Failure::Start(_) | Failure::Exhausted => None,
        }
    }
}

/// Why an operation or a transfer cannot begin. The caller is at fault, except after a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SubmitError {
    /// A rank beyond the last one.
    #[error("there is no rank {rank}: there are {ranks}, counted from 0")]
    NoSuchRank {
        /// The rank that was asked for.
        rank: u32,
        /// Number of ranks.
        ranks: u32,
    },
    /// A transfer that does not leave the rank.
    #[error("a rank cannot send to or receive from itself: keep the bytes")]
    Oneself,
    /// Data that ends in the middle of a value.
    #[error("{bytes} bytes are no whole number of {element} values: check element and data")]
    NotWhole {
        /// Bytes of the data.
        bytes: u64,
        /// The type of the values.
        element: &'static str,
    },
    /// Not one part for each rank.
    #[error("{parts} parts are not one for each of {ranks} ranks")]
    Parts {
        /// Number of parts.
        parts: usize,
        /// Number of parts that there must be.
        ranks: u32,
    },
    /// Parts that are not the whole.
    #[error("the counts of all ranks have to add up to {values}, the number of values")]
    Counts {
        /// Number of values.
        values: u64,
    },
    /// More bytes than a rank takes.
    #[error("{bytes} bytes are more than max_bytes, {max}: split the data, or raise it")]
    TooLong {
        /// Number of bytes.
        bytes: u64,
        /// The limit.
        max: u64,
    },
    /// The mesh has stopped.
    #[error("this mesh has stopped: {0}")]
    Stopped(#[from] Failure),
}

/// A rank that an operation waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait {
    /// The rank.
    pub rank: u32,
    /// When the last message of the operation came from it; the moment of the call if none did.
    pub since: Time,
    /// True if it is known to have made the call. If not, it is behind; if so, it may itself wait for
    /// somebody.
    pub has_called: bool,
}
