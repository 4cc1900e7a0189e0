//! Events that a member reports to the application, and failures that stop it.

use thalweg_core::{Mismatch, NodeId, Operation};
use thalweg_flow::StartError;
use thalweg_values::Tensor;
use thiserror::Error;

use crate::plan::MAX_VALUES;
use thalweg_values::Coverage;

/// Event that a member reports to the application. Every operation ends with one of these.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// The sum is here.
    Finished {
        /// The operation.
        operation: Operation,
        /// The sum over all workers, the same bits at each of them.
        tensor: Tensor,
        /// Contributions that are in it: all of them, unless it has a loss bound.
        coverage: Coverage,
    },
    /// The sum will not come.
    Failed {
        /// The operation.
        operation: Operation,
        /// Reason of the failure.
        failure: Failure,
    },
}

/// Why a member stopped. A collective needs everybody, so the first failure is the end of it: the
/// job has to be set up again, in a new epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Failure {
    /// A peer is gone.
    #[error(
        "node {0} did not answer for too long: check it and the way to it, and set the job up again"
    )]
    Lost(NodeId),
    /// Two workers called different operations. Ranks are places among the workers.
    #[error("{0}")]
    Differs(Mismatch),
    /// A peer sent what none with the same settings sends.
    #[error(
        "node {0} sent values of another length or kind: use the same settings at every worker"
    )]
    Mismatch(NodeId),
    /// The transport took no message.
    #[error("a piece could not be sent: {0}")]
    Start(#[from] StartError),
}

/// Why an operation cannot begin. The caller is at fault, except after a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SubmitError {
    /// This node only serves.
    #[error("this node is a server and no worker: submit tensors at the workers")]
    NotAWorker,
    /// More values than an operation can have.
    #[error("{0} values are more than {MAX_VALUES}: split the tensor")]
    TooLong(u64),
    /// A length where there must be values, or values where there must be none.
    #[error("the tensor is not what the delivery's contents say: make one like the other")]
    Contents,
    /// Older values of another length.
    #[error("there are {older} older values for {values}: give as many, of the same kind, or none")]
    Older {
        /// Number of older values.
        older: u64,
        /// Number of values.
        values: u64,
    },
    /// All numbers of messages are used up.
    #[error("no message numbers are left: set the job up again in a new epoch")]
    Exhausted,
    /// The member has stopped.
    #[error("this member has stopped: {0}")]
    Stopped(#[from] Failure),
}
