//! Packets of tensors that may lose a bounded part in flight.
//!
//! A tensor is cut into segments of `segment_bytes`; only the last may be shorter. Its segments travel
//! in [`Data`] packets, of which each says by itself where it belongs; one in several is answered by an
//! [`Ack`] that echoes its time. [`Control`] packets carry everything that must be certain: the tensor that is sent,
//! the segments that have arrived, and that they are enough.

mod ack;
mod control;
mod data;
#[cfg(test)]
mod tests;

pub use ack::{Ack, AckView, CONGESTED, SPENT};
pub use control::{BITMAP_BITS, Control, ControlView, LOSS_UNIT, Refusal, Verb, bitmap_bytes};
pub use data::{Data, DataView, ECHO};

use thalweg_core::JobId;
use thiserror::Error;

use crate::CLASS_MAX;
use crate::prefix::{Prefix, PrefixError};

/// Names a tensor between two nodes. No two operations of a job's life have the same number,
/// so no two tensors have the same name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TensorName {
    /// Job of the packet.
    pub job: JobId,
    /// Number of the job's set-up.
    pub epoch: u32,
    /// The operation. Never used again.
    pub operation: u64,
    /// Index of the tensor in the operation.
    pub tensor: u32,
}

impl TensorName {
    #[inline]
    fn read(prefix: Prefix, operation: u64, tensor: u32) -> TensorName {
        TensorName { job: prefix.job, epoch: prefix.epoch(), operation, tensor }
    }
}

/// Why a delivery header cannot be read. The sender is at fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum DeliverError {
    /// The prefix is not that of the expected packet.
    #[error(transparent)]
    Prefix(#[from] PrefixError),
    /// Bits are set that mean nothing in this version, or in this kind of packet.
    #[error("reserved bits of the delivery header are set: senders must leave them zero")]
    Reserved,
    /// A class that no packet has.
    #[error("the echoed packet claims class {0}: the last is {CLASS_MAX}")]
    Class(u8),
    /// A packet that carries nothing.
    #[error("the packet has no payload: a tensor without values has no data packets")]
    Empty,
    /// No tensor reaches that far.
    #[error("the payload ends beyond what 64 bits can count")]
    BeyondTensor,
    /// Segments that no packet can carry.
    #[error("segments of {0} bytes: they must have 1 to 65,535")]
    Segment(u32),
    /// More segments than can be numbered.
    #[error("the tensor has more segments than 32 bits can number: make them larger")]
    TooManySegments,
    /// Share that is not below one.
    #[error("a loss of {0} millionths: it must be below a million")]
    Loss(u32),
    /// A bitmap that no packet carries.
    #[error("a bitmap of {count} segments from {first}: 1 to {BITMAP_BITS} must fit 32 bits")]
    Bitmap {
        /// The first segment it speaks of.
        first: u32,
        /// Number of segments that the packet names.
        count: u32,
    },
    /// A reason that this version does not have.
    #[error("no refusal has the reason {0}")]
    Reason(u8),
}
