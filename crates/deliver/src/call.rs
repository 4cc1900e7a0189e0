//! Inputs and outputs: tensors to send, buffers to fill, completions.

use std::ops::Range;
use std::sync::Arc;

use thalweg_core::{NodeId, Operation, Time};
use thalweg_values::{Bits, Tensor};
use thalweg_wire::deliver::Refusal;
use thiserror::Error;

use crate::budget::LossBound;
use crate::policy::{FrontFirst, Policy};
use crate::segments::value_bytes;
use thalweg_values::Importance;

/// Names a tensor that travels between this node and another. Both ends use the same operation and tensor;
/// no name may be used again in the same direction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Name {
    /// The other node.
    pub peer: NodeId,
    /// The operation, never used again in a job's life.
    pub operation: Operation,
    /// Number of the tensor among those of the operation between these two nodes.
    pub tensor: u32,
}

/// Length of a note.
pub const NOTE_BYTES: usize = 64;

/// Note of the sender about a tensor, sent with its offers and defined by the application. The receiver has
/// it before it gives a buffer.
pub type Note = [u8; NOTE_BYTES];

/// A tensor to send.
#[derive(Clone)]
pub struct SendCall {
    /// Name of the tensor, with its receiver.
    pub name: Name,
    /// The values, shared with the application until the completion: there is no second copy.
    pub values: Arc<Tensor>,
    /// Range of the values to send.
    pub range: Range<u64>,
    /// The layer of the model that they belong to, from 0 at the front.
    pub layer: u16,
    /// Number of layers of the model.
    pub layers: u16,
    /// The largest loss that the sender allows. The smaller one of both ends counts.
    pub loss: LossBound,
    /// Rule that makes packets important.
    pub importance: Importance,
    /// Gives packets their classes.
    pub policy: Arc<dyn Policy>,
    /// Note that the offers of the tensor carry. Default none.
    pub note: Option<Note>,
    /// Bytes that arrive with the tensor, of which nothing is lost: at most [`trailer_limit`](crate::trailer_limit).
    /// Default none.
    pub trailer: Arc<[u8]>,
    /// Number of nodes that send to the same receiver at the same time, as far as it is known, this one included.
    /// Default 1.
    // spec: M-19
    pub senders: u32,
}

impl SendCall {
    /// A whole tensor of a model with one layer, with the paper's policy, and whatever loss the receiver
    /// allows.
    pub fn new(name: Name, values: Arc<Tensor>) -> SendCall {
        SendCall {
            name,
            range: 0..values.len(),
            values,
            layer: 0,
            layers: 1,
            loss: LossBound::ANY,
            importance: Importance::default(),
            policy: Arc::new(FrontFirst::default()),
            note: None,
            trailer: Arc::new([]),
            senders: 1,
        }
    }
}

/// Reading of values that did not arrive.
// spec: M-07
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Lost {
    /// Zero: for gradients.
    ReadsZero,
    /// The value in the buffer when it was posted: for parameters, that of the round before.
    KeepsValue,
}

/// A buffer to fill.
#[derive(Clone, PartialEq, Debug)]
pub struct ReceiveCall {
    /// Name of the tensor, with its sender.
    pub name: Name,
    /// Buffer for the values. It comes back with the completion.
    pub buffer: Tensor,
    /// Largest loss that the receiver allows.
    pub loss: LossBound,
    /// Reading of missing values.
    pub lost: Lost,
}

/// A tensor that another node wants to send and that no buffer was posted for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offered {
    /// Name of the tensor, with its sender.
    pub name: Name,
    /// Length of the tensor in bytes.
    pub tensor_bytes: u64,
    /// The layer of the model that it belongs to, as its sender says.
    pub layer: u16,
    /// Note of the sender about the tensor.
    pub note: Option<Note>,
}

/// The end of a call.
#[derive(Clone, PartialEq, Debug)]
pub enum Completion {
    /// The receiver has enough. The sender holds the tensor no more.
    Sent(Sent),
    /// Enough has arrived. Nothing is written to the buffer any more.
    Received(Received),
    /// It will not end well.
    Failed(Failed),
}

/// A tensor that was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sent {
    /// Name of the tensor.
    pub name: Name,
    /// When it was posted.
    pub started: Time,
    /// When the receiver's "stop" came.
    pub finished: Time,
    /// Number of its packets that were sent.
    pub packets: u64,
    /// Number of those that were sent again.
    pub resent: u64,
    /// Number of probes: questions to the receiver about arrivals.
    pub probes: u64,
    /// Number of offers and probes that were not answered in time.
    pub unanswered: u64,
}

/// A buffer that was filled.
#[derive(Clone, PartialEq, Debug)]
pub struct Received {
    /// Name of the tensor.
    pub name: Name,
    /// The values.
    pub buffer: Tensor,
    /// When it was complete.
    pub finished: Time,
    /// The layer of the model that it belongs to, as its sender says.
    pub layer: u16,
    /// Bytes of it that did not arrive.
    pub lost_bytes: u64,
    /// Segments of it that have arrived, and those of its trailer behind them.
    pub arrived: Bits,
    /// Length of a segment.
    pub segment_bytes: u16,
    /// Bytes that its sender gave it along, all of them.
    pub trailer: Vec<u8>,
}

impl Received {
    /// Ranges of values that have not arrived, in order. Ranges do not touch each other.
    pub fn lost_values(&self) -> Vec<Range<u64>> {
        let segment_values = u64::from(self.segment_bytes) / value_bytes(&self.buffer);
        let (mut lost, mut from): (Vec<Range<u64>>, _) = (Vec::new(), 0);
        while let Some(index) = self.arrived.next_absent(from) {
            let start = u64::from(index) * segment_values;
            let end = (start + segment_values).min(self.buffer.len());
            match lost.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => lost.push(start..end),
            }
            from = index + 1;
        }
        lost
    }
}

/// A call that came to nothing.
#[derive(Clone, PartialEq, Debug)]
pub struct Failed {
    /// Name of the tensor.
    pub name: Name,
    /// Reason of the failure.
    pub failure: Failure,
    /// The buffer, if it was to be filled. What is in it means nothing.
    pub buffer: Option<Tensor>,
}

/// Why a call came to nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Failure {
    /// The other end is gone, or unreachable.
    #[error("nothing came from the other end for too long")]
    Silent,
    /// The two ends do not agree.
    #[error("the tensor is not what the buffer is for: {0:?}")]
    Refused(Refusal),
}

/// Why a call is not taken. The caller is at fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum PostError {
    /// The name is in use, or was a short while ago.
    #[error("{0:?} was posted before: every operation needs a new number")]
    Used(Name),
    /// Values that are not there.
    #[error("the range ends at {end}, the tensor at {length}")]
    Range {
        /// End of the range.
        end: u64,
        /// Length of the tensor.
        length: u64,
    },
    /// More segments than can be numbered.
    #[error("a tensor of {0} values has too many segments: split it")]
    TooLong(u64),
    /// A trailer that no receiver takes.
    #[error("a trailer of {bytes} bytes is longer than {most}: shorten it, or send it as a tensor")]
    Trailer {
        /// Length of the trailer.
        bytes: u64,
        /// Longest trailer of the tensor.
        most: u64,
    },
}
